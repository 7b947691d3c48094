"""What twinalign asks of paddle; `torch_backend` holds the same functions for torch."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

with warnings.catch_warnings():
    # paddle 3.3 warns at import that ccache is missing; nobody compiles custom operators here.
    warnings.simplefilter("ignore")
    import paddle

from twinalign.backends.paddle_state import (  # noqa: F401  the part of this module that lies in a file of its own
    describe_state,
    load_state_arrays,
    named_parameters,
    own_buffers,
    own_state,
    prepare_model,
    state_arrays,
    state_items,
    tied_keys,
    to_array,
)

FRAMEWORK = "paddle"
MODEL_CLASS = "paddle.nn.Layer"
_ADDRESS = re.compile("0x[0-9a-f]+")  # where a generator lies, which its state says among its numbers
_AVERAGES = {"moment1": "moment1", "moment2": "moment2", "velocity": "velocity", "mu": "velocity"}
_AVERAGES_OF_ADAMAX = {"moment": "moment1", "inf_norm": "infinity_norm"}
_ACCURACY_COMPATIBLE = "FLAGS_use_accuracy_compatible_kernel"


def versions() -> dict[str, str]:
    """Versions of paddle and of what computes for it."""
    found = {"paddle": paddle.__version__, "numpy": np.__version__}
    if paddle.is_compiled_with_cuda():
        found["cuda"] = paddle.version.cuda()
        found["cudnn"] = paddle.version.cudnn()
    return found


def numerics_flags() -> dict[str, Any]:
    """The settings that change numbers: oneDNN, cuDNN, the accuracy-compatible kernels, threads."""
    flags: dict[str, Any] = {
        "default_dtype": paddle.get_default_dtype(),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS"),
    }
    for name in ("FLAGS_use_mkldnn", "FLAGS_cudnn_deterministic", _ACCURACY_COMPATIBLE):
        with contextlib.suppress(ValueError):  # not every version knows every flag
            flags[name] = paddle.get_flags(name)[name]
    return flags


def device_of(name: str) -> str:
    """The device for `"cpu"` or `"gpu"`; raises RuntimeError where paddle sees no GPU."""
    if name == "cpu":
        return "cpu"
    if not paddle.is_compiled_with_cuda() or paddle.device.cuda.device_count() == 0:
        raise RuntimeError("paddle sees no GPU")
    return f"gpu:{paddle.distributed.ParallelEnv().device_id}"  # 0 where no launcher chose another


def configure(device: str, threads: int | None) -> None:
    """Choose the device; paddle takes its thread count from OMP_NUM_THREADS, set before the process starts."""
    paddle.set_device(device_of(device))


def use_accuracy_compatible(on: bool) -> None:
    """Switch to kernels that compute as torch's do, or back; paddle 3.3 and later has the flag."""
    with contextlib.suppress(ValueError):
        paddle.set_flags({_ACCURACY_COMPATIBLE: on})


def set_seed(seed: int) -> None:
    """Seed paddle's own generators."""
    paddle.seed(seed)


def random_state() -> str:
    """A digest of where paddle's own generators stand: whoever draws changes it."""
    states = "".join(map(str, paddle.get_rng_state()))
    return hashlib.sha256(_ADDRESS.sub("", states).encode()).hexdigest()


@contextlib.contextmanager
def default_dtype(dtype: str) -> Iterator[None]:
    """Create new tensors and layers in `dtype` (`"float32"`, `"float64"`) inside the block."""
    before = paddle.get_default_dtype()
    paddle.set_default_dtype(dtype)
    try:
        yield
    finally:
        paddle.set_default_dtype(before)


def set_training(model: paddle.nn.Layer, training: bool) -> None:
    """Put the model into training or evaluation mode."""
    model.train() if training else model.eval()


def to_tensor(array: np.ndarray, dtype: str, device: str) -> paddle.Tensor:
    """A tensor on `device`; floating-point arrays are cast to `dtype`, others keep theirs."""
    if np.issubdtype(array.dtype, np.floating):
        if dtype == "bfloat16":  # numpy has no such type
            return paddle.to_tensor(np.asarray(array, dtype="float32", order="C")).astype(dtype)
        array = array.astype(dtype, copy=False)
    return paddle.to_tensor(np.asarray(array, order="C"))


def is_model(value: Any) -> bool:
    """Whether `value` is a model of paddle."""
    return isinstance(value, paddle.nn.Layer)


def is_tensor(value: Any) -> bool:
    """Whether `value` is a paddle tensor."""
    return isinstance(value, paddle.Tensor)


def values_of(tensor: paddle.Tensor) -> np.ndarray:
    """The tensor's numbers to look at: neither to be kept nor to be changed, as the other backend has it."""
    tensor = tensor.detach()
    # Without a copy where that can be had: not from bfloat16, a GPU, or a paddle before 3.0.
    if tensor.dtype != paddle.bfloat16 and tensor.place.is_cpu_place() and hasattr(tensor, "__dlpack__"):
        return np.from_dlpack(tensor)
    return to_array(tensor)


def version(tensor: paddle.Tensor) -> int:
    """Counts the changes of a tensor in place."""
    return int(tensor.inplace_version)


def no_grad() -> contextlib.AbstractContextManager[None]:
    """A context in which no gradient is recorded."""
    return paddle.no_grad()


def backward(loss: paddle.Tensor) -> None:
    """Propagate the gradient of a scalar loss."""
    loss.backward()


def clear_gradients(model: paddle.nn.Layer) -> None:
    """Forget every gradient, so that a parameter without one is told from one whose gradient is zero."""
    for parameter in model.parameters():
        parameter.clear_gradient(set_to_zero=False)


def all_layers(model: paddle.nn.Layer) -> list[paddle.nn.Layer]:
    """The model and every layer below it."""
    return list(model.sublayers(include_self=True))


def named_layers(model: paddle.nn.Layer) -> list[tuple[str, paddle.nn.Layer]]:
    """Path and layer of the model (path `""`) and every layer below it, a shared layer under its first path."""
    return list(model.named_sublayers(include_self=True))


def assign(tensor: paddle.Tensor, array: np.ndarray) -> None:
    """Set the values of a parameter or buffer in place, keeping its dtype."""
    with paddle.no_grad():
        tensor.set_value(paddle.to_tensor(np.ascontiguousarray(array), place=tensor.place).astype(tensor.dtype))


def differentiable(tensor: paddle.Tensor) -> bool:
    """Whether gradients reach this tensor."""
    return not tensor.stop_gradient


def detached(tensor: paddle.Tensor, differentiable: bool) -> paddle.Tensor:
    """The same values outside of any graph, as a leaf that gradients reach or do not."""
    found = tensor.detach()
    found.stop_gradient = not differentiable
    return found


def gradients(
    outputs: list[paddle.Tensor], inputs: list[paddle.Tensor], seeds: list[paddle.Tensor]
) -> list[paddle.Tensor | None]:
    """Gradient of each input, given those of the outputs; None for an input that none of them depends on."""
    ends: dict[str, list[paddle.Tensor]] = {}
    for output, seed in zip(outputs, seeds, strict=True):  # paddle refuses an end that is given twice, torch adds up
        ends[output.name] = [output, ends[output.name][1] + seed if output.name in ends else seed]
    tensors, gradients = ([end[at] for end in ends.values()] for at in (0, 1))
    return list(paddle.grad(tensors, inputs, gradients, allow_unused=True))


def trainable(parameter: paddle.Tensor) -> bool:
    """Whether the optimizer may move this parameter."""
    return not parameter.stop_gradient


def gradient_items(model: paddle.nn.Layer) -> Iterator[tuple[str, np.ndarray]]:
    """Name and gradient of every parameter that has one, one at a time."""
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            yield name, to_array(parameter.grad)


def optimizer_items(model: paddle.nn.Layer, optimizer: Any) -> Iterator[tuple[str, str, np.ndarray]]:
    """Quantity, parameter and array of the optimizer's state, in the names that both frameworks share."""
    for name, parameter in named_parameters(model).items():
        for quantity, average in optimizer_averages(optimizer, parameter):
            yield quantity, name, to_array(average)


def optimizer_averages(optimizer: Any, parameter: paddle.Tensor) -> Iterator[tuple[str, paddle.Tensor]]:
    """The moving averages that an optimizer keeps of a parameter, of its shape, in the names that both share."""
    # Adagrad's sum of squares has the name of Adamax's first moment.
    shared = _AVERAGES | (_AVERAGES_OF_ADAMAX if "inf_norm" in optimizer._accumulators else {})
    for quantity, values in optimizer._accumulators.items():
        if quantity in shared and parameter.name in values and values[parameter.name].shape == parameter.shape:
            yield shared[quantity], values[parameter.name]


def learning_rate(optimizer: Any) -> float:
    """The rate that the next step uses."""
    return float(optimizer.get_lr())


def set_gradient(parameter: paddle.Tensor, array: np.ndarray) -> None:
    """Give a parameter this gradient, in its own dtype, as if it had been propagated."""
    parameter.grad = paddle.to_tensor(np.array(array, order="C"), place=parameter.place).astype(parameter.dtype)


def set_learning_rate(optimizer: Any, rate: float) -> None:
    """Set the rate, which parameter groups multiply; a scheduler is told that this is its last one."""
    if isinstance(getattr(optimizer, "_learning_rate", None), paddle.optimizer.lr.LRScheduler):
        optimizer._learning_rate.last_lr = rate
    else:
        optimizer.set_lr(rate)


def optimizer_facts(optimizer: Any) -> dict[str, Any]:
    """Class of the optimizer, and every number that it, its regularisation and its clipping hold."""
    numbers: dict[str, Any] = {}
    clipping = getattr(optimizer, "_grad_clip", None)
    for holder in (optimizer, getattr(optimizer, "regularization", None), clipping):
        for name, value in getattr(holder, "__dict__", {}).items():
            if isinstance(value, (bool, int, float)):
                numbers.setdefault(name.lstrip("_"), value)
    kind = type(optimizer)
    clip = {"clip": type(clipping).__name__} if clipping is not None else {}
    return {"class": f"{kind.__module__}.{kind.__qualname__}", **numbers, **clip}


def optimizer_step(optimizer: Any) -> None:
    """Apply the gradients."""
    optimizer.step()


def peak_device_memory() -> int:
    """Bytes of GPU memory at the peak, 0 on a CPU."""
    return paddle.device.cuda.max_memory_allocated() if paddle.is_compiled_with_cuda() else 0


def try_path(device: str, dtype: str) -> None:
    """Run a matrix product and its gradient on `device` in `dtype`; raises what the framework raises."""
    configure(device, None)
    x = paddle.ones([4, 4], dtype=dtype)
    x.stop_gradient = False
    paddle.matmul(x, x).sum().backward()


def communication_backends() -> list[str]:
    """Backends of paddle.distributed that are compiled in."""
    return ["gloo"] + (["nccl"] if paddle.is_compiled_with_cuda() else [])


def tensors_in(value: Any) -> list[paddle.Tensor]:
    """Every tensor in nested tuples, lists, dictionaries and output objects, in order."""
    if isinstance(value, paddle.Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return [tensor for item in value for tensor in tensors_in(item)]
    return []


@contextlib.contextmanager
def observing(model: paddle.nn.Layer, observe: Callable[[str, Any, list[Any], list[Any]], None]) -> Iterator[None]:
    """Call `observe(path, layer, input tensors, output tensors)` after every call of every layer inside the block.

    paddle's hooks see positional inputs only.
    """

    def hook(path: str, layer: Any, given: Any, returned: Any) -> None:
        observe(path, layer, tensors_in(given), tensors_in(returned))

    handles = [
        layer.register_forward_post_hook(functools.partial(hook, path))
        for path, layer in model.named_sublayers(include_self=True)
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
