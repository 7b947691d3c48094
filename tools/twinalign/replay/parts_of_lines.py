"""The part of a line of the port that is why, where both sides write the same and it means two things."""

import ast
import dataclasses
from collections.abc import Callable

from twinalign.replay.port_lines import LinesVariant


def narrowed(line: LinesVariant, gives_port: Callable[[LinesVariant], bool]) -> LinesVariant:
    """The smallest call in a line with the reference's words that alone gives the port's values; else the line."""
    whole = line.lines[0] if len(line.lines) == 1 else None
    if whole is None or not whole.has_same_words or not gives_port(line):
        return line
    for old, new in sorted(_calls(whole.old, whole.new), key=lambda pair: len(ast.unparse(pair[1]))):
        part = dataclasses.replace(whole, place=(id(old), "instead"), old=old, new=new)
        variant = dataclasses.replace(line, detail=part.text, lines=(part,))
        if gives_port(variant):
            return variant
    return line


def _calls(old: ast.AST | None, new: ast.AST | None) -> list[tuple[ast.Call, ast.Call]]:
    """Calls that stand in the same place of two trees, as far as these have the same form."""
    if old is None or new is None or type(old) is not type(new):
        return []
    found = [(old, new)] if isinstance(old, ast.Call) and isinstance(new, ast.Call) else []
    inside = [list(ast.iter_child_nodes(one)) for one in (old, new)]
    if len(inside[0]) == len(inside[1]):
        for one, other in zip(*inside, strict=True):
            found += _calls(one, other)
    return found
