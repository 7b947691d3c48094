"""Which function of the reference does what a function of the port does."""

import ast
from collections.abc import Sequence

from twinalign.replay.aligned_code import LEAST_ALIKE, Code, last_part
from twinalign.replay.likeness import ratio

_LIKELY = 0.6
"""From this share on a function of another name is a better partner than one of the same name that is not alike."""
_CALLED = ("forward", "__call__")
"""Methods that run where an object is called."""


def partners(theirs: Sequence[Code], ours: Sequence[Code]) -> list[tuple[Code, Code]]:
    """Functions of the reference with those of the port: of the same name, else called in the same place by partners,
    else the most alike.

    What only hands on to another function is no partner of one that does the work itself, whatever their names.
    """
    found: list[tuple[Code, Code]] = []
    left, right = list(theirs), list(ours)
    words = {code: code.words for code in (*left, *right)}
    named = [{_last_name(code) for code in side} for side in (theirs, ours)]
    nameless = [[code for code in side if _last_name(code) not in named[0] & named[1]] for side in (theirs, ours)]

    def hands_on(one: Code, two: Code) -> bool:
        return any(
            ratio(words[code], words[other], _LIKELY) >= _LIKELY
            for code, others in ((one, nameless[1]), (two, nameless[0]))
            for other in others
        )

    for part in (str, last_part, None):
        scored = [
            (ratio(words[one], words[two], LEAST_ALIKE if part is None else 0.0), number, at, one, two)
            for number, one in enumerate(left)
            for at, two in enumerate(right)
            if part is None or part(one.name) == part(two.name)
        ]
        for score, _, _, one, two in sorted(scored, key=lambda item: (-item[0], *item[1:3])):
            # Any class has a constructor: that both are ones says nothing.
            is_named = part is not None and (one.name == two.name or not one.name.endswith("__init__"))
            if one not in left or two not in right:
                continue
            if score >= LEAST_ALIKE or (is_named and not hands_on(one, two)):
                found.append((one, two))
                left.remove(one)
                right.remove(two)
        if part is last_part:
            _add_called(found, left, right)
    return found


def _add_called(found: list[tuple[Code, Code]], left: list[Code], right: list[Code]) -> None:
    """Move what partners call in the same places from those that are left to the partners."""
    for one, two in found:  # which grows
        theirs, ours = _called(one, left), _called(two, right)
        for pair in zip(theirs, ours, strict=True) if len(theirs) == len(ours) else ():
            found.append(pair)
            left.remove(pair[0])
            right.remove(pair[1])


def _called(code: Code, others: Sequence[Code]) -> list[Code]:
    """Those of other functions that a function calls by name, or as what a module or its own object has, in order.

    A layer that is made where it is called, `LossOfModel()(outputs)`, is called by the name of its class.
    """
    known: dict[str, list[Code]] = {}
    for other in others:
        holder, _, last = other.name.rpartition(".")
        known.setdefault(last_part(holder) if last in _CALLED else last, []).append(other)
    calls = [node.func for node in ast.walk(code.tree) if isinstance(node, ast.Call)]
    calls.sort(key=lambda node: (node.lineno, node.col_offset))
    found = [known[name][0] for node in calls if (name := _name_of(node)) is not None and len(known.get(name, ())) == 1]
    return list(dict.fromkeys(found))


def _name_of(called: ast.expr) -> str | None:
    if isinstance(called, ast.Call):
        return _name_of(called.func)
    if isinstance(called, ast.Attribute):
        return called.attr if isinstance(called.value, ast.Name) else None
    return called.id if isinstance(called, ast.Name) else None


def _last_name(code: Code) -> str:
    return last_part(code.name)
