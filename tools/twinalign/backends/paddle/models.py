"""Layers of paddle: their parameters and buffers, as tensors, as arrays, and described."""

import contextlib
import copy
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import paddle
from paddle.nn.layer.rnn import RNNBase
from paddle.nn.utils import spectral_norm_hook, weight_norm_hook

from twinalign.backends import state_layout as layout
from twinalign.backends.matrix_probe import probe_matrices, probe_norm
from twinalign.backends.paddle.tensors import tensors_in, to_array, values_of


def is_model(value: Any) -> bool:
    return isinstance(value, paddle.nn.Layer)


@contextlib.contextmanager
def building() -> Iterator[None]:
    # The numbers of other names go on, so that layers built outside of the block have names of their own.
    numbers, names = paddle.utils.unique_name.switch()
    paddle.utils.unique_name.switch(numbers)
    try:
        yield
    finally:
        paddle.utils.unique_name.switch(numbers, names)


def prepare_model(model: paddle.nn.Layer, dtype: str, device: str) -> paddle.nn.Layer:
    layers = model.sublayers(include_self=True)
    # Layer.to casts integer, boolean and complex buffers as well, and fails on those that hold no memory.
    kept = [
        (layer, name, buffer)
        for layer in layers
        for name, buffer in layer._buffers.items()
        if buffer is not None and not (_holds_memory(buffer) and buffer.is_floating_point())
    ]
    for layer, name, _ in kept:
        layer._buffers[name] = None
    model.to(dtype=dtype)
    for layer, name, buffer in kept:
        layer._buffers[name] = (
            buffer.astype("complex128" if dtype == "float64" else "complex64") if buffer.is_complex() else buffer
        )
    for layer in layers:
        if isinstance(layer, RNNBase):  # which has no gradient in evaluation mode otherwise
            object.__setattr__(layer, "_cudnn_impl", functools.partial(_rnn_with_gradient, layer))
    return model


def set_training(model: paddle.nn.Layer, training: bool) -> None:
    model.train() if training else model.eval()


def all_layers(model: paddle.nn.Layer) -> list[paddle.nn.Layer]:
    return list(model.sublayers(include_self=True))


def named_layers(model: paddle.nn.Layer) -> list[tuple[str, paddle.nn.Layer]]:
    return list(model.named_sublayers(include_self=True))


def own_state(layer: paddle.nn.Layer) -> dict[str, paddle.Tensor]:
    held = {**layer._parameters, **layer._buffers}
    return {name: tensor for name, tensor in held.items() if _holds_memory(tensor)}


def own_buffers(layer: paddle.nn.Layer) -> dict[str, paddle.Tensor]:
    return {name: tensor for name, tensor in layer._buffers.items() if _holds_memory(tensor)}


def named_parameters(model: paddle.nn.Layer) -> dict[str, paddle.Tensor]:
    # paddle keeps the running statistics of a batch norm among the parameters; torch calls them buffers, and so do we.
    return {name: p for name, p in model.named_parameters() if name.rsplit(".", 1)[-1] not in ("_mean", "_variance")}


def trainable(parameter: paddle.Tensor) -> bool:
    return not parameter.stop_gradient


def set_trainable(parameter: paddle.Tensor, trainable: bool) -> None:
    parameter.stop_gradient = not trainable


def floating_buffers(model: paddle.nn.Layer) -> dict[str, Any]:
    state = state_tensors(model)
    known = {*named_parameters(model), *layout.tied_keys(state)}  # an RNN's weights have a second key each
    return {n: t for n, t in state.items() if n not in known and t.is_floating_point()}


def state_tensors(model: paddle.nn.Layer) -> dict[str, paddle.Tensor]:
    return dict(model.state_dict())


def state_items(model: paddle.nn.Layer) -> Iterator[tuple[str, np.ndarray]]:
    for name, tensor in model.state_dict().items():
        yield name, to_array(tensor)


def load_state_arrays(model: paddle.nn.Layer, arrays: Mapping[str, np.ndarray]) -> None:
    # Layer.set_state_dict is lenient: it warns, and keeps the random initialisation.
    state = state_tensors(model)
    wrong = [f"missing key {name!r}" for name in state if name not in arrays]
    wrong += [f"unexpected key {name!r}" for name in arrays if name not in state]
    wrong += [
        f"size mismatch for {name!r}: {list(arrays[name].shape)} given, the model has {list(tensor.shape)}"
        for name, tensor in state.items()
        if name in arrays and list(arrays[name].shape) != list(tensor.shape)
    ]
    if wrong:
        raise RuntimeError(f"the state does not fit {type(model).__name__}: " + "; ".join(wrong))
    for name, tensor in state.items():
        dtype = str(tensor.dtype).removeprefix("paddle.")
        cast = dtype == "bfloat16"  # numpy has no such type
        values = paddle.to_tensor(arrays[name]).astype(dtype) if cast else arrays[name].astype(dtype, copy=False)
        tensor.set_value(values)


def gradient_items(model: paddle.nn.Layer) -> Iterator[tuple[str, np.ndarray]]:
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            yield name, values_of(parameter.grad)


def clear_gradients(model: paddle.nn.Layer) -> None:
    for parameter in model.parameters():
        parameter.clear_gradient(False)  # `set_to_zero`, which paddle does not understand as a keyword


def describe_state(model: paddle.nn.Layer) -> list[dict[str, Any]]:
    attributes = layout.LayerAttributes("_sub_layers", "_non_persistable_buffer_names_set", "paddle.")
    entries = layout.walk_state(
        model,
        state_tensors(model),
        attributes,
        _layer_facts,
        lambda t: isinstance(t, paddle.base.framework.EagerParamBase),
        trainable,
    )
    return [entry.to_json() for entry in entries]


def state_versions(model: paddle.nn.Layer) -> dict[str, int]:
    return {}


@contextlib.contextmanager
def observing(model: paddle.nn.Layer, observe: Callable[[str, Any, list[Any], list[Any]], None]) -> Iterator[None]:
    # paddle's hooks are not given keyword arguments.
    def hook(path: str, layer: Any, given: Any, returned: Any) -> None:
        observe(path, layer, tensors_in(given), tensors_in(returned))

    with contextlib.ExitStack() as stack:
        for path, layer in named_layers(model):
            stack.callback(layer.register_forward_post_hook(functools.partial(hook, path)).remove)
        yield


def _holds_memory(tensor: paddle.Tensor | None) -> bool:
    """Whether the tensor has values; an RNN's `_dropout_state`, room for cuDNN, has none at first."""
    return tensor is not None and bool(tensor._is_initialized())


def _rnn_with_gradient(layer: RNNBase, *arguments: Any) -> Any:
    """Run an RNN so that it is differentiable in evaluation mode: as in training without dropout, the numbers are
    equal.

    In evaluation mode paddle's operator keeps nothing for its backward, which fails with "Tensor holds no memory".
    """
    operator = type(layer)._cudnn_impl
    if layer.training or not paddle.is_grad_enabled():
        return operator(layer, *arguments)
    dropout = layer.dropout
    layer.training, layer.dropout = True, 0.0
    try:
        return operator(layer, *arguments)
    finally:
        layer.training, layer.dropout = False, dropout


def _layer_facts(layer: paddle.nn.Layer) -> dict[str, Any]:
    """Facts that a layer's arrays do not show: axes of weight and spectral norm, matrix layout, what it computes."""
    facts: dict[str, dict[str, Any]] = {"weight_norm": {}, "spectral_norm": {}, "weight_layout": {}}
    for hook in layer._forward_pre_hooks.values():
        if isinstance(hook, weight_norm_hook.WeightNorm):
            facts["weight_norm"][hook.name] = hook.dim
        elif isinstance(hook, spectral_norm_hook.SpectralNorm):
            facts["spectral_norm"][hook.name] = hook.dim
    facts["weight_layout"] = probe_matrices(layer, layer._sub_layers, _run_copy)
    facts["acts_like"] = probe_norm(layer, layer._sub_layers, _run_copy)
    return {name: value for name, value in facts.items() if value}


def _run_copy(layer: paddle.nn.Layer, parameters: Mapping[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    """Output of a copy of the layer in evaluation mode with these parameters, in float64."""
    twin = copy.deepcopy(layer)
    twin.to(dtype="float64")
    twin.eval()
    with paddle.no_grad():
        for name, value in parameters.items():
            getattr(twin, name).set_value(value)
        return to_array(twin(paddle.to_tensor(x)))
