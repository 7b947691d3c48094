"""Where a fault may be mended, and whether the place is certain: only such an edit is shown beside a cause.

The others are for `fix`, which runs them.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from twinalign.edits.source import Edit, Source

_LINE = re.compile(r"line (\d+) of (.*)")


def wrong_lines(fault: Mapping[str, Any]) -> set[tuple[str, int]]:
    """File name and number of the port's lines that are proven to be wrong, or stand where the values go wrong."""
    known = fault["explanation"] or {"evidence": {}}
    inside = fault["evidence"].get("inside") or {}
    proven = known["evidence"].get("lines_of_port", ())
    found = {(Path(file).name, line) for file, first, last in proven for line in range(first, last + 1)}
    return found or {(at["file"], at["line"]) for at in (inside.get("unknown"), inside.get("known")) if at}


def certain(fault: Mapping[str, Any], edits: Sequence[Edit]) -> list[Edit]:
    """The edit of a layer's code whose place is certain: the only one, or the only one in a line known to be wrong."""
    wrong = wrong_lines(fault)
    there = [edit for edit in edits if (Path(edit.file).name, edit.line) in wrong]
    if not there and "helper_edit" not in (fault["explanation"] or {"evidence": {}})["evidence"]:
        there = list(edits)
    return there if len(there) == 1 else []


def taker_of(fault: Mapping[str, Any]) -> str:
    """Path of the child layer that is called on a wrong value; empty if none is known.

    Such values go by `input.PATH#CALL.ARGUMENT`.
    """
    names = fault["evidence"].get("values") or {}
    return next((name[len("input.") :].partition("#")[0] for name in names if name.startswith("input.")), "")


def lines_near(fault: Mapping[str, Any], source: Source, taker: str, first: int, last: int) -> list[int]:
    """Lines that may be the wrong one, the likeliest first, out of these; none if nothing is known.

    What is left out shows in the next line only: the last right line may be the one to edit. Where no line is known to
    be wrong, it is that which calls the layer `taker`, or one ahead of it. Where a cause is proven of some lines, it is
    one of these.
    """
    inside, name = fault["evidence"].get("inside") or {}, Path(source.file).name
    known = [at for at in (inside.get("unknown"), inside.get("known")) if at]
    if known:
        found = [at["line"] for at in known if at["file"] == name and first <= at["line"] <= last]
        return [line for line in found if (name, line) in wrong_lines(fault)]
    places = [
        source.span(call)[0] for call in source.calls(first, last) if source.text_of(call.func) == f"self.{taker}"
    ]
    return list(range(min(places), first - 1, -1)) if places else []


def builds_right_ones(fault: Mapping[str, Any], faults: Sequence[Mapping[str, Any]], built: Collection[str]) -> bool:
    """Whether a call that builds a wrong layer and these others builds one that does not have the fault.

    An edit there would break it.
    """
    text = fault["explanation"]["text"]
    alike = {one["paddle_layer"] for one in faults if one["explanation"] and one["explanation"]["text"] == text}
    return not alike.issuperset(built)


def line_of_call(call: Mapping[str, Any], files: Sequence[str]) -> tuple[str, int] | None:
    """File and line in which the reference makes a call, out of these files; None if that is not known."""
    found = _LINE.fullmatch(str(call.get("line", "")))
    if found is None:
        return None
    return next(((file, int(found[1])) for file in files if Path(file).name == found[2]), None)
