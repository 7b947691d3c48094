"""The commands as functions: their examples run, their results show themselves, and nothing is imported too early."""

from __future__ import annotations

import dataclasses
import doctest
import html
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import pytest

import twinalign
from tests.twinalign.test_import_rule import loaded_frameworks
from twinalign import Case, InputError, api
from twinalign.bundle.verifying import Verification
from twinalign.causes.registry import Explanation
from twinalign.cli import cli
from twinalign.conversion.ledger import Ledger
from twinalign.conversion.options import ConversionResult
from twinalign.model_zoo.align_architectures import ZooResult
from twinalign.notebook import Shown
from twinalign.planted_faults.selftest import SelftestResult
from twinalign.recorder.run_settings import RunSettings
from twinalign.runs.options import REQUIRED, RUN_OPTIONS, case_name, run_settings
from twinalign.runs.run_result import RunResult
from twinalign.search.faults import Fault
from twinalign.search.locator import LocateResult
from twinalign.terminal import as_text
from twinalign.terminal.brief import LINES
from twinalign.verdict import Classic, Comparison
from twinalign.verdict.results import TensorVerdict

pytestmark = pytest.mark.usefixtures("kept_processes")

MODELS = """
def reference():
    from torch import nn
    return nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8))

def port(epsilon=1e-5):
    from paddle import nn
    return nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8, epsilon))
"""

CASE = """
import models
from twinalign import Case

class Right(Case):
    name = "right"
    def reference(self):
        return models.reference()
    def reproduced(self):
        return models.port()
    def inputs(self, rng):
        return {"x": rng.standard_normal((4, 8), dtype="float32")}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a case, its models and a checkpoint."""
    (tmp_path / "models.py").write_text(MODELS)
    (tmp_path / "case.py").write_text(CASE)
    (tmp_path / "wrong.py").write_text(CASE.replace("models.port()", "models.port(1e-3)"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_the_examples_in_the_docstrings_run(folder: Path) -> None:
    code = "import torch, models; torch.save(models.reference().state_dict(), 'model.pth')"
    subprocess.run([sys.executable, "-c", code], check=True)
    finder = doctest.DocTestFinder(exclude_empty=True)
    failed, tried = 0, 0
    modules = [
        importlib.import_module(f"twinalign.api.{name}") for name in ("aligning", "porting", "measuring", "reviewing")
    ]
    for test in [test for module in modules for test in sorted(finder.find(module), key=lambda one: one.lineno or 0)]:
        results = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test)
        failed, tried = failed + results.failed, tried + results.attempted
    assert failed == 0
    assert tried >= 9


def test_every_command_is_a_function_with_an_example() -> None:
    commands = set(cli.list_commands(click.Context(cli))) - {"show", "help"}  # a notebook shows results itself
    functions = {
        name
        for name, value in vars(api).items()
        if inspect.isfunction(value) and value.__module__.startswith(f"{api.__name__}.")
    }
    assert commands <= functions
    assert commands <= set(dir(twinalign))
    for name in sorted(commands):
        assert callable(getattr(twinalign, name)), name
        assert ">>> " in (getattr(api, name).__doc__ or ""), name


def test_commands_can_be_called_whether_or_not_their_package_was_imported() -> None:
    code = """
import {first}
import twinalign
for name in ("locate", "convert", "selftest", "report"):
    try:
        getattr(twinalign, name)()
    except TypeError as error:
        print(error)
"""
    for first in ("twinalign", "twinalign.search.locator, twinalign.conversion.convert_file"):
        finished = subprocess.run([sys.executable, "-c", code.format(first=first)], capture_output=True, text=True)
        lines = finished.stdout.splitlines()
        assert lines[0] == "locate() missing 1 required positional argument: 'case'", finished.stderr
        assert len(lines) == 4


def test_no_framework_is_imported() -> None:
    assert loaded_frameworks("import twinalign\ntwinalign.run, twinalign.locate, twinalign.convert") == set()
    assert (
        loaded_frameworks("import twinalign\nassert 'rich' not in sys.modules\nassert 'click' not in sys.modules")
        == set()
    )


def test_a_comparison_shows_itself_in_a_notebook(folder: Path) -> None:
    np.savez("a.npz", **{"<b>&": np.ones(3, "float32"), "same": np.zeros(2)})
    np.savez("b.npz", **{"<b>&": np.zeros(3, "float32"), "same": np.zeros(2)})
    page = twinalign.compare("a.npz", "b.npz")._repr_html_()
    assert "&lt;b&gt;&amp;" in page
    assert "<b>" not in page
    assert "diverged" in page


class Known(Case):
    """At the top of a file, so that another process finds it."""


def test_a_case_may_be_given_as_its_class() -> None:
    class Local(Case):
        pass

    assert case_name(Known) in (f"{__name__}:Known", f"{__file__}:Known")
    assert run_settings(Known, stages="forward").stages == ("forward",)
    with pytest.raises(InputError, match=r"Local: each framework's process imports it anew, so it must be a class at"):
        case_name(Local)
    with pytest.raises(InputError, match=r"^dict is no subclass of twinalign.Case$"):
        case_name(dict)


def test_what_there_is_not() -> None:
    with pytest.raises(InputError, match=r"^precision 'fp16': give one of float32, float64, both, float16, bfloat16$"):
        twinalign.run(Known, precision="fp16")
    with pytest.raises(InputError, match=r"^device 'cuda': give 'cpu' or 'gpu'$"):
        twinalign.locate(Known, device="cuda")
    with pytest.raises(InputError, match=r"^side 'port': give 'ref' or 'paddle'$"):
        twinalign.record(Known, "port", out="x")


@pytest.mark.parametrize("command", ["run", "record", "locate", "fix", "info", "selftest"])
def test_functions_take_what_their_commands_take(command: str) -> None:
    parameters = inspect.signature(getattr(api, command)).parameters
    shared = [option for option in RUN_OPTIONS if command in option.commands and option.name != "data"]
    assert shared
    for option in shared:
        default = option.default_of.get(command, option.default)
        given = parameters[option.name].default
        if default is REQUIRED:
            assert given is inspect.Parameter.empty
        else:
            assert (given or None) == (str(default) if isinstance(default, Path) else default or None), option.name


def test_every_field_of_the_settings_is_an_option() -> None:
    fields = {field.name for field in dataclasses.fields(RunSettings)} - {"case", "pythons", "plan", "sources"}
    assert fields == {option.name for option in RUN_OPTIONS} - {"ref_python", "paddle_python", "data"}


def test_an_option_that_there_is_not_is_named_with_the_nearest() -> None:
    with pytest.raises(InputError, match=r"^run: there is no option 'stagess'; did you mean 'stages'\?$"):
        twinalign.run(Known, stagess=["forward"])
    with pytest.raises(InputError, match=r"^locate: there is no option 'qqq'; it takes out, stages, "):
        twinalign.locate(Known, qqq=1)
    with pytest.raises(InputError, match=r"^compare: there is no option 'rtoll'; did you mean 'rtol'\?$"):
        twinalign.compare("a.npz", "b.npz", rtoll=1.0)
    with pytest.raises(InputError, match=r"^convert: there is no option 'weight_only'; did you mean 'weights_only'\?$"):
        twinalign.convert("a.pth", "b.pdparams", weight_only=True)
    with pytest.raises(InputError, match=r"^swaps 'nothing': give one of "):
        twinalign.run(Known, swaps=["nothing"])


def test_every_result_shows_itself_in_a_notebook() -> None:
    results: list[Shown] = [RunResult("net", {}, {}, 1.0), LocateResult("net"), SelftestResult("net"), ZooResult()]
    results += [ConversionResult(Ledger([]), [Path("here.pdparams")])]
    results += [Comparison("aligned", [], Classic(True, 1e-6, ["diff check passed"]))]
    results += [Verification("b.zip", 1, "0" * 64, "net", [])]
    for result in results:
        page = html.unescape(re.sub("<[^>]*>", "", result._repr_html_() or ""))
        said = as_text(result).splitlines()[-1].strip()
        assert said in page or page.startswith("net: aligned"), result.kind
        assert len(str(result).splitlines()) <= LINES
        assert len(repr(result)) < 80


def test_what_print_shows_is_short() -> None:
    tensors = [TensorVerdict(f"t{number}", "aligned", "identical", max_abs=0.0, mean_abs=0.0) for number in range(5000)]
    found = Comparison("aligned", tensors, Classic(True, 1e-6, ["diff check passed"]))
    result = RunResult("net", {"forward": found}, {}, 1.0)
    assert repr(result) == "RunResult(case='net', verdict='aligned', …)"
    assert str(result) == "net: aligned (forward aligned)"
    tensors[7] = TensorVerdict("t7", "diverged", "the float64 runs differ")
    assert str(found).splitlines()[1:] == ["t7: diverged: the float64 runs differ"]
    wrong = [Fault(f"layer{i}", f"layer{i}", "forward", Explanation("a", f"another {i}")) for i in range(500)]
    for shown in (
        RunResult("net", {"forward": found}, {}, 1.0, located=LocateResult("net", wrong)),
        LocateResult("net", wrong),
    ):
        assert len(str(shown).splitlines()) == LINES
        assert (
            str(shown)
            .splitlines()[-1]
            .endswith(("492 more; twinalign.terminal.show(result) prints all", "judged alone"))
        )


def test_a_notebook_shows_verdicts_in_colour_and_the_causes_with_nothing_unescaped() -> None:
    wrong = TensorVerdict("<b>", "diverged", "the float64 runs differ", fp64_rel=0.5)
    found = Comparison("diverged", [wrong], Classic(False, 1e-6, ["diff check failed"]))
    fault = Fault("norm", "<i>norm", "forward", Explanation("norm_epsilon", "another epsilon"))
    page = RunResult("net", {"forward": found}, {}, 1.0, located=LocateResult("net", [fault]))._repr_html_() or ""
    assert '<td style="text-align:left;color:#b3131c;background:#fff;font-weight:600">diverged</td>' in page
    assert "<li>&lt;i&gt;norm (forward): [norm_epsilon] another epsilon</li>" in page
    table = found._repr_html_() or ""
    assert "&lt;b&gt;" in table
    assert "<pre" not in page + table
