"""The ledger of a conversion: every key of either side, what happened to it and why."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

ACTIONS = ("copied", "transposed", "reshaped", "renamed", "split", "merged", "cast", "tied", "filled", "dropped")
"""What can happen to a key; several may hold at once, `copied` only by itself."""


@dataclasses.dataclass(frozen=True)
class LedgerEntry:
    """One target key with the source keys that it comes from, or one source key that goes nowhere."""

    source: tuple[str, ...]
    target: str | None
    actions: tuple[str, ...]
    reason: str
    source_shapes: tuple[tuple[int, ...], ...] = ()
    target_shape: tuple[int, ...] | None = None
    dtype: str = ""
    matched_by: str = ""
    """`name`, `rename`, `order` or `trial`; empty where nothing was to be matched."""

    def to_json(self) -> dict[str, Any]:
        """Plain containers only."""
        return {
            "source": list(self.source),
            "target": self.target,
            "actions": list(self.actions),
            "reason": self.reason,
            "source_shapes": [list(shape) for shape in self.source_shapes],
            "target_shape": None if self.target_shape is None else list(self.target_shape),
            "dtype": self.dtype,
            "matched_by": self.matched_by,
        }


@dataclasses.dataclass
class Ledger:
    """All entries of one conversion, in the order of the target's keys, then what was dropped."""

    entries: list[LedgerEntry]
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)
    """About the whole: files, formats, frameworks, what `--verify` measured."""

    @property
    def source_keys(self) -> list[str]:
        """Every source key that is accounted for, each once."""
        return list(dict.fromkeys(key for entry in self.entries for key in entry.source))

    @property
    def target_keys(self) -> list[str]:
        """Every target key that is accounted for."""
        return [entry.target for entry in self.entries if entry.target is not None]

    def totals(self) -> dict[str, int]:
        """How many entries each action touched."""
        counted = Counter(action for entry in self.entries for action in entry.actions)
        return {action: counted[action] for action in ACTIONS if counted[action]}

    def unaccounted(self, source_keys: Sequence[str], target_keys: Sequence[str]) -> list[str]:
        """Keys of either side that no entry mentions: empty, or the conversion is wrong."""
        known = set(self.source_keys)
        made = set(self.target_keys)
        return [key for key in source_keys if key not in known] + [key for key in target_keys if key not in made]

    def to_json(self) -> dict[str, Any]:
        """Plain containers only: `facts`, `totals` and `entries`."""
        return {**self.facts, "totals": self.totals(), "entries": [entry.to_json() for entry in self.entries]}

    def dumps(self) -> str:
        """The ledger as JSON text."""
        return json.dumps(self.to_json(), indent=1) + "\n"
