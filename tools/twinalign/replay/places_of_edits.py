"""The edit of the port's code where it goes wrong, found by the reference's values; or that place, if no edit is."""

from __future__ import annotations

import ast
import dataclasses
import itertools
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import CodeType
from typing import Any

from twinalign.replay.aligned_code import Code, line_of
from twinalign.replay.edits_in_place import fitting_in_place
from twinalign.replay.grafts import Graft, function_at, in_words_of_port
from twinalign.replay.helper_edits import Edit, HelperEdit, ranked_edits
from twinalign.replay.misplaced_arguments import misplaced_arguments
from twinalign.replay.module_constants import constants_of_modules
from twinalign.replay.noted_expressions import Place, Visited, noted_in, read_values
from twinalign.replay.noted_values import Values
from twinalign.replay.ordered_edits import Fit, answer_of, fitting_edit
from twinalign.replay.slices import distances
from twinalign.replay.value_trials import Found, Like, Other, Trials

_SHARE = 0.4
"""Of the time for a unit, for the place."""
_LEFT = 0.5
"""Of the time, for what is searched otherwise, at least."""
_MOST = 12
"""Edits that fit there are tried in the unit as a whole."""


@dataclasses.dataclass(frozen=True)
class Unit:
    """A part of the port that can run again.

    Attributes:
        codes: its functions that may be edited.
        run: runs it once.
        is_right: runs it once, and tells whether what comes out is right; may raise.
        fit: tries an edit that has to mend all values.
        named: the values of the names in its functions, as `values_in` has them.
        like: as `Backend.to_tensor_like`.
        classes: attribute → names of the classes of the layers in it.
        likely: edits that are tried before all others.
    """

    codes: Sequence[Code]
    run: Callable[[], Any]
    is_right: Callable[[], bool]
    fit: Callable[[Any], Fit]
    named: Mapping[CodeType, Values]
    like: Like
    classes: Mapping[str, Collection[str]] = dataclasses.field(default_factory=dict)
    likely: Iterable[HelperEdit] = ()


def found_by_values(
    unit: Unit,
    values: Mapping[str, Any],
    theirs: Sequence[ast.AST],
    grafted: Sequence[Graft],
    far: Mapping[int, int],
    seconds: float,
) -> tuple[tuple[HelperEdit, Fit] | None, Found | None]:
    """The edit that mends the unit where it goes wrong, its gradients as well if one does, and that place.

    Args:
        values: of the reference, as `values_of` gives them.
        theirs: the reference's code that does the same.
        grafted: edits that take an expression of the reference's.
        far: of `distances`; what has none is no place.
        seconds: of processor time, for all.
    """
    if not values.get("expressions"):
        return None, None
    visited = Visited(unit.codes)
    try:
        noted = noted_in(visited, unit.run)
    except Exception:  # `TooManyError`, or the user's: what is noted asks tensors for their values
        return None, None
    trials = Trials(visited, noted, *read_values(values["expressions"]), unit.like)

    def is_wanted(place: Place) -> bool:
        return not far or id(place.node) in far

    found = trials.found(unit.is_right, is_wanted, _SHARE * seconds)
    if found is None:
        return None, None

    def forms(place: Place, other: Other) -> Iterator[HelperEdit]:
        code, node = place.code, place.node
        assert isinstance(node, ast.expr)
        named = next((unit.named[one.__code__] for one in code.functions if one.__code__ in unit.named), {})
        at = other.file, other.line, other.text
        there = function_at(values["functions"], at)
        yield from ranked_edits([code], [*theirs, *([there[0].tree] if there is not None else [])])
        yield from _other_names(place, named)
        for form in in_words_of_port(code, named, values["functions"], at):
            yield Graft(code, node, ast.copy_location(form, node))
        yield from (edit for edit in grafted if edit.code is code)

    fitting = fitting_in_place(found, forms, unit.run, unit.like)
    known: dict[Fit, HelperEdit] = {}
    for _, edit in zip(range(_MOST), fitting, strict=False):
        known.setdefault(unit.fit(edit), edit)
        if Fit.ALL in known:
            break
    return next(((known[one], one) for one in (Fit.ALL, Fit.UNIT, Fit.VALUES) if one in known), None), found


def found_anyhow(
    unit: Unit | None,
    values: Mapping[str, Any],
    theirs: Sequence[ast.AST],
    grafted: Sequence[Graft],
    far: Mapping[int, int],
    edits: Callable[[Mapping[int, int]], Iterable[Edit]],
    fit: Callable[[Any], Fit],
    seconds: float,
) -> dict[str, Any]:
    """What `fitting_edit` returns of an edit where the unit goes wrong, else of one of `edits`; else that place.

    Others as for `found_by_values`; without a unit, edits alone are tried, with `fit`.

    Args:
        edits: returns them, given the distances of the code from what is wrong: the place, if there is one.
    """
    began = time.process_time()
    if unit is not None:  # what is exchanged may be mended in the call or in the function: names tell
        constants = constants_of_modules(unit.codes, values["functions"])
        likely = itertools.chain(constants, misplaced_arguments(unit.codes), unit.likely)
        named = fitting_edit(likely, fit, _SHARE * seconds)
        if named.get("mends_all"):
            return named
    edit, place = found_by_values(unit, values, theirs, grafted, far, seconds) if unit is not None else (None, None)
    if edit is not None:
        return answer_of(*edit)
    left = max(seconds - (time.process_time() - began), _LEFT * seconds)
    if unit is not None and place is not None:  # what is wrong there is made of what is wrong
        far = distances(unit.codes, [(part.code, part.node) for part, _, _ in place.parts], unit.classes)
        fit = unit.fit
    return fitting_edit(edits(far), fit, left) or told(place)


def _other_names(place: Place, named: Values) -> Iterator[HelperEdit]:
    """Other names, and attributes of its object, that the function has values for."""
    for node in ast.walk(place.node):
        if isinstance(node, (ast.Name, ast.Attribute)) and (own := ast.unparse(node)) in named:
            for name in named.keys() - {own}:
                new = ast.fix_missing_locations(ast.copy_location(ast.parse(name, mode="eval").body, node))
                yield HelperEdit(place.code, node, new)


def told(found: Found | None) -> dict[str, Any]:
    """What `fitting_edit` returns of an edit, for the place alone.

    Nothing where it goes wrong before, as far as one value tells, and where an object is called, which may have been
    changed before.
    """
    if found is None or not (found.is_where or len(found.parts) > 1) or any(map(_calls_object, found.parts)):
        return {}
    ours, theirs = (
        " and ".join(dict.fromkeys(words))
        for words in (
            [f"`{place.text}`" for place, _, _ in found.parts],
            [f"`{other.text}`, line {other.line} of {other.file}" for _, other, _ in found.parts],
        )
    )
    node, verb = found.place.node, "is" if len(found.parts) == 1 else "are"
    place = line_of(found.place.code, node)
    return {
        "text": f"{ours}, {place}, should be what {theirs}, {verb}",
        "lines_of_port": [(found.place.code.file, node.lineno, node.end_lineno or node.lineno)],
        "edit": {"to_do": f"let {ours} be what {theirs}, {verb}"},
        "is_place": True,
    }


def _calls_object(part: tuple[Place, Other, Any]) -> bool:
    """Whether an expression calls what its function was given or has made."""
    place = part[0]
    called = [getattr(one.func, "id", "") for one in ast.walk(place.node) if isinstance(one, ast.Call)]
    own = {one.id for one in ast.walk(place.code.tree) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    return bool((own | {one.arg for one in place.code.tree.args.args}).intersection(called))
