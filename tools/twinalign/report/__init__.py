"""What people read of a run: an HTML page, a table for a pull request, and JUnit XML, all from its folder alone."""

from __future__ import annotations

from pathlib import Path

from twinalign.command_packages import callable_as_command
from twinalign.report.summary import load_summary as load_summary


def write_report(folder: Path, code: str = "en") -> Path:
    """Write `report.html` into the folder of a finished run, in English or Chinese, and return its path."""
    # Imported when it is called: a reviewer's machine, which only verifies, has nothing to draw plots with.
    from twinalign.report import page

    return page.write_report(folder, code)


callable_as_command(__name__)
