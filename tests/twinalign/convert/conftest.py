"""The converter's child processes, answered in the test's own process: both frameworks live together here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from twinalign.convert import converter
from twinalign.convert.worker import Worker
from twinalign.errors import SideCrashError

MODELS = Path(__file__).with_name("models.py")


class InProcess:
    """Stands in for `ModelProcess`; the protocol is the same, the process is not another one."""

    def __init__(self, side, factory, rules, folder):
        self.side, self.folder = side, folder
        self.worker = Worker(side, factory, rules)
        self.pending = []
        self.saved = 0

    def send(self, operation, **values):
        self.pending.append((operation, values))

    def result(self):
        operation, values = self.pending.pop(0)
        try:
            return getattr(self.worker, operation)(**values)
        except (ValueError, RuntimeError) as error:
            raise SideCrashError(f"the {self.side} model failed: {error}") from error

    def save(self, arrays):
        self.saved += 1
        path = self.folder / f"{self.side}{self.saved}.npz"
        np.savez(path, **arrays)
        return str(path)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


@pytest.fixture
def in_process(monkeypatch, tmp_path):
    """Let `convert_checkpoint` ask the models in this process; returns `{side: factory}` for a pair in models.py."""
    counter = iter(range(1000))

    def start(side, factory, python=None, rules=()):
        folder = tmp_path / f"process{next(counter)}"
        folder.mkdir()
        return InProcess(side, factory, rules, folder)

    monkeypatch.setattr(converter, "ModelProcess", start)
    return lambda reference, port: {"ref": f"{MODELS}:{reference}", "paddle": f"{MODELS}:{port}"}
