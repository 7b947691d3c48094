"""The functions of the port in the component that is searched, kept in the reference's process."""

import ast
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

PORT_CODE: list[Mapping[str, Any]] = []
"""As `code_lines.Function` in JSON."""


def set_port_code(worker: Any, functions: list[Mapping[str, Any]]) -> dict[str, Any]:
    """From now on these are the functions of the port."""
    PORT_CODE[:] = functions
    return {}


def clipping_bounds() -> Iterator[float]:
    """The plain numbers that functions which clip gradients are given in this code."""
    for function in PORT_CODE:
        for node in ast.walk(ast.parse(textwrap.dedent(function["source"]))):
            name = ast.unparse(node.func).rpartition(".")[2].lower() if isinstance(node, ast.Call) else ""
            if isinstance(node, ast.Call) and "clip" in name and "grad" in name:
                given = [*node.args, *(one.value for one in node.keywords)]
                values = [one.value for one in given if isinstance(one, ast.Constant)]
                yield from (float(value) for value in values if isinstance(value, (int, float)))
