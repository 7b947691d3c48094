"""A function of one argument that the reference calls and a function of the port does not, around what that has."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from twinalign.replay.aligned_code import Code
from twinalign.replay.small_edits import expressions

_MOST = 4
"""Functions, those first that the port calls nowhere."""
_ARRAYS = frozenset(("np", "numpy", "math"))
_LAYERS = frozenset(("F", "functional"))
_NO_FUNCTION = frozenset(
    ("backward", "clone", "contiguous", "copy", "cpu", "cuda", "detach", "double", "eval", "float", "item", "keys",
     "items", "numpy", "parameters", "size", "step", "train", "update", "values", "zero_grad", "dim", "long", "numel")
)  # fmt: skip
_HELD = (ast.Name, ast.Attribute, ast.Subscript, ast.Call, ast.BinOp)
Edit = tuple[ast.expr, ast.expr]


def lacking_calls(
    code: Code, parts: Sequence[ast.AST], theirs: Sequence[ast.AST], known: Sequence[Code]
) -> Iterator[Edit]:
    """`np.abs(turn)` for `turn`: each such function around each part.

    Args:
        code: a function of the port.
        parts: what of it may be edited.
        theirs: nodes of the reference's code that does the same.
        known: the port's functions.
    """
    own, every = {_name(one) for one in code.calls}, {_name(one) for other in known for one in other.calls}
    found = {name: module for name, module in _of_one_argument(theirs) if name not in own}
    modules = {*code.modules.values()}
    functions = sorted(found, key=lambda name: name in every)[:_MOST]
    for node in expressions(parts) if functions else ():
        if isinstance(node, _HELD) and getattr(node, "id", "") not in {*modules, "self"}:
            for name in functions:
                yield (
                    node,
                    ast.fix_missing_locations(ast.copy_location(_called(name, found[name], node, modules), node)),
                )


def _name(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]


def _of_one_argument(nodes: Sequence[ast.AST]) -> Iterator[tuple[str, str]]:
    """Name and module, empty for a method, of what is called with nothing else than one value."""
    for call in nodes:
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and not call.keywords:
            module = ast.unparse(call.func.value)
            is_module = module.rpartition(".")[2] in _ARRAYS | _LAYERS or module == "torch"
            if len(call.args) == is_module and call.func.attr not in _NO_FUNCTION:
                yield call.func.attr.rstrip("_"), module if is_module else ""


def _called(name: str, module: str, node: ast.expr, modules: set[str]) -> ast.expr:
    """The call around a part of the port's code; of a tensor it is a method."""
    own = module.rpartition(".")[2]
    if own in modules:
        return ast.Call(ast.Attribute(ast.Name(own, ast.Load()), name, ast.Load()), [node], [])
    return ast.Call(ast.Attribute(node, name, ast.Load()), [], [])
