"""The twins are twins: same files, same order, differences explained and written down, imports one way.

Each of these has a test that plants a violation into a copy and shows that it is found.
"""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def differences() -> ModuleType:
    spec = importlib.util.spec_from_file_location("twin_differences", ROOT / "docs" / "regenerate_twin_differences.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in ("moco_ref", "moco_paddle", "moco_common", "docs/differences"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_the_twins_are_twins(differences: ModuleType) -> None:
    assert differences.problems(ROOT) == []


def test_the_pages_are_up_to_date(differences: ModuleType) -> None:
    remedy = "run python docs/regenerate_twin_differences.py"
    assert differences.stale(ROOT) == [], remedy


def test_a_file_of_one_twin_alone_is_found(differences: ModuleType, copy: Path) -> None:
    (copy / "moco_ref" / "models" / "mixer.py").touch()
    assert differences.problems(copy) == ["models/mixer.py: is in one twin only"]


def test_definitions_in_another_order_are_found(differences: ModuleType, copy: Path) -> None:
    for package in ("moco_ref", "moco_paddle"):
        path = copy / package / "devices.py"
        names = ("first", "second") if package == "moco_ref" else ("second", "first")
        path.write_text(
            path.read_text() + "".join(f"\n\ndef {name}() -> None:  # diff: a test\n    pass\n" for name in names)
        )
    assert differences.problems(copy) == ["devices.py: first stands where paddle's twin has second"]


def test_a_difference_without_a_comment_is_found(differences: ModuleType, copy: Path) -> None:
    change(
        copy / "moco_paddle" / "models" / "moco.py", "num_layers=2, last_batch_norm", "num_layers=3, last_batch_norm"
    )
    (problem,) = differences.problems(copy)
    assert problem.startswith("models/moco.py: @@ ")
    assert problem.endswith(
        "has no `# diff:` comment: predictor = projection_mlp(dim, mlp_dim, dim, num_layers=2, last_batch_norm=is_vit)"
    )


def test_another_spelling_is_no_difference(differences: ModuleType, copy: Path) -> None:
    for package, line in (
        ("moco_ref", "y = torch.cat([x], dim=1)\n"),
        ("moco_paddle", "y = paddle.concat([x], axis=1)\n"),
    ):
        path = copy / package / "devices.py"
        path.write_text(path.read_text() + line)
    assert differences.problems(copy) == []
    assert differences.stale(copy) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "line", "found"),
    [
        ("moco_common/data/folders.py", "import torch", "torch"),
        ("moco_common/data/folders.py", "def late():\n    from paddle.io import DataLoader", "paddle.io"),
        ("moco_common/data/folders.py", "import moco_ref.data", "moco_ref.data"),
        ("moco_common/data/folders.py", "importlib.import_module('moco_paddle.data')", "moco_paddle.data"),
        ("moco_ref/programs/__init__.py", "from moco_paddle import data  # diff: a test", "moco_paddle"),
        ("moco_ref/programs/__init__.py", "import paddle", "paddle"),
        ("moco_paddle/programs/__init__.py", "import torch", "torch"),
        ("moco_paddle/programs/__init__.py", "from moco_ref.data import framework_loader", "moco_ref.data"),
        ("moco_paddle/programs/__init__.py", "import twinalign", "twinalign"),
        ("moco_common/programs/__init__.py", "import twinalign", "twinalign"),
    ],
)
def test_a_wrong_import_is_found(differences: ModuleType, copy: Path, place: str, line: str, found: str) -> None:
    (copy / place).write_text((copy / place).read_text() + f"\n{line}\n")
    assert f"{place}: imports {found}" in differences.problems(copy)


@pytest.mark.parametrize("what", ["changed", "missing", "too many"])
def test_a_stale_page_is_found(differences: ModuleType, copy: Path, what: str) -> None:
    pages = copy / "docs" / "differences"
    assert differences.stale(copy) == []
    page = pages / ("removed.diff" if what == "too many" else "models.moco.diff")
    if what == "missing":
        page.unlink()
    else:
        page.write_text("another text\n")
    assert differences.stale(copy) == [f"docs/differences/{page.name}: is stale"]
