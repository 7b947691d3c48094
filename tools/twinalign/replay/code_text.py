"""Pieces of code as a reader is shown them."""

import ast
import copy

LONGEST = 90
AS_WRITTEN = "_as_written"
"""Attribute of a node with other names: the node as the port has it."""


def shortened(node: ast.AST | None) -> str:
    """A piece of code on one line, with its own names, cut off where it is long; what is between brackets with them."""
    text = " ".join(ast.unparse(_as_written(node)).split()) if node is not None else ""
    if isinstance(node, ast.Tuple) and any(isinstance(one, ast.Slice) for one in node.elts):
        text = f"[{text[1:-1]}]"
    elif isinstance(node, ast.Slice):
        text = f"[{text}]"
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
