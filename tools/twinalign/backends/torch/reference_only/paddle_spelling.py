"""What paddle's functions and methods compute, in torch, so that a line of a port's code can run in the reference.

A function that is not in the table has the same name in torch, and arguments that `KEYWORDS` translates. A name that
torch lacks raises AttributeError: then the line proves nothing.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from twinalign.backends.torch import optimizers
from twinalign.backends.torch.reference_only.paddle_functions import KEYWORDS, OWN, type_of
from twinalign.backends.torch.reference_only.paddle_optimizers import EXTENDED, OPTIMIZERS, name_of
from twinalign.backends.torch.reference_only.signatures import ARGUMENTS

_WITHOUT_MEANING = ("name", "data_format", "place", "stop_gradient", "inplace")
_SAME_THING = {
    "as_complex": "view_as_complex", "as_real": "view_as_real",
    "concat": "cat", "multiply": "mul", "subtract": "sub", "divide": "div", "mod": "remainder", "swish": "silu",
    "floor_mod": "remainder", "less_than": "lt", "less_equal": "le", "greater_than": "gt", "greater_equal": "ge",
    "equal": "eq", "not_equal": "ne", "less": "lt", "greater": "gt", "neg": "negative", "elementwise_mul": "mul",
    "log_sigmoid": "logsigmoid", "unstack": "unbind",
}  # fmt: skip
_OTHER_ATTRIBUTES = {
    "_mean": "running_mean", "_variance": "running_var", "_epsilon": "eps", "_num_heads": "num_heads",
    "_stride": "stride", "_padding": "padding", "_groups": "groups", "_dilation": "dilation",
}  # fmt: skip


def _parameters(layer: torch.nn.Module, include_sublayers: bool = True) -> list[torch.Tensor]:
    """Those of paddle's layer, which has the running statistics of batch norms among them."""
    found: dict[int, torch.Tensor] = {}
    for module in layer.modules() if include_sublayers else (layer,):
        own = [*module._parameters.values(), *(getattr(module, name, None) for name in _statistics_of(module))]
        found |= {id(one): one for one in own if one is not None}
    return list(found.values())


def _buffers(layer: torch.nn.Module, include_sublayers: bool = True) -> list[torch.Tensor]:
    modules = layer.modules() if include_sublayers else (layer,)
    pairs = ((module, name, one) for module in modules for name, one in module._buffers.items())
    return [one for module, name, one in pairs if one is not None and name not in _statistics_of(module)]


def _statistics_of(module: torch.nn.Module) -> tuple[str, ...]:
    is_norm = isinstance(module, torch.nn.modules.batchnorm._NormBase)
    return ("running_mean", "running_var") if is_norm else ()


_OF_LAYERS: dict[str, Callable[..., Any]] = {
    "parameters": _parameters,
    "buffers": _buffers,
    "sublayers": lambda layer, include_self=False: list(layer.modules())[0 if include_self else 1 :],
    "named_sublayers": lambda layer, **_: layer.named_modules(),
    "state_dict": lambda layer, *_, **__: layer.state_dict(keep_vars=True),
    "set_state_dict": lambda layer, values, **_: layer.load_state_dict(values, strict=False),
    "set_dict": lambda layer, values, **_: layer.load_state_dict(values, strict=False),
    "to": lambda layer, device=None, dtype=None, blocking=None: layer if dtype is None else layer.to(type_of(dtype)),
    "astype": lambda layer, dtype: layer.to(type_of(dtype)),
}
"""Methods that torch's layers lack, or that give something else there: lists can be gone through twice."""
_LAYERS = {**_SAME_THING, "upsample": "interpolate", "zeropad": "pad"}
"""Layers of paddle's, in lower case → the functions that do it, where these are not named after them."""
_CONTAINERS = {
    "nn", "functional", "tensor", "linalg", "fft", "special", "Tensor", "compat", "optimizer", "lr", "regularizer",
}  # fmt: skip


_OF_OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "clear_grad": lambda optimizer: lambda set_to_zero=True: optimizer.zero_grad(),
    "clear_gradients": lambda optimizer: optimizer.zero_grad,
    "set_lr": lambda optimizer: functools.partial(optimizers.set_learning_rate, optimizer),
    "get_lr": lambda optimizer: functools.partial(_rate_of, optimizer),
}


def _rate_of(optimizer: torch.optim.Optimizer) -> float:
    """Without the factors of its groups, if a line of the port has made it."""
    rate = getattr(optimizer, "_learning_rate", None)
    return rate() if callable(rate) else optimizers.learning_rate(optimizer)


class Paddle:
    """Stands for the module `paddle`, and those inside it, in a line of a port."""

    def __getattr__(self, name: str) -> Any:
        if name in _CONTAINERS:
            return self
        if name in EXTENDED:
            return EXTENDED[name]
        if name == "on_arrays":
            return on_arrays
        if name == "utils":
            return torch.nn.utils
        if isinstance(known := getattr(torch, name, None), (torch.dtype, float)):
            return known
        return functools.partial(call, name)

    def __call__(self, *given: Any, **named: Any) -> Any:
        """The only function that is named like the module it is in: `paddle.fft.fft`."""
        return call("fft", *given, **named)


PADDLE = Paddle()


def attribute(facts: Mapping[int, Mapping[str, Any]], value: Any, name: str, *usual: Any) -> Any:
    """What `value.name` is in a line of a port.

    `__call__` is the value itself, as the line calls it.
    `usual`: what the port has by that name, for what the reference has under none.
    `facts`: id of a module → what the port's layer has by that name: a plain value, or the name of a child layer; 0 →
    names of the port's → those that the reference has for the same.
    """
    if name == "__call__":
        return functools.partial(_call_of_cell, value) if isinstance(value, torch.nn.RNNCellBase) else value
    if isinstance(value, torch.Tensor):
        if name == "shape":
            return list(value.shape)
        if name in ("stop_gradient", "trainable"):
            return value.requires_grad is (name == "trainable")
        if name == "size":
            return value.numel()
        if name == "name":
            return name_of(value)
        if name == "T":
            return value.permute(*reversed(range(value.dim())))
        own = None if name in ("real", "imag") else getattr(torch.Tensor, name, None)  # in paddle these are called
        return functools.partial(call, name, value) if callable(own) or own is None else getattr(value, name)
    if isinstance(value, torch.optim.Optimizer):
        return _OF_OPTIMIZERS[name](value) if name in _OF_OPTIMIZERS else getattr(value, name, *usual)
    if isinstance(value, torch.nn.Linear) and name == "weight":
        return value.weight.t()
    if isinstance(value, torch.nn.Module) and name in _OF_LAYERS:
        return functools.partial(_OF_LAYERS[name], value)
    if isinstance(value, torch.nn.Module):
        for spelled in (name, _OTHER_ATTRIBUTES.get(name, name), name.lstrip("_")):
            if hasattr(value, spelled):
                return getattr(value, spelled)
        if (own := name.lstrip("_")) in (known := facts.get(id(value), {})):
            is_child = isinstance(known[own], str) and hasattr(value, known[own])
            return getattr(value, known[own]) if is_child else known[own]
    other = facts.get(0, {}).get(name)
    if isinstance(other, str) and not hasattr(value, name) and hasattr(value, other):
        return getattr(value, other)
    if name == "saved_tensor" and hasattr(value, "saved_tensors"):  # of an autograd function's context
        return lambda: value.saved_tensors
    return getattr(value, name, *usual)


def on_arrays(function: Callable[..., Any], *given: Any, **named: Any) -> Any:
    """What a function of the port's that computes with numpy's arrays gives where the reference has tensors."""
    has_tensors = any(isinstance(one, torch.Tensor) for one in (*given, *named.values()))
    arrays = [_as_array(one) for one in given], {name: _as_array(one) for name, one in named.items()}
    found = function(*arrays[0], **arrays[1])
    return as_tensors(found) if has_tensors else found


def _as_array(value: Any) -> Any:
    return value.detach().numpy() if isinstance(value, torch.Tensor) else value


def as_tensors(value: Any) -> Any:
    """A value with torch's tensors in place of numpy's arrays, in lists, tuples and dictionaries too."""
    if isinstance(value, (np.ndarray, np.generic)):
        return torch.as_tensor(value)
    if type(value) in (tuple, list):
        return type(value)(map(as_tensors, value))
    return {name: as_tensors(one) for name, one in value.items()} if type(value) is dict else value


def _call_of_cell(cell: Any, *given: Any, **keywords: Any) -> Any:
    """What paddle's recurrent cell returns: its output, and its new state behind that."""
    states = cell(*given, **{{"inputs": "input", "states": "hx"}.get(key, key): own for key, own in keywords.items()})
    return (states[0], states) if isinstance(states, tuple) else (states, states)


def call(name: str, *given: Any, **keywords: Any) -> Any:
    """What paddle's function or method of this name returns for these arguments, a method's tensor first."""
    if str(keywords.get("data_format", "NCHW"))[1:2] != "C":
        raise NotImplementedError(f"{name} with the channels last")
    keywords = {key: value for key, value in keywords.items() if key not in _WITHOUT_MEANING}
    if name in OWN:
        return OWN[name](*given, **keywords)
    if name in OPTIMIZERS:
        return OPTIMIZERS[name](*given, **keywords)
    if len(name) > 2 and name.endswith("_") and not name.endswith("__") and isinstance(given[0], torch.Tensor):
        return given[0].copy_(call(name[:-1], *given, **keywords))
    keywords = {KEYWORDS.get(key, key): value for key, value in keywords.items()}
    spelled = _SAME_THING.get(name, name)
    for place in (torch, functional, torch.linalg, torch.special, torch.fft):
        if callable(function := getattr(place, spelled, None)):  # torch.fft is a module, which has a function fft
            if given and not isinstance(given[0], (torch.Tensor, list, tuple, str, int)) and place is torch:
                given = (torch.as_tensor(given[0]), *given[1:])
            return function(*given, **keywords)
    return getattr(given[0], spelled)(*given[1:], **keywords)


def layer(
    kind: str, facts: Mapping[str, Any], own: Any, weights: Mapping[str, Any] = MappingProxyType({})
) -> Callable[[Any], Any]:
    """What one of paddle's own layers computes of a tensor: the function that its class is named after.

    Args:
        kind: the name of its class.
        facts: its attributes.
        own: torch's layer in its place, whose weight and bias it is given; where that has none, it has none either.
        weights: those that it has of its own instead, in paddle's layout.

    Raises:
        KeyError: no function does what the layer does, or it draws random numbers.
    """
    if kind == "Identity":
        return lambda x: x
    name = _function_of(kind.lower())
    settings = {"kernel_size": facts.get("ksize"), "pad": facts.get("padding"), **facts}
    settings |= {KEYWORDS.get(key, key): value for key, value in settings.items()}
    settings |= {parameter: None if weights else getattr(own, parameter, None) for parameter in ("weight", "bias")}
    settings |= weights
    given = {key: settings[key] for key in arguments_of(name) if settings.get(key) is not None}
    if name == "batch_norm":
        return functools.partial(_batch_norm, own.training, given)
    return functools.partial(OWN.get(name) or getattr(functional, name), **given)


def _function_of(kind: str) -> str:
    """The function that a layer's class in lower case is named after, with or without the number of dimensions."""
    plain = kind[:-2] if kind.endswith("d") else kind
    known = [name for name in (*ARGUMENTS, *OWN) if not name.endswith("_") and "dropout" not in name]
    names = {name.replace("_", ""): name for name in known}
    return names.get(kind) or names.get(plain) or _LAYERS[plain]


def arguments_of(name: str) -> list[str]:
    """Torch's names of what a function is given; not a layer's momentum, which moves statistics and nothing else."""
    parameters = inspect.signature(OWN[name]).parameters if name in OWN else {}
    known = ARGUMENTS.get(name, ()) if not parameters or "named" in parameters else tuple(parameters)
    return [key for key in known if key not in ("momentum", "inplace")]


def _batch_norm(training: bool, given: Mapping[str, Any], x: Any) -> Any:
    """With the batch's statistics in training, otherwise with running ones as they are before any training."""
    mean, variance = (None, None) if training else (x.new_zeros(x.shape[1]), x.new_ones(x.shape[1]))
    return functional.batch_norm(x, mean, variance, training=training, **given)
