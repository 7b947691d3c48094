"""What a model of paddle holds: its parameters and buffers, in the model, as arrays and in words."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import paddle
from paddle.nn.layer.rnn import RNNBase
from paddle.nn.utils import spectral_norm_hook, weight_norm_hook

from twinalign.convert import layout
from twinalign.convert.probe import probe_matrices


def prepare_model(model: paddle.nn.Layer, dtype: str, device: str) -> paddle.nn.Layer:
    """Move the floating-point state to `dtype`, in place; integer and boolean buffers keep theirs.

    Its RNNs are given a gradient in evaluation mode, which paddle has for them in training mode alone.
    """
    layers = model.sublayers(include_self=True)
    # Layer.to casts integer and boolean buffers as well, and fails on those that hold no memory.
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
        layer._buffers[name] = buffer
    for layer in layers:
        if isinstance(layer, RNNBase):
            object.__setattr__(layer, "_cudnn_impl", functools.partial(_rnn_with_gradient, layer))
    return model


def _rnn_with_gradient(layer: RNNBase, *arguments: Any) -> Any:
    """What an RNN computes; to be differentiated in evaluation mode, as in training without dropout: the same numbers.

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


def _holds_memory(tensor: paddle.Tensor | None) -> bool:
    """Whether there is a tensor with values; an RNN's `_dropout_state`, room for cuDNN to use, has none at first."""
    return tensor is not None and bool(tensor._is_initialized())


def to_array(tensor: paddle.Tensor) -> np.ndarray:
    """A copy of the tensor as a numpy array (bfloat16 as float32, which holds it exactly)."""
    tensor = tensor.detach()
    if tensor.dtype == paddle.bfloat16:
        tensor = tensor.astype("float32")
    return np.asarray(tensor.numpy())  # paddle makes a copy of its own


def own_state(layer: paddle.nn.Layer) -> dict[str, paddle.Tensor]:
    """Parameters and buffers that the layer itself holds, by name."""
    held = {**layer._parameters, **layer._buffers}
    return {name: tensor for name, tensor in held.items() if _holds_memory(tensor)}


def own_buffers(layer: paddle.nn.Layer) -> dict[str, paddle.Tensor]:
    """Buffers that the layer itself holds, by name."""
    return {name: tensor for name, tensor in layer._buffers.items() if _holds_memory(tensor)}


def tied_keys(model: paddle.nn.Layer) -> set[str]:
    """Keys of the state dict that are one more name of a tensor that an earlier key has."""
    first: dict[int, str] = {}
    return {name for name, tensor in model.state_dict().items() if first.setdefault(id(tensor), name) != name}


def state_items(model: paddle.nn.Layer) -> Iterator[tuple[str, np.ndarray]]:
    """Keys of the state dict with numpy copies, one at a time, in its order."""
    for name, tensor in model.state_dict().items():
        yield name, to_array(tensor)


def state_arrays(model: paddle.nn.Layer) -> dict[str, np.ndarray]:
    """The state dict as numpy copies, in its order."""
    return dict(state_items(model))


def load_state_arrays(model: paddle.nn.Layer, arrays: Mapping[str, np.ndarray]) -> None:
    """Load every key strictly, keeping the model's dtypes; raises RuntimeError on a missing, extra or misshapen key.

    `Layer.set_state_dict` is lenient (it warns and keeps the random initialisation), hence the checks here.
    """
    state = model.state_dict()
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


def named_parameters(model: paddle.nn.Layer) -> dict[str, paddle.Tensor]:
    """Parameters by state-dict name in registration order, the frozen ones too.

    paddle keeps the running statistics of a batch norm among the parameters; torch calls them buffers, and so do we.
    """
    return {name: p for name, p in model.named_parameters() if name.rsplit(".", 1)[-1] not in ("_mean", "_variance")}


def describe_state(model: paddle.nn.Layer) -> list[dict[str, Any]]:
    """Every state-dict key and every non-persistable buffer as the JSON form of `twinalign.convert.StateEntry`."""
    attributes = layout.LayerAttributes("_sub_layers", "_non_persistable_buffer_names_set", "paddle.")
    entries = layout.walk_state(
        model,
        model.state_dict(),
        attributes,
        _layer_facts,
        lambda t: isinstance(t, paddle.base.framework.EagerParamBase),
    )
    return [entry.to_json() for entry in entries]


def _layer_facts(layer: paddle.nn.Layer) -> dict[str, Any]:
    """What a layer's arrays do not tell: axes of weight and spectral norm, matrix layout."""
    facts: dict[str, dict[str, Any]] = {"weight_norm": {}, "spectral_norm": {}, "weight_layout": {}}
    for hook in layer._forward_pre_hooks.values():
        if isinstance(hook, weight_norm_hook.WeightNorm):
            facts["weight_norm"][hook.name] = hook.dim
        elif isinstance(hook, spectral_norm_hook.SpectralNorm):
            facts["spectral_norm"][hook.name] = hook.dim
    facts["weight_layout"] = probe_matrices(layer, layer._sub_layers, _run_copy)
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
