"""Compares what the summary claims with what is recomputed from the arrays."""

import dataclasses
import math
import re
from collections.abc import Iterator
from typing import Any

from twinalign.files.text import shown
from twinalign.verdict import Comparison
from twinalign.verdict.results import TensorVerdict, plain

_RELATIVE = 1e-4
"""Another processor adds up in another order; no number that is compared varies more than this."""
_IN_WORDS = 0.12
"""Of the numbers in a sentence, which has two or three digits of each: 1.0 and 1.1 may be one number."""
# Possessive quantifiers (++) never backtrack: a stranger's claim of endless digits must not take endless time.
_NUMBER = re.compile(r"[-+]?(?:(?<!\d)\d++(?:\.\d++)?+(?:e[-+]?\d++)?+|inf|nan)\b", re.IGNORECASE)
_LINE_MORE = 80
"""Characters that a log line may have beyond twice the expected length: its time stamp, numbers with more digits."""
_STAMP = re.compile(r"^\[(\d{4}/\d\d/\d\d \d\d:\d\d:\d\d)\] root INFO: ", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Mismatch:
    """One claim that is not true."""

    stage: str
    tensor: str
    field: str
    claimed: Any
    found: Any

    def __str__(self) -> str:
        where = shown(f"{self.stage} {self.tensor}".strip())
        return f"{where}: {self.field} is claimed as {_worded(self.claimed)}, but is {_worded(self.found)}"


def _worded(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else shown(str(value), 120)


def check_stage(stage: str, claim: dict[str, Any], found: Comparison, words: bool = True) -> list[Mismatch]:
    """Every claim of the summary about a stage that its recordings contradict.

    Reasons are compared only with `words`: another version of twinalign may word them differently.
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


def check_initial(claim: dict[str, Any], found: dict[str, Any], words: bool = True) -> list[Mismatch]:
    """Claims about the initial weights that the recordings contradict; `words` as in `check_stage`."""
    fields = ("verdict", "tensors", "seeds")
    odd = [Mismatch("initial", "", name, claim[name], found[name]) for name in fields if claim[name] != found[name]]
    claimed, recomputed = ({one["name"]: one for one in each["differences"]} for each in (claim, found))
    for name in sorted(claimed.keys() | recomputed.keys()):
        one, other = claimed.get(name), recomputed.get(name)
        if one is None or other is None:
            odd.append(
                Mismatch(
                    "initial", name, "difference", *("absent" if it is None else it["text"] for it in (one, other))
                )
            )
        else:
            odd += [
                Mismatch("initial", name, key, one[key], other[key])
                for key in other
                if words and one[key] != other[key]
            ]
    if words and claim["notes"] != found["notes"]:
        odd.append(Mismatch("initial", "", "notes", claim["notes"], found["notes"]))
    return odd


def _first_odd(claim: dict[str, Any], found: dict[str, Any], field: str) -> tuple[Any, Any]:
    one, other = claim[field], found[field]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return next((pair for pair in zip(one, other, strict=True) if not _same(*pair, text=True)), (one, other))
    return one, other


def _check_tensor(stage: str, claim: dict[str, Any], found: TensorVerdict) -> Iterator[Mismatch]:
    """Fields that another version of twinalign adds or lacks are skipped; the schema lists the required ones."""
    if _identical(claim, found):
        return  # almost always so on the machine that packed the bundle
    for field, value in found.to_json().items():
        if field not in claim or (claim[field] == value and type(claim[field]) is type(value)):
            continue
        if not _same(claim[field], value, text=field == "reason", loose=field == "reason"):
            yield Mismatch(stage, found.name, field, claim[field], value)


def _identical(claim: dict[str, Any], found: TensorVerdict) -> bool:
    """Whether every field is certainly claimed as it was found; False leaves it open."""
    values = [list(value) if type(value) is tuple else value for value in vars(found).values()]
    claimed = list(map(claim.get, vars(found)))
    if claimed != values or list(map(type, claimed)) != list(map(type, values)):
        return False
    # JSON holds infinities as text and reads too large a number as infinity; findings may hold either.
    return not found.findings and math.inf not in values and -math.inf not in values


def _same(claimed: Any, found: Any, *, text: bool = False, loose: bool = False) -> bool:
    """Whether values are equal, numbers up to `_RELATIVE`; `text`: those in texts too, `loose`: roughly."""
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
    pairs = zip(_NUMBER.findall(claimed), _NUMBER.findall(found), strict=True)
    share = _IN_WORDS if loose else _RELATIVE
    return all(
        one == other or math.isclose(float(one), float(other), rel_tol=share, abs_tol=1e-300) for one, other in pairs
    )


def check_log(stage: str, log: str, found: Comparison) -> list[Mismatch]:
    """Compare the classic log of a stage with the one that its recordings give."""
    expected = [part for line in found.classic.lines for part in line.splitlines()]
    most = sum(2 * len(line) + _LINE_MORE for line in expected)
    if len(log) > most:  # too long to be right, so it is not parsed
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
