"""How each framework stores each kind of layer: the registry from which conversions are derived.

A *slot* is a tensor of a layer in one canonical form, which is torch's (`weight` of a Linear is (out, in)). A rule
says, for a class of one framework, which slots each stored tensor holds and how: unchanged, transposed, flattened, or
several slots packed along the first axis. Two rules for the same kind define the conversion between them, both ways.

To add one for a layer of your own:

>>> from twinalign.conversion import storage_rule, Stored
>>> @storage_rule("paddle", "my_port.layers.InOutLinear", kind="linear")
... def in_out_linear(layer):
...     return [Stored.of(layer, "weight", transposed=True), Stored.of(layer, "bias")]
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from twinalign.backends.state_layout import Layer, StateEntry


@dataclasses.dataclass(frozen=True)
class Slot:
    """One canonical tensor of a layer."""

    name: str
    shape: tuple[int, ...]
    """Canonical shape, that is after `transposed` was undone."""
    fill: float | None = None
    """What stands in where the other framework has no such tensor; None: it must be there."""
    note: str = ""
    """Why the other framework may lack it."""


@dataclasses.dataclass(frozen=True)
class Stored:
    """One stored tensor: its entry, the slots packed in it along axis 0, and how it differs from the canonical form."""

    entry: StateEntry
    """Carries the key, the shape and the dtype as they are in the file."""
    slots: tuple[Slot, ...]
    transposed: bool = False
    flexible: bool = False
    """Whether the same numbers may be stored in another shape (a flattened LayerNorm weight)."""
    proven: bool = True
    """False where the layout is an assumption: a 2-D tensor of a class that nothing is known about."""

    @classmethod
    def of(
        cls,
        layer: Layer,
        name: str,
        slot: str | None = None,
        *,
        transposed: bool = False,
        flexible: bool = False,
        proven: bool = True,
        fill: float | None = None,
        note: str = "",
    ) -> Stored:
        """The tensor `name` of `layer`, which holds the single slot `slot` (by default of the same name)."""
        entry = next(entry for entry in layer.entries if layer.local_name(entry) == name)
        transposed = transposed and len(entry.shape) == 2
        shape = entry.shape[::-1] if transposed else entry.shape
        return cls(entry, (Slot(slot or name, shape, fill, note),), transposed, flexible, proven)

    @classmethod
    def packed(cls, layer: Layer, name: str, slots: Sequence[str], rows: Sequence[int] | None = None) -> Stored:
        """The tensor `name`, which holds several slots along its first axis, in equal parts unless `rows` is given."""
        entry = next(entry for entry in layer.entries if layer.local_name(entry) == name)
        rows = rows or [entry.shape[0] // len(slots)] * len(slots)
        return cls(entry, tuple(Slot(slot, (count, *entry.shape[1:])) for slot, count in zip(slots, rows, strict=True)))


StorageRule = Callable[[Layer], list[Stored]]


@dataclasses.dataclass(frozen=True)
class _Registered:
    kind: str
    rule: StorageRule
    absorbs: bool


_rules: dict[tuple[str, str], _Registered] = {}


def storage_rule(
    framework: str, *class_names: str, kind: str, absorbs: bool = False
) -> Callable[[StorageRule], StorageRule]:
    """Register how `framework` (`"torch"` or `"paddle"`) stores the layers of these classes and their subclasses.

    `kind` is shared by the two frameworks; messages show it, and layers without equal names are matched by it.
    `absorbs`: the layer owns the state of the layers below it, with names like `q_proj.weight`.
    A later registration of a class replaces an earlier one.
    """

    def register(rule: StorageRule) -> StorageRule:
        for name in class_names:
            _rules[framework, name] = _Registered(kind, rule, absorbs)
        return rule

    return register


def find_rule(framework: str, bases: Sequence[str]) -> _Registered | None:
    """The rule of the nearest base that has one."""
    return next((found for base in bases if (found := _rules.get((framework, base)))), None)


def framework_class(framework: str, kind: str) -> tuple[str] | None:
    """The framework's own class of a kind, as the only base: the first one that has a rule; None without one."""
    names = (name for (owner, name), found in _rules.items() if owner == framework and found.kind == kind)
    return next(((name,) for name in names if name.startswith(f"{framework}.")), None)


def absorbs(framework: str, bases: Sequence[str]) -> bool:
    """Whether a layer of these classes owns the state of everything below it."""
    if any(base.startswith("torch.nn.utils.parametrize.Parametrized") for base in bases):
        return True  # its weight lives in layers of its own, `parametrizations.weight`
    rule = find_rule(framework, bases)
    return rule is not None and rule.absorbs


def is_own_linear(layer: Layer) -> bool:
    """Whether the layer's class is a user's, derived from one of the frameworks' Linear layers."""
    linear = any(base.endswith((".linear.Linear", ".common.Linear", "compat.nn.Linear")) for base in layer.bases[1:])
    return linear and not layer.class_name.startswith(("torch.", "paddle."))


RAW = "raw"
"""Kind of a layer whose class no rule knows: its tensors are copied under their names."""


def kind_of(framework: str, layer: Layer) -> str:
    """The kind of the layer: its rule's, or `raw`."""
    rule = find_rule(framework, layer.bases)
    if rule is not None:
        return rule.kind
    return "linear" if layer.config.get("weight_layout") else RAW
