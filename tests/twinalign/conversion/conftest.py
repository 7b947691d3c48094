"""The converter's child processes, answered in the test's own process: both frameworks live together here."""

from __future__ import annotations

from pathlib import Path

import pytest

from twinalign.conversion import remote_model
from twinalign.errors import SideCrashError

MODELS = Path(__file__).with_name("models.py")


class InProcess:
    """Stands in for `SideProcess`; the functions are the same, the process is not another one."""

    def __init__(self, side, python=None):
        self.side = side

    def start(self, service, **values):
        self.service = service(None, side=self.side, **values)

    def send(self, function, **values):
        self.asked = function, values

    def answer(self):
        function, values = self.asked
        try:
            return function(self.service, **values)
        except (ValueError, RuntimeError) as error:
            raise SideCrashError(f"the {self.side} model failed: {error}") from error

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


@pytest.fixture
def in_process(monkeypatch):
    """Let `convert_checkpoint` ask the models in this process; returns `{side: factory}` for a pair in models.py."""
    monkeypatch.setattr(remote_model, "SideProcess", InProcess)
    return lambda reference, port: {"ref": f"{MODELS}:{reference}", "paddle": f"{MODELS}:{port}"}
