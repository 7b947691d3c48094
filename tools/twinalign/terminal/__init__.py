"""Results as a terminal, a notebook or a failed assertion shows them, made from their JSON.

Each kind of result has one function here that prints it; `show` finds it by the result's kind.
"""

from __future__ import annotations

import importlib
import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from twinalign.notebook import Shown

if TYPE_CHECKING:
    from rich.console import Console

# Imported when needed: comparing and verifying do not need rich.
_PRINTERS = {
    "run": ("run", "print_run"),
    "locate": ("faults", "print_located"),
    "fix": ("fix", "print_fix"),
    "port": ("port", "print_port"),
    "compare": ("comparison", "print_comparison"),
    "convert": ("conversion", "print_conversion"),
    "selftest": ("selftest", "print_selftest"),
    "selftest_fix": ("selftest", "print_repairs"),
    "zoo": ("zoo", "print_zoo"),
    "verify": ("verification", "print_verification"),
    "info": ("info", "print_info"),
    "doctor": ("doctor", "print_doctor"),
}
_NOTEBOOK = '<pre style="overflow-x:auto;line-height:normal;font-family:monospace">{code}</pre>'
_NOTEBOOK_WIDTH = 160


def show(result: Shown, console: Console | None = None, **options: Any) -> None:
    """Print a result as its command does.

    Args:
        result: of any function of `twinalign`.
        console: standard output by default.
        **options: of the function that prints this kind of result (`limit`, `out`, …).
    """
    show_json(result.kind, result.to_json(), console, **options)


def show_json(kind: str, found: Mapping[str, Any], console: Console | None = None, **options: Any) -> None:
    """Print the JSON of a result whose command is `kind`; other arguments as in `show`."""
    module, printer = _PRINTERS[kind]
    getattr(importlib.import_module(f"twinalign.terminal.{module}"), printer)(found, console, **options)


def as_html(result: Shown) -> str:
    """A result for a notebook: a table with coloured verdicts and the causes; of other kinds, what `show` prints."""
    from rich.console import Console

    from twinalign.terminal.brief import html

    if (found := html(result.kind, result.to_json())) is not None:
        return found

    # force_jupyter=False: otherwise rich shows the output by itself, in addition to what is returned here.
    console = Console(record=True, file=io.StringIO(), width=_NOTEBOOK_WIDTH, force_jupyter=False)
    show(result, console)
    return console.export_html(inline_styles=True, code_format=_NOTEBOOK)


def as_text(result: Shown, **options: Any) -> str:
    """What `show` prints, as plain text; without rich, which a reviewer may not have, the result in one line."""
    try:
        from rich.console import Console
    except ModuleNotFoundError:
        return repr(result)

    file = io.StringIO()
    show(result, Console(file=file, width=_NOTEBOOK_WIDTH, force_jupyter=False, no_color=True), **options)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


def as_brief(result: Shown) -> str:
    """A result in at most ten lines."""
    from twinalign.terminal.brief import brief

    of_data = result.kind in ("run", "compare")
    return brief(result.kind, result.to_json(), "" if of_data else as_text(result))


Shown.to_html = as_html
Shown.to_text = as_brief
