"""A case: a model in both frameworks, with what is needed to record it stage by stage."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinalign.errors import InputError

if TYPE_CHECKING:
    import numpy as np

STAGES = ("forward", "data", "metric", "loss", "backward", "train")
"""The six stages of the alignment guide, in order."""


def stage_number(stage: str) -> str:
    """The number that a stage has in the guide, which it keeps where a run leaves others out."""
    return f"{STAGES.index(stage) + 1:02d}"


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
    rules: Sequence[str] = ()
    """Files beside the case, or modules, that register storage rules for layers of the case's own."""
    accept: Sequence[str] = ()
    """Ids of known framework conventions that are shown as accepted and do not decide."""
    allowances: Sequence[str] = ()
    """Ids, or `ID=PATTERN`, of float64 differences that constants stored in float32 explain, beyond those known of the
    port's layers and optimizers (`paddle_label_smoothing`, say, leaves no layer to see it by)."""
    code_packages: tuple[str, ...] = ()
    """Top-level packages, beyond the case's own file, whose change makes a recording stale."""
    float64_train_steps: int = 0
    """Steps of the train stage to repeat in float64; 0 leaves float64 out of that stage."""

    def reference(self) -> Any:
        """The reference model, a `torch.nn.Module`; called in the torch process only."""
        raise _missing(self, "reference")

    def reproduced(self) -> Any:
        """The reproduced model, a `paddle.nn.Layer`; called in the paddle process only."""
        raise _missing(self, "reproduced")

    def inputs(self, rng: np.random.Generator) -> Mapping[str, np.ndarray]:
        """Input arrays by name; passed to the model by keyword where its signature has the names, else by order."""
        raise _missing(self, "inputs")

    def forward(self, model: Any, inputs: Mapping[str, Any], framework: str) -> Any:
        """Run the model on the inputs (tensors); override where a call is more than `model(**inputs)`."""
        from twinalign.stages.calling import call_model

        return call_model(model, inputs)

    def observe(self, model: Any, inputs: Mapping[str, Any], framework: str) -> Any:
        """What the forward stage records; by default what `forward` returns."""
        return self.forward(model, inputs, framework)

    def loss(self, outputs: Any, inputs: Mapping[str, Any], framework: str) -> Any:
        """The scalar loss, or a dictionary of tensors whose `"loss"` is differentiated; switches on loss."""
        raise NotImplementedError

    def optimizer(self, parameters: list[Any], framework: str) -> Any:
        """An optimizer over the trainable parameters in registration order; switches on backward (with `loss`)."""
        raise NotImplementedError

    def schedule(self, optimizer: Any, step: int, framework: str) -> Mapping[str, float] | None:
        """Set the learning rate before optimizer step `step` (from 0); values returned are recorded."""
        return None

    def dataset(self, framework: str, split: str) -> Iterable[Any]:
        """Samples of a split: arrays, tuples or dictionaries of arrays; switches on data."""
        raise NotImplementedError

    def preprocessing(self, framework: str, split: str, index: int) -> Mapping[str, Steps]:
        """How the images of one sample come about, step by step, so that `locate` can name the step that is wrong.

        Not needed where `dataset` returns a dataset whose `transform` is a `Compose` of steps without randomness.

        Args:
            framework: `"torch"` or `"paddle"`.
            split: one of `splits`.
            index: number of the sample among those that `dataset` gives for the split, from 0.

        Returns:
            Name of an image → its steps, pairs of a name and a function of what the step before returned; the first is
            given None. Steps return a PIL image, an array or a tensor. What a step is told beside the image is best
            bound to it by `functools.partial`: then `locate` can say which argument is another one. Random choices are
            the port's own, bound to the steps that they concern.
        """
        return {}

    def metric(self, outputs: Any, labels: np.ndarray, framework: str) -> Any:
        """Numbers by name from model outputs and labels of the `val` split; switches on metric."""
        raise NotImplementedError

    def evaluate(self, model: Any, framework: str, dtype: str) -> Mapping[str, Any]:
        """The whole metric stage, for metrics that need more than `metric` is given; switches on metric."""
        raise NotImplementedError

    def train(self, framework: str, model: Any, record: Any, steps: int | None = None) -> Mapping[str, Any]:
        """Train `model`, calling `record(name, value)` for each point of a curve.

        `steps` limits the training (None: all of it). Returns outcomes by name: `(percent, samples)`, an accuracy and
        the number of samples that it was counted on. Switches on train.

        Whatever the loop, these are seen without a word here, at the calls of the model in training mode and the steps
        of the optimizers that move its parameters, and recorded unless the case records a curve of that name itself:
        `learning_rate`, `gradient_norm` (as the optimizer is given it, after clipping), `weight_norm.PARAMETER` and
        `buffer_norm.BUFFER` after each step (running variances left out), `ema_distance` (of the trained parameters
        from those that are called alike below another part of the model and that no optimizer moves), `batch_size`, and
        `batch_rms`, the root mean square of what the model is given.

        `record.checkpoint(save)` and `record.resume()` let a long training go on where it was stopped
        (`twinalign.stages.checkpoints.TrainingRecord`). With `--seeds`, `seed` differs from training to training.
        """
        raise NotImplementedError

    def share(self, inputs: Mapping[str, np.ndarray], rank: int, ranks: int) -> Mapping[str, np.ndarray]:
        """What one of several ranks is given of `inputs` (`twinalign run --ranks`).

        By default the batch is cut into equal pieces, in the order of the ranks: every array whose first axis is as
        long as that of the first one; others are given whole. Raises ValueError where that cannot be.
        """
        from twinalign.ranks.shares import piece

        return piece(inputs, rank, ranks)

    def distributed(self, step: Any, framework: str) -> Any:
        """Make a training step ready for several ranks; called on each, its process group being up.

        Args:
            step: a `torch.nn.Module` or `paddle.nn.Layer` whose `model` is the case's, with its initial weights, and
                which takes the inputs to the loss.
            framework: `"torch"` or `"paddle"`.

        Returns:
            What is called in its stead. By default `DistributedDataParallel` or `paddle.DataParallel` of it, so that
            gradients are averaged over the ranks; override to synchronise batch norms too, or to wrap it your own way.
        """
        from twinalign.backends import load_distributed

        return load_distributed(framework).data_parallel(step)

    def prepare(self) -> None:
        """Make what the case needs (data, say) before anything is recorded; raises InputError where it cannot."""

    def part(self, stage: str) -> Case:
        """The case that defines `stage`: another one where a stage has a model of its own."""
        return self

    def data_files(self) -> Iterable[Path]:
        """Files that the recordings depend on, so that a change of theirs makes a recording stale."""
        return ()


def stages_of(case: Case) -> list[str]:
    """The stages that the case's methods switch on, in the guide's order."""
    found = ["forward"]
    for stage in STAGES[1:]:
        part = type(case.part(stage))
        if any(getattr(part, method) is not getattr(Case, method) for method in _SWITCHES[stage]):
            found.append(stage)
    return found


def registered_cases() -> dict[str, str]:
    """Registered name -> `package.module:ClassName`, from the entry points of installed packages."""
    import importlib.metadata  # slow to import, and a reader of a bundle has no need of it

    return {point.name: point.value for point in importlib.metadata.entry_points(group="twinalign.cases")}


def resolve_case(reference: str) -> str:
    """Turn a registered name into `package.module:ClassName` and check a path; imports nothing of the case.

    Raises:
        InputError: no such registered name or file, or a text of neither form.
    """
    registered = registered_cases()
    if reference in registered:
        return registered[reference]
    path, _, class_name = reference.partition(":")
    if path.endswith(".py"):
        if not Path(path).is_file():
            raise InputError(f"case {reference!r}: no file {path}; give a path to a case.py, or a registered name")
        return f"{Path(path).resolve()}:{class_name}" if class_name else str(Path(path).resolve())
    if class_name and all(part.isidentifier() for part in path.split(".")):
        return reference
    raise InputError(
        f"unknown case {reference!r}; registered: {', '.join(sorted(registered)) or 'none'}; "
        "or give path/to/case.py or package.module:ClassName"
    )


def load_case(reference: str, options: Mapping[str, str] | None = None) -> Case:
    """Import and instantiate the case, then apply `--set` options.

    Args:
        reference: `path/to/case.py`, `path/to/case.py:ClassName` or `package.module:ClassName`, as `resolve_case`
            returns it.
        options: attribute -> text, converted to the type of the attribute's present value.

    Raises:
        InputError: no case of that name, several to choose from, or an option that does not fit.
    """
    module_name, _, class_name = reference.partition(":")
    in_file = module_name.endswith(".py")
    module = _import_file(Path(module_name)) if in_file else _import_module(module_name, reference)
    if class_name:
        chosen = getattr(module, class_name, None)
        if not (isinstance(chosen, type) and issubclass(chosen, Case)):
            there = ", ".join(case.__name__ for case in _cases_in(module)) or "none"
            raise InputError(f"case {reference!r}: {class_name} is no case in {module_name}; it has {there}")
    else:
        chosen = _only_case(module, reference)
    case = chosen()
    case.name = case.name or chosen.__name__
    for key, text in (options or {}).items():
        set_option(case, key, text)
    return case


def case_model(reference: str, side: str, stage: str, options: Mapping[str, str]) -> Any:
    """The model of one side of a stage's case, freshly built: the factory that the converter's processes call."""
    case = load_case(reference, options).part(stage)
    return case.reference() if side == "ref" else case.reproduced()


def set_option(case: Case, key: str, text: str) -> None:
    """Set a public attribute of the case from text, in the type that it has now; raises InputError otherwise."""
    present = getattr(case, key, None)
    if key.startswith("_") or not hasattr(case, key) or callable(present):
        known = sorted(k for k in dir(case) if not k.startswith("_") and not callable(getattr(case, k)))
        raise InputError(f"--set {key}: case {case.name} has no such option; it has {', '.join(known)}")
    try:
        if isinstance(present, bool):
            value: Any = {"true": True, "1": True, "false": False, "0": False}[text.lower()]
        elif isinstance(present, (int, float)):
            value = type(present)(text)
        else:
            value = text
    except (KeyError, ValueError):
        raise InputError(f"--set {key}={text}: {type(present).__name__} expected") from None
    setattr(case, key, value)


def _import_module(name: str, reference: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(error.name + ".")):
            raise InputError(f"case {reference!r}: no module {error.name}; check the name and PYTHONPATH") from None
        raise


def _import_file(path: Path) -> Any:
    # Modules beside the case are part of it: `from my_port import model` must work.
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    name = f"twinalign_case_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"case {str(path)!r}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise InputError(f"case {str(path)!r}: {error.filename}, line {error.lineno}: {error.msg}") from None
    return module


def _missing(case: Case, method: str) -> InputError:
    return InputError(
        f"case {type(case).__name__}: it has no method {method}(); a case defines reference, reproduced and inputs"
    )


def _cases_in(module: Any) -> list[type[Case]]:
    return [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Case) and value.__module__ == module.__name__
    ]


def _only_case(module: Any, reference: str) -> type[Case]:
    own = _cases_in(module)
    if len(own) != 1:
        names = ", ".join(case.__name__ for case in own) or "none"
        raise InputError(
            f"case {reference!r}: one Case class expected, found {names}; name it as {reference}:ClassName"
        )
    return own[0]
