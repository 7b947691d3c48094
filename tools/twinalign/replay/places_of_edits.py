"""The edit of the port's code where it goes wrong, found by the reference's values; or that place, if no edit is."""

from __future__ import annotations

import ast
import dataclasses
import difflib
import itertools
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import CodeType
from typing import Any

from twinalign.replay.aligned_code import Code, last_part, line_of
from twinalign.replay.code_text import shortened
from twinalign.replay.edits_in_place import assigned, fitting_in_place
from twinalign.replay.grafts import Graft, function_at, in_words_of_port, made_once
from twinalign.replay.handed_on import handed_on
from twinalign.replay.helper_edits import Edit, HelperEdit, ranked_edits
from twinalign.replay.lacking_statements import lacking_statements
from twinalign.replay.likeness import spelled_words
from twinalign.replay.misplaced_arguments import misplaced_arguments
from twinalign.replay.module_constants import constants_of_modules
from twinalign.replay.noted_expressions import Place, Visited, noted_in, read_values
from twinalign.replay.noted_values import Values
from twinalign.replay.ordered_edits import Fit, answer_of, fitting_edit, mending, stopped
from twinalign.replay.parts_of_grafts import opened, smallest
from twinalign.replay.slices import distances
from twinalign.replay.small_edits import expressions
from twinalign.replay.value_trials import Found, Like, Other, Trials
from twinalign.replay.words_by_values import by_values

_SHARE = 0.4
"""Of the time for a unit, for the place."""
_LEFT = 0.5
"""Of the time, for what is searched otherwise, at least."""
_BEYOND = 4
"""So many steps farther counts what a place is made of that goes wrong itself, as far as values tell."""
_LIKE_NAMES = 0.6
"""Share of equal letters of a name and a word that may stand for the same."""
_OPERATORS = ast.Mult, ast.Div, ast.Add, ast.Sub
_MOST_PLACES = 4
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
        late: tells which edits come behind others, from 1.
    """

    codes: Sequence[Code]
    run: Callable[[], Any]
    is_right: Callable[[], bool]
    fit: Callable[[Any], Fit]
    named: Mapping[CodeType, Values]
    like: Like
    classes: Mapping[str, Collection[str]] = dataclasses.field(default_factory=dict)
    likely: Iterable[HelperEdit] = ()
    late: Callable[[Edit], int] = lambda edit: 0


def trials_of(unit: Unit, values: Mapping[str, Any]) -> Trials | None:
    """Trials of the unit's places with the reference's `values`; None without these, or where it does not run so."""
    if not values.get("expressions"):
        return None
    visited, began = Visited(unit.codes), time.process_time()
    try:
        noted = noted_in(visited, unit.run)
    except Exception:  # `TooManyError`, or the user's: what is noted asks tensors for their values
        return None
    taken = time.process_time() - began
    return Trials(visited, noted, *read_values(values["expressions"]), unit.like, taken)


def found_by_values(
    unit: Unit,
    trials: Trials,
    values: Mapping[str, Any],
    theirs: Sequence[ast.AST],
    grafted: Sequence[Graft],
    far: Mapping[int, int],
    seconds: float,
) -> tuple[tuple[HelperEdit, Fit] | None, Found | None]:
    """The edit that mends the unit where it goes wrong, its gradients as well if one does, and that place.

    Args:
        trials: of `trials_of`.
        values: of the reference, as `values_of` gives them.
        theirs: the reference's code that does the same.
        grafted: edits that take an expression of the reference's.
        far: of `distances`; what has none is no place.
        seconds: of processor time, for all.
    """
    began = time.process_time()
    every = trials.found(unit.is_right, far, _SHARE * seconds)
    places = [one for one in every if not one.calls_object]  # which may have been changed before

    def forms(place: Place, other: Other) -> Iterator[HelperEdit]:
        code, node = place.code, place.node
        named = next((unit.named[one.__code__] for one in code.functions if one.__code__ in unit.named), {})
        at = other.file, other.line, other.text
        there, made = function_at(values["functions"], at), made_once(code)
        yield from ranked_edits([code], [*theirs, *([there[0].tree] if there is not None else [])])
        yield from _other_names(place, named)
        calls = _wrong_calls(place, unit.codes, trials)
        forms = *_by_values(place, there, other, trials), *in_words_of_port(code, named, values["functions"], at)
        for form in (one for one in forms if calls <= {*_called(one)}):
            for old in (*([made[node.id]] if isinstance(node, ast.Name) and node.id in made else []), node):
                yield Graft(code, old, ast.fix_missing_locations(ast.copy_location(assigned(old, form), old)))
        yield from (edit for edit in grafted if edit.code is code)
        yield from _further_operands(place, other, named)

    known: dict[Fit, HelperEdit] = {}
    for found, in_pairs in [*((one, False) for one in places[:_MOST_PLACES]), *((one, True) for one in places[:1])]:
        if time.process_time() - began > seconds:
            break
        for edit in itertools.islice(fitting_in_place(found, forms, unit.run, unit.like, in_pairs), _MOST):
            known.setdefault(unit.fit(edit), edit)
            if Fit.ALL in known:
                return (smallest(known[Fit.ALL], mending(unit.fit)), Fit.ALL), found
    if (found_without := stopped(known.get(Fit.VALUES), unit.fit)) is not None:
        return (found_without, Fit.ALL), places[0]
    first = places[0] if places else None
    return next(((known[one], one) for one in (Fit.UNIT, Fit.VALUES) if one in known), None), first


def found_anyhow(
    unit: Unit | None,
    trials: Callable[[], Trials | None],
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
        trials: returns those of `trials_of`.
        edits: returns them, given the distances of the code from what is wrong: the place, if there is one.
    """
    began = time.process_time()
    if unit is not None:  # what is exchanged may be mended in the call or in the function: names tell
        constants = constants_of_modules(unit.codes, values["functions"])
        given = unit.codes, values["functions"]
        found = [find(*given, known) for find in (handed_on, lacking_statements)] if (known := trials()) else []
        lacking: list[Edit] = sorted(itertools.chain(*found), key=unit.late)
        likely: Iterable[Edit] = itertools.chain(constants, misplaced_arguments(unit.codes), unit.likely, lacking)
        named = fitting_edit(likely, fit, _SHARE * seconds)
        if named.get("mends_all"):
            return named
    edit, place = None, None
    if unit is not None and (known := trials()) is not None:
        edit, place = found_by_values(unit, known, values, theirs, grafted, far, seconds)
    if edit is not None:
        return answer_of(*edit)
    left = max(seconds - (time.process_time() - began), _LEFT * seconds)
    if unit is not None and place is not None:  # what is wrong there is made of what is wrong
        far = distances(unit.codes, [(part.code, part.node) for part, _, _ in place.parts], unit.classes)
        inside = {id(node) for part, _, _ in place.parts for node in ast.walk(part.node)}
        far = {one: steps + _BEYOND * (place.is_where and one not in inside) for one, steps in far.items()}
        fit = unit.fit
    return fitting_edit(edits(far), fit, left) or told(place)


def _wrong_calls(place: Place, codes: Sequence[Code], trials: Trials) -> set[str]:
    """The port's own functions that a place calls and that go wrong before it: the edit belongs in them, not around."""
    own = {code.name.rpartition(".")[2] for code in codes}
    calls = (one for one in opened(place.code, place.node) if isinstance(one, ast.Call))
    wrong = (last_part(ast.unparse(one.func)) for one in calls if trials.goes_wrong_before(one, place.node))
    return own.intersection(wrong)


def _called(node: ast.AST) -> Iterator[str]:
    return (last_part(ast.unparse(one.func)) for one in ast.walk(node) if isinstance(one, ast.Call))


def _by_values(place: Place, there: tuple[Code, Values] | None, other: Other, trials: Trials) -> Iterator[ast.expr]:
    """What the reference has in a place, in words that have its values in the port."""
    for node in expressions([there[0].tree]) if there is not None else ():
        if there is not None and node.lineno == other.line and shortened(node) == other.text:
            made = by_values(place.code, place.node, there[0], node, trials)
            yield from [made] if made is not None else []


def _other_names(place: Place, named: Values) -> Iterator[HelperEdit]:
    """Other names, and attributes of its object, that the function has values for; for what it computes those of plain
    numbers."""
    numbers = {name for name, prints in named.items() if not any(shape for shape, _ in prints)}
    for node in (one for one in ast.walk(place.node) if isinstance(one, ast.expr)):
        is_name = isinstance(node, (ast.Name, ast.Attribute)) and ast.unparse(node) in named
        if is_name or node is place.node:
            for name in (named.keys() if is_name else numbers) - {ast.unparse(node)}:
                new = ast.fix_missing_locations(ast.copy_location(ast.parse(name, mode="eval").body, node))
                yield HelperEdit(place.code, node, new)


def _further_operands(place: Place, other: Other, named: Values) -> Iterator[HelperEdit]:
    """Each part with one more operand, called much as something in the reference's place."""
    words = spelled_words(other.text)
    scope = {name: value for one in place.code.functions for name, value in one.__globals__.items()}
    numbers = [name for name, value in scope.items() if isinstance(value, (int, float)) and not name.startswith("_")]
    alike = [n for n in (*named, *numbers) if difflib.get_close_matches(n.rpartition(".")[2], words, 1, _LIKE_NAMES)]
    for node, name, operator in itertools.product(expressions([place.node]), alike, _OPERATORS):
        if ast.unparse(node) != name:
            new = ast.BinOp(node, operator(), ast.parse(name, mode="eval").body)
            yield HelperEdit(place.code, node, ast.fix_missing_locations(ast.copy_location(new, node)))


def told(found: Found | None) -> dict[str, Any]:
    """What `fitting_edit` returns of an edit, for the place alone.

    Nothing where it goes wrong before, as far as one value tells, or where both sides read alike.
    """
    if found is None or not (found.is_where or len(found.parts) > 1):
        return {}
    if all(spelled_words(place.text) == spelled_words(other.text) for place, other, _ in found.parts):
        return {}  # a list, say, in which something was changed meanwhile
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
