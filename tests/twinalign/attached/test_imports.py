"""Attaching to a trainer imports numpy and the framework alone."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

RECORDS_UNDER_A_GUARD = """
import builtins, sys
real, own = builtins.__import__, {"twinalign", "plain_pickles"}
allowed = {*own, "numpy", "torch", *sys.stdlib_module_names}
seen = set()

def guarded(name, globals=None, locals=None, fromlist=(), level=0):
    importer = (globals or {}).get("__name__", "").partition(".")[0]
    top = name.partition(".")[0]
    if importer in own and level == 0:
        seen.add(top)
        if top not in allowed - set(sys.argv[2:]):
            raise ImportError(f"twinalign imports {name}")
    return real(name, globals, locals, fromlist, level)

builtins.__import__ = guarded
import torch
import twinalign

model = torch.nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
twinalign.attach(model, optimizer, out=sys.argv[1])
for _ in range(4):
    optimizer.zero_grad()
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
assert "numpy" in seen
"""


def recorded(out: Path, *missing: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", RECORDS_UNDER_A_GUARD, str(out), *missing]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_recording_needs_numpy_and_the_framework_alone(tmp_path: Path) -> None:
    done = recorded(tmp_path / "ref")
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "ref" / "steps.jsonl").read_text().splitlines()
    assert len([json.loads(line) for line in lines]) == 4, done.stderr


@pytest.mark.slow
def test_the_guard_sees_what_is_imported(tmp_path: Path) -> None:
    assert "twinalign imports numpy" in recorded(tmp_path / "ref", "numpy").stderr
