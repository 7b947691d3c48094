"""Reports on a run from its folder: an HTML page, a table for a pull request, and JUnit XML."""

from pathlib import Path

from twinalign.files.recordings import write_text
from twinalign.reports.summary import load_summary as load_summary


def write_report(folder: Path, code: str = "en") -> Path:
    """Write `report.html` into the folder of a finished run and return its path.

    Everything shown comes from that folder and is escaped; the page loads nothing from elsewhere. `code` is the
    language, `en` or `zh`. Raises InputError if no run has finished there.
    """
    from twinalign.reports.page import page  # here, because who only verifies does not need what draws plots

    path = folder / "report.html"
    write_text(path, page(load_summary(folder), folder, code))
    return path
