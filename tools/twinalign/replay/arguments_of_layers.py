"""Calls of layers with one argument more that a layer's `forward` has a default for: lengths, a mask, a first state."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Sequence
from typing import Any

from twinalign.replay.aligned_code import Code
from twinalign.replay.helper_edits import HelperEdit

_LEAST = 3
"""Letters that a word of a name shares with one of a parameter: `seq_len` may be its `sequence_length`."""


def arguments_of_layers(codes: Sequence[Code], layers: Sequence[tuple[str, Any]]) -> Iterator[HelperEdit]:
    """Each call of a layer with a name of its function for a parameter that is called much alike; the most alike first.

    Args:
        codes: functions of the port.
        layers: path and object of each layer of its model.
    """
    lacking = {path.rpartition(".")[2]: _with_defaults(layer) for path, layer in layers if path}
    found: list[tuple[int, HelperEdit]] = []
    for code in codes:
        for call in code.calls:
            if not isinstance(call.func, ast.Attribute) or call.func.attr not in lacking:
                continue
            given = {one.arg for one in call.keywords} | {*lacking[call.func.attr][: len(call.args)]}
            for parameter in (one for one in lacking[call.func.attr] if one and one not in given):
                for name, line in code.first_lines.items():
                    if line < call.lineno and name != "self" and (alike := _shared_words(name, parameter)):
                        more = ast.keyword(parameter, ast.Name(name, ast.Load()))
                        new = ast.copy_location(ast.Call(call.func, call.args, [*call.keywords, more]), call)
                        found.append((-alike, HelperEdit(code, call, ast.fix_missing_locations(new))))
    return (edit for _, edit in sorted(found, key=lambda one: one[0]))


def _with_defaults(layer: Any) -> list[str]:
    """The parameters of a layer's `forward` in their order, empty texts for those that have no default."""
    try:
        parameters = inspect.signature(layer.forward).parameters.values()
    except (TypeError, ValueError):
        return []
    kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    named = (one for one in parameters if one.kind in kinds)
    return ["" if one.default is inspect.Parameter.empty else one.name for one in named]


def _shared_words(name: str, parameter: str) -> int:
    """How many words of both begin alike."""
    pairs = ((one, other) for one in name.lower().split("_") for other in parameter.lower().split("_"))
    return sum(min(map(len, pair)) >= _LEAST and pair[0].startswith(pair[1][:_LEAST]) for pair in pairs)
