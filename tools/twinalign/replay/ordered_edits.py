"""Small edits of the port's own code, the likeliest to mend a wrong value first, and the one that fits."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import enum
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from twinalign.replay.aligned_code import Code
from twinalign.replay.constants import constants_in, is_in
from twinalign.replay.edited_trees import number_of, with_nodes
from twinalign.replay.exchanged_parts import with_exchanged_weights
from twinalign.replay.grafts import Graft
from twinalign.replay.guarded import LONGEST, guarded
from twinalign.replay.helper_edits import Edit, HelperEdit, ranks_of_edits
from twinalign.replay.likeness import are_siblings, own_words, words_of
from twinalign.replay.module_constants import ConstantEdit
from twinalign.replay.noted_expressions import in_scope
from twinalign.replay.own_copies import lacking_copies
from twinalign.replay.parts_of_grafts import smallest
from twinalign.replay.rebuilt_code import compiled, running
from twinalign.replay.running_functions import Ran, nodes_that_ran
from twinalign.replay.slices import FAR
from twinalign.replay.small_edits import expressions
from twinalign.replay.statement_edits import statement_edits

_LONGER = 1.0
"""Seconds of processor time that an edit may add to what runs at once: a loop may have no end."""
_AGAIN_AT_LEAST = 1.0
"""Seconds of processor time for an edit that says more than one that is found."""

_ADDING, _UNLIKE = 4, 2
"""So many steps farther count edits that put in one more number, and those with another number or attribute."""
_CROSSED = 0.5
"""And those of a statement, for each that it is moved over."""
_AGAIN = 0.25
"""And the next edit of the same part."""


class Fit(enum.Enum):
    """What an edit makes right: nothing, with values wrong that were not or without, values on what was recorded and
    not on other inputs, values alone, gradients too as far as they can be compared, or all that the port returns as
    well."""

    BROKEN, NOTHING, HERE, VALUES, UNIT, ALL = range(6)


def fitting_edit(edits: Iterable[Edit], fit: Callable[[Edit], Fit], seconds: float) -> dict[str, Any]:
    """The first edit with which all is right, else with which values are; `seconds`: of processor time.

    If that is a whole expression of the reference's, a smaller edit is looked for as long again, which says more; and
    if the port as a whole is not right with it, one with which it is: what runs elsewhere as well is right there, too.

    A part of the code an edit of which breaks what was right is looked at again at the end: what it makes is right.

    Returns:
        What `answer_of` has of the edit; nothing without one.
    """
    began, found, best = time.process_time(), None, Fit.NOTHING
    until = began + seconds
    breaking: set[int] = set()
    later: list[Edit] = []

    def breaking_last() -> Iterator[Edit]:
        for edit in edits:
            if type(edit) is HelperEdit and id(edit.old) in breaking and not _keeps(edit):
                later.append(edit)
            else:
                yield edit
        yield from later

    for edit in breaking_last():
        if time.process_time() > until:
            break
        if best is Fit.ALL and (_says_less(edit, found) or (isinstance(edit, Graft) and not _is_part(edit, found))):
            continue
        fits = fit(edit)
        if fits is Fit.BROKEN and type(edit) is HelperEdit and not _keeps(edit):
            breaking.update(map(id, _made_by(edit.old)))
        if fits is Fit.VALUES and best.value < fits.value and (other := stopped(edit, fit)) is not None:
            return answer_of(other, Fit.ALL)
        if fits is Fit.ALL or (fits not in (Fit.BROKEN, Fit.NOTHING) and fits.value > best.value):
            found, best = edit, fits
        if fits is Fit.ALL and (not isinstance(edit, Graft) or (found := smallest(edit, mending(fit))) is not edit):
            break
        if fits in (Fit.UNIT, Fit.ALL):
            now = time.process_time()
            until = min(until, now + max(now - began, _AGAIN_AT_LEAST))
    return answer_of(found, best) if found else {}


def remembered(fit: Callable[[Edit], Fit]) -> Callable[[Edit], Fit]:
    """The same, which tries what is written in one place once: searches come upon an edit in several ways."""
    known: dict[Any, Fit] = {}

    def tries(edit: Edit) -> Fit:
        key: Any = edit.text
        if type(edit) in (HelperEdit, Graft):
            key = id(edit.old), ast.dump(edit.new)  # type: ignore[union-attr]
        if key not in known:
            known[key] = fit(edit)
        return known[key]

    return tries


def mending(fit: Callable[[Edit], Fit]) -> Callable[[Edit], bool]:
    """Whether all is right with an edit."""
    return lambda edit: fit(edit) is Fit.ALL


def stopped(edit: Any, fit: Callable[[Edit], Fit]) -> HelperEdit | None:
    """The edit that mends values alone with a gradient stopped in what it writes, so that it mends all.

    Values do not tell what the reference detaches elsewhere.
    """
    new = getattr(edit, "new", None)
    if not isinstance(new, ast.expr) or type(edit) not in (HelperEdit, Graft):
        return None
    for node in expressions([new]):
        if isinstance(node, (ast.Name, ast.Attribute, ast.Call, ast.BinOp)):
            made = with_nodes(new, {node: ast.Call(ast.Attribute(node, "detach", ast.Load()), [], [])})
            other = dataclasses.replace(edit, new=ast.fix_missing_locations(ast.copy_location(made, edit.old)))
            if fit(other) is Fit.ALL:
                return other
    return None


def _made_by(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of code that its value is made of; not what it gives to layers, whose results may be known."""
    yield node
    is_of_layer = isinstance(node, ast.Call) and getattr(getattr(node.func, "value", None), "id", "") == "self"
    for inner in [] if is_of_layer else ast.iter_child_nodes(node):
        yield from _made_by(inner)


def answer_of(edit: Edit, fits: Fit) -> dict[str, Any]:
    """`text`, `lines_of_port` and `edit` of an edit, whether it `mends_all`, and the edit as it was `made`."""
    return {
        "text": edit.text,
        "lines_of_port": edit.lines_of_port,
        "edit": edit.to_json(),
        "mends_all": fits is Fit.ALL,
        "made": edit,
    }


@contextlib.contextmanager
def edited(edit: Edit, as_it_is: float = 0.0) -> Iterator[None]:
    """Inside the block the function runs with the edit, within bounds; an edit may be no code.

    `as_it_is`: seconds of processor time that what runs there takes without an edit.
    """
    with put_in(edit), guarded(as_it_is + min(_LONGER + 4 * as_it_is, LONGEST)):
        yield


@contextlib.contextmanager
def put_in(edit: Edit) -> Iterator[None]:
    """The same without bounds, of an edit that has run."""
    made = compiled(edit.edited, {})
    with contextlib.ExitStack() as stack:
        if isinstance(edit, ConstantEdit):
            for function in edit.functions:
                stack.enter_context(in_scope(function, edit.name, edit.value))
        for function in edit.code.functions:
            stack.enter_context(running(function, made))
        yield


def ordered_edits(
    codes: Sequence[Code],
    theirs: Sequence[ast.AST],
    far: Mapping[int, int],
    right: Sequence[Sequence[Any]] = (),
    of_gradients: bool = False,
    delays: Callable[[Code], int] = lambda code: 0,
    ran: Ran | None = None,
    late: Callable[[Edit], int] = lambda edit: 0,
) -> Iterator[Edit]:
    """Edits of functions, the nearest to wrong values, and the likelier, first.

    One more number in a value may make up for a wrong one before it or behind it: that comes later. Last come edits of
    lines that are known to be right.

    Args:
        theirs: the reference's code that does the same.
        far: of `distances`.
        right: `[file, first line, last line]` of the port's lines that do what the reference's do.
        of_gradients: whether gradients alone are wrong.
        delays: by how many steps farther a function counts as being, but for what is on this side alone.
        ran: what the run has shown; of what did not run, there are no edits.
        late: tells which edits come behind others, from 1, and last, from 2.
    """
    nodes, reads_as_theirs = nodes_that_ran(codes, ran.lines) if ran is not None else None, _reading_as(theirs)
    is_of_lone_numbers = _between_lone_numbers(codes, theirs)

    def distance_of(code: Code, node: ast.AST) -> int:
        return far.get(id(node), FAR) + (0 if id(node) in code.of_one_side else delays(code))

    def cost(edit: HelperEdit, rank: int, lost: int) -> float:
        distance = distance_of(edit.code, edit.old)
        if of_gradients and _stops(edit.new) != _stops(edit.old):  # there are few that stop less
            return distance - 2 * FAR * reads_as_theirs(edit) if _stops(edit.new) > _stops(edit.old) else -1
        file, begin, end = edit.lines_of_port[0]
        is_right = any(Path(one).name == file and first <= begin and end <= last for one, first, last in right)
        later = late(edit) if not is_right and _stops(edit.new) == _stops(edit.old) else 2 * is_right
        unlike = _is_unlike(edit) or _writes_other_attribute(edit)
        likelihood = (rank + (_UNLIKE if unlike else 0)) if lost == 0 else 0
        adds = _adds_number(edit) and (ran is None or not ran.is_whole(edit.code, edit.old))
        likelihood -= 2 * FAR if is_of_lone_numbers(edit) or _exchanges_weights(edit) else 0  # there are few
        return distance + likelihood + (_ADDING if adds else 0) + FAR * later

    def of_functions(some: Sequence[Code]) -> list[Edit]:
        found: list[tuple[tuple[float, int], Edit]] = []
        tried = Counter[int]()
        is_in_vain = _without_effect(some)

        def may_stand(edit: HelperEdit) -> bool:
            if is_in_vain(edit) or (nodes is not None and id(edit.old) not in nodes):
                return False
            return ran is None or ran.may_stand(edit.code, edit.old, edit.new)

        for edit, (rank, lost) in ranks_of_edits(some, theirs, may_stand).items():
            again = 0 if of_gradients and _stops(edit.new) != _stops(edit.old) else tried[id(edit.old)]
            found.append(((cost(edit, rank, lost) + _AGAIN * again, lost), edit))
            tried[id(edit.old)] += 1
        for code in some:
            of_statements = statement_edits(code, lambda node: nodes is None or id(node) in nodes, theirs)
            for of_statement in (*of_statements, *lacking_copies(code, theirs)):
                crossed = of_statement.crossed * _CROSSED
                likelihood = (-2 * FAR if of_statement.is_as_theirs else 0) + FAR * late(of_statement)
                found.append(((distance_of(code, of_statement.node) + crossed + likelihood, 0), of_statement))
        return [edit for _, edit in sorted(found, key=lambda one: one[0])]

    for some in _near_and_far(codes, far, delays):
        yield from of_functions(some)


def _near_and_far(
    codes: Sequence[Code], far: Mapping[int, int], delays: Callable[[Code], int]
) -> tuple[list[Code], list[Code]]:
    """Functions that wrong values are made in and that do not count as farther, at least in part; and the others."""
    own = [code for code in codes if not delays(code) or code.of_one_side]
    near = [code for code in own if any(id(node) in far for node in code.nodes)]
    return near, [code for code in codes if code not in near]


def _without_effect(codes: Sequence[Code]) -> Callable[[HelperEdit], bool]:
    """Whether an edit leaves a call for its effects without one."""
    alone = {id(call): call for code in codes for call in _calls_for_effects(code)}
    changed = {id(call.func.value) for call in alone.values()}

    def tells(edit: HelperEdit) -> bool:
        if id(edit.old) in changed and not isinstance(edit.new, ast.Name | ast.Attribute | ast.Subscript):
            return True  # the statement would change a value that nobody has
        return id(edit.old) in alone and ast.dump(edit.new) in map(ast.dump, ast.walk(edit.old))

    return tells


def _calls_for_effects(code: Code) -> Iterator[Any]:
    """Calls of methods whose result nothing uses."""
    for node in code.nodes:
        call = node.value if isinstance(node, ast.Expr) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            yield call


def _is_part(edit: Graft, found: Edit | None) -> bool:
    """Whether an edit is of a part of what another one is of, and takes less in its place."""
    if not isinstance(found, Graft) or edit.old is found.old:
        return False
    lengths = [len(ast.unparse(one.new)) for one in (edit, found)]
    return lengths[0] < lengths[1] and any(one is edit.old for one in ast.walk(found.old))


def _says_less(edit: Edit, found: Edit | None) -> bool:
    """Whether an edit inside of what another one takes from the reference lacks names or numbers that are there.

    Values may not tell both apart: a sum of ones, by which the reference divides.
    """
    if not isinstance(found, Graft) or type(edit) is not HelperEdit:
        return False
    if not any(one is edit.old for one in ast.walk(found.old)):
        return False
    return bool(own_words(found.new) - own_words(edit.within(found.old)))


def _keeps(edit: HelperEdit) -> bool:
    """Whether what is there stays inside of something else, as in bounds that most values are within."""
    return any(one is edit.old for one in ast.walk(edit.new))


def _reading_as(theirs: Sequence[ast.AST]) -> Callable[[HelperEdit], bool]:
    """Whether the statement around an edit has the words of one of the reference's with it."""
    known = {tuple(words_of(one)) for tree in theirs for one in _simple_statements(tree)}

    def tells(edit: HelperEdit) -> bool:
        around = (one for one in _simple_statements(edit.code.tree) if any(n is edit.old for n in ast.walk(one)))
        return any(tuple(words_of(edit.within(one))) in known for one in around)

    return tells


def _between_lone_numbers(codes: Sequence[Code], theirs: Sequence[ast.AST]) -> Callable[[HelperEdit], bool]:
    """Whether an edit writes a number that the reference alone has in place of one that the port alone has."""
    ours, known = constants_in(*(code.tree for code in codes)), constants_in(*theirs)

    def tells(edit: HelperEdit) -> bool:
        old, new = number_of(edit.old), number_of(edit.new)
        if old is None or new is None or is_in(old, known):
            return False
        return is_in(new, known) and not is_in(new, ours)

    return tells


def _exchanges_weights(edit: HelperEdit) -> bool:
    """Whether an edit gives what a mean weighs each other's weights, as an average that keeps what it should leave."""
    if not isinstance(edit.old, ast.BinOp) or not isinstance(edit.new, ast.BinOp):
        return False
    return any(ast.dump(edit.new) == ast.dump(one) for one in with_exchanged_weights(edit.old))


def _simple_statements(tree: ast.AST) -> Iterator[ast.stmt]:
    return (one for one in ast.walk(tree) if isinstance(one, ast.stmt) and not hasattr(one, "body"))


def _stops(node: ast.AST) -> int:
    """How often code stops a gradient."""
    return sum(getattr(one, "attr", "") in ("detach", "stop_gradient") for one in ast.walk(node))


def _adds_number(edit: HelperEdit) -> bool:
    """Whether an edit only puts a number, or a sign, before or behind what is there."""
    if isinstance(edit.new, ast.UnaryOp):
        return edit.new.operand is edit.old
    sides = (edit.new.left, edit.new.right) if isinstance(edit.new, ast.BinOp) else ()
    added = [one for one in sides if one is not edit.old]
    return len(added) == 1 and isinstance(added[0], ast.Constant)


def _writes_other_attribute(edit: HelperEdit) -> bool:
    if not (isinstance(edit.old, ast.Attribute) and isinstance(edit.new, ast.Attribute)):
        return False
    return not are_siblings(edit.old.attr, edit.new.attr)


def _is_unlike(edit: HelperEdit) -> bool:
    """Whether an edit writes another text, or a number that is no neighbour, half or double of it, nor 0 or 1."""
    if isinstance(edit.old, ast.Constant) and isinstance(edit.old.value, str):
        return True
    numbers = [number_of(one) for one in (edit.old, edit.new)]
    if numbers[0] is None or numbers[1] is None:
        return False
    old, new = map(float, numbers)  # type: ignore[arg-type]
    return new not in (old - 1, old + 1, -old, old / 2, old * 2, 0.0, 1.0)


def in_turn(first: Iterable[Edit], second: Iterable[Edit]) -> Iterator[Edit]:
    """One of each in turn, then what is left."""
    pairs = itertools.zip_longest(first, second)
    return (edit for pair in pairs for edit in pair if edit is not None)


def parsed_at(places: Iterable[Sequence[Any]]) -> list[ast.AST]:
    """The functions that stand in these lines of files."""
    found: list[ast.AST] = []
    for file in dict.fromkeys(place[0] for place in places):
        with contextlib.suppress(OSError, SyntaxError, ValueError):
            tree = ast.parse(Path(file).read_text(encoding="utf-8"))
            spans = [(first, last) for other, first, last in places if other == file]
            functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
            found += [one for one in functions if any(begin <= one.lineno <= end for begin, end in spans)]
    return found
