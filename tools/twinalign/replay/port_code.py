"""The functions of the port in the component that is searched, kept in the reference's process."""

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from twinalign.replay.aligned_code import last_part
from twinalign.replay.port_lines import codes_of

PORT_CODE: list[Mapping[str, Any]] = []
"""As `code_lines.Function` in JSON."""


def set_port_code(worker: Any, functions: list[Mapping[str, Any]]) -> dict[str, Any]:
    """From now on these are the functions of the port."""
    PORT_CODE[:] = functions
    return {}


def clipping_bounds() -> Iterator[float]:
    """The plain numbers that functions which clip gradients are given in this code."""
    for call in (call for code in codes_of(PORT_CODE) for call in code.calls):
        name = last_part(ast.unparse(call.func)).lower()
        if "clip" in name and "grad" in name:
            given = [*call.args, *(one.value for one in call.keywords)]
            values = [one.value for one in given if isinstance(one, ast.Constant)]
            yield from (float(value) for value in values if isinstance(value, (int, float)))
