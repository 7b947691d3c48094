"""The functions of the port in the component that is searched, kept in the reference's process."""

from collections.abc import Mapping
from typing import Any

PORT_CODE: list[Mapping[str, Any]] = []
"""As `code_lines.Function` in JSON."""


def set_port_code(worker: Any, functions: list[Mapping[str, Any]]) -> dict[str, Any]:
    """From now on these are the functions of the port."""
    PORT_CODE[:] = functions
    return {}
