"""Reports on a run from its folder: an HTML page, a table for a pull request, and JUnit XML."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twinalign.files.recordings import write_text
from twinalign.reports.summary import FILES
from twinalign.reports.summary import load_summary as load_summary


def write_report(folder: Path, code: str = "en", against: Path | None = None) -> Path:
    """Write `report.html` into the folder of a finished run and return its path.

    Everything shown comes from that folder and is escaped; the page loads nothing from elsewhere. `code` is the
    language, `en` or `zh`. With `against`, the folder of an earlier run of the case, the page begins with what changed.
    Raises InputError if no run has finished there.
    """
    from twinalign.reports.page import page  # here, because who only verifies does not need what draws plots

    path = folder / "report.html"
    earlier = load_summary(against) if against is not None else None
    write_text(path, page(load_summary(folder), folder, code, earlier))
    return path


def comparison_page(comparison: Mapping[str, Any], title: str) -> str:
    """The page of a comparison of two files; `title` names them."""
    from twinalign.reports.page import page

    found = {"case": title, "verdict": comparison["verdict"], "stages": {FILES: comparison}, "environment": {}}
    return page(found, Path(), "en")
