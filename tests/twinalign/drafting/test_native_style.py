"""The native style: each rule rewrites what it names and nothing else, and only what is proven is taken."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

import twinalign
from twinalign.drafting import native_rules, native_style, rules
from twinalign.drafting.draft import formatted
from twinalign.drafting.native_rewriting import Rewrite, rewritten
from twinalign.drafting.native_style import Restyled, proven_ones
from twinalign.drafting.rewriting import Change
from twinalign.errors import InputError, SideCrashError
from twinalign.recorder.run_settings import RunSettings

pytestmark = pytest.mark.usefixtures("kept_processes")

port_module = importlib.import_module("twinalign.drafting.port")

HEAD = "import paddle\nfrom . import shims\n"
REWRITES = {
    "shims.Conv2d(a, b, 3, padding=1)": "paddle.nn.Conv2D(a, b, 3, padding=1, **shims.first_weights())",
    "shims.Conv2d(a, b, 3, bias=c)": "paddle.nn.Conv2D(a, b, 3, **shims.first_weights(bias=c))",
    "shims.Linear(a, b, False)": "paddle.nn.Linear(a, b, **shims.first_weights(bias=False))",
    "shims.LayerNorm(a, eps=1e-6)": "paddle.nn.LayerNorm(a, epsilon=1e-6)",
    "shims.LayerNorm(a, 1e-6, elementwise_affine=False)":
        "paddle.nn.LayerNorm(a, epsilon=1e-6, weight_attr=False, bias_attr=False)",
    "shims.ReLU(inplace=True)": "paddle.nn.ReLU()",
    "shims.LeakyReLU(0.2, True)": "paddle.nn.LeakyReLU(0.2)",
    "shims.AvgPool2d(3, 2)": "paddle.nn.AvgPool2D(3, 2, exclusive=False)",
    "shims.AvgPool2d(3, 2, count_include_pad=False)": "paddle.nn.AvgPool2D(3, 2)",
    "shims.AvgPool2d(3, count_include_pad=a or b)": "paddle.nn.AvgPool2D(3, exclusive=not (a or b))",
    "shims.gelu(x, approximate='tanh')": "paddle.nn.functional.gelu(x, approximate=True)",
    "shims.hardsigmoid(x)": "paddle.nn.functional.hardsigmoid(x, slope=1 / 6)",
    "partial(shims.GELU)": "partial(paddle.nn.GELU)",
    "partial(shims.LayerNorm, eps=1e-6)": "partial(paddle.nn.LayerNorm, epsilon=1e-6)",
    "x.permute(0, 2, 1)": "x.transpose([0, 2, 1])",
    "x.permute(*order)": "x.transpose([*order])",
    "(x + y).transpose(1, 2)": "(x + y).swapaxes(1, 2)",
    "x.reshape(a, -1).view(a, b)": "x.reshape([a, -1]).reshape([a, b])",
    "x.repeat(1, 2)": "x.tile([1, 2])",
    "x.softmax(dim=-1)": "paddle.nn.functional.softmax(x, axis=-1)",
    "x.to(dtype=y.dtype)": "x.astype(y.dtype)",
    "x.size(0) + x.dim()": "x.shape[0] + x.ndim",
    "self.modules()": "self.sublayers(include_self=True)",
    "x.mean(dim=(2, 3), keepdim=True)": "x.mean(axis=(2, 3), keepdim=True)",
    "paddle.cat([x, y], dim=1)": "paddle.concat([x, y], axis=1)",
    "paddle.nn.Module": "paddle.nn.Layer",
    "shims.split(x, [a, b], dim=1)": "paddle.split(x, [a, b], axis=1)",
    "chosen(8, inplace=True)": "chosen(8)",
    "layers.chosen(inplace=False)": "layers.chosen()",
}  # fmt: skip
STAYS = [
    "shims.Conv2d(a, b, 3, **options)",
    "shims.Linear(*sizes)",
    "shims.LayerNorm(a, elementwise_affine=b)",
    "shims.MaxPool2d(3, dilation=2)",
    "shims.BatchNorm2d(a)",
    "shims.split(x, 2, dim=1)",
    "shims.split(x, sizes, dim=1)",
    "shims.Linear",
    "b and not False",
    "paddle.transpose(x, y)",
    "x.reshape(shape)",
    "x.view(dtype)",
    "x.to(y)",
    "x.to(device=d, dtype=t)",
    "other.cat(x, dim=1)",
    "isinstance(m, shims.Conv2d)",
    "super().modules()",
    "chosen(inplace=b)",
    "paddle.f(inplace=True)",
    "partial(shims.BatchNorm2d, eps=1e-3)",
    "partial(shims.LayerNorm, **options)",
]


def code_of(source: str) -> str:
    return (
        rewritten({"m.py": HEAD + source})
        .files["m.py"]
        .removeprefix("import paddle\n")
        .removeprefix("from . import shims\n")
    )


@pytest.mark.parametrize("before", REWRITES)
def test_a_rewrite(before):
    assert code_of(f"a = {before}  # why\n") == f"a = {REWRITES[before]}  # why\n"


@pytest.mark.parametrize("before", STAYS)
def test_what_is_not_known_stays(before):
    assert code_of(f"a = {before}\n") == f"a = {before}\n"


TESTS = {
    "a and not False": "a",
    "not False and (a or b)": "(a or b)",
    "False or a and not False": "a",
    "a and False": "a and False",
    "a or not False": "a or not False",
}


@pytest.mark.parametrize("before", TESTS)
def test_what_changes_no_test_is_taken_away(before):
    assert code_of(f"if {before}:  # why\n    pass\n") == f"if {TESTS[before]}:  # why\n    pass\n"


def test_a_port_is_formatted_and_imports_are_merged():
    source = "from a import b\nfrom a import c as d\nfrom e import f\nx: int=g( b,\n    d)\n"
    found = formatted({"m.py": source, "n.py": "from a import b\nfrom a import c\nx = (\n"})
    assert found["m.py"] == "from a import b, c as d\nfrom e import f\n\nx: int = g(b, d)\n"
    assert found["n.py"] == "from a import b, c\nx = (\n"


GUARDED = """def f(m, n):
    if isinstance(m, shims.Conv2d):
        return m.kernel_size[0] * m.out_channels // m.groups + n.groups
    if isinstance(m, shims.Linear):
        return m.weight.size(0)
    return m.kernel_size
"""


def test_what_is_read_of_a_class_that_was_asked_for():
    code = code_of(GUARDED)
    assert "return m.weight.shape[2] * m.weight.shape[0] // m._groups + n.groups\n" in code
    assert "return m.weight.shape[1]\n" in code
    assert code.endswith("return m.kernel_size\n")
    other = code_of(GUARDED + "a = shims.Linear(*sizes)\n")  # which has torch's layout
    assert "return m.weight.shape[0]\n" in other


def test_a_function_of_the_port_keeps_its_keyword():
    source = "from a import f\n\n\ndef g(x, inplace):\n    return f(g(x, inplace=True), inplace=True)\n"
    assert code_of(source) == source


STATEMENTS = {
    "shims.zeros_(layer.bias)": "paddle.nn.initializer.Constant(0.0)(layer.bias)",
    "shims.normal_(w, std=0.02)": "paddle.nn.initializer.Normal(0.0, 0.02)(w)",
    "shims.normal_(w, 0, 0.01)": "paddle.nn.initializer.Normal(0, 0.01)(w)",
    "shims.uniform_(w, -a, a)": "paddle.nn.initializer.Uniform(-a, a)(w)",
    "shims.normal_(w, 0.0, 0.1, generator)": "shims.normal_(w, 0.0, 0.1, generator)",
    "shims.constant_(w)": "shims.constant_(w)",
    "return shims.ones_(w)": "return shims.ones_(w)",
}


@pytest.mark.parametrize("before", STATEMENTS)
def test_a_call_whose_value_nobody_takes(before):
    assert code_of(f"def f():\n    {before}  # why\n") == f"def f():\n    {STATEMENTS[before]}  # why\n"


def test_every_rule_of_a_shim_has_one():
    known = {rule.replacement for rule in (*rules.SHIMS, *rules.METHODS)}
    assert native_rules.CALLS.keys() | native_rules.STATEMENTS.keys() <= known


PLACES = """def f(chosen, device=None, dtype=None):
    dd = {'device': device, 'dtype': dtype}
    a = shims.Linear(2, 3, **dd)
    b = shims.BatchNorm1d(3, **dd)
    return chosen(a, **dd)
"""


def test_device_and_dtype_are_left_out():
    lines = code_of(PLACES).splitlines()[1:]
    assert lines == [
        "    a = paddle.nn.Linear(2, 3, **shims.first_weights())",
        "    b = shims.BatchNorm1d(3)",
        "    return chosen(a)",
    ]
    assert "    dd = {" in code_of(PLACES.replace("chosen(a, **dd)", "chosen(dd)"))
    assert "chosen(a, **dd)" in code_of(PLACES.replace("'dtype': dtype", "'bias': False"))


def test_a_base_class_stays_and_a_check_asks_for_both():
    files = {
        "a.py": HEAD + "class Mine(shims.Linear):\n    pass\n",
        "b.py": HEAD + "a = shims.Linear(1, 2)\nb = isinstance(a, (shims.Linear, shims.Conv2d))\n",
    }
    found = rewritten(files).files
    assert found["a.py"] == files["a.py"]
    assert "isinstance(a, ((paddle.nn.Linear, shims.Linear), shims.Conv2d))" in found["b.py"]


def test_the_import_goes_with_the_last_shim():
    found = rewritten({"build.py": "from . import shims\na = shims.ReLU(inplace=True)\n"})
    assert found.files == {"build.py": "import paddle\na = paddle.nn.ReLU()\n"}
    assert found.shims == []


def test_only_what_is_wanted_is_rewritten():
    files = {"m.py": HEAD + "a = shims.ReLU()\nb = x.permute(0, 1)\n"}
    every = rewritten(files).done
    assert len(every) == 2
    found = rewritten(files, every[:1])
    assert found.done == every[:1]
    assert "shims.ReLU()" in found.files["m.py"]


@pytest.mark.parametrize("wrong", [set(), {0}, {3, 5}, set(range(8))])
def test_halves_find_what_is_not_proven(wrong):
    every = [Rewrite("m.py", str(number), "why") for number in range(8)]
    bad = {every[number] for number in wrong}
    taken, failed = proven_ones(every, lambda chosen: "forward: diverged" if bad & set(chosen) else None)
    assert (set(taken), set(failed)) == (set(every) - bad, bad)


def test_the_class_that_a_fault_is_about_is_tried_apart():
    texts = ["shims.Linear(…) → paddle.nn.Linear(…)", *(f".method{number}()" for number in range(16))]
    every = [Rewrite("m.py", text, "why") for text in texts]
    tried = []

    def fault_of(chosen):
        tried.append(len(chosen))
        crash = "AttributeError: 'Linear' object has no attribute 'in_features'"
        return crash if every[0] in chosen else None

    assert proven_ones(every, fault_of)[0] == every[1:]
    assert tried == [17, 16]


def test_a_trial_has_nothing_that_the_port_gave_before(monkeypatch, tmp_path):
    """Its own recordings would pass for those of the sources that are served in the trial."""
    port, result = tmp_path / "mine", tmp_path / "mine" / "result"
    files = ("forward_{}.npy", "forward_{}.json", "float64/losses_{}.npy", "weights/mine_{}.npz")
    for name in [*(file.format(side) for file in files for side in ("ref", "paddle")), "weights/mine_ledger.json"]:
        (result / name).parent.mkdir(parents=True, exist_ok=True)
        (result / name).touch()
    source = port / "mine" / "m.py"
    source.parent.mkdir()
    source.write_text(HEAD + "a = shims.ReLU()\n")
    seen = []

    def run(settings, progress, kept, report):
        assert not report
        found = [path.relative_to(settings.out) for path in settings.out.rglob("*.*")]
        seen.append(sorted(path.as_posix() for path in found))
        return SimpleNamespace(stages={"forward": SimpleNamespace(verdict="aligned")}, initial=None)

    monkeypatch.setattr(native_style, "run", run)
    case = port / "case.py"
    case.write_text("import twinalign\n\n\nclass Port(twinalign.Case):\n    name = 'mine'\n")
    native_style.restyle(port, RunSettings(str(case), out=result), lambda side, text: None, None)
    assert seen == [sorted(file.format("ref") for file in files)]
    assert not (result / "native").exists()


def test_proofs_are_limited(monkeypatch):
    monkeypatch.setattr(native_style, "MOST_PROOFS", 3)
    every = [Rewrite("m.py", str(number), "why") for number in range(8)]
    taken, failed = proven_ones(every, lambda chosen: "diverged")
    assert taken == []
    assert set(failed) == set(every)


def test_a_style_that_there_is_not():
    with pytest.raises(InputError, match=r"^style 'fancy': give 'compat' or 'native'$"):
        twinalign.port("m:f", ["x:2,3"], out="my_port", style="fancy")


@pytest.mark.parametrize("ends", ["diverged", "crash", "aligned"])
def test_what_is_on_disk_is_proven_or_as_it_was(monkeypatch, tmp_path, ends):
    """The trials were wrong: the port is what it was, and says so."""
    source = tmp_path / "mine" / "mine" / "m.py"
    source.parent.mkdir(parents=True)
    source.write_text("before\n")

    def restyle(out, settings, progress, kept, drafting_python):
        source.write_text("after\n")
        return Restyled([Change("m.py", "a → b", "paddle's name")], [])

    def run(settings, progress, kept):
        if ends == "crash" and source.read_text() == "after\n":
            raise SideCrashError("it crashed")
        return SimpleNamespace(verdict=ends if source.read_text() == "after\n" else "aligned")

    monkeypatch.setattr(port_module, "restyle", restyle)
    monkeypatch.setattr(port_module, "run", run)
    settings = RunSettings("case.py", out=tmp_path / "mine")
    found = port_module._restyled(tmp_path / "mine", settings, lambda side, text: None, None)
    if ends == "aligned":
        assert (source.read_text(), len(found.done), found.kept) == ("after\n", 1, [])
    else:
        assert (source.read_text(), found.done) == ("before\n", [])
        assert [change.why for change in found.kept] == ["proven in the trials, but not in the port as it was written"]


MODEL = """import torch
import torch.nn as nn


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.act = nn.ReLU(inplace=True)
        self.embed = nn.Conv2d(8, 8, 1)
        self.head = nn.Linear(self.embed.out_channels, 5)

    def forward(self, x):
        x = self.embed(self.act(self.norm(self.conv(x))))
        x = x.flatten(2).permute(0, 2, 1)
        return self.head(torch.cat([x, x], dim=1).mean(dim=1))
"""


@pytest.mark.slow
def test_a_native_port_is_proven(tmp_path: Path) -> None:
    (tmp_path / "small.py").write_text(MODEL)
    out = tmp_path / "ported"
    made = twinalign.port(f"{tmp_path / 'small.py'}:Small", ["x:2,3,8,8:float32"], out=out, style="native")
    assert (made.verdict, made.left) == ("aligned", [])
    (source,) = (out / "ported").rglob("small.py")
    text = ast.unparse(ast.parse(source.read_text()))
    assert re.search(r"class Small\(paddle\.nn\.Layer\)", text)
    assert "paddle.nn.Linear(self.embed.out_channels, 5, **shims.first_weights())" in text
    assert "x.flatten(2).transpose([0, 2, 1])" in text
    assert "shims.Conv2d(" in text  # `out_channels` is read, which paddle's layer has not
    assert "paddle.nn.ReLU()" in text
    assert (out / "result" / "report.html").exists()
    listed = (out / "changes.txt").read_text()
    assert "Rewritten in paddle's style, and proven again:\n" in listed
    assert (
        "shims.BatchNorm2d: torch's momentum is the share of the new statistics"
        in listed.partition("Left in torch's style:")[2]
    )
    assert twinalign.check_port(out).verdict == "aligned"
