"""What the reference does with a value that the port hands on as it is: a division, a bound, a factor left out."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from twinalign.replay.aligned_code import Code
from twinalign.replay.code_text import shortened
from twinalign.replay.grafts import Graft, code_of
from twinalign.replay.known_arrays import are_equal, tells
from twinalign.replay.noted_values import Values
from twinalign.replay.small_edits import expressions
from twinalign.replay.value_trials import Trials
from twinalign.replay.words_by_values import by_values

_MOST = 30
_COMPUTED = ast.BinOp, ast.UnaryOp, ast.Call
_HELD = ast.Call, ast.Subscript


def handed_on(
    codes: Sequence[Code], theirs: Sequence[tuple[Mapping[str, Any], Values]], trials: Trials
) -> Iterator[Graft]:
    """Edits of the port's functions that do with what they compute what the reference does with the same.

    Args:
        theirs: the reference's functions, as `values_of` has them.
        trials: of the same functions.
    """
    others = [code for one, _ in theirs if (code := code_of(one)) is not None]
    yield from itertools.islice(_edits(codes, others, trials), _MOST)


def _edits(codes: Sequence[Code], others: Sequence[Code], trials: Trials) -> Iterator[Graft]:
    held = [
        (code, node, values)
        for code in codes
        for node, values in trials.values_of(code)
        if isinstance(node, _HELD) and tells(values)
    ]
    for of in others:
        for node in (one for one in expressions([of.tree]) if isinstance(one, _COMPUTED) and trials.lacks(of, one)):
            parts = (one for one in ast.iter_child_nodes(node) if isinstance(one, _HELD))
            values = [one for part in parts for one in trials.values_there(of, shortened(part))]
            for code, ours, known in held:
                is_same = any(are_equal(known, one) for one in values)
                if is_same and (made := by_values(code, ours, of, node, trials)) is not None:
                    yield Graft(code, ours, ast.fix_missing_locations(ast.copy_location(made, ours)))
