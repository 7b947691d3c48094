"""What a bundle may hold, and under which names.

A bundle is a zip archive of uncompressed members, which cannot expand like a zip bomb and whose arrays need no copy.
Every member has a fixed name or fits one of a few patterns, so that no name reaches the file system unchecked.
"""

import re
import unicodedata
from collections.abc import Iterable

from twinalign.errors import InputError
from twinalign.files.text import NAME_LIMIT as NAME_LIMIT
from twinalign.files.text import fault_on_any_system, shown
from twinalign.sides import HALVES, SIDES, STAGES
from twinalign.stages import STAGE_BY_NAME

FORMAT = "twinalign bundle"
VERSION = 1

MANIFEST = "manifest.json"
RESULT = "result/"
"""Prefix of the files that `twinalign run` wrote; they keep their names."""
SOURCE = "source/"
"""Prefix of the case's own code."""

SUMMARY = RESULT + "summary.json"
CASE = RESULT + "case.json"
RECORDER_LOG = RESULT + "log/recorder_{side}.log"
"""What the process of a side printed."""

MEMBER_LIMIT = 10_000
TEXT_LIMIT = 32 << 20
TENSOR_LIMIT = 40_000
"""Tensors in one recording; the largest known model records about ten thousand."""
STEP_LIMIT = 32 * TENSOR_LIMIT
"""Opcodes in its pickle; numpy before 2.0 writes thirty per tensor."""

DTYPES = ("float32", *HALVES, "float64")
REPEAT = "repeat"
"""Used in a key instead of a precision: the reference's repeat, where float64 does not run or cannot decide."""

_STEMS = "|".join(stage.file_stem for stage in STAGE_BY_NAME.values())
_SIDES = "|".join(SIDES)
_RESULT_PATTERNS = tuple(
    re.compile(pattern)
    for pattern in (
        r"summary\.json",
        r"case\.json",
        rf"(({'|'.join((*HALVES, 'float64'))})/)?({_STEMS})_({_SIDES})\.(npy|json)",
        rf"{REPEAT}/({_STEMS})_ref\.(npy|json)",
        rf"log/({'|'.join(STAGES)})_diff\.log",
        rf"log/recorder_({_SIDES})\.log",
        r"weights/[^/]+_ledger\.json",
    )
)


def recording_member(side: str, stage: str, dtype: str) -> str:
    """Member that holds the arrays of a recording; `dtype` is a precision or `REPEAT`."""
    folder = "" if dtype == "float32" else f"{dtype}/"
    return f"{RESULT}{folder}{STAGE_BY_NAME[stage].file_stem}_{side}.npy"


def metadata_member(side: str, stage: str, dtype: str) -> str:
    """Member that holds the metadata of a recording."""
    return recording_member(side, stage, dtype)[: -len("npy")] + "json"


def log_member(stage: str) -> str:
    """Member that holds the classic log of a stage."""
    return f"{RESULT}log/{stage}_diff.log"


def ledger_member(part: str) -> str:
    """Member that holds the conversion ledger of a part of the case."""
    return f"{RESULT}weights/{part}_ledger.json"


def texts_of(stage: str, part: str) -> list[str]:
    """Members that a stage has beside its recordings: its log and, if it needs a model, the ledger of its part."""
    return [log_member(stage), *([ledger_member(part)] if STAGE_BY_NAME[stage].needs_model else [])]


def fault_of_name(name: str) -> str | None:
    """Why a member's name is not allowed, or None."""
    fault = fault_on_any_system(name)
    if fault is not None or name == MANIFEST:
        return fault
    if name.startswith(SOURCE):
        return None if name.endswith(".py") else "not a Python source file"
    within = name.removeprefix(RESULT)
    if within != name and any(pattern.fullmatch(within) for pattern in _RESULT_PATTERNS):
        return None
    return "not a file that a bundle may hold"


def check_names(names: Iterable[str], label: str) -> None:
    """Raise InputError at the first name that is not allowed or that some file system confuses with another."""
    seen: dict[str, str] = {}
    for name in names:
        fault = fault_of_name(name)
        if fault is not None:
            raise InputError(f"{label}: member {shown(name)!r} is {fault}; refused")
        folded = unicodedata.normalize("NFKC", name).casefold()
        if folded in seen:
            other = f"has a name that some systems confuse with {shown(seen[folded])!r}"
            what = "occurs twice" if seen[folded] == name else other
            raise InputError(f"{label}: member {shown(name)!r} {what}; refused")
        seen[folded] = name
    for folded, name in seen.items():
        parents = folded.split("/")[:-1]
        if any("/".join(parents[: count + 1]) in seen for count in range(len(parents))):
            raise InputError(f"{label}: member {shown(name)!r} lies inside another member; refused")
