"""Edits of one expression of the port, where the value that it must have is known.

All of them are computed while the function runs, beside the expression itself: a thousand cost as much as one run of a
model. So two small edits at once can be tried as well.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import dataclasses
import functools
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from twinalign.replay.edited_trees import with_nodes
from twinalign.replay.grafts import Graft, made_once
from twinalign.replay.guarded import guarded
from twinalign.replay.helper_edits import BothEdits, HelperEdit
from twinalign.replay.likeness import words_of
from twinalign.replay.noted_expressions import Place, in_scope, numbers_of
from twinalign.replay.rebuilt_code import compiled, running
from twinalign.replay.value_trials import Found, Like, Other, as_value

_PROBE, _OWN = "_twinalign_probed", "_twinalign_own"
_SAME = {"float64": 1e-9, "float32": 1e-5}
"""Relative; of other types all is the same."""
_SINGLES, _PAIRED, _PAIRS = 600, 90, 2000
"""So many edits are tried; so many, the likeliest, two at once; and so many of two."""
_OPENED, _MOST_NODES = 3, 400
"""So often are names opened, into so much code."""
_SECONDS = 2.0
"""Of processor time, for all of them, however often the expression is computed."""
_CHANGING = "append", "extend", "insert", "pop", "update", "set_value"
"""Methods that change what they belong to, as those do whose name ends with _."""


def fitting_in_place(
    found: Found,
    forms: Callable[[Place, Other], Iterable[HelperEdit]],
    run: Callable[[], Any],
    like: Like,
    in_pairs: bool = False,
) -> Iterator[HelperEdit]:
    """Edits with which each part of a place has the values that it must have.

    Args:
        in_pairs: whether two at once are asked for, of which there are many, or one at a time.
        forms: edits of a part that should have what the reference has there, the likeliest first.
        run: runs the function.
        like: as `Backend.to_tensor_like`.
    """
    if any(_computed(place.node) is None for place, _, _ in found.parts):
        return
    opened = [_Opened(place) for place, _, _ in found.parts]
    singles = [
        list(itertools.islice(filter(one.holds, forms(place, other)), _SINGLES))
        for one, (place, other, _) in zip(opened, found.parts, strict=True)
    ]
    pairs = [list(itertools.islice(_two_at_once(edits), _PAIRS)) for edits in singles] if in_pairs else singles
    yield from _together(_fitting(found, opened, pairs, run, like))


class _Opened:
    """An expression with what its function makes names of, once each, in their place."""

    def __init__(self, place: Place) -> None:
        self._place, self._node, self._made_of = place.node, _computed(place.node), made_once(place.code)
        self._inside = {id(place.node)}
        waiting: list[tuple[ast.AST, int]] = [(place.node, 0)]
        while waiting:
            node, times = waiting.pop()
            inner = self._made_of.get(getattr(node, "id", ""))
            more = [(inner, times + 1)] if inner is not None and times < _OPENED else []
            waiting += [*more, *((one, times) for one in ast.iter_child_nodes(node))]
            self._inside.update(id(one) for one, _ in waiting)
            if len(self._inside) > _MOST_NODES:
                self._made_of = {}
                self._inside = {id(one) for one in ast.walk(place.node)}
                break

    def holds(self, edit: HelperEdit) -> bool:
        """Whether an edit stands in it."""
        return all(id(one) in self._inside for one in edit.changes)

    def form(self, edit: HelperEdit) -> ast.expr:
        """The expression with an edit in it."""
        new = edit.changes.get(self._place) if self._place is not self._node else None
        found: ast.expr = self._rebuilt(self._node if new is None else _computed(new), edit.changes, 0)
        return found

    def _rebuilt(self, node: Any, changes: Mapping[ast.AST, ast.AST], times: int) -> Any:
        if (new := changes.get(node)) is not None:  # which may have what it replaces in it
            changes = {old: other for old, other in changes.items() if other is not new}
            node = new
        inner = self._made_of.get(getattr(node, "id", ""))
        if isinstance(node, ast.Name) and inner is not None and self._is_changed(inner, changes, times + 1):
            return self._rebuilt(inner, changes, times + 1)
        made = copy.copy(node)
        for field, value in ast.iter_fields(node):
            if isinstance(value, list):
                setattr(made, field, [self._rebuilt(one, changes, times) if _is_code(one) else one for one in value])
            elif isinstance(value, ast.AST):
                setattr(made, field, self._rebuilt(value, changes, times))
        return made

    def _is_changed(self, node: ast.AST, changes: Mapping[ast.AST, ast.AST], times: int) -> bool:
        """Whether an edit stands in what a name is made of; what does not is not computed again."""
        if times > _OPENED:
            return False
        inside = list(ast.walk(node))
        inner = (self._made_of[one.id] for one in inside if isinstance(one, ast.Name) and one.id in self._made_of)
        return any(one in changes for one in inside) or any(self._is_changed(one, changes, times + 1) for one in inner)


def _computed(node: Any) -> ast.expr | None:
    """What an expression, or a statement that gives a name another value, computes; None for other statements."""
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        return ast.copy_location(ast.BinOp(ast.Name(node.target.id, ast.Load()), node.op, node.value), node)
    if isinstance(node, ast.Assign):
        return node.value
    return node if isinstance(node, ast.expr) else None


def assigned(place: Any, value: Any) -> Any:
    """A value in place of an expression; of a statement that gives a name another value, one that gives it this."""
    return ast.Assign([copy.deepcopy(place.target)], value) if isinstance(place, ast.AugAssign) else value


def _is_code(value: Any) -> bool:
    return isinstance(value, ast.AST)


def _two_at_once(edits: Sequence[HelperEdit]) -> Iterator[HelperEdit]:
    """Both of two edits of parts that do not contain each other: the same in two places first, then the likelier."""
    plain = [edit for edit in edits if type(edit) is HelperEdit]
    inside = [{id(one) for one in ast.walk(edit.old) if isinstance(one, ast.expr)} for edit in plain]
    changes = [_change(edit) for edit in plain]
    likely = range(min(len(plain), _PAIRED))
    alike = [two for two in itertools.combinations(range(len(plain)), 2) if changes[two[0]] == changes[two[1]]]
    others = sorted(itertools.combinations(likely, 2), key=sum)
    for first, second in (*alike, *others):
        if inside[first].isdisjoint(inside[second]):
            one, other = plain[first], plain[second]
            yield BothEdits(one.code, one.old, one.new, other)


def _change(edit: HelperEdit) -> tuple[frozenset[tuple[str, int]], frozenset[tuple[str, int]]]:
    """The words that an edit takes away, and that it adds."""
    old, new = Counter(words_of(edit.old)), Counter(words_of(edit.new))
    return frozenset((old - new).items()), frozenset((new - old).items())


def _together(edits: Sequence[Sequence[HelperEdit]]) -> Iterator[HelperEdit]:
    """One edit of each part."""
    for choice in itertools.product(*edits):
        made = choice[0]
        for other in choice[1:]:
            made = BothEdits(made.code, made.old, made.new, other)
        yield made


def _fitting(
    found: Found,
    opened: Sequence[_Opened],
    edits: Sequence[Sequence[HelperEdit]],
    run: Callable[[], Any],
    like: Like,
) -> list[list[HelperEdit]]:
    """Of each part those with which it has its values each time."""
    code, probed, probes, kept = found.place.code, dict[ast.AST, ast.AST](), list[_Probe](), []
    for (place, _, values), one, own in zip(found.parts, opened, edits, strict=True):
        forms = [(edit, form) for edit in own if _changes_nothing(form := one.form(edit))]
        probes.append(_Probe(values, len(forms), like))
        kept.append([edit for edit, _ in forms])
        probed[place.node] = _probed(place.node, len(probes) - 1, [form for _, form in forms])
    if not all(kept):
        return [[] for _ in kept]

    def probe(number: int, *forms: Callable[..., Any]) -> Any:
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
    if not all(each.times for each in probes):
        return [[] for _ in kept]
    return [sorted((own[number] for number in one.fitting), key=_length) for one, own in zip(probes, kept, strict=True)]


def _length(edit: HelperEdit) -> tuple[bool, int]:
    """The reference's wording last, as long as the port's own says the same; else the shortest first."""
    return isinstance(edit, Graft), len(ast.unparse(edit.within(edit.code.tree)))


def _probed(node: Any, number: int, forms: Sequence[ast.expr]) -> ast.AST:
    """A call of the probe with the expression itself and with each form, which is given the expression's value."""
    own: Any = _computed(node)
    none, given = (
        ast.arguments([], [ast.arg(name) for name in names], None, [], [], None, []) for names in ((), (_OWN,))
    )
    written = ast.dump(own)

    def with_value(form: ast.expr) -> ast.expr:
        inside: dict[ast.AST, ast.AST] = {
            one: ast.Name(_OWN, ast.Load())
            for one in ast.walk(form)
            if isinstance(one, ast.Call) and ast.dump(one) == written
        }
        return copy.deepcopy(with_nodes(form, inside))

    every: list[ast.expr] = [
        ast.Lambda(none, copy.deepcopy(own)),
        *(ast.Lambda(given, with_value(one)) for one in forms),
    ]
    call = ast.Call(ast.Name(_PROBE, ast.Load()), [ast.Constant(number), *every], [])
    made: ast.AST = assigned(node, call)
    return ast.fix_missing_locations(ast.copy_location(made, node))


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
        self.times, self._left = 0, _SECONDS

    def __call__(self, own: Callable[[], Any], *forms: Callable[[Any], Any]) -> Any:
        if not self._values:
            return own()
        wanted, began = self._values[self.times % len(self._values)], time.process_time()
        self.times += 1
        value = own()
        for number in sorted(self.fitting):
            if time.process_time() - began > self._left or not _gives(functools.partial(forms[number], value), wanted):
                self.fitting.discard(number)
        self._left -= time.process_time() - began
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
