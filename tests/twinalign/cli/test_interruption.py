"""Ctrl-C and SIGTERM end a command with one line and exit code 130, from the first import of ours on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.twinalign.cli.test_cli import INTERRUPTED

# Python runs it at its start: it interrupts when the module is looked for, and the interrupt must end the process.
HOOK = """
import os, sys, time

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            {interrupt}
            time.sleep(60)

sys.meta_path.insert(0, Finder())
"""
INTERRUPTS = {
    "Ctrl-C": f"os.kill(os.getpid(), {int(signal.SIGINT)})",
    "SIGTERM": f"os.kill(os.getpid(), {int(signal.SIGTERM)})",
    # Python would end with the signal in place of the exit code.
    "Ctrl-C within eval": f"eval('os.kill(os.getpid(), {int(signal.SIGINT)})')",
    "an exception": "raise KeyboardInterrupt",
}
MODULES = (
    "twinalign.interruption",
    "gc",
    "twinalign.cli",
    "click",
    "twinalign.errors",
    "twinalign.cli.compare",
    "numpy",
)
"""In the order in which `twinalign compare` imports them."""
BEGIN = {"module": ["-m", "twinalign"], "installed command": [str(Path(sys.executable).with_name("twinalign"))]}


def ended(folder: Path, module: str, interrupt: str, begin: list[str]) -> tuple[int, str]:
    """Exit code and standard error of a `compare` that is interrupted where it imports a module."""
    (folder / "sitecustomize.py").write_text(HOOK.format(module=module, interrupt=interrupt))
    np.savez(folder / "a.npz", x=np.ones(3))
    finished = subprocess.run(
        [sys.executable, *begin, "compare", "a.npz", "a.npz"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        # Tests that a shell runs in the background ignore interrupts, and their children with them.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert finished.stdout == ""
    return finished.returncode, finished.stderr


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("kind", ["Ctrl-C", "an exception"])
def test_an_interrupt_while_modules_are_imported_is_one_line(tmp_path: Path, module: str, kind: str) -> None:
    assert ended(tmp_path, module, INTERRUPTS[kind], BEGIN["module"]) == (130, f"{INTERRUPTED}\n")


@pytest.mark.parametrize("kind", ["SIGTERM", "Ctrl-C within eval"])
@pytest.mark.parametrize("begin", BEGIN)
def test_other_interrupts_are_one_line_too(tmp_path: Path, kind: str, begin: str) -> None:
    assert ended(tmp_path, "click", INTERRUPTS[kind], BEGIN[begin]) == (130, f"{INTERRUPTED}\n")
