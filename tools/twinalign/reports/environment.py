"""The environment of both sides, entry by entry, in the order in which a reviewer asks for it."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from twinalign.reports.shown_values import legible

_GROUPS = ("versions", "flags")
_FRAMEWORK = "framework"
_ONE_SETTING = {"mkldnn": "FLAGS_use_mkldnn"}
"""Name of a setting on torch's side -> its name on paddle's side."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """One setting of both sides; empty if a side does not have it."""

    name: str
    reference: str
    port: str

    @property
    def differs(self) -> bool:
        return bool(self.reference and self.port and self.reference != self.port and self.name != _FRAMEWORK)


def environment_groups(summary: Mapping[str, Any]) -> dict[str, list[Entry]]:
    """`versions`, `flags` and `machine`, each with its entries."""
    sides = [summary["environment"].get(side, {}) for side in ("ref", "paddle")]
    tables = {group: [side.get(group) or {} for side in sides] for group in _GROUPS}
    rest = [{key: value for key, value in side.items() if key not in _GROUPS} for side in sides]
    return {group: _entries(*values) for group, values in {**tables, "machine": rest}.items()}


def _entries(reference: Mapping[str, Any], port: Mapping[str, Any]) -> list[Entry]:
    paired = {ours: theirs for ours, theirs in _ONE_SETTING.items() if ours in reference and theirs in port}
    return [
        Entry(legible(f"{name} / {paired[name]}" if name in paired else str(name)), *_values(reference, port, name))
        for name in dict.fromkeys([*reference, *port])
        if name not in paired.values()
    ]


def _values(reference: Mapping[str, Any], port: Mapping[str, Any], name: str) -> tuple[str, str]:
    other = _ONE_SETTING.get(name, name)
    return _text(reference, name), _text(port, other if other in port else name)


def _text(values: Mapping[str, Any], name: str) -> str:
    value = values.get(name)
    return "" if value is None else legible(str(value))
