"""The pictures of README.md, of a real run: `python docs/regenerate_pictures.py` writes report.png and terminal.svg.

The port is the one with five faults of docs/how-to/fix-a-port.md, out of that page. Needs a Chromium.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright
from rich.console import Console

import twinalign
from twinalign.runs.run_result import RunResult
from twinalign.terminal import show

DOCS = Path(__file__).resolve().parent
CASE = """
from twinalign import Case


class SmallNet(Case):
    name = "small_net"

    def reference(self):
        from reference import Net

        return Net()

    def reproduced(self):
        from port import Net

        return Net()

    def inputs(self, rng):
        return {"x": rng.standard_normal((4, 3, 16, 16), dtype="float32")}
"""


def write_case(folder: Path) -> None:
    """The case of the page, with both of its models."""
    page = (DOCS / "how-to" / "fix-a-port.md").read_text(encoding="utf-8")
    reference, port = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)[:2]
    (folder / "reference.py").write_text(f"from torch import nn\n\n\n{reference}")
    (folder / "port.py").write_text(f"from paddle import nn\n\n\n{port}")
    (folder / "case.py").write_text(CASE)


def terminal_picture(result: RunResult, path: Path) -> None:
    """What the run prints in a terminal of 100 columns; the fonts are the reader's."""
    console = Console(record=True, file=io.StringIO(), width=100, force_terminal=True)
    console.print("[bold]$[/] twinalign run case.py")
    show(result, console, out=Path("result"))
    svg = console.export_svg(title="twinalign run case.py", unique_id="twinalign")
    path.write_text(re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL), encoding="utf-8")


def report_picture(report: Path, path: Path) -> None:
    """The first screen of the report."""
    browser = next(found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name)))
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = chromium.new_page(viewport={"width": 1280, "height": 940})
        page.goto(report.resolve().as_uri())
        page.screenshot(path=path)
        chromium.close()


def main() -> None:
    """Run the case in a folder of its own, and draw both pictures."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        write_case(Path())
        result = twinalign.run("case.py")
        terminal_picture(result, DOCS / "terminal.svg")
        report_picture(Path("result/report.html"), DOCS / "report.png")
        os.chdir(DOCS)


if __name__ == "__main__":
    main()
