"""twinalign imports no framework outside the recorders; and the test of that can fail."""

from __future__ import annotations

import subprocess
import sys

import pytest

FRAMEWORKS = ("torch", "paddle", "torchvision", "reprod_log")


def loaded_frameworks(statement: str) -> set[str]:
    """Frameworks among the modules of a fresh interpreter after `statement`."""
    code = f"import sys\n{statement}\nprint(*(name for name in {FRAMEWORKS} if name in sys.modules))"
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(finished.stdout.splitlines()[-1].split()) if finished.stdout.strip() else set()


@pytest.mark.parametrize(
    "statement",
    [
        "import twinalign",
        "import twinalign.judging, twinalign.runner, twinalign.tables",
        "import twinalign.verdict.comparison, twinalign.files.reader",
        "import twinalign.convert",
        "import twinalign.testing, twinalign.pytest_plugin",
        "import twinalign.selftest.running, twinalign.selftest.planting",
        "from twinalign.explain.registry import hypotheses\nhypotheses()",
        "from twinalign.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass",
        "from twinalign.cli import main\ntry: main(['compare', '--help'])\nexcept SystemExit: pass",
        "from twinalign.cli import main\ntry: main(['run', '--help'])\nexcept SystemExit: pass",
    ],
)
def test_no_framework_is_imported(statement: str) -> None:
    assert loaded_frameworks(statement) == set()


def test_the_check_sees_a_framework() -> None:
    assert "torch" in loaded_frameworks("import twinalign.backends.torch_backend")
