"""What a bundle may hold, and by what names.

A bundle is a zip archive of uncompressed members: what is not compressed cannot be a bomb, and its arrays are read in
place. Every member has a fixed name or one of few patterns, so that a name never reaches the file system unchecked.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from twinalign.case import STAGES
from twinalign.errors import InputError
from twinalign.halves import HALVES
from twinalign.jobs import SIDES
from twinalign.stages import STAGE_BY_NAME
from twinalign.verdict.render import printable

FORMAT = "twinalign bundle"
VERSION = 1

MANIFEST = "manifest.json"
RESULT = "result/"
"""Prefix of what `twinalign run` wrote, under the names that it has there."""
SOURCE = "source/"
"""Prefix of the case's own code."""

SUMMARY = RESULT + "summary.json"
CASE = RESULT + "case.json"
RECORDER_LOG = RESULT + "log/recorder_{side}.log"
"""Member of what the process of a side has printed."""

MEMBER_LIMIT = 10_000
NAME_LIMIT = 240
JSON_LIMIT = 64 << 20
"""Bytes of all JSON files together."""
TEXT_LIMIT = 32 << 20
TENSOR_LIMIT = 100_000
"""Tensors of one recording; the largest model known here records some ten thousand."""
STEP_LIMIT = 40 * TENSOR_LIMIT
"""Opcodes of its pickle; numpy before 2.0 writes a tensor with thirty."""

DTYPES = ("float32", *HALVES, "float64")
REPEAT = "repeat"
"""Stands in a key in a precision's place: the reference once more, where its float64 is not to be had."""

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
_DEVICE_NAMES = {"con", "prn", "aux", "nul", "conin$", "conout$"} | {
    f"{device}{number}" for device in ("com", "lpt") for number in "123456789¹²³"
}


def recording_member(side: str, stage: str, dtype: str) -> str:
    """Member of the arrays of a recording in a precision, or of the repeat; its metadata has the suffix `.json`."""
    folder = "" if dtype == "float32" else f"{dtype}/"
    return f"{RESULT}{folder}{STAGE_BY_NAME[stage].file_stem}_{side}.npy"


def metadata_member(side: str, stage: str, dtype: str) -> str:
    """Member of the metadata of a recording."""
    return recording_member(side, stage, dtype)[: -len("npy")] + "json"


def log_member(stage: str) -> str:
    """Member of the classic log of a stage."""
    return f"{RESULT}log/{stage}_diff.log"


def ledger_member(part: str) -> str:
    """Member of the conversion ledger of a part of the case."""
    return f"{RESULT}weights/{part}_ledger.json"


def fault_of_name(name: str) -> str | None:
    """Why a member's name is not allowed, or None."""
    fault = _fault_on_any_system(name)
    if fault is not None or name == MANIFEST:
        return fault
    if name.startswith(SOURCE):
        return None if name.endswith(".py") else "no Python source"
    within = name.removeprefix(RESULT)
    if within != name and any(pattern.fullmatch(within) for pattern in _RESULT_PATTERNS):
        return None
    return "nothing that a bundle holds"


def _fault_on_any_system(name: str) -> str | None:
    """What makes a name dangerous or ambiguous on some file system, whichever this one is."""
    if not name or len(name) > NAME_LIMIT:
        return f"{len(name)} letters long"
    if not name.isprintable():
        return "written with control or invisible letters"
    if unicodedata.normalize("NFC", name) != name:
        return "not in Unicode's composed form (NFC)"
    if name.startswith("/") or "\\" in name or ":" in name:
        return "an absolute path, or one of another system"
    for part in name.split("/"):
        if part in ("", ".", ".."):
            return "a path that leaves its folder" if part == ".." else "a path with empty parts"
        if part.endswith((".", " ")) or part.startswith(" "):
            return "a path whose parts some systems trim"
        if part.split(".")[0].rstrip(" ").casefold() in _DEVICE_NAMES:
            return "the name of a device on some systems"
    return None


def check_names(names: Iterable[str], label: str) -> None:
    """Raise InputError at the first name that is not allowed or that some file system takes for another one."""
    seen: dict[str, str] = {}
    for name in names:
        fault = fault_of_name(name)
        if fault is not None:
            raise InputError(f"{label}: member {shown(name)!r} is {fault}; refused")
        folded = unicodedata.normalize("NFKC", name).casefold()
        if folded in seen:
            other = "twice" if seen[folded] == name else f"beside {shown(seen[folded])!r}, which some systems confuse"
            raise InputError(f"{label}: member {shown(name)!r} is there {other}; refused")
        seen[folded] = name
    for folded, name in seen.items():
        parents = folded.split("/")[:-1]
        if any("/".join(parents[: count + 1]) in seen for count in range(len(parents))):
            raise InputError(f"{label}: member {shown(name)!r} lies in another member; refused")


def shown(text: str, limit: int = 160) -> str:
    """`text` for a terminal: one line, nothing that steers it, of bearable length."""
    cut = text[:limit]
    return printable(cut) + ("…" if len(text) > limit else "")
