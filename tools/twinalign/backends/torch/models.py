"""Layers of torch: their parameters and buffers, as tensors, as arrays, and described."""

import collections
import contextlib
import copy
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from twinalign.backends import state_layout as layout
from twinalign.backends.matrix_probe import probe_matrices, probe_norm
from twinalign.backends.torch.process import device_of
from twinalign.backends.torch.reference_only.exact_kernels import forbid_tf32
from twinalign.backends.torch.reference_only.graph import uncounted
from twinalign.backends.torch.tensors import tensors_in, to_array, values_of


def is_model(value: Any) -> bool:
    return isinstance(value, torch.nn.Module)


def building() -> contextlib.AbstractContextManager[None]:
    return uncounted()


def prepare_model(model: torch.nn.Module, dtype: str, device: str) -> torch.nn.Module:
    # Module.to casts complex tensors as well, and so takes their imaginary parts away.
    kinds = {True: getattr(torch, dtype), False: torch.complex128 if dtype == "float64" else torch.complex64}
    place = device_of(device)
    forbid_tf32()  # the case's code may have allowed it
    return model._apply(
        lambda tensor: tensor.to(
            place, kinds[tensor.is_floating_point()] if tensor.is_floating_point() or tensor.is_complex() else None
        )
    )


def set_training(model: torch.nn.Module, training: bool) -> None:
    model.train(training)


def all_layers(model: torch.nn.Module) -> list[torch.nn.Module]:
    return list(model.modules())


def named_layers(model: torch.nn.Module) -> list[tuple[str, torch.nn.Module]]:
    return list(model.named_modules())


def own_state(layer: torch.nn.Module) -> dict[str, torch.Tensor]:
    held = {**layer._parameters, **layer._buffers}
    return {name: tensor for name, tensor in held.items() if tensor is not None}


def own_buffers(layer: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in layer._buffers.items() if tensor is not None}


def named_parameters(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return dict(model.named_parameters())


def trainable(parameter: torch.Tensor) -> bool:
    return bool(parameter.requires_grad)


def set_trainable(parameter: torch.Tensor, trainable: bool) -> None:
    parameter.requires_grad = trainable


def floating_buffers(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    stored = state_tensors(model)  # as paddle has it: what is not stored may be no buffer at all in the port
    return {name: buffer for name, buffer in model.named_buffers() if name in stored and buffer.is_floating_point()}


def state_tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return dict(model.state_dict(keep_vars=True))


def state_items(model: torch.nn.Module) -> Iterator[tuple[str, np.ndarray]]:
    for name, tensor in model.state_dict().items():
        yield name, to_array(tensor)


def load_state_arrays(model: torch.nn.Module, arrays: Mapping[str, np.ndarray]) -> None:
    state = collections.OrderedDict((name, torch.from_numpy(np.array(array))) for name, array in arrays.items())
    # The versions of its layers' states, which some refuse to load without: the arrays are of this model.
    state._metadata = model.state_dict(keep_vars=True)._metadata  # type: ignore[attr-defined]
    model.load_state_dict(state, strict=True)


def gradient_items(model: torch.nn.Module) -> Iterator[tuple[str, np.ndarray]]:
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            yield name, values_of(parameter.grad)


def clear_gradients(model: torch.nn.Module) -> None:
    model.zero_grad(set_to_none=True)


def describe_state(model: torch.nn.Module) -> list[dict[str, Any]]:
    attributes = layout.LayerAttributes("_modules", "_non_persistent_buffers_set", "torch.")
    entries = layout.walk_state(
        model,
        state_tensors(model),
        attributes,
        _layer_facts,
        lambda t: isinstance(t, torch.nn.Parameter),
        trainable,
    )
    return [entry.to_json() for entry in entries]


def state_versions(model: torch.nn.Module) -> dict[str, int]:
    metadata: Any = model.state_dict(keep_vars=True)._metadata
    return {path: facts["version"] for path, facts in metadata.items() if isinstance(facts.get("version"), int)}


@contextlib.contextmanager
def observing(model: torch.nn.Module, observe: Callable[[str, Any, list[Any], list[Any]], None]) -> Iterator[None]:
    def hook(path: str, layer: Any, given: Any, named: Any, returned: Any) -> None:
        observe(path, layer, tensors_in([given, named]), tensors_in(returned))

    with contextlib.ExitStack() as stack:
        for path, layer in named_layers(model):
            stack.callback(layer.register_forward_hook(functools.partial(hook, path), with_kwargs=True).remove)
        yield


def _layer_facts(layer: torch.nn.Module) -> dict[str, Any]:
    """Facts that a layer's arrays do not show: axes of weight and spectral norm, matrix layout, what it computes."""
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
    facts["acts_like"] = probe_norm(layer, layer._modules, _run_copy)
    return {name: value for name, value in facts.items() if value}


def _run_copy(layer: torch.nn.Module, parameters: Mapping[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    """Output of a copy of the layer in evaluation mode with these parameters, in float64."""
    twin = copy.deepcopy(layer).to(device="cpu", dtype=torch.float64).eval()
    with torch.no_grad():
        for name, value in parameters.items():
            getattr(twin, name).copy_(torch.from_numpy(np.ascontiguousarray(value)))
        return to_array(twin(torch.from_numpy(x)))
