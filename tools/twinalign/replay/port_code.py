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


def numbers_given_to(word: str) -> Iterator[float]:
    """The plain numbers that calls in this code are given, of functions with a word in their name."""
    for function in PORT_CODE:
        for node in ast.walk(ast.parse(textwrap.dedent(function["source"]))):
            if isinstance(node, ast.Call) and word in ast.unparse(node.func).rpartition(".")[2].lower():
                given = [*node.args, *(one.value for one in node.keywords)]
                values = [one.value for one in given if isinstance(one, ast.Constant)]
                yield from (float(value) for value in values if isinstance(value, (int, float)))
