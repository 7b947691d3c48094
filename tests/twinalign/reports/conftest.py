"""Runs to report, made up in a moment; and a headless Chromium, where there is one."""

from __future__ import annotations

import functools
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.twinalign.reports.runs import rich_summary, write_pictures, write_training
from twinalign.reports import write_report

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture
def rich_run(tmp_path: Path) -> Path:
    """The folder of a run with everything that a report can show."""
    return _write_rich_run(tmp_path)


@pytest.fixture(scope="session")
def rich_report(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The report of that run in a language, to be read alone: its plots take seconds to draw."""
    return functools.cache(lambda code: write_report(_write_rich_run(tmp_path_factory.mktemp("rich")), code))


def _write_rich_run(folder: Path) -> Path:
    (folder / "summary.json").write_text(json.dumps(rich_summary()))
    write_pictures(folder)
    write_training(folder)
    return folder


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium; without one the test is skipped, or fails where TWINALIGN_REQUIRE_BROWSER=1 says that there is one."""
    path = next((found for name in _NAMES if (found := shutil.which(name))), None)
    if path is None:
        reason = f"no browser on PATH, looked for {', '.join(_NAMES)}"
        if os.environ.get("TWINALIGN_REQUIRE_BROWSER") == "1":
            pytest.fail(f"{reason}, and TWINALIGN_REQUIRE_BROWSER=1")
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=_FLAGS, headless=True)
        yield chromium
        chromium.close()


@pytest.fixture
def opened(browser: Any) -> Iterator[Callable[..., Any]]:
    """Open a file: nothing may be said on the console, and nothing asked for but the file itself."""
    contexts, said, asked = [], [], []

    def open_page(path: Path, width: int = 1440, **options: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: said.append(dialog.message))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert said == []
    assert all(url.startswith(("file://", "data:image/png")) and url.endswith((".html", "=")) for url in asked), asked
    assert len([url for url in asked if url.startswith("file:")]) == len(contexts)
