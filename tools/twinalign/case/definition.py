"""The `Case` class: a model in both frameworks, and everything needed to record it stage by stage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinalign.errors import InputError
from twinalign.sides import STAGES

if TYPE_CHECKING:
    import numpy as np


_SWITCHES = {
    "data": ("dataset",),
    "metric": ("metric", "evaluate"),
    "loss": ("loss",),
    "backward": ("optimizer",),
    "train": ("train",),
}


Steps = Sequence[tuple[str, Callable[[Any], Any]]]
"""Named steps that make an image, each a function of what the one before returned (`Case.preprocessing`)."""


class Case:
    """Subclass this with `reference`, `reproduced` and `inputs`; each further method switches on a stage.

    `framework` is always the string `"torch"` or `"paddle"`. Methods are called in the process of that framework only,
    so imports of a framework belong inside them.
    """

    name: str = ""
    """Weights are kept in files of this name; by default that of the class."""
    seed: int = 0
    train_mode: bool = False
    """Record stages up to the optimizer in training mode, buffers included."""
    steps: int = 2
    """Optimizer steps of the backward stage."""
    splits: tuple[str, ...] = ("train", "val")
    """What the data stage asks `dataset` for."""
    data_samples: int = 8
    """Samples of each split that the data stage records."""
    rename: Mapping[str, str] = {}
    """Reference name -> paddle name, for keys or whole prefixes that differ."""
    allow_missing: Sequence[str] = ()
    """Patterns of the port's state keys that need no partner in the reference (`*.relative_coords`): the port keeps its
    own values."""
    allow_unexpected: Sequence[str] = ()
    """Patterns of the reference's state keys that need no partner in the port (`aux_head.*`)."""
    rules: Sequence[str] = ()
    """Files beside the case, or modules, that register storage rules for layers of the case's own."""
    accept: Sequence[str] = ()
    """Ids of known framework conventions that are shown as accepted and do not decide."""
    allowances: Sequence[str] = ()
    """Ids, or `ID=PATTERN`, of float64 differences that constants stored in float32 explain, beyond those known of the
    port's layers, of the kernels that it calls and of its optimizers (`paddle_activation_constant`, say)."""
    code_packages: tuple[str, ...] = ()
    """Top-level packages, beyond the case's own file, whose change makes a recording stale."""
    initial: bool = False
    """Whether a difference between the initial weights counts, as where the port trains from its own."""
    float64_train_steps: int = 0
    """Steps of the train stage to repeat in float64; 0 leaves float64 out of that stage."""

    def reference(self) -> Any:
        """The reference model, a `torch.nn.Module`; called in the torch process only."""
        raise _missing(self, "reference")

    def reproduced(self) -> Any:
        """The reproduced model, a `paddle.nn.Layer`; called in the paddle process only."""
        raise _missing(self, "reproduced")

    def inputs(self, rng: np.random.Generator) -> Mapping[str, np.ndarray]:
        """Input arrays by name; passed to the model by keyword if its signature has the names, if not by order."""
        raise _missing(self, "inputs")

    def forward(self, model: Any, inputs: Mapping[str, Any], framework: str) -> Any:
        """Run the model on the inputs (tensors); override this if a call is more than `model(**inputs)`."""
        from twinalign.case.calling import call_model

        return call_model(model, inputs)

    def observe(self, model: Any, inputs: Mapping[str, Any], framework: str) -> Any:
        """The values that the forward stage records; by default the result of `forward`."""
        return self.forward(model, inputs, framework)

    def loss(self, outputs: Any, inputs: Mapping[str, Any], framework: str) -> Any:
        """The scalar loss, or a dictionary of tensors whose `"loss"` is differentiated; switches on loss."""
        raise NotImplementedError

    def optimizer(self, parameters: list[Any], framework: str) -> Any:
        """An optimizer over the trainable parameters in registration order; switches on backward (with `loss`)."""
        raise NotImplementedError

    def schedule(self, optimizer: Any, step: int, framework: str) -> Mapping[str, float] | None:
        """Set the learning rate of optimizer step `step` (from 0), before its forward pass; returned values are
        recorded."""
        return None

    def dataset(self, framework: str, split: str) -> Iterable[Any]:
        """Samples of a split: arrays, tuples or dictionaries of arrays; switches on data."""
        raise NotImplementedError

    def preprocessing(self, framework: str, split: str, index: int) -> Mapping[str, Steps]:
        """The steps that make the images of one sample, so that `locate` can name the wrong step.

        Not needed if `dataset` returns a dataset whose `transform` is a `Compose` of steps without randomness.

        Returns, for the sample of number `index` (from 0) in the split, by name of an image its steps: pairs of a name
        and a function of the step before's result; the first gets None. Steps return a PIL image, an array or a tensor.
        Bind a step's further arguments with `functools.partial`: then `locate` can say which argument differs. Bind the
        port's random choices to the steps that use them.
        """
        return {}

    def metric(self, outputs: Any, labels: np.ndarray, framework: str) -> Any:
        """Numbers by name from model outputs, on the CPU, and labels of the `val` split; switches on metric."""
        raise NotImplementedError

    def evaluate(self, model: Any, framework: str, dtype: str) -> Mapping[str, Any]:
        """The whole metric stage, for metrics that need more than the arguments of `metric`; switches on metric."""
        raise NotImplementedError

    def train(self, framework: str, model: Any, record: Any, steps: int | None = None) -> Mapping[str, Any]:
        """Train `model`, calling `record(name, value)` for each point of a curve.

        `steps` limits the training (None: all of it). Returns outcomes by name: `(percent, samples)`, an accuracy and
        the number of samples it was measured on. Switches on train.

        For any training loop, the following are recorded by hooks on the model's calls in training mode and on the
        steps of its optimizers, unless the case records a curve of that name itself: `learning_rate` (that of the
        parameter which comes first in the model), `gradient_norm` (as the optimizer receives it, after clipping),
        `weight_norm.PARAMETER` and `buffer_norm.BUFFER` after each step (without running variances), `ema_distance`
        (between the trained parameters and parameters of the same names in another part of the model that no optimizer
        updates), `batch_size`, and `batch_rms`, the root mean square of the model's inputs.

        With `record.checkpoint(save)` and `record.resume()` a long training can continue where it was stopped
        (`twinalign.stages.checkpoints.TrainingRecord`). With `--seeds`, `seed` differs from training to training.
        """
        raise NotImplementedError

    def share(self, inputs: Mapping[str, np.ndarray], rank: int, ranks: int) -> Mapping[str, np.ndarray]:
        """The share of `inputs` of one of several ranks (`twinalign run --ranks`).

        By default the batch is cut into equal pieces, in the order of the ranks: every array whose first axis is as
        long as that of the first one; others are given whole. Raises ValueError if the batch cannot be cut.
        """
        name, first = next(iter(inputs.items()))
        batch = first.shape[0] if first.ndim else 0
        if batch == 0 or batch % ranks:
            raise ValueError(
                f"inputs(rng) gives {name} of shape {list(first.shape)}, which cannot be cut into {ranks} equal "
                f"pieces; give a batch that is a multiple of {ranks}, or define share(inputs, rank, ranks)"
            )
        size = batch // ranks
        return {
            name: array[rank * size : (rank + 1) * size] if array.ndim and array.shape[0] == batch else array
            for name, array in inputs.items()
        }

    def distributed(self, step: Any, framework: str) -> Any:
        """Prepare a training step for several ranks; called on each rank, in its process group.

        `step` is a `torch.nn.Module` or `paddle.nn.Layer` that maps the inputs to the loss; its `model` is the case's,
        with initial weights. Returns the layer to call instead. By default it is wrapped in `DistributedDataParallel`
        or `paddle.DataParallel`, so that gradients are averaged over the ranks; override this to synchronise batch
        norms too, or to wrap it in your own way.
        """
        from twinalign.backends import load_backend

        return load_backend(framework).data_parallel(step)

    def prepare(self) -> None:
        """Make what the case needs (such as data) before the first recording; raises InputError on failure."""

    def part(self, stage: str) -> Case:
        """The case that defines `stage`: another one if a stage has its own model."""
        return self

    def data_files(self) -> Iterable[Path]:
        """Files that the recordings depend on: a change makes a recording stale."""
        return ()


def stages_of(case: Case) -> list[str]:
    """The stages that the case's methods switch on, in their usual order."""
    found = ["forward"]
    for stage in STAGES[1:]:
        part = type(case.part(stage))
        if any(getattr(part, method) is not getattr(Case, method) for method in _SWITCHES[stage]):
            found.append(stage)
    return found


def _missing(case: Case, method: str) -> InputError:
    return InputError(
        f"case {type(case).__name__}: it has no method {method}(); a case defines reference, reproduced and inputs"
    )
