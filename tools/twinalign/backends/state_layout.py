"""How a model lays out its state: one entry per key, made by a backend's `describe_state`, as JSON.

Nothing here imports a framework: the backends pass the names of the attributes in which their layers keep children,
parameters and buffers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class StateEntry:
    """One key of a state dict, or one buffer that is not in it."""

    key: str
    """Name in the state dict, e.g. `blocks.0.attn.proj.weight`."""
    shape: tuple[int, ...]
    dtype: str
    """numpy's name of the dtype, e.g. `float32`, `bfloat16`, `int64`."""
    layer: str
    """Path of the layer that holds it (`""`: the model itself)."""
    name: str
    """Its name inside of that layer, e.g. `weight`."""
    bases: tuple[str, ...]
    """Full names of the layer's class and its bases, in method resolution order, `object` left out."""
    role: str = "parameter"
    """`parameter` or `buffer`."""
    persistent: bool = True
    """False: a buffer that is no key of the state dict."""
    tied_to: str | None = None
    """The first key that holds the very same tensor, None where this is the first or only one."""
    parameter_name: str | None = None
    """paddle's global name of the parameter, under which its optimizers keep their state."""
    trainable: bool | None = None
    """Whether a parameter gets gradients; None: it is no parameter, or nobody knows."""
    config: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Facts about the layer that its arrays do not tell: weight_norm, spectral_norm, weight_layout, acts_like."""

    @classmethod
    def of(cls, entry: StateEntry | Mapping[str, Any]) -> StateEntry:
        """The entry itself, or one made from its JSON form."""
        if isinstance(entry, StateEntry):
            return entry
        return cls(**{**entry, "shape": tuple(entry["shape"]), "bases": tuple(entry["bases"])})

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "shape": list(self.shape), "bases": list(self.bases)}  # asdict copies, and takes long


@dataclasses.dataclass
class Layer:
    """A layer that holds state: its path, its classes and its entries in registration order."""

    path: str
    bases: tuple[str, ...]
    entries: list[StateEntry]
    config: Mapping[str, Any]

    @property
    def class_name(self) -> str:
        return self.bases[0] if self.bases else "?"

    @property
    def short_class(self) -> str:
        """The class without its module, for messages."""
        return self.class_name.rsplit(".", 1)[-1]

    def local_name(self, entry: StateEntry) -> str:
        """The entry's name relative to this layer; for state absorbed from a child, with the child's path."""
        return entry.key[len(self.path) + 1 :] if self.path else entry.key


def group_layers(
    entries: Iterable[StateEntry | Mapping[str, Any]], absorbs: Callable[[tuple[str, ...]], bool]
) -> list[Layer]:
    """Group entries by their layer, in registration order; buffers that are not keys are left out.

    `absorbs(bases)` says whether a layer of these classes owns the state of everything below it (a MultiHeadAttention
    and its projections, an LSTM and its cells).
    """
    layers: dict[str, Layer] = {}
    classes: dict[str, tuple[tuple[str, ...], Mapping[str, Any]]] = {}
    known = [StateEntry.of(entry) for entry in entries]
    for entry in known:
        classes.setdefault(entry.layer, (entry.bases, entry.config))
        for path, bases in entry.config.get("ancestors", {}).items():
            classes.setdefault(path, (tuple(bases), {}))
    for entry in known:
        if not entry.persistent:
            continue
        owner = entry.layer
        for ancestor in _ancestors(entry.layer):
            if ancestor in classes and absorbs(classes[ancestor][0]):
                owner = ancestor
                break
        bases, config = classes[owner]
        layers.setdefault(owner, Layer(owner, bases, [], config)).entries.append(entry)
    return list(layers.values())


def _ancestors(path: str) -> Iterator[str]:
    """Every path above `path`, outermost first."""
    if not path:
        return
    yield ""
    steps = path.split(".")
    for count in range(1, len(steps)):
        yield ".".join(steps[:count])


def tied_keys(state: Mapping[str, Any]) -> set[str]:
    """Keys of a state dict that are one more name of a tensor that an earlier key has."""
    first: dict[int, str] = {}
    return {name for name, tensor in state.items() if first.setdefault(id(tensor), name) != name}


def class_names(kind: type) -> list[str]:
    """Full names of a class and its bases in method resolution order, `object` left out."""
    return [f"{base.__module__}.{base.__qualname__}" for base in kind.__mro__ if base is not object]


@dataclasses.dataclass(frozen=True)
class LayerAttributes:
    """The attributes in which a framework's layers keep their contents."""

    children: str
    """Attribute with the child layers by name: `_modules`, `_sub_layers`."""
    non_persistent: str
    """Attribute with the set of names of buffers left out of the state dict."""
    dtype_prefix: str
    """What the framework writes before the dtype's name: `torch.`, `paddle.`."""


def walk_state(
    model: Any,
    state: Mapping[str, Any],
    attributes: LayerAttributes,
    config_of: Callable[[Any], dict[str, Any]],
    is_parameter: Callable[[Any], bool],
    is_trainable: Callable[[Any], bool],
) -> list[StateEntry]:
    """Describe every key of `state` and every buffer outside of it, in the order of `state`.

    A layer that is reachable under two paths is described under both, as both frameworks' state dicts list it. Keys
    that no layer owns (state-dict hooks make such keys) are attributed to the model itself.
    """
    found: dict[str, StateEntry] = {}
    tensors: dict[str, Any] = {}

    def visit(layer: Any, path: str, ancestors: dict[str, list[str]]) -> None:
        bases = class_names(type(layer))
        held = {**layer._parameters, **layer._buffers}
        config = config_of(layer) if any(value is not None for value in held.values()) else {}
        for name, value in held.items():
            if value is None:
                continue
            key = f"{path}.{name}" if path else name
            tensors[key] = value
            found[key] = StateEntry(
                key=key,
                shape=tuple(int(size) for size in value.shape),
                dtype=str(value.dtype).removeprefix(attributes.dtype_prefix),
                layer=path,
                name=name,
                bases=tuple(bases),
                role="parameter" if is_parameter(value) else "buffer",
                persistent=name in layer._parameters or name not in getattr(layer, attributes.non_persistent),
                parameter_name=getattr(value, "name", None) or None,
                trainable=is_trainable(value) if is_parameter(value) else None,
                config={**config, "ancestors": ancestors},
            )
        below = {**ancestors, path: bases}
        for name, child in getattr(layer, attributes.children).items():
            if child is not None:
                visit(child, f"{path}.{name}" if path else name, below)

    visit(model, "", {})
    return _in_state_order(model, state, found, tensors, attributes)


def _in_state_order(
    model: Any,
    state: Mapping[str, Any],
    found: Mapping[str, StateEntry],
    tensors: Mapping[str, Any],
    attributes: LayerAttributes,
) -> list[StateEntry]:
    """The entries in the order of the state dict with ties marked, then the buffers that are not keys."""
    entries = []
    first_key: dict[int, str] = {}
    for key, value in state.items():
        entry = found.get(key) or StateEntry(
            key=key,
            shape=tuple(getattr(value, "shape", ())),
            dtype=str(getattr(value, "dtype", "object")).removeprefix(attributes.dtype_prefix),
            layer="",
            name=key,
            bases=tuple(class_names(type(model))),
            role="buffer",
        )
        holder = first_key.setdefault(id(tensors.get(key, value)), key)
        entries.append(dataclasses.replace(entry, persistent=True, tied_to=None if holder == key else holder))
    entries += [dataclasses.replace(entry, persistent=False) for key, entry in found.items() if key not in state]
    return entries
