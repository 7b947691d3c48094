"""The port's own functions and plain classes, defined in the reference's process for lines that name them."""

import ast
from collections.abc import Iterator, Sequence

from twinalign.replay.aligned_code import Code, Helpers
from twinalign.replay.line_spelling import HELPER, PADDLE, in_torch


def definitions(helpers: Helpers, lines: Sequence[ast.AST]) -> Iterator[tuple[ast.Module, str]]:
    """What lines in torch's spelling refer to, and what that refers to: each as a module to run, and its file."""
    functions, classes = helpers.alone(), helpers.classes()
    waiting, defined = list(lines), set[str]()
    while waiting:
        names = {node.id for node in ast.walk(waiting.pop()) if isinstance(node, ast.Name)}
        for name in [name for name in (*functions, *classes) if HELPER + name in names - defined]:
            defined.add(HELPER + name)
            if name in functions:
                tree: ast.stmt = _function(functions[name], helpers, HELPER + name)
                file = functions[name].file
            else:
                methods = [_function(code, helpers, code.tree.name) for code in classes[name]]
                tree = ast.parse(f"class {HELPER}{name}: pass").body[0]
                vars(tree)["body"] = methods
                file = classes[name][0].file
            waiting.append(tree)
            yield ast.fix_missing_locations(ast.Module([tree], [])), file


def _function(code: Code, helpers: Helpers, name: str) -> ast.FunctionDef:
    tree: ast.FunctionDef = in_torch(code.tree, code, None, helpers)
    tree.name = name
    if code.makes_no_graph:
        no_grad = ast.Call(ast.Attribute(ast.Name(PADDLE, ast.Load()), "no_grad", ast.Load()), [], [])
        tree.body = [ast.With([ast.withitem(no_grad)], tree.body)]
    return tree
