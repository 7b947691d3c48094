"""The edit of the port's training code with which it trains as the reference does, where both are written otherwise.

The port's whole loop runs in the reference's process, on the reference's model, with all that it calls. If that gives
the port's curves, what is wrong is in this code, and one edit of it has to give the reference's.
"""

import ast
import dataclasses
import itertools
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from twinalign.files.curve_names import GRADIENT_NORM, WEIGHT_NORM
from twinalign.replay.aligned_code import Code, last_part
from twinalign.replay.budget import BUDGET
from twinalign.replay.helper_edits import Edit, HelperEdit, code_running, ranked_edits, with_edited_function
from twinalign.replay.helpers import Helpers
from twinalign.replay.partner_functions import partners
from twinalign.replay.port_lines import LinesVariant, codes_of
from twinalign.replay.small_edits import in_calls_of_reference
from twinalign.replay.statement_edits import statement_edits
from twinalign.replay.whole_functions import outermost
from twinalign.verdict.array_difference import distance, root_mean_square

_SECONDS = 12.0
"""Of processor time."""
_OPTIMIZERS = ("optimizer", "optim")
"""Modules of both frameworks that have the optimizers."""
_NEAR = 16
"""So many edits of statements are tried before others."""
_NEAREST = 4
_SAME = 1e-6
"""Relative: rounding leaves less between curves of one training in float64."""
_MOST_FORMS = 6
Curves = Mapping[str, np.ndarray]


class Sides(Protocol):
    """What was recorded of both sides, and the port's names of child layers → the reference's."""

    port: Curves
    reference: Curves
    child_names: Mapping[str, str]


Gives = Callable[[Curves, LinesVariant], bool]


def edited_training(
    functions: Sequence[Mapping[str, Any]], theirs: Sequence[Code], gives: Gives, sides: Sides
) -> LinesVariant | None:
    """The port's loop in place of the reference's, with the edit that gives the reference's curves; None if none does.

    Args:
        functions: the port's own, as `code_lines.Function` in JSON.
        theirs: the reference's own functions.
        gives: whether these curves are those of a variant.
        sides: has both sides' curves.
    """
    until = time.process_time() + _SECONDS
    forms = itertools.islice(_in_torch(codes_of(functions), theirs, sides.child_names), _MOST_FORMS)
    whole = next((one for one in forms if gives(sides.port, one)), None)
    if whole is None:
        return None
    for edit in _edits(whole, theirs, _trains_alike(sides)):
        if time.process_time() > until or BUDGET.is_spent:
            return None
        if gives(sides.reference, with_edited_function(whole, edit)):
            return dataclasses.replace(whole, edit=edit)
    return None


def _in_torch(known: Sequence[Code], theirs: Sequence[Code], layers: Mapping[str, str]) -> Iterator[LinesVariant]:
    """The loop with all that the port has, then with the reference's functions that make optimizers, then with all.

    What the port calls may be something that torch has no word for.
    """
    pairs = partners(theirs, known)
    functions_of_both = {other.name: one.name for one, other in pairs if "." not in one.name + other.name}
    makers = [[code.name for code in side if _makes_optimizer(code)] for side in (known, theirs)]
    one_maker = {makers[0][0]: makers[1][0]} if len(makers[0]) == len(makers[1]) == 1 else {}
    for whole in outermost(known, theirs):
        plain = Helpers({}, whole.helpers.functions).classes
        own = {name: other for name, other in whole.helpers.partners.items() if name not in plain}
        others = {name: other for name, other in functions_of_both.items() if name != whole.lines[0].ours.name}
        for replacing in ({}, one_maker, others):
            helpers = Helpers({**own, **replacing}, whole.helpers.functions)
            yield dataclasses.replace(whole, helpers=helpers, names={**whole.names, **layers})


def _makes_optimizer(code: Code) -> bool:
    nodes = ast.walk(code.tree)
    return "." not in code.name and any(isinstance(one, ast.Attribute) and one.attr in _OPTIMIZERS for one in nodes)


def _trains_alike(sides: Sides) -> bool:
    """Whether no curve of the weights or of their gradients differs, so that something beside the optimizer does."""
    names = [name for name in sides.reference if name.startswith((WEIGHT_NORM, GRADIENT_NORM))]
    return bool(names) and all(
        name in sides.port
        and distance(sides.reference[name], sides.port[name]) <= _SAME * root_mean_square(sides.reference[name])
        for name in names
    )


def _edits(whole: LinesVariant, theirs: Sequence[Code], trains_alike: bool) -> Iterator[Edit]:
    """What moves a statement a little comes first, then plain classes such as that of a moving average.

    Where the model trains alike, statements about objects of such classes come before all others.
    """
    loop, *called = code_running(whole, whole.helpers.alone)
    statements = statement_edits(loop)
    if trains_alike:
        about, every = _objects(loop, whole.helpers.classes), list(statements)
        methods = [code for name in about.values() for code in whole.helpers.classes[name]]
        first = [edit for edit in every if any(getattr(one, "id", "") in about for one in ast.walk(edit.node))]
        statements = iter([*first, *(edit for edit in every if edit not in first)])
        yield from itertools.islice(statements, _NEAREST)
        yield from ranked_edits(methods, [code.tree for code in theirs])[:_NEAR]
    yield from itertools.islice(statements, _NEAR)
    own = [code for code in called if code.is_plain and not code.name.endswith("__init__")]
    helpers = [code for code in called if not code.is_plain]
    trees = [code.tree for code in theirs]
    yield from ranked_edits(own, trees)
    yield from statements
    yield from ranked_edits([loop, *helpers], trees)
    for code in (loop, *called):
        yield from (HelperEdit(code, *edit) for edit in in_calls_of_reference(code.tree.body, trees))


def _objects(loop: Code, classes: Container[str]) -> dict[str, str]:
    """What a function makes of these classes, by its name."""
    made = [one for one in ast.walk(loop.tree) if isinstance(one, ast.Assign) and isinstance(one.value, ast.Call)]
    kinds = [(one.targets, last_part(ast.unparse(one.value.func))) for one in made]  # type: ignore[attr-defined]
    return {one.id: kind for targets, kind in kinds if kind in classes for one in targets if isinstance(one, ast.Name)}
