"""The ledger of a conversion: every key of both sides, what happened to it and why."""

import dataclasses
import json
from collections import Counter
from typing import Any

ACTIONS = ("copied", "transposed", "reshaped", "renamed", "split", "merged", "cast", "tied", "filled", "dropped")
"""What can happen to a key; several may hold at once, `copied` only by itself."""


@dataclasses.dataclass(frozen=True)
class LedgerEntry:
    """One target key with the source keys that it comes from, or one source key that is dropped."""

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
        found: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))  # which makes lists of tuples
        return found


@dataclasses.dataclass
class Ledger:
    """All entries of one conversion: the target's keys in their order, then what was dropped."""

    entries: list[LedgerEntry]
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)
    """About the whole: files, formats, frameworks, what `--verify` measured."""

    def totals(self) -> dict[str, int]:
        """How many entries each action applies to."""
        counted = Counter(action for entry in self.entries for action in entry.actions)
        return {action: counted[action] for action in ACTIONS if counted[action]}

    def to_json(self) -> dict[str, Any]:
        return {**self.facts, "totals": self.totals(), "entries": [entry.to_json() for entry in self.entries]}

    def dumps(self) -> str:
        return json.dumps(self.to_json(), indent=1) + "\n"
