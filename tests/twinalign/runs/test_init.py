"""`twinalign init` writes a case that runs as it is, asks nobody who cannot answer, and overwrites nothing."""

from __future__ import annotations

import ast
import contextlib
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import without_topic
from twinalign.errors import InputError
from twinalign.runs.scaffold import (
    Factory,
    InputArray,
    input_names,
    models_in,
    parse_factory,
    parse_input,
    require_defined,
)

Twinalign = Callable[..., subprocess.CompletedProcess[str]]

NETWORK = """
import {package}
from {package} import nn

class Block(nn.{base}):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(width, width)
    def forward(self, x):
        return nn.functional.relu(self.fc(x))

class Net(nn.{base}):
    def __init__(self, width=8):
        super().__init__()
        self.table = nn.Embedding(20, width)
        self.block = Block(width)
    def forward(self, tokens, mask):
        x = self.block(self.table(tokens))
        return x * mask.unsqueeze(-1).{cast}("float32") if "{package}" == "paddle" else x * mask.unsqueeze(-1)
"""


def write_networks(folder: Path) -> None:
    for package, base, cast, name in (("torch", "Module", "to", "mine"), ("paddle", "Layer", "astype", "port")):
        (folder / f"{name}.py").write_text(NETWORK.format(package=package, base=base, cast=cast))


def last_line(finished: subprocess.CompletedProcess[str]) -> str:
    assert "Traceback" not in finished.stderr
    assert finished.returncode == 2
    return without_topic(finished.stderr.strip().splitlines()[-1])


def test_the_case_runs_at_once_with_models_that_are_found(twinalign: Twinalign, tmp_path: Path) -> None:
    write_networks(tmp_path)
    inputs = ("--input", "tokens:2,5:int64:20", "--input", "mask:2x5:bool")
    finished = twinalign("init", *inputs, stdin=subprocess.DEVNULL)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout == "case.py written; check it with: twinalign run case.py\n"
    finished = twinalign("run", "case.py:Net")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "net: aligned" in finished.stdout


def test_arguments_and_names_are_written_as_given(twinalign: Twinalign, tmp_path: Path) -> None:
    given = ("--ref", "torchvision.models:resnet18(num_classes=10)", "--paddle", "no_such_lib.nn:Nets.build")
    finished = twinalign("init", "sub/a.py", *given, "--input", "x:2,3,32,32:float64", "--name", "my-port")
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr == ("note: no_such_lib is not found here: run with --paddle-python, or from its folder\n")
    text = (tmp_path / "sub" / "a.py").read_text()
    tree = ast.parse(text)
    assert [node.name for node in tree.body if isinstance(node, ast.ClassDef)] == ["MyPort"]
    assert "from torchvision.models import resnet18\n\n        return resnet18(num_classes=10)\n" in text
    assert "from no_such_lib.nn import Nets\n\n        return Nets.build()\n" in text
    assert '"x": rng.standard_normal((2, 3, 32, 32), dtype="float64"),' in text
    assert 'name = "my_port"' in text


def test_nobody_is_asked_where_nobody_can_answer(twinalign: Twinalign, tmp_path: Path) -> None:
    finished = twinalign("init", stdin=subprocess.DEVNULL)
    assert last_line(finished) == (
        "twinalign: --ref: give the torch model as module:factory (for instance torchvision.models:resnet18)"
    )
    write_networks(tmp_path)
    (tmp_path / "other.py").write_text((tmp_path / "mine.py").read_text())
    finished = twinalign("init", stdin=subprocess.DEVNULL)
    assert last_line(finished) == (
        "twinalign: --ref: give the torch model as module:factory (torch models here: mine:Net, other:Net)"
    )
    finished = twinalign("init", "--ref", "mine:Net", stdin=subprocess.DEVNULL)
    assert last_line(finished) == (
        "twinalign: --input: give the inputs of the models, for instance --input x:2,3,224,224:float32 "
        "(the model takes tokens, mask)"
    )
    assert not (tmp_path / "case.py").exists()


def answered(folder: Path, *answers: str) -> str:
    """What `twinalign init` shows on a terminal, given these answers."""
    main, side = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "twinalign", "init"], cwd=folder, stdin=side, stdout=side, stderr=side
    )
    os.close(side)
    os.write(main, "".join(f"{answer}\n" for answer in answers).encode())  # kept until it is asked for
    shown = b""
    with contextlib.suppress(OSError):  # how a terminal's end is told
        while piece := os.read(main, 4096):
            shown += piece
    assert process.wait() == 0, shown.decode()
    os.close(main)
    return shown.decode().replace("\r", "")


def test_questions_show_an_example_and_are_asked_again(tmp_path: Path) -> None:
    shown = answered(tmp_path, "resnet18", "a.b:resnet18", "a.c:resnet18", "x:2,3,y", "x:2,3,32,32")
    assert "The torch model, module:factory (for instance torchvision.models:resnet18): " in shown
    assert "Error: --ref resnet18: give module:factory or file.py:factory, with keyword=literal arguments" in shown
    assert "Input of the models, name:shape:dtype, for instance x:2,3,224,224:float32: " in shown
    assert "Error: --input x:2,3,y: give name:shape:dtype, for instance x:2,3,224,224:float32" in shown
    assert '"x": rng.standard_normal((2, 3, 32, 32), dtype="float32")' in (tmp_path / "case.py").read_text()


def test_each_input_of_the_model_is_asked_for_by_name(tmp_path: Path) -> None:
    write_networks(tmp_path)
    shown = answered(tmp_path, "tokens:2,5:int64:20", "2,5:bool")
    assert "Input tokens, shape:dtype, for instance 2,3,224,224:float32 (empty: leave it out): " in shown
    text = (tmp_path / "case.py").read_text()
    assert '"tokens": rng.integers(0, 20, (2, 5), dtype="int64")' in text
    assert '"mask": rng.random((2, 5)) < 0.8' in text


def test_nothing_is_overwritten(twinalign: Twinalign, tmp_path: Path) -> None:
    (tmp_path / "case.py").write_text("mine")
    finished = twinalign("init", "--ref", "a:b", "--paddle", "a:b", "--input", "2,3")
    assert last_line(finished) == "twinalign: case.py: it already exists; name another file, or remove it first"
    assert (tmp_path / "case.py").read_text() == "mine"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("resnet18", "--ref resnet18: give module:factory or file.py:factory, with keyword=literal arguments if any"),
        ("m:f(2)", "--ref m:f(2): give module:factory or file.py:factory, with keyword=literal arguments if any"),
        (
            "m:f(a=g())",
            "--ref m:f(a=g()): give module:factory or file.py:factory, with keyword=literal arguments if any",
        ),
        ("a-b:f", "--ref a-b:f: a-b is not a module name; give package.module:factory"),
        ("gone.py:f", "--ref gone.py:f: there is no file gone.py; give module:factory or a file that exists"),
    ],
)
def test_a_factory_that_is_none(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        parse_factory("--ref", text, tmp_path)
    assert str(caught.value) == message


def test_a_file_must_lie_where_the_case_can_import_it(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("")
    assert parse_factory("--ref", f"{tmp_path}/net.py:build(n=2)", tmp_path) == Factory("net", "build", "n=2")
    with pytest.raises(InputError, match=r"is not beside the case in .*/elsewhere; write the case there, or give mod"):
        parse_factory("--ref", f"{tmp_path}/net.py:build", tmp_path / "elsewhere")


def test_inputs() -> None:
    assert parse_input("x:2,3:float64") == InputArray("x", (2, 3), "float64")
    assert parse_input("2x3", ["image", "mask"]) == InputArray("image", (2, 3), "float32")
    for text in ("x:2,3", "2,3", "x: (2, 3)", "x:[2,3]", "x:2x3:float32"):
        assert parse_input(text, ["x"]) == InputArray("x", (2, 3), "float32")
    assert parse_input("ids:4:int64:32000") == InputArray("ids", (4,), "int64", 32000)
    with pytest.raises(
        InputError, match=r"^--input x:2,3:float16: dtype float16 is not one of float32, float64, int32"
    ):
        parse_input("x:2,3:float16")
    for text in ("x", "x:0,2", "x:2,3:int64:many", "1x:2", "x:2:int64:3:4"):
        with pytest.raises(
            InputError, match=r"^--input .*: give name:shape:dtype, for instance x:2,3,224,224:float32$"
        ):
            parse_input(text)


def test_layers_of_a_model_and_models_that_need_arguments_are_not_proposed(tmp_path: Path) -> None:
    write_networks(tmp_path)
    (tmp_path / "needs.py").write_text("import torch\nclass A(torch.nn.Module):\n    def __init__(self, width): ...\n")
    (tmp_path / "broken.py").write_text("import torch\nclass (")
    assert models_in(tmp_path, "torch") == ["mine:Net"]
    assert models_in(tmp_path, "paddle") == ["port:Net"]
    assert input_names(Factory("mine", "Net"), tmp_path) == ["tokens", "mask"]


def test_a_model_that_the_source_does_not_define(twinalign: Twinalign, tmp_path: Path) -> None:
    write_networks(tmp_path)
    for option, module in (("--ref", "mine"), ("--paddle", "port")):
        given = {"--ref": "mine:Net", "--paddle": "port:Net", option: f"{module}:Nett"}
        options = [part for pair in given.items() for part in pair]
        finished = twinalign("init", *options, "--input", "tokens:2,5:int64:20", stdin=subprocess.DEVNULL)
        assert last_line(finished) == f"twinalign: {option} {module}:Nett: {module}.py defines no Nett; it has Net"
        assert not (tmp_path / "case.py").exists()


def test_what_a_module_imports_or_makes_counts_as_defined(tmp_path: Path) -> None:
    (tmp_path / "some.py").write_text("from elsewhere import a as b\nif True:\n    c = 1\n")
    for name in ("b", "c"):
        require_defined("--ref", Factory("some", name), tmp_path)
    with pytest.raises(InputError, match=r"^--ref some:a: .*some\.py defines no a$"):
        require_defined("--ref", Factory("some", "a"), tmp_path)
    (tmp_path / "all.py").write_text("from elsewhere import *\n")
    require_defined("--ref", Factory("all", "a"), tmp_path)
