"""The contract in pyproject.toml that keeps imports running down, shown to fail on an import that runs up."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.conftest import ROOT


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """Check the twinalign that lies in `folder` against this repository's contracts."""
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    return subprocess.run(
        [sys.executable, "-c", program, "--config", str(ROOT / "pyproject.toml"), "--no-cache", "--no-logo"],
        capture_output=True,
        text=True,
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT), str(ROOT / "tools")]),
            "COLUMNS": "200",
        },
    )


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("files/text.py", "import twinalign.reports.page\n", "Imports run down"),
        ("files/text.py", "def late():\n    from twinalign.search import locator\n", "Imports run down"),
        ("case/calling.py", "if TYPE_CHECKING:\n    import twinalign.runs\n", "Imports run down"),
        ("errors.py", "import twinalign.cli\n", "Imports run down"),
        ("verdict/reasons.py", "def late():\n    import torch\n", "torch is imported by"),
        ("backends/torch/tensors.py", "import paddle\n", "paddle is imported by"),
        ("verdict/reasons.py", "import moco_ref.schedule\n", "The twins import"),
        ("stages/forward.py", "import rich\n", "What a case's side imports"),
    ],
    ids=["upward", "in a function", "for types alone", "command line", "torch", "paddle", "twin", "side"],
)
def test_a_planted_import_breaks_the_contract(module: str, line: str, contract: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "tools" / "twinalign", tmp_path / "twinalign", ignore=shutil.ignore_patterns("*.pyc"))
    changed = tmp_path / "twinalign" / module
    changed.write_text(changed.read_text(encoding="utf-8") + f"\nfrom typing import TYPE_CHECKING\n{line}")
    finished = lint(tmp_path)
    assert finished.returncode == 1
    broken = [row for row in finished.stdout.splitlines() if row.startswith(contract)]
    assert broken[0].split("(")[0].rstrip().endswith("BROKEN"), finished.stdout
    name = f"twinalign.{module.removesuffix('.py').replace('/', '.')}"
    assert f"{name} -> " in finished.stdout, finished.stdout


def order_of_imports(folder: Path) -> list[str]:
    """Modules of the twinalign in `folder`, each after all that it imports; raises CycleError if there is a circle."""
    program = (
        "import grimp, json; graph = grimp.build_graph('twinalign', cache_dir=None);"
        "print(json.dumps({m: sorted(graph.find_modules_directly_imported_by(m)) for m in graph.modules}))"
    )
    found = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
    )
    return list(TopologicalSorter(json.loads(found.stdout)).static_order())


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert "twinalign.verdict.compare" in order_of_imports(ROOT / "tools")


def test_a_circle_within_a_room_is_seen(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "tools" / "twinalign", tmp_path / "twinalign", ignore=shutil.ignore_patterns("*.pyc"))
    with (tmp_path / "twinalign" / "verdict" / "structure.py").open("a", encoding="utf-8") as stream:
        stream.write("\n\ndef late():\n    from twinalign.verdict import compare\n")
    with pytest.raises(CycleError, match=r"twinalign\.verdict\.compare"):
        order_of_imports(tmp_path)
