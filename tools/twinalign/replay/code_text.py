"""Pieces of code as a reader is shown them."""

import ast
import copy

LONGEST = 90
_SHOWN_BEFORE = 30
"""Letters before the first in which two pieces of code differ."""
AS_WRITTEN = "_as_written"
"""Attribute of a node with other names: the node as the port has it."""


def shortened(node: ast.AST | None) -> str:
    """A piece of code on one line, with its own names, cut off where it is long; what is between brackets with them."""
    return _cut(_on_one_line(node))


def shortened_both(one: ast.AST | None, other: ast.AST | None) -> tuple[str, str]:
    """Two pieces of code of which one stands in the other's place, the same way; where all that is shown of them would
    be the same, what they begin with alike is left out."""
    texts = _on_one_line(one), _on_one_line(other)
    alike = next((at for at, pair in enumerate(zip(*texts, strict=False)) if pair[0] != pair[1]), min(map(len, texts)))
    if alike < LONGEST or texts[0] == texts[1]:
        return _cut(texts[0]), _cut(texts[1])
    begin = alike - _SHOWN_BEFORE
    return f"…{_cut(texts[0][begin:])}", f"…{_cut(texts[1][begin:])}"


def _on_one_line(node: ast.AST | None) -> str:
    text = " ".join(ast.unparse(_as_written(node)).split()) if node is not None else ""
    if isinstance(node, ast.Tuple) and any(isinstance(one, ast.Slice) for one in node.elts):
        return f"[{text[1:-1]}]"
    return f"[{text}]" if isinstance(node, ast.Slice) else text


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _as_written(node: ast.AST) -> ast.AST:
    """A piece of code with the names that the port has in it, also where it is made of the port's parts."""
    if (own := getattr(node, AS_WRITTEN, None)) is not None:
        return own
    made = copy.copy(node)
    for field, value in ast.iter_fields(node):
        if isinstance(value, ast.AST):
            setattr(made, field, _as_written(value))
        elif isinstance(value, list):
            setattr(made, field, [_as_written(one) if isinstance(one, ast.AST) else one for one in value])
    return made
