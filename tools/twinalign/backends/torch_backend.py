"""What twinalign asks of torch; `paddle_backend` holds the same functions for paddle."""

from __future__ import annotations

import contextlib
import copy
import functools
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from twinalign.convert import layout
from twinalign.convert.probe import probe_matrices

FRAMEWORK = "torch"
MODEL_CLASS = "torch.nn.Module"
_AVERAGES = {
    "exp_avg": "moment1",
    "exp_avg_sq": "moment2",
    "exp_inf": "infinity_norm",
    "momentum_buffer": "velocity",
    "mu": "velocity",
}


def versions() -> dict[str, str]:
    """Versions of torch and of what computes for it."""
    found = {"torch": torch.__version__, "numpy": np.__version__}
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
    if torch.backends.cudnn.is_available():
        found["cudnn"] = str(torch.backends.cudnn.version())
    return found


def numerics_flags() -> dict[str, Any]:
    """The settings that change numbers: TF32, cuDNN, oneDNN, determinism, threads."""
    return {
        "threads": torch.get_num_threads(),
        "default_dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "mkldnn": torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled,
        "cuda_matmul_allow_tf32": torch.backends.cuda.matmul.allow_tf32,
        "cudnn_allow_tf32": torch.backends.cudnn.allow_tf32,
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS"),
    }


def device_of(name: str) -> torch.device:
    """The device for `"cpu"` or `"gpu"`; raises RuntimeError where torch sees no GPU."""
    if name == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise RuntimeError("torch sees no GPU")
    return torch.device("cuda", torch.cuda.current_device())


def configure(device: str, threads: int | None) -> None:
    """Choose device and thread count, and switch off what would make float32 less than float32 (TF32)."""
    device_of(device)
    if threads:
        torch.set_num_threads(threads)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = False


def use_accuracy_compatible(on: bool) -> None:
    """Nothing: the kernels are paddle's, and compatible with torch's."""


def set_seed(seed: int) -> None:
    """Seed torch's own generators."""
    torch.manual_seed(seed)


def random_state() -> str:
    """A digest of where torch's own generators stand: whoever draws changes it."""
    states = [torch.get_rng_state(), *(torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [])]
    return hashlib.sha256(b"".join(state.numpy().tobytes() for state in states)).hexdigest()


@contextlib.contextmanager
def default_dtype(dtype: str) -> Iterator[None]:
    """Create new tensors and layers in `dtype` (`"float32"`, `"float64"`) inside the block."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, dtype))
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def prepare_model(model: torch.nn.Module, dtype: str, device: str) -> torch.nn.Module:
    """Move the floating-point state to `dtype` and everything to `device`, in place."""
    return model.to(device=device_of(device), dtype=getattr(torch, dtype))


def set_training(model: torch.nn.Module, training: bool) -> None:
    """Put the model into training or evaluation mode."""
    model.train(training)


def to_tensor(array: np.ndarray, dtype: str, device: str) -> torch.Tensor:
    """A tensor on `device`; floating-point arrays are cast to `dtype`, others keep theirs."""
    tensor = torch.from_numpy(np.array(array, order="C")).to(device_of(device))
    return tensor.to(getattr(torch, dtype)) if tensor.is_floating_point() else tensor


def is_model(value: Any) -> bool:
    """Whether `value` is a model of torch."""
    return isinstance(value, torch.nn.Module)


def is_tensor(value: Any) -> bool:
    """Whether `value` is a torch tensor."""
    return isinstance(value, torch.Tensor)


def to_array(tensor: torch.Tensor) -> np.ndarray:
    """A copy of the tensor as a numpy array (bfloat16 as float32, which holds it exactly)."""
    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.float()
    return np.array(tensor.numpy())


def values_of(tensor: torch.Tensor) -> np.ndarray:
    """The tensor's numbers to look at, in its own memory where that can be: not to be kept, not to be changed."""
    found: np.ndarray = tensor.detach().cpu().numpy()
    return found


def no_grad() -> contextlib.AbstractContextManager[None]:
    """A context in which no gradient is recorded."""
    return torch.no_grad()


def backward(loss: torch.Tensor) -> None:
    """Propagate the gradient of a scalar loss."""
    loss.backward()


def clear_gradients(model: torch.nn.Module) -> None:
    """Forget every gradient, so that a parameter without one is told from one whose gradient is zero."""
    model.zero_grad(set_to_none=True)


def all_layers(model: torch.nn.Module) -> list[torch.nn.Module]:
    """The model and every layer below it."""
    return list(model.modules())


def named_layers(model: torch.nn.Module) -> list[tuple[str, torch.nn.Module]]:
    """Path and layer of the model (path `""`) and every layer below it, a shared layer under its first path."""
    return list(model.named_modules())


def own_state(layer: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers that the layer itself holds, by name."""
    held = {**layer._parameters, **layer._buffers}
    return {name: tensor for name, tensor in held.items() if tensor is not None}


def own_buffers(layer: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Buffers that the layer itself holds, by name."""
    return {name: tensor for name, tensor in layer._buffers.items() if tensor is not None}


def assign(tensor: torch.Tensor, array: np.ndarray) -> None:
    """Set the values of a parameter or buffer in place, keeping its dtype."""
    with torch.no_grad():
        tensor.copy_(torch.from_numpy(np.array(array)))


def differentiable(tensor: torch.Tensor) -> bool:
    """Whether gradients reach this tensor."""
    return bool(tensor.requires_grad)


def detached(tensor: torch.Tensor, differentiable: bool) -> torch.Tensor:
    """The same values outside of any graph, as a leaf that gradients reach or do not."""
    return tensor.detach().requires_grad_(differentiable)


def alias(tensor: torch.Tensor) -> torch.Tensor:
    """The same values as a node of its own in the graph, so that the gradient of one use of them can be told."""
    return tensor.view_as(tensor)


def on_gradient(tensor: torch.Tensor, receive: Callable[[torch.Tensor], None]) -> None:
    """Hand the gradient of a differentiable tensor to `receive` during the backward pass."""
    tensor.register_hook(receive)


def version(tensor: torch.Tensor) -> int:
    """Counts the changes of a tensor in place; -1 where torch does not count them."""
    return -1 if tensor.is_inference() else tensor._version


def storage_key(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Equal for two tensors that look at the same memory in the same way."""
    return tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride()


def gradients(
    outputs: list[torch.Tensor], inputs: list[torch.Tensor], seeds: list[torch.Tensor]
) -> list[torch.Tensor | None]:
    """Gradient of each input, given those of the outputs; None for an input that none of them depends on."""
    found = torch.autograd.grad(outputs, inputs, seeds, allow_unused=True)
    return list(found)


def state_tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The tensors of the state dict themselves, in its order."""
    return dict(model.state_dict(keep_vars=True))


def tied_keys(model: torch.nn.Module) -> set[str]:
    """Keys of the state dict that are one more name of a tensor that an earlier key has."""
    first: dict[int, str] = {}
    return {name for name, tensor in state_tensors(model).items() if first.setdefault(id(tensor), name) != name}


def state_items(model: torch.nn.Module) -> Iterator[tuple[str, np.ndarray]]:
    """Keys of the state dict with numpy copies, one at a time, in its order."""
    for name, tensor in model.state_dict().items():
        yield name, to_array(tensor)


def state_arrays(model: torch.nn.Module) -> dict[str, np.ndarray]:
    """The state dict as numpy copies, in its order."""
    return dict(state_items(model))


def load_state_arrays(model: torch.nn.Module, arrays: Mapping[str, np.ndarray]) -> None:
    """Load every key strictly, keeping the model's dtypes; raises RuntimeError on a missing, extra or misshapen key."""
    model.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}, strict=True)


def named_parameters(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters by state-dict name in registration order, the frozen ones too."""
    return dict(model.named_parameters())


def trainable(parameter: torch.Tensor) -> bool:
    """Whether the optimizer may move this parameter."""
    return bool(parameter.requires_grad)


def gradient_items(model: torch.nn.Module) -> Iterator[tuple[str, np.ndarray]]:
    """Name and gradient of every parameter that has one, one at a time."""
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            yield name, to_array(parameter.grad)


def optimizer_items(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, str, np.ndarray]]:
    """Quantity, parameter and array of the optimizer's state, in the names that both frameworks share."""
    for name, parameter in model.named_parameters():
        for quantity, average in optimizer_averages(optimizer, parameter):
            yield quantity, name, to_array(average)


def optimizer_averages(optimizer: torch.optim.Optimizer, parameter: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """The moving averages that an optimizer keeps of a parameter, of its shape, in the names that both share."""
    for quantity, value in optimizer.state.get(parameter, {}).items():
        # ASGD has a number of the name that LARS's velocity has.
        if quantity in _AVERAGES and isinstance(value, torch.Tensor) and value.shape == parameter.shape:
            yield _AVERAGES[quantity], value


def learning_rate(optimizer: torch.optim.Optimizer) -> float:
    """The rate of the first parameter group."""
    return float(optimizer.param_groups[0]["lr"])


def set_gradient(parameter: torch.Tensor, array: np.ndarray) -> None:
    """Give a parameter this gradient, in its own dtype, as if it had been propagated."""
    parameter.grad = torch.from_numpy(np.array(array, order="C")).to(parameter.device, parameter.dtype)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the rate of the first parameter group, and those of the others in proportion."""
    before = learning_rate(optimizer)
    for group in optimizer.param_groups:
        group["lr"] = group["lr"] * rate / before if before else rate


def optimizer_facts(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Class of the optimizer, and every number in its defaults."""
    numbers = {name: value for name, value in optimizer.defaults.items() if isinstance(value, (bool, int, float))}
    betas = optimizer.defaults.get("betas", ())
    kind = type(optimizer)
    return {"class": f"{kind.__module__}.{kind.__qualname__}", **numbers} | {
        f"beta{number}": float(beta) for number, beta in enumerate(betas, start=1)
    }


def make_optimizer(kind: str, parameters: list[torch.Tensor], **settings: Any) -> torch.optim.Optimizer:
    """An optimizer of torch's own by the name of its class."""
    made: torch.optim.Optimizer = getattr(torch.optim, kind)(parameters, **settings)
    return made


def optimizer_step(optimizer: torch.optim.Optimizer) -> None:
    """Apply the gradients."""
    optimizer.step()


def peak_device_memory() -> int:
    """Bytes of GPU memory at the peak, 0 on a CPU."""
    return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0


def describe_state(model: torch.nn.Module) -> list[dict[str, Any]]:
    """Every state-dict key and every non-persistent buffer as the JSON form of `twinalign.convert.StateEntry`."""
    attributes = layout.LayerAttributes("_modules", "_non_persistent_buffers_set", "torch.")
    entries = layout.walk_state(
        model, model.state_dict(keep_vars=True), attributes, _layer_facts, lambda t: isinstance(t, torch.nn.Parameter)
    )
    return [entry.to_json() for entry in entries]


def _layer_facts(layer: torch.nn.Module) -> dict[str, Any]:
    """What a layer's arrays do not tell: axes of weight and spectral norm (both of torch's ways), matrix layout."""
    facts: dict[str, dict[str, Any]] = {"weight_norm": {}, "spectral_norm": {}, "weight_layout": {}}
    owned: list[tuple[str, Any]] = [
        (hook.name, hook) for hook in layer._forward_pre_hooks.values() if hasattr(hook, "name")
    ]
    for weight, steps in getattr(layer, "parametrizations", {}).items():
        owned += [(weight, step) for step in steps]
    for weight, norm in owned:
        # Both of torch's ways: the hooks of torch.nn.utils and the parametrizations that took their place.
        kind = type(norm).__name__.lstrip("_")
        if kind in ("WeightNorm", "SpectralNorm") and type(norm).__module__.startswith("torch.nn.utils."):
            facts["weight_norm" if kind == "WeightNorm" else "spectral_norm"][weight] = norm.dim
    facts["weight_layout"] = probe_matrices(layer, layer._modules, _run_copy)
    return {name: value for name, value in facts.items() if value}


def _run_copy(layer: torch.nn.Module, parameters: Mapping[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    """Output of a copy of the layer in evaluation mode with these parameters, in float64."""
    twin = copy.deepcopy(layer).to(device="cpu", dtype=torch.float64).eval()
    with torch.no_grad():
        for name, value in parameters.items():
            getattr(twin, name).copy_(torch.from_numpy(np.ascontiguousarray(value)))
        return to_array(twin(torch.from_numpy(x)))


def try_path(device: str, dtype: str) -> None:
    """Run a matrix product and its gradient on `device` in `dtype`; raises what the framework raises."""
    configure(device, None)
    x = torch.ones(4, 4, device=device_of(device), dtype=getattr(torch, dtype), requires_grad=True)
    (x @ x).sum().backward()


def communication_backends() -> list[str]:
    """Backends of torch.distributed that are compiled in."""
    distributed = torch.distributed
    if not distributed.is_available():
        return []
    return [name for name in ("gloo", "nccl") if getattr(distributed, f"is_{name}_available")()]


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Every tensor in nested tuples, lists, dictionaries and output objects, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return [tensor for item in value for tensor in tensors_in(item)]
    return []


@contextlib.contextmanager
def observing(model: torch.nn.Module, observe: Callable[[str, Any, list[Any], list[Any]], None]) -> Iterator[None]:
    """Call `observe(path, layer, input tensors, output tensors)` after every call of every layer inside the block."""

    def hook(path: str, layer: Any, given: Any, named: Any, returned: Any) -> None:
        observe(path, layer, tensors_in([given, named]), tensors_in(returned))

    handles = [
        layer.register_forward_hook(functools.partial(hook, path), with_kwargs=True)
        for path, layer in model.named_modules()
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
