"""The edit of the port's training code with which it trains as the reference does, where both are written otherwise.

The port's whole loop runs in the reference's process, on the reference's model, with all that it calls. If that gives
the port's curves, what is wrong is in this code, and one edit of it has to give the reference's.
"""

import ast
import dataclasses
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from twinalign.replay.aligned_code import Code, line_of, words_of
from twinalign.replay.helper_edits import HelperEdit, edited, reached
from twinalign.replay.helpers import Helpers
from twinalign.replay.partner_functions import partners
from twinalign.replay.port_lines import LinesVariant, codes_of
from twinalign.replay.small_edits import in_calls_of_reference, plain_edits
from twinalign.replay.statement_moves import Move, moves
from twinalign.replay.whole_functions import outermost

_SECONDS = 9.0
"""Of processor time."""
_OPTIMIZERS = ("optimizer", "optim")
"""Modules of both frameworks that have the optimizers."""
_NEAR = 16
"""So many moves of statements are tried before other edits."""
Gives = Callable[[LinesVariant], bool]


def edited_trainings(
    functions: Sequence[Mapping[str, Any]], theirs: Sequence[Code], gives_port: Gives, gives_reference: Gives
) -> Iterator[LinesVariant]:
    """The port's loop in place of the reference's, with words for the edit that gives the reference's curves.

    Args:
        functions: the port's own, as `code_lines.Function` in JSON.
        theirs: the reference's own functions.
        gives_port, gives_reference: whether a variant gives all of the port's curves, or of the reference's.
    """
    known = codes_of(functions)
    for whole in itertools.islice(_in_torch(known, theirs, functions), 3):
        if gives_port(whole):
            yield from itertools.islice(_edited(whole, theirs, gives_reference), 1)
            return


def _in_torch(
    known: Sequence[Code], theirs: Sequence[Code], functions: Sequence[Mapping[str, Any]]
) -> Iterator[LinesVariant]:
    """The loop with all that the port has, then with the reference's functions that make optimizers, then with all.

    What the port calls may be something that torch has no word for.
    """
    pairs = partners(theirs, known)
    functions_of_both = {other.name: one.name for one, other in pairs if "." not in one.name + other.name}
    makers = _one_for_the_other(*([code.name for code in side if _makes_optimizer(code)] for side in (known, theirs)))
    methods = {_last(other): _last(one) for one, other in pairs if "." in one.name and "." in other.name}
    for whole in outermost(functions, theirs):
        plain = Helpers({}, whole.helpers.functions).classes
        own = {name: other for name, other in whole.helpers.partners.items() if name not in plain}
        loop = whole.lines[0].ours.name
        others = {name: other for name, other in functions_of_both.items() if name != loop}
        for replacing in ({}, makers, others):
            helpers = Helpers({**own, **replacing}, whole.helpers.functions)
            yield dataclasses.replace(whole, helpers=helpers, names={**methods, **whole.names})


def _makes_optimizer(code: Code) -> bool:
    nodes = ast.walk(code.tree)
    return "." not in code.name and any(isinstance(one, ast.Attribute) and one.attr in _OPTIMIZERS for one in nodes)


def _one_for_the_other(ours: Sequence[str], theirs: Sequence[str]) -> dict[str, str]:
    return {ours[0]: theirs[0]} if len(ours) == len(theirs) == 1 else {}


def _last(code: Code) -> str:
    return code.name.rpartition(".")[2]


def _edited(whole: LinesVariant, theirs: Sequence[Code], gives_reference: Gives) -> Iterator[LinesVariant]:
    """The loop as it is, which gives the port's curves, for each edit with which it gives the reference's."""
    until = time.process_time() + _SECONDS
    for change in _changes(whole, theirs):
        if time.process_time() > until:
            return
        code = change.code
        functions = [change.edited if one is code else one for one in whole.helpers.functions]
        if gives_reference(dataclasses.replace(whole, helpers=Helpers(whole.helpers.partners, functions))):
            yield dataclasses.replace(whole, detail=change.text, told=change.facts)


@dataclasses.dataclass(frozen=True)
class _Change:
    code: Code
    edited: Code
    text: str
    facts: Mapping[str, Any]


def _changes(whole: LinesVariant, theirs: Sequence[Code]) -> Iterator[_Change]:
    codes = _running(whole)
    moved = [_of_move(code, move) for code in codes[:1] for move in moves(code.tree)]
    own = [code for code in codes[1:] if code.is_plain and not code.name.endswith("__init__")]
    yield from moved[:_NEAR]
    yield from _plain(own, names=False)
    yield from moved[_NEAR:]
    yield from _plain(codes[:1], names=False)
    yield from _plain([*own, *codes[:1]], names=True)
    helpers = [code for code in codes[1:] if not code.is_plain]
    yield from _plain(helpers, names=False)
    trees = [code.tree for code in theirs]
    for code in codes:
        yield from (_of_edit(HelperEdit(code, *edit)) for edit in in_calls_of_reference(code.tree.body, trees))


def _plain(codes: Sequence[Code], names: bool) -> Iterator[_Change]:
    """Small edits; those that write another name, of which there are many, or all but these."""
    for code in codes:
        parts = [*code.tree.body, *code.tree.args.defaults]
        for edit in sorted(plain_edits(parts, (), ast.walk(code.tree)), key=_rank):
            if all(isinstance(one, ast.Name) for one in edit) == names:
                yield _of_edit(HelperEdit(code, *edit))


def _rank(edit: tuple[ast.expr, ast.expr]) -> int:
    """What exchanges parts comes first, and other numbers, of which there are many, last."""
    old, new = edit
    return 0 if sorted(words_of(old)) == sorted(words_of(new)) else 2 if isinstance(old, ast.Constant) else 1


def _running(whole: LinesVariant) -> list[Code]:
    """The port's own functions that run in its loop, the loop first, and methods of its plain classes."""
    functions, classes = whole.helpers.alone, whole.helpers.classes
    found = [functions[name] for name in reached(whole, functions)]
    names = {node.id for code in found for node in ast.walk(code.tree) if isinstance(node, ast.Name)}
    for name in classes.keys() & names:
        found += [code for code in classes[name] if code not in found]
    return found


def _of_edit(edit: HelperEdit) -> _Change:
    facts = {"lines_of_port": [edit.line_of_port], "helper_edit": edit.to_json()}
    return _Change(edit.code, edited(edit), edit.text, facts)


def _of_move(code: Code, move: Move) -> _Change:
    text = f"`{move.statement}`, {line_of(code, move.node)}, stands {move.now} the port trains as the reference does"
    place = code.file, move.node.lineno, move.node.end_lineno or move.node.lineno
    facts = {"lines_of_port": [place], "to_do": f"write `{move.statement}` {move.then}"}
    return _Change(code, dataclasses.replace(code, tree=move.tree), text, facts)
