"""Searches in forked processes, or with both recorders answered in the test's own: the same requests without starts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from twinalign.replay.proven_before import forget_proven
from twinalign.search import components, edits_of_port


class InProcess:
    """Stands in for `SideProcess`; what is sent and answered goes through JSON as it would."""

    def __init__(self, side: str, case: str, options: dict[str, str]) -> None:
        from twinalign.recorder.worker import Worker

        self.side = side
        self.worker = Worker(lambda event, **values: None, side=side, device="cpu", case=case, options=options)

    def call(self, function: Callable[..., dict[str, Any]], **values: Any) -> dict[str, Any]:
        return json.loads(json.dumps(function(self.worker, **json.loads(json.dumps(values)))))


@pytest.fixture(scope="module", autouse=True)
def _forked(kept_processes: None) -> None: ...


@pytest.fixture(autouse=True)
def _nothing_proven() -> None:
    """No test knows what another has proven in this process."""
    forget_proven(None)


@pytest.fixture(autouse=True)
def _names_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a cause has a name, its line is sought for two seconds more, which tests of `runs` ask about."""
    monkeypatch.setattr(edits_of_port, "lacks_line", edits_of_port.is_open)
    monkeypatch.setattr(components, "lacks_edit", edits_of_port.is_open)


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, InProcess]]:
    """Both sides of a case given as `path/to/case.py:Class`."""
    # A worker collects garbage before it builds a model; with both frameworks in one process that takes most of a test.
    monkeypatch.setattr("gc.collect", lambda *_: 0)
    return lambda case, options=None: {side: InProcess(side, case, options or {}) for side in ("ref", "paddle")}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a search keeps its files."""
    return tmp_path / "locate"
