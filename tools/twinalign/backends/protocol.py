"""What twinalign asks of a framework, stated once; `torch/backend.py` and `paddle/backend.py` have all of it.

Tensors, layers, models and optimizers are those of the framework, so that no framework is named here. The functions
stand in the order of the modules that both packages have: `process`, `tensors`, `flops`, `models`, `optimizers`,
`training`, `distributed`. The implementations say only what is particular to their framework.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

Tensor = Any
Layer = Any
Model = Any
"""The outermost layer."""
Optimizer = Any

CHECKED_ELEMENTS = 256
"""Elements of a tensor that `checksum` looks at: an update changes all elements."""
_BY_PLACE = np.sqrt(np.arange(1.0, 2 * CHECKED_ELEMENTS + 1))
"""What each element counts: those that change places change the sum as well."""


class Backend(Protocol):
    """A module with these functions; `twinalign.backends.backend_of_side` returns it."""

    FRAMEWORK: str
    """`"torch"` or `"paddle"`."""
    MODEL_CLASS: str
    """Full name of the class of models, for messages."""

    # process: versions and settings of the framework in this process

    def versions(self) -> dict[str, str]:
        """Versions of the framework and of what computes for it, by name."""

    def numerics_flags(self) -> dict[str, Any]:
        """The framework's settings that change numbers: threads, determinism, reduced precision, kernels."""

    def device_of(self, name: str) -> Any:
        """The framework's device for `"cpu"` or `"gpu"`; raises RuntimeError where it sees no GPU."""

    def configure(self, device: str, threads: int | None) -> None:
        """Choose device and thread count, and switch off what would make float32 less than float32.

        Raises:
            RuntimeError: the framework sees no GPU, and `device` is `"gpu"`.
        """

    def import_for_optimizers(self) -> None:
        """Import now what the framework else imports at the first step of an optimizer."""

    def use_accuracy_compatible(self, on: bool) -> None:
        """Switch paddle to kernels that compute as torch's do, or back; nothing where there are none."""

    def set_seed(self, seed: int) -> None:
        """Seed the framework's own generators; those of numpy and Python stay as they are."""

    def random_state(self) -> str:
        """A digest of the state of the framework's own generators, which every draw changes."""

    def default_dtype(self, dtype: str) -> AbstractContextManager[None]:
        """Create new tensors and layers in `dtype` (`"float32"`, `"float64"`) inside the block.

        In a block of `"float64"`, what asks for float32 gets float64, and so does what multiplies whole numbers by
        Python's floats: a float64 run shows what the program computes, without the rounding of the normalisations,
        softmaxes and sines that libraries take to float32.
        """

    def peak_device_memory(self) -> int:
        """Bytes of GPU memory at the peak, 0 on a CPU."""

    def try_path(self, device: str, dtype: str) -> None:
        """Run a matrix product and its gradient on `device` in `dtype`; raises what the framework raises."""

    def communication_backends(self) -> list[str]:
        """Which of `"gloo"` and `"nccl"` are compiled in."""

    # tensors

    def is_tensor(self, value: Any) -> bool:
        """Whether `value` is a tensor of the framework."""

    def tensors_in(self, value: Any) -> list[Tensor]:
        """Every tensor in nested tuples, lists, dictionaries and output objects, in order."""

    def to_tensor(self, array: np.ndarray, dtype: str, device: str) -> Tensor:
        """A tensor on `device`; floating-point arrays are cast to `dtype`, others keep theirs."""

    def to_tensor_like(self, array: np.ndarray, tensor: Tensor) -> Tensor:
        """As `to_tensor`, with the dtype and on the device of another tensor."""

    def to_array(self, tensor: Tensor) -> np.ndarray:
        """A copy of the tensor as a numpy array (bfloat16 as float32, which holds it exactly)."""

    def values_of(self, tensor: Tensor) -> np.ndarray:
        """The tensor's values to be read at once, where possible without a copy: do not keep or change them."""

    def version(self, tensor: Tensor) -> int:
        """Counts the changes of a tensor in place; -1 where the framework does not count them."""

    def checksum(self, tensor: Tensor) -> float:
        """A number, from some of its elements, that changes when a tensor changes; -1 for NaN, which equals nothing.

        `version` leaves out changes through `parameter.data`.
        """

    def assign(self, tensor: Tensor, array: np.ndarray) -> None:
        """Set the values of a parameter or buffer in place, keeping its dtype."""

    def resize(self, tensor: Tensor, shape: Sequence[int]) -> None:
        """Give a buffer another shape in place; its values are then to be set."""

    def differentiable(self, tensor: Tensor) -> bool:
        """Whether gradients reach this tensor."""

    def detached(self, tensor: Tensor, differentiable: bool) -> Tensor:
        """The same values outside of any graph, as a leaf that gradients reach or do not."""

    def no_grad(self) -> AbstractContextManager[None]:
        """A context in which no gradient is recorded."""

    def gradients(
        self, outputs: list[Tensor], inputs: list[Tensor], seeds: list[Tensor], again: bool = False
    ) -> list[Tensor | None]:
        """Gradient of each input, given those of the outputs (`seeds`); None where no output depends on the input.

        An output that is given twice counts twice. `again`: other gradients of the same graph are to follow.
        """

    # flops

    def counting_flops(self, model: Model) -> AbstractContextManager[dict[str, int]]:
        """Floating-point operations of calls inside the block: path of each layer (`""`: the model) -> count.

        Products of matrices, convolutions and attention count, a multiply-add twice, as in `torch.utils.flop_counter`;
        recurrent layers do not. The dictionary is filled by the end of the block.
        """

    # models

    def is_model(self, value: Any) -> bool:
        """Whether `value` is a model of the framework."""

    def building(self) -> AbstractContextManager[None]:
        """A context to build a model in: parameters may have names that those of an earlier model have.

        paddle refuses a fixed name (`ParamAttr(name=...)`) the second time.
        """

    def prepare_model(self, model: Model, dtype: str, device: str) -> Model:
        """Move the floating-point state to `dtype` and everything to `device`, in place; other buffers keep theirs."""

    def set_training(self, model: Model, training: bool) -> None:
        """Put the model into training or evaluation mode."""

    def all_layers(self, model: Model) -> list[Layer]:
        """The model and every layer below it."""

    def named_layers(self, model: Model) -> list[tuple[str, Layer]]:
        """Path and layer of the model (path `""`) and every layer below it, a shared layer under its first path."""

    def own_state(self, layer: Layer) -> dict[str, Tensor]:
        """Parameters and buffers that the layer itself holds, by name; those without values are left out."""

    def own_buffers(self, layer: Layer) -> dict[str, Tensor]:
        """Buffers that the layer itself holds, by name; those without values are left out."""

    def named_parameters(self, model: Model) -> dict[str, Tensor]:
        """Parameters by state-dict name in registration order, the frozen ones too; no running statistics."""

    def trainable(self, parameter: Tensor) -> bool:
        """Whether the optimizer may move this parameter."""

    def set_trainable(self, parameter: Tensor, trainable: bool) -> None:
        """Let the optimizer move this parameter, or freeze it."""

    def floating_buffers(self, model: Model) -> dict[str, Tensor]:
        """Buffers that are stored and hold floating-point numbers, by name."""

    def state_tensors(self, model: Model) -> dict[str, Tensor]:
        """The tensors of the state dict themselves, in its order."""

    def state_items(self, model: Model) -> Iterator[tuple[str, np.ndarray]]:
        """Keys of the state dict with numpy copies, one at a time, in its order."""

    def load_state_arrays(self, model: Model, arrays: Mapping[str, np.ndarray]) -> None:
        """Load every key, keeping the model's dtypes; raises RuntimeError on a missing, extra or misshapen key."""

    def gradient_items(self, model: Model) -> Iterator[tuple[str, np.ndarray]]:
        """Name and gradient of every parameter that has one, one at a time, as `values_of` gives it."""

    def clear_gradients(self, model: Model) -> None:
        """Forget every gradient, so that a parameter without one is told from one whose gradient is zero."""

    def describe_state(self, model: Model) -> list[dict[str, Any]]:
        """Every state-dict key and every buffer outside of it as the JSON form of `state_layout.StateEntry`."""

    def state_versions(self, model: Model) -> dict[str, int]:
        """Path of a layer → version of its part of the state dict; torch's layers have one, paddle's none."""

    def observing(
        self, model: Model, observe: Callable[[str, Layer, list[Tensor], list[Tensor]], None]
    ) -> AbstractContextManager[None]:
        """Call `observe(path, layer, input tensors, output tensors)` after every call of every layer inside the block.

        paddle shows the inputs that are given by position, torch those given by keyword as well.
        """

    # optimizers

    def held_parameters(self, optimizer: Optimizer) -> list[Tensor]:
        """Every parameter that an optimizer was given."""

    def learning_rate(self, optimizer: Optimizer, parameter: Tensor | None = None) -> float:
        """The rate of the next step: of a parameter, else of the first group."""

    def rate_factor(self, optimizer: Optimizer) -> float:
        """What the first group multiplies the optimizer's own rate by: a group's rate is a factor in paddle."""

    def set_learning_rate(self, optimizer: Optimizer, rate: float) -> None:
        """Set the rate of the next step; several parameter groups keep their proportions."""

    def set_gradient(self, parameter: Tensor, array: np.ndarray) -> None:
        """Give a parameter this gradient, in its own dtype, as if it had been propagated."""

    def optimizer_averages(self, optimizer: Optimizer, parameter: Tensor) -> Iterator[tuple[str, Tensor]]:
        """The moving averages that an optimizer keeps of a parameter, of its shape, by names that both sides share.

        The names are `moment1`, `moment2`, `infinity_norm` and `velocity`.
        """

    def optimizer_items(self, model: Model, optimizer: Optimizer) -> Iterator[tuple[str, str, np.ndarray]]:
        """Name of the moving average, name of the parameter and `values_of` it, for all that the optimizer keeps."""

    def optimizer_facts(self, optimizer: Optimizer) -> dict[str, Any]:
        """Full name of the optimizer's `class`, and every number among its settings by name."""

    # training: a training seen from outside, whatever its loop

    def watching_steps(
        self,
        before: Callable[[Optimizer], None],
        after: Callable[[Optimizer], None],
        inside: Callable[[Optimizer], None] | None = None,
    ) -> AbstractContextManager[None]:
        """Call `before(optimizer)` and `after(optimizer)` around every step of every optimizer inside the block.

        `before` sees what the step itself sees: it is called behind the hooks that a framework calls before a step.
        `inside(optimizer)` is called where a class's step calls that of the class from which it derives.
        """

    def norms(self, tensors: Sequence[Tensor]) -> list[float]:
        """Euclidean norm of each tensor, summed up in float64."""

    def distance(self, pairs: Sequence[tuple[Tensor, Tensor]]) -> float:
        """Euclidean distance of two lists of tensors, given as pairs of equal shapes; summed up in float64."""

    def following(self, conventions: Collection[str]) -> AbstractContextManager[None]:
        """Inside the block torch does what these accepted conventions of paddle's are, by their ids.

        `bn_running_var_biased`: running variances take in the biased variance of a batch.
        """

    # attaching: a trainer of the user's own, seen from outside

    def unwrapped(self, model: Model) -> Model:
        """The model inside of the framework's wrappers for several processes and for compilation."""

    def watch_calls(self, layer: Layer, before: Callable[..., Any], after: Callable[..., Any]) -> Callable[[], None]:
        """Hooks `before(layer, arguments, keywords)`, whose result replaces them unless it is None, and
        `after(layer, arguments, keywords, output)`; returns a function that removes them.
        """

    def watching_updates(
        self, before: Callable[[Optimizer, bool], None], after: Callable[[Optimizer], None]
    ) -> AbstractContextManager[None]:
        """As `watching_steps`, also for steps that a schedule or a scaler calls and for `minimize`.

        `before(optimizer, closure)`: whether the step is given a function that computes the gradients.
        """

    def watching_backward(
        self, before: Callable[[], None], after: Callable[[Tensor], None]
    ) -> AbstractContextManager[None]:
        """Call `before()` and `after(tensor)`, with the tensor that it starts from, around each backward pass."""

    def watching_cross_entropy(self, seen: Callable[[Any, Any, dict[str, Any]], Any]) -> AbstractContextManager[None]:
        """Call `seen(logits, labels, settings)` before each call of the framework's function `cross_entropy`.

        The settings are `ignore_index`, `reduction`, `label_smoothing` and `axis`, that of the classes. What is
        returned takes the place of the labels, unless it is None.
        """

    def watching_clipping(
        self, before: Callable[[str, float], None], after: Callable[[Any, Any], None]
    ) -> AbstractContextManager[None]:
        """Call `before(kind, limit)` and `after(norm, pairs)` around each clipping of gradients.

        `kind` is `norm`, `norm of each tensor` or `value`; `norm` the norm before it, None where it is not returned;
        `pairs` parameters with new gradients, None where those in place were changed.
        """

    def watching_scalers(self, seen: Callable[[str, float, Any], None]) -> AbstractContextManager[None]:
        """Call `seen(event, scale, given)` before and after `scale`, `unscale_` and `step` of every gradient scaler."""

    def is_recording_gradients(self) -> bool:
        """Whether operations are kept for a backward pass."""

    def autocast_dtype(self) -> str | None:
        """What operations are cast to, None outside of mixed precision."""

    def dtype_name(self, tensor: Tensor) -> str:
        """numpy's name of a tensor's dtype, or `bfloat16`."""

    def total_norm(self, tensors: Sequence[Tensor]) -> Tensor:
        """Euclidean norm of all tensors together, in their own precision, as one number that stays on the device."""

    def sums(self, tensors: Sequence[Tensor]) -> list[float]:
        """Sum of each tensor, in one copy from the device for all of them."""

    def clips_itself(self, optimizer: Optimizer) -> bool:
        """Whether gradients are clipped inside of the optimizer's step."""

    def prepare_optimizer(self, optimizer: Optimizer) -> None:
        """Let an optimizer without state step in the dtype that its parameters have now, and on gradients as they are.

        An optimizer of paddle clips them itself, if it is told to.
        """

    def optimizer_settings(self, optimizer: Optimizer) -> list[tuple[Tensor, dict[str, Any]]]:
        """Each parameter with the settings of its step: `kind` (`adam`, `sgd`, else the class), `lr`, `weight_decay`,
        `decoupled`, and `beta1`, `beta2`, `epsilon` or `momentum`, `dampening`, `nesterov`.
        """

    def learning_rates(self, optimizer: Optimizer) -> list[float]:
        """The rates of the next step, of all groups of parameters."""

    def steps_made(self, optimizer: Optimizer, parameter: Tensor) -> int:
        """Steps that Adam has made of a parameter, by which it corrects its averages."""

    def master_weight(self, optimizer: Optimizer, parameter: Tensor) -> Tensor | None:
        """The float32 weight that an optimizer keeps beside one in half precision."""

    # distributed: several processes

    def join_ranks(self, device: str) -> tuple[int, int]:
        """Join the processes of the launcher, on a device of this rank's own; returns its rank and their number.

        Raises:
            RuntimeError: there are fewer GPUs than processes.
        """

    def leave_ranks(self) -> None:
        """Leave the processes that were joined, by whatever code, so that a script can join them again."""

    def loss_layer(self, model: Model, run: Callable[[Model, Mapping[str, Any]], tuple[Any, Tensor]]) -> Layer:
        """A layer that takes inputs to the loss, so that a wrapper sees one call from one to the other.

        `run(model, inputs)` returns what is to be seen and the loss. The layer's attributes are `model`, and `seen`,
        what is to be seen of the last call.
        """

    def data_parallel(self, step: Layer) -> Layer:
        """Average gradients over the ranks; parameters that take no part in the loss are allowed.

        Buffers stay each rank's own.
        """


def checksum_of(values: np.ndarray) -> float:
    """A number that is another one after values `[N]`, fewer than twice `CHECKED_ELEMENTS`, have changed."""
    total = float(values.real @ _BY_PLACE[: values.size])
    return total if total == total else -1.0
