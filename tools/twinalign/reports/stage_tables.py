"""The table of a stage: every tensor with its evidence, the worst first, within a limit of bytes."""

import collections
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from twinalign.reports.language import Language
from twinalign.reports.shown_values import figure, number, short_name
from twinalign.reports.summary import accepted, deciding, greatest, has_numbers, identical, worst_first

_NUMBERS = ("max_abs", "mean_abs", "max_rel", "max_ulp", "noise_ratio", "fp64_rel")
COLUMNS = ("tensor", "verdict", *_NUMBERS, "shape", "worst_index")

FULL_ROWS = 120
"""Aligned tensors of a stage that keep their reason; further ones are shown in short form."""

FIRST_ROWS = 300
"""Tensors of a stage that are laid out at once; the others are, when somebody asks for them."""

TABLE_BYTES = 1_200_000
"""Limit for the tables of all stages together."""

_ROW_BYTES = 150
_READABLE = 1_000_000
_NOISY = 5.0
"""Ratio to the reference's own rounding from which a reader asks why the tensor is still aligned."""


@dataclasses.dataclass(frozen=True)
class Row:
    """One tensor as shown."""

    verdict: str
    cells: tuple[str, ...]
    """Texts in the order of `COLUMNS`."""
    reason: str
    short: bool
    """Whether the reason is left out."""
    accepted: bool = False


@dataclasses.dataclass
class StageTable:
    """One stage as shown."""

    name: str
    verdict: str
    count: int
    rows: list[Row]
    left_out: int
    left_out_wrong: int
    identical: bool
    float64: Any
    noise: Any
    accepted: str
    """How many tensors are accepted; they do not count in the numbers above."""
    classic: Mapping[str, Any]
    quirks: list[str]
    """The first of reprod_log's unfounded passes or failures, or why it could not compare at all."""
    noisy: Mapping[str, Any] | None
    """The tensor with the greatest noise in an aligned stage, if far above the reference's."""
    wrong: dict[str, int]
    """Verdict -> number of tensors, for verdicts that keep the stage from being aligned."""
    notes: list[str]

    @property
    def shortened(self) -> int:
        return sum(row.short for row in self.rows)

    @property
    def first(self) -> int:
        """How many rows are laid out at once; the others, and all accepted tensors, are folded."""
        return min(FIRST_ROWS, sum(not row.accepted for row in self.rows))

    @property
    def verdicts(self) -> list[str]:
        return list(dict.fromkeys(row.verdict for row in self.rows))


def stage_tables(stages: Mapping[str, Mapping[str, Any]], say: Language) -> dict[str, StageTable]:
    """Every stage's table; small stages are complete, large ones share the rest of `TABLE_BYTES`."""
    found = {}
    left = TABLE_BYTES
    by_size = sorted(stages, key=lambda name: len(stages[name]["tensors"]))
    for position, name in enumerate(by_size):
        share = left // (len(by_size) - position)
        found[name], taken = _table(name, stages[name], share, say)
        left -= taken
    return {name: found[name] for name in stages}


def _table(name: str, stage: Mapping[str, Any], share: int, say: Language) -> tuple[StageTable, int]:
    tensors = worst_first(stage["tensors"])
    rows: list[Row] = []
    taken = 0
    for row in _rows(tensors, say):
        taken += _ROW_BYTES + sum(len(cell.encode("utf-8", "replace")) for cell in (*row.cells, row.reason))
        if taken > share:
            break
        rows.append(row)
    counts = collections.Counter(tensor["verdict"] for tensor in deciding(tensors))
    table = StageTable(
        name=name,
        verdict=stage["verdict"],
        count=len(tensors),
        rows=rows,
        left_out=len(tensors) - len(rows),
        left_out_wrong=sum(t["verdict"] in ("diverged", "inconclusive") for t in tensors[len(rows) :]),
        identical=identical(deciding(tensors)),
        float64=greatest(deciding(tensors), "fp64_rel"),
        noise=greatest(deciding(tensors), "noise_ratio"),
        accepted=accepted(tensors, say),
        classic=stage["classic"],
        quirks=_quirks(stage["classic"]),
        noisy=_noisy(stage["verdict"], deciding(tensors)),
        wrong={verdict: count for verdict in ("diverged", "inconclusive") if (count := counts[verdict])},
        notes=[str(note) for note in stage.get("notes", ())],
    )
    return table, min(taken, share)


def _quirks(classic: Mapping[str, Any]) -> list[str]:
    found = [str(text) for text in (classic.get("error"), *classic.get("quirks", ())) if text]
    return found[:1] + ([f"… and {len(found) - 1} more like this"] if len(found) > 1 else [])


def _noisy(verdict: str, tensors: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    if verdict != "aligned":
        return None
    most = max(tensors, key=lambda tensor: number(tensor.get("noise_ratio")) or 0.0, default=None)
    return most if most is not None and (number(most.get("noise_ratio")) or 0.0) >= _NOISY else None


def _rows(tensors: Sequence[Mapping[str, Any]], say: Language) -> Iterator[Row]:
    right = 0
    for tensor in tensors:
        right += tensor["verdict"] in ("aligned", "rounding")
        short = right > FULL_ROWS
        verdict = say.known("verdict", tensor["verdict"])
        if tensor.get("accepted"):
            verdict += f" ({say('stages.accepted', name=tensor['accepted'])})"
        shape, worst = tensor.get("shape"), tensor.get("worst_index")
        cells = (
            short_name(tensor["name"]),
            verdict,
            *(_figure(tensor.get(key) if has_numbers(tensor) else None) for key in _NUMBERS),
            "–" if shape is None else "×".join(map(str, shape)) or "()",
            _worst(tensor, worst),
        )
        reason = "" if short else tensor["reason"]
        yield Row(tensor["verdict"], cells, reason, short, bool(tensor.get("accepted")))


def _worst(tensor: Mapping[str, Any], worst: Sequence[int] | None) -> str:
    """Index of the worst element, and what each side has there, in the nine digits that tell float32 numbers apart."""
    place = ", ".join(map(str, worst)) if worst else "–"
    values = [tensor.get(f"{side}_value") for side in ("reference", "reproduced")]
    if tensor["verdict"] not in ("diverged", "inconclusive") or any(value is None for value in values):
        return place
    reference, port = (f"{value:.9g}" if isinstance(value, float) else str(value) for value in values)
    return f"{place}: {reference} / {port}"


def _figure(value: Any) -> str:
    """A number in three digits; counts stay whole while they are readable."""
    many = isinstance(value, int) and abs(value) >= _READABLE
    return figure(float(value) if many else value)
