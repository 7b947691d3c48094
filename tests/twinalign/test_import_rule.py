"""twinalign imports no framework outside the recorders; and the test of that can fail."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

PACKAGE = Path(__file__).parents[2] / "tools" / "twinalign"
ROOM_OF_FRAMEWORK = {"torch": "backends/torch/", "torchvision": "backends/torch/", "paddle": "backends/paddle/"}
_IMPORTERS = ("importlib.import_module", "import_module", "__import__")
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
        "import twinalign.runs.run_stages, twinalign.recorder.recorder, twinalign.terminal.run",
        "import twinalign.verdict.compare, twinalign.files.reader",
        "import twinalign.conversion.convert_file, twinalign.bundle.packing, twinalign.reports.page",
        "import twinalign.backends, twinalign.backends.protocol, twinalign.stages",
        "import twinalign.backends.torch.reference_only.operations",
        "from twinalign import compare, convert, doctor, init, locate, pack, record, report, run, verify",
        "import twinalign.testing, twinalign.pytest_plugin",
        "import twinalign.planted_faults.selftest, twinalign.planted_faults.spoiled_port",
        "from twinalign.causes.registry import known_causes\nknown_causes()",
        "from twinalign.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass",
        *(
            f"from twinalign.cli import main\ntry: main(['{command}', '--help'])\nexcept SystemExit: pass"
            for command in ("run", "compare", "report", "pack", "verify", "convert", "locate")
        ),
    ],
)
def test_no_framework_is_imported(statement: str) -> None:
    assert loaded_frameworks(statement) == set()


def test_the_check_sees_a_framework() -> None:
    assert "torch" in loaded_frameworks("import twinalign.backends.torch.backend")


def test_comparing_two_files_imports_neither_what_runs_a_case_nor_what_judges_a_training(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones(3, np.float32))
    slow = ("twinalign.stages", "twinalign.verdict.trajectory", "zipfile", "rich", "tomllib", "hashlib")
    loaded = f"print(*(name for name in {slow} if name in sys.modules))"
    code = f"import sys\nfrom twinalign.cli import main\ntry: main(sys.argv[1:])\nexcept SystemExit: {loaded}"
    command = [sys.executable, "-c", code, "compare", *[str(tmp_path / "a.npy")] * 2]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert output[0].startswith("aligned")
    assert output[-1] == ""


def imported_modules(path: Path) -> Iterator[str]:
    """Modules that a source file imports, in functions as well, and those that it names to `import_module`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield str(node.module)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in _IMPORTERS and node.args:
            yield from (str(part.value) for part in ast.walk(node.args[0]) if isinstance(part, ast.Constant))


def framework_imports_elsewhere(package: Path) -> list[str]:
    """`file imports framework`, wherever that is not the framework's own room."""
    return [
        f"{file} imports {module}"
        for path in sorted(package.rglob("*.py"))
        for file in [path.relative_to(package).as_posix()]
        for module in imported_modules(path)
        for room in [ROOM_OF_FRAMEWORK.get(module.partition(".")[0])]
        if room and not file.startswith(room)
    ]


@pytest.mark.slow
def test_a_framework_is_imported_in_its_own_room_alone() -> None:
    assert framework_imports_elsewhere(PACKAGE) == []


@pytest.mark.parametrize(
    "statement",
    [
        "import torch",
        "import numpy, torch.nn as nn",
        "from torch.nn import Module",
        "def later():\n    import torch",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch",
        "import importlib\nimportlib.import_module('torch.nn')",
    ],
)
def test_an_import_elsewhere_is_found(statement: str, tmp_path: Path) -> None:
    for room in ("backends/torch", "backends/paddle", "stages"):
        (tmp_path / room).mkdir(parents=True)
        (tmp_path / room / "module.py").write_text(statement)
    found = framework_imports_elsewhere(tmp_path)
    assert [entry.partition(" ")[0] for entry in found] == ["backends/paddle/module.py", "stages/module.py"]
