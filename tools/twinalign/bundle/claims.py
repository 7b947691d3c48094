"""What the summary claims against what the arrays give."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator
from typing import Any

from twinalign.bundle.layout import shown
from twinalign.verdict import Comparison
from twinalign.verdict.results import TensorVerdict, plain

_RELATIVE = 1e-4
"""Sums are taken in another order on another processor; nothing that is compared is less stable than this."""
# Without a way back (++): a claim is a stranger's, and digits without end must not take time without end.
_NUMBER = re.compile(r"[-+]?(?:(?<!\d)\d++(?:\.\d++)?+(?:e[-+]?\d++)?+|inf|nan)\b", re.IGNORECASE)
_LINE_MORE = 80
"""Letters by which a line of a log may be longer than twice what is expected: its time, a number of more digits."""
_STAMP = re.compile(r"^\[(\d{4}/\d\d/\d\d \d\d:\d\d:\d\d)\] root INFO: ", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Mismatch:
    """One thing that is claimed and not so."""

    stage: str
    tensor: str
    field: str
    claimed: Any
    found: Any

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        where = shown(f"{self.stage} {self.tensor}".strip())
        return f"{where}: {self.field} is claimed as {_worded(self.claimed)}, and is {_worded(self.found)}"


def _worded(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else shown(str(value), 120)


def check_stage(stage: str, claim: dict[str, Any], found: Comparison, words: bool = True) -> list[Mismatch]:
    """Every claim on a stage that its recordings do not bear out.

    Args:
        stage: Its name.
        claim: What the summary says of it.
        found: What its recordings give.
        words: Whether reasons are compared: another version of twinalign may say the same in other words.
    """
    mismatches = []
    if claim["verdict"] != found.verdict:
        mismatches.append(Mismatch(stage, "", "verdict", claim["verdict"], found.verdict))
    classic = found.classic.to_json()
    mismatches += [
        Mismatch(stage, "", f"reprod_log's {field}", *_first_odd(claim["classic"], classic, field))
        for field in sorted(claim["classic"].keys() & classic.keys())
        if not _same(claim["classic"][field], classic[field], text=True)
    ]
    if "counts" in claim and claim["counts"] != found.counts:
        mismatches.append(Mismatch(stage, "", "counts", claim["counts"], found.counts))
    training = plain(found.training or {})
    mismatches += [
        Mismatch(stage, "", f"training's {field}", claim["training"][field], training[field])
        for field in sorted(claim.get("training", {}).keys() & training.keys())
        if not _same(claim["training"][field], training[field], text=True, loose=True)
    ]
    claimed = {tensor["name"]: tensor for tensor in claim["tensors"]}
    if len(claimed) != len(claim["tensors"]):
        mismatches.append(Mismatch(stage, "", "names", "one tensor twice", "each once"))
    for tensor in found.tensors:
        other = claimed.pop(tensor.name, None)
        if other is None:
            mismatches.append(Mismatch(stage, tensor.name, "tensor", "absent", tensor.verdict))
            continue
        mismatches += [odd for odd in _check_tensor(stage, other, tensor) if words or odd.field != "reason"]
    mismatches += [Mismatch(stage, name, "tensor", claimed[name]["verdict"], "absent") for name in claimed]
    return mismatches


def _first_odd(claim: dict[str, Any], found: dict[str, Any], field: str) -> tuple[Any, Any]:
    one, other = claim[field], found[field]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return next((pair for pair in zip(one, other, strict=True) if not _same(*pair, text=True)), (one, other))
    return one, other


def _check_tensor(stage: str, claim: dict[str, Any], found: TensorVerdict) -> Iterator[Mismatch]:
    """Fields that another version of twinalign adds or lacks are passed over; the schema has those that must be."""
    if _identical(claim, found):
        return  # on the machine that packed the bundle nearly all are equal: no need to look closer
    for field, value in found.to_json().items():
        if field not in claim or (claim[field] == value and type(claim[field]) is type(value)):
            continue
        if not _same(claim[field], value, text=field == "reason", loose=field == "reason"):
            yield Mismatch(stage, found.name, field, claim[field], value)


def _identical(claim: dict[str, Any], found: TensorVerdict) -> bool:
    """Whether every field is for certain claimed as it is found; False says nothing."""
    values = [list(value) if type(value) is tuple else value for value in vars(found).values()]
    claimed = list(map(claim.get, vars(found)))
    if claimed != values or list(map(type, claimed)) != list(map(type, values)):
        return False
    # Infinities are text in JSON, and a number too large to be one is read as one; findings may hold such.
    return not found.findings and math.inf not in values and -math.inf not in values


def _same(claimed: Any, found: Any, *, text: bool = False, loose: bool = False) -> bool:
    """Equal, numbers up to `_RELATIVE`; `text` looks at the numbers in texts, `loose` passes over them."""
    if isinstance(claimed, bool) or isinstance(found, bool):
        return claimed is found
    if isinstance(claimed, int) and isinstance(found, int):
        return claimed == found
    if isinstance(claimed, int | float) and isinstance(found, int | float):
        return math.isclose(claimed, found, rel_tol=_RELATIVE, abs_tol=1e-300)
    if isinstance(claimed, list) and isinstance(found, list):
        if claimed == found and set(map(type, found)) <= {str}:
            return True
        pairs = zip(claimed, found, strict=False)
        return len(claimed) == len(found) and all(_same(*pair, text=text, loose=loose) for pair in pairs)
    if isinstance(claimed, dict) and isinstance(found, dict):
        return claimed.keys() == found.keys() and all(
            _same(claimed[key], found[key], text=key == "text", loose=key == "text") for key in found
        )
    if text and isinstance(claimed, str) and isinstance(found, str):
        return claimed == found or _same_text(claimed, found, loose)
    return bool(claimed == found)


def _same_text(claimed: str, found: str, loose: bool) -> bool:
    if _NUMBER.sub("#", claimed) != _NUMBER.sub("#", found):
        return False
    # A reason has its numbers in two or three digits; the fields beside it have them in full, and those are compared.
    pairs = zip(_NUMBER.findall(claimed), _NUMBER.findall(found), strict=True)
    return loose or all(_same(float(one), float(other)) or one == other for one, other in pairs)


def check_log(stage: str, log: str, found: Comparison) -> list[Mismatch]:
    """Whether the classic log of a stage is the one that its recordings give."""
    expected = [part for line in found.classic.lines for part in line.splitlines()]
    most = sum(2 * len(line) + _LINE_MORE for line in expected)
    if len(log) > most:  # a stranger's log is taken apart only where it can be the right one
        return [Mismatch(stage, "", "the log's length", len(log), f"at most {most}")]
    lines = [_STAMP.sub("", line, count=1) for line in log.splitlines()]
    if len(lines) != len(expected):
        return [Mismatch(stage, "", "the log's number of lines", len(lines), len(expected))]
    if lines == expected:
        return []
    odd = ((one, other) for one, other in zip(lines, expected, strict=True) if not _same(one, other, text=True))
    return [Mismatch(stage, "", "the log's line", one, other) for one, other in [*odd][:5]]


def stamps_of(log: str) -> list[str]:
    """Times at which the lines of a classic log were written, `YYYY/MM/DD HH:MM:SS` of an unknown time zone."""
    return list(dict.fromkeys(_STAMP.findall(log)))
