"""Both backends have the same modules with the same functions, as the protocol states them; read without importing."""

from __future__ import annotations

import ast
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

BACKENDS = Path(__file__).parents[3] / "tools" / "twinalign" / "backends"
MODULES = ("process", "tensors", "flops", "models", "optimizers", "training", "attaching", "distributed")


def signature(function: ast.FunctionDef) -> str:
    """`(model, dtype="float32")`: parameters in order with their defaults, without types and without `self`."""
    arguments = function.args
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        argument.annotation = None
    text = ast.unparse(arguments)
    return f"({text.removeprefix('self').removeprefix(', ')})"


def public_names(body: list[ast.stmt]) -> Iterator[str]:
    """Functions with their signatures, and constants, in order."""
    for node in body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            yield node.name + signature(node)
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (t.id for t in targets if isinstance(t, ast.Name) and not t.id.startswith("_"))


def protocol_class(backends: Path) -> ast.ClassDef:
    tree = ast.parse((backends / "protocol.py").read_text())
    return next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Backend")


def facade_modules(path: Path) -> list[str]:
    """Modules of which `backend.py` hands on everything."""
    nodes = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ImportFrom)]
    return sorted(
        str(node.module).rpartition(".")[2] for node in nodes if [alias.name for alias in node.names] == ["*"]
    )


def disagreements(backends: Path) -> list[str]:
    """What the two packages and the protocol do not have alike, in words."""
    found = []
    stated = list(public_names(protocol_class(backends).body))
    for framework in ("torch", "paddle"):
        folder = backends / framework
        files = {path.stem for path in folder.glob("*.py")} - {"__init__"}
        if files != {*MODULES, "backend"}:
            found.append(f"{framework} has the modules {sorted(files)}")
            continue
        names = [
            name for module in MODULES for name in public_names(ast.parse((folder / f"{module}.py").read_text()).body)
        ]
        found += [f"{framework} lacks {name}" for name in stated if name not in names]
        found += [f"{framework}: {name} is not in the protocol" for name in names if name not in stated]
        if sorted(names) == sorted(stated) and names != stated:
            found.append(f"{framework} has another order")
        if facade_modules(folder / "backend.py") != sorted(MODULES):
            found.append(f"{framework}/backend.py does not hand on every module")
    for module in MODULES:
        one, other = (
            list(public_names(ast.parse(path.read_text()).body)) if path.exists() else []
            for path in (backends / framework / f"{module}.py" for framework in ("torch", "paddle"))
        )
        if one != other:
            found.append(f"{module} differs")
    return found


def undescribed(backends: Path) -> list[str]:
    """Functions of the protocol without a docstring."""
    functions = [node for node in protocol_class(backends).body if isinstance(node, ast.FunctionDef)]
    return [function.name for function in functions if not ast.get_docstring(function)]


def test_both_backends_are_what_the_protocol_states() -> None:
    assert disagreements(BACKENDS) == []


def test_the_protocol_describes_every_function() -> None:
    assert undescribed(BACKENDS) == []


@pytest.mark.parametrize(
    ("file", "before", "after", "message"),
    [
        ("paddle/tensors.py", "def assign(", "def set_values(", "paddle lacks assign(tensor, array)"),
        ("torch/tensors.py", "def no_grad(", "def _no_grad(", "torch lacks no_grad()"),
        ("paddle/optimizers.py", "def learning_rate(optimizer", "def learning_rate(optimiser", "optimizers differs"),
        ("torch/process.py", "def set_seed(seed: int", "def set_seed(seed: int = 0", "process differs"),
        ("torch/process.py", 'FRAMEWORK = "torch"\n', "", "torch lacks FRAMEWORK"),
        (
            "protocol.py",
            "def set_seed(self, ",
            "def set_seed(self, device: str, ",
            "paddle lacks set_seed(device, seed)",
        ),
        ("torch/backend.py", "from twinalign.backends.torch.models import *\n", "", "does not hand on every module"),
        ("paddle/layers.py", "", "def all_layers(model): ...\n", "paddle has the modules"),
    ],
)
def test_a_difference_is_found(file: str, before: str, after: str, message: str, tmp_path: Path) -> None:
    changed = tmp_path / "backends"
    shutil.copytree(BACKENDS, changed)
    text = (changed / file).read_text() if before else ""
    assert before in text
    (changed / file).write_text(text.replace(before, after, 1))
    assert message in "\n".join(disagreements(changed))


def test_another_order_is_found(tmp_path: Path) -> None:
    changed = tmp_path / "backends"
    shutil.copytree(BACKENDS, changed)
    path = changed / "protocol.py"
    lines = path.read_text().splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if "def all_layers" in line)
    lines[at : at + 6] = [*lines[at + 3 : at + 6], *lines[at : at + 3]]
    path.write_text("".join(lines))
    assert disagreements(changed) == ["torch has another order", "paddle has another order"]


def test_a_missing_description_is_found(tmp_path: Path) -> None:
    shutil.copy(BACKENDS / "protocol.py", tmp_path)
    path = tmp_path / "protocol.py"
    path.write_text(path.read_text().replace('"""Every parameter that an optimizer was given."""', "..."))
    assert undescribed(tmp_path) == ["held_parameters"]
