"""Edits of one expression of the port, where the value that it must have is known.

All of them are computed while the function runs, beside the expression itself: a thousand cost as much as one run of a
model. So two small edits at once can be tried as well.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import dataclasses
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from twinalign.replay.edited_trees import with_nodes
from twinalign.replay.grafts import Graft
from twinalign.replay.guarded import guarded
from twinalign.replay.helper_edits import HelperEdit, PartsExchanged
from twinalign.replay.noted_expressions import Place, in_scope, numbers_of
from twinalign.replay.rebuilt_code import compiled, running
from twinalign.replay.value_trials import Found, Like, Other, as_value

_PROBE = "_twinalign_probed"
_SAME = {"float64": 1e-9, "float32": 1e-5}
"""Relative; of other types all is the same."""
_SINGLES, _PAIRED, _PAIRS = 600, 90, 4000
"""So many edits are tried; so many, the likeliest, two at once; and so many of two."""
_SECONDS = 2.0
"""Of processor time, for all of them."""
_CHANGING = "append", "extend", "insert", "pop", "update", "set_value"
"""Methods that change what they belong to, as those do whose name ends with _."""


def fitting_in_place(
    found: Found, forms: Callable[[Place, Other], Iterable[HelperEdit]], run: Callable[[], Any], like: Like
) -> Iterator[HelperEdit]:
    """Edits with which each part of a place has the values that it must have, one at a time first.

    Args:
        forms: edits of a part that should have what the reference has there, the likeliest first.
        run: runs the function.
        like: as `Backend.to_tensor_like`.
    """
    if not all(isinstance(place.node, ast.expr) for place, _, _ in found.parts):
        return
    own = [_of_place(place, forms(place, other)) for place, other, _ in found.parts]
    yield from _together(found, _fitting(found, own, run, like))
    pairs = [
        list(itertools.islice(_two_at_once(part[0], edits), _PAIRS))
        for part, edits in zip(found.parts, own, strict=True)
    ]
    yield from _together(found, _fitting(found, pairs, run, like))


def _of_place(place: Place, edits: Iterable[HelperEdit]) -> list[HelperEdit]:
    inside = {id(one) for one in ast.walk(place.node)}
    return list(itertools.islice((edit for edit in edits if _stands_in(edit, inside)), _SINGLES))


def _stands_in(edit: HelperEdit, inside: set[int]) -> bool:
    parts = [edit.old, edit.new] if isinstance(edit, PartsExchanged) else [edit.old]
    return all(id(one) in inside for one in parts)


def _two_at_once(place: Place, edits: Sequence[HelperEdit]) -> Iterator[HelperEdit]:
    """Both of two edits of parts that do not contain each other, the likelier first."""
    plain = [edit for edit in edits if type(edit) is HelperEdit and edit.old is not place.node][:_PAIRED]
    inside = [{id(one) for one in ast.walk(edit.old)} for edit in plain]
    for total in range(1, 2 * len(plain)):
        for first in range(max(0, total - len(plain) + 1), (total + 1) // 2):
            second = total - first
            if inside[first].isdisjoint(inside[second]):
                one, other = plain[first], plain[second]
                yield _both(place, one, other)


def _both(place: Place, *edits: HelperEdit) -> HelperEdit:
    assert isinstance(place.node, ast.expr)
    return HelperEdit(place.code, place.node, with_nodes(place.node, {one.old: one.new for one in edits}))


def _together(found: Found, edits: Sequence[Sequence[HelperEdit]]) -> Iterator[HelperEdit]:
    """One edit of each part."""
    for choice in itertools.product(*edits):
        yield choice[0] if len(choice) == 1 else _both(found.place, *choice)


def _fitting(
    found: Found, edits: Sequence[Sequence[HelperEdit]], run: Callable[[], Any], like: Like
) -> list[list[HelperEdit]]:
    """Of each part those with which it has its values each time."""
    code, probed, probes, kept = found.place.code, dict[ast.AST, ast.AST](), list[_Probe](), []
    for (place, _, values), own in zip(found.parts, edits, strict=True):
        forms = [(edit, form) for edit in own if _changes_nothing(form := edit.within(place.node))]
        probes.append(_Probe(values, len(forms), like))
        kept.append([edit for edit, _ in forms])
        probed[place.node] = _probed(place.node, len(probes) - 1, [form for _, form in forms])
    if not all(kept):
        return [[] for _ in kept]

    def probe(number: int, *forms: Callable[[], Any]) -> Any:
        return probes[number](*forms)

    try:
        made = compiled(dataclasses.replace(code, tree=with_nodes(code.tree, probed)), {})
        with contextlib.ExitStack() as stack:
            for function in code.functions:
                stack.enter_context(in_scope(function, _PROBE, probe))
                stack.enter_context(running(function, made))
            run()
    except Exception:  # an edit may be no code, and the rest may not take the right values
        pass
    if not all(one.times for one in probes):
        return [[] for _ in kept]
    return [sorted((own[number] for number in one.fitting), key=_length) for one, own in zip(probes, kept, strict=True)]


def _length(edit: HelperEdit) -> tuple[bool, int]:
    """The reference's wording last, as long as the port's own says the same; else the shortest first."""
    return isinstance(edit, Graft), len(ast.unparse(edit.within(edit.code.tree)))


def _probed(node: Any, number: int, forms: Sequence[ast.expr]) -> ast.expr:
    none = ast.arguments([], [], None, [], [], None, [])
    every: list[ast.expr] = [ast.Lambda(none, copy.deepcopy(form)) for form in (node, *forms)]
    call = ast.Call(ast.Name(_PROBE, ast.Load()), [ast.Constant(number), *every], [])
    return ast.fix_missing_locations(ast.copy_location(call, node))


def _changes_nothing(node: ast.AST) -> bool:
    """Whether an expression can be computed beside another, as far as its words tell."""
    for one in ast.walk(node):
        if isinstance(one, (ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Await)):
            return False
        name = getattr(one.func, "attr", "") if isinstance(one, ast.Call) else ""
        if name in _CHANGING or (name.endswith("_") and not name.endswith("__")):
            return False
    return True


class _Probe:
    """Computes forms of an expression, and keeps those that have the right values."""

    def __init__(self, values: Sequence[np.ndarray], forms: int, like: Like) -> None:
        self._values, self._like = values, like
        self.fitting = set(range(forms))
        self.times = 0

    def __call__(self, own: Callable[[], Any], *forms: Callable[[], Any]) -> Any:
        if not self._values:
            return own()
        wanted, until = self._values[self.times % len(self._values)], time.process_time() + _SECONDS
        self.times += 1
        value = own()
        for number in sorted(self.fitting):
            if time.process_time() > until or not _gives(forms[number], wanted):
                self.fitting.discard(number)
        return as_value(wanted, value, self._like)


def _gives(form: Callable[[], Any], wanted: np.ndarray) -> bool:
    try:
        with guarded():
            made = numbers_of(form())
    except Exception:  # an edit may not run
        return False
    if made is None or made.shape != wanted.shape:
        return False
    share = _SAME.get(made.dtype.name, 0.0)
    largest = float(np.abs(wanted).max(initial=0.0))
    with np.errstate(invalid="ignore"):
        return bool(np.all(np.abs(made.astype(np.float64) - wanted) <= share * largest))
