"""The verdict: is the reproduction the reference up to rounding, and on what evidence.

`docs/verdict.md` derives what is done here. Everything is imported on first use, so that the command line starts fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from twinalign.verdict.allowances import KNOWN_ALLOWANCES as KNOWN_ALLOWANCES
    from twinalign.verdict.allowances import Allowance as Allowance
    from twinalign.verdict.classic import Classic as Classic
    from twinalign.verdict.classic import classic_verdict as classic_verdict
    from twinalign.verdict.comparison import compare_arrays as compare_arrays
    from twinalign.verdict.of_files import compare_files as compare_files
    from twinalign.verdict.render import log_lines as log_lines
    from twinalign.verdict.render import markdown as markdown
    from twinalign.verdict.render import rich_table as rich_table
    from twinalign.verdict.render import summary_line as summary_line
    from twinalign.verdict.results import Comparison as Comparison
    from twinalign.verdict.results import Described as Described
    from twinalign.verdict.results import TensorVerdict as TensorVerdict
    from twinalign.verdict.trajectory import TrajectoryVerdict as TrajectoryVerdict
    from twinalign.verdict.trajectory import judge_trajectory as judge_trajectory

_HOMES = {
    "Allowance": "allowances",
    "KNOWN_ALLOWANCES": "allowances",
    "Classic": "classic",
    "classic_verdict": "classic",
    "compare_arrays": "comparison",
    "compare_files": "of_files",
    "log_lines": "render",
    "markdown": "render",
    "rich_table": "render",
    "summary_line": "render",
    "Comparison": "results",
    "Described": "results",
    "TensorVerdict": "results",
    "TrajectoryVerdict": "trajectory",
    "judge_trajectory": "trajectory",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"twinalign.verdict.{_HOMES[name]}"), name)
