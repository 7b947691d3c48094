"""Gives a model's weights the ties that the port's have: one tensor where there are several, or several for one."""

import copy
from collections.abc import Sequence
from typing import Any

import torch


def tie(model: torch.nn.Module, keys: Sequence[str]) -> None:
    """Let all keys of the state hold the first one's tensor."""
    layer, name = _holder(model, keys[0])
    first = getattr(layer, name)
    for key in keys[1:]:
        layer, name = _holder(model, key)
        held = layer._parameters if name in layer._parameters else layer._buffers
        held[name] = first


def untie(model: torch.nn.Module, groups: Sequence[Sequence[str]]) -> None:
    """Let each key of a group have a tensor of its own; a layer that is shared becomes several."""
    tensors = dict(model.state_dict(keep_vars=True))
    apart = {id(tensors[key]) for keys in groups for key in keys}
    # A copy of a layer shares what is not to be parted with it.
    others = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers()) if id(tensor) not in apart}
    seen = {id(layer): path for path, layer in model.named_modules()}  # by the first of its paths
    for keys in groups:
        for key in keys[1:]:
            path = key.rpartition(".")[0]
            shared = next((part for part in _parts(path) if seen.get(id(_layer(model, part))) != part), None)
            if shared is not None:
                outer, _, name = shared.rpartition(".")
                made = copy.deepcopy(_layer(model, shared), dict(others))
                _layer(model, outer)._modules[name] = made
                seen |= {id(layer): f"{shared}.{inner}".rstrip(".") for inner, layer in made.named_modules()}
            layer, name = _holder(model, key)
            held: dict[str, Any] = layer._parameters if name in layer._parameters else layer._buffers
            if shared is None or held[name] is tensors[key]:
                held[name] = copy.deepcopy(tensors[key])


def _holder(model: torch.nn.Module, key: str) -> tuple[torch.nn.Module, str]:
    path, _, name = key.rpartition(".")
    return _layer(model, path), name


def _layer(model: torch.nn.Module, path: str) -> torch.nn.Module:
    return model.get_submodule(path)


def _parts(path: str) -> list[str]:
    """The paths of the layers around a layer, the outermost first, and its own."""
    names = path.split(".") if path else []
    return [".".join(names[: end + 1]) for end in range(len(names))]
