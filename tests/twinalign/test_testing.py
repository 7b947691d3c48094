"""What a port's own repository uses in its tests: assertions, the pytest plugin, and its properties in JUnit XML."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.conftest import ROOT
from tests.twinalign.test_api import CASE, MODELS
from twinalign.testing import assert_aligned, assert_converts

TEST_FILE = """
import pytest

@pytest.mark.twinalign("case.py")
def test_right(alignment):
    assert alignment.stages["forward"].tensors[0].name == "output"

@pytest.mark.twinalign("wrong.py")
def test_wrong(alignment):
    raise RuntimeError("never reached")

@pytest.mark.twinalign("gone.py")
def test_gone(alignment):
    raise RuntimeError("never reached")

def test_unmarked(alignment):
    raise RuntimeError("never reached")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a right case, a wrong one, and their models."""
    (tmp_path / "models.py").write_text(MODELS)
    (tmp_path / "case.py").write_text(CASE)
    (tmp_path / "wrong.py").write_text(CASE.replace("models.port()", "models.port(1e-3)"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def pytest_in(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(ROOT / "tools"), str(ROOT)])
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "twinalign.pytest_plugin",
            "-p",
            "no:xdist",
            "--strict-markers",
            *arguments,
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths, "COLUMNS": "200"},
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
def test_the_plugin_judges_marked_tests_and_leaves_properties(folder: Path) -> None:
    (folder / "test_port.py").write_text(TEST_FILE)
    finished = pytest_in(folder, "--junitxml=tests.xml")
    assert finished.returncode == 1
    assert "1 failed, 1 passed, 2 errors in" in finished.stdout
    assert "cause: the normalisation's epsilon has another value: 0.001 in place of 1e-05" in finished.stdout
    assert "case 'gone.py': no file gone.py; give a path to a case.py, or a registered name" in finished.stdout
    assert (
        "test_port.py::test_unmarked: the fixture alignment needs a case: mark the test with "
        '@pytest.mark.twinalign("case.py")'
    ) in finished.stdout
    assert "never reached" not in [line.strip() for line in finished.stdout.splitlines() if line.startswith("E  ")]
    properties = {
        case.get("name"): {p.get("name"): p.get("value") for p in case.iter("property")}
        for case in ElementTree.parse(folder / "tests.xml").iter("testcase")
    }
    assert properties["test_right"]["twinalign.verdict"] == "aligned"
    assert float(properties["test_right"]["twinalign.forward.fp64_rel"]) < 1e-9
    assert properties["test_wrong"]["twinalign.fault"] == "1 (forward): norm_epsilon"
    assert len(list(folder.glob(".pytest_cache/d/twinalign/*/report.html"))) == 2
    # An assertion says the same, and names no report where the folder was a temporary one.
    with pytest.raises(AssertionError) as caught:
        assert_aligned("wrong.py", locate=False)
    assert "01 forward  diverged" in str(caught.value)
    assert "report in" not in str(caught.value)


@pytest.mark.slow
def test_conversion_as_an_assertion(folder: Path) -> None:
    code = textwrap.dedent(
        """
        import torch, models
        model = models.reference()
        for p in model.parameters():
            p.data += torch.randn(p.shape)
        torch.save(model.state_dict(), "model.pth")
        """
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    done = assert_converts("model.pth", ref="models:reference", paddle="models:port", inputs=["4,8"])
    assert done.ledger.totals() == {"copied": 3, "transposed": 1}
    assert sorted(path.name for path in folder.glob("*.p*")) == ["case.py", "model.pth", "models.py", "wrong.py"]
    with pytest.raises(AssertionError, match="they differ in eps"):
        assert_converts("model.pth", ref="models:reference", paddle="models:port(epsilon=0.001)", inputs=["4,8"])
