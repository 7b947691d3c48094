"""Models of many kinds, models on which float64 fails, and what a user is told of errors in their own methods."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import ROOT, KeptRun, read_summary, without_topic
from twinalign.errors import InputError, SideCrashError
from twinalign.files.recordings import Recording
from twinalign.processes.tracebacks import place, shortened
from twinalign.recorder.recorder import Recorder
from twinalign.recorder.run_settings import RunSettings, require_file_names

pytestmark = pytest.mark.usefixtures("kept_processes")

Twinalign = Callable[..., subprocess.CompletedProcess[str]]


def last_line(finished: subprocess.CompletedProcess[str], code: int) -> str:
    assert finished.returncode == code, finished.stdout + finished.stderr
    assert "Traceback" not in finished.stderr
    return without_topic(finished.stderr.strip().splitlines()[-1])


def test_inputs_and_outputs_of_every_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_run: KeptRun) -> None:
    monkeypatch.chdir(ROOT)
    result = kept_run("tests.cases.variety:Everything", out=tmp_path)
    assert {stage: found.verdict for stage, found in result.stages.items()} == dict.fromkeys(
        ("forward", "loss", "backward"), "aligned"
    )
    recorded = Recording.load(tmp_path / "forward_paddle.npy").arrays
    assert {name: array.dtype.kind for name, array in recorded.items()} == {
        "logits": "f",
        "hidden.0": "f",
        "hidden.1": "f",
        "extra.best": "i",
        "extra.positive": "b",
        "extra.size": "i",
        "pair.pooled": "f",
        "pair.tokens": "f",
    }
    # The two steps had inputs of different lengths, and both sides the same.
    hashes = [Recording.load(tmp_path / f"losses_{side}.npy").metadata["inputs_sha256"] for side in ("ref", "paddle")]
    assert hashes[0] == hashes[1]
    from tests.cases.variety import Everything

    lengths = {Everything().inputs(np.random.default_rng([0, step]))["tokens"].shape[1] for step in range(2)}
    assert len(lengths) == 2


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", ["AdamFromZero", "DensePrediction"])
@pytest.mark.slow
def test_what_paddle_rounds_worse_is_no_alarm(
    name: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_run: KeptRun
) -> None:
    monkeypatch.chdir(ROOT)
    result = kept_run(f"tests.cases.variety:{name}", out=tmp_path, options={"seed": seed})
    odd = [(t.name, t.reason) for found in result.stages.values() for t in found.tensors if t.verdict == "diverged"]
    assert result.verdict == "aligned", odd
    assert {"paddle_adam_bias_correction", "paddle_long_sums"} & {
        tensor.allowed for tensor in result.stages["backward"].tensors
    }


def test_where_float64_fails_on_the_reference_float32_is_judged_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_run: KeptRun
) -> None:
    monkeypatch.chdir(ROOT)
    (tmp_path / "float64").mkdir()
    stale = tmp_path / "float64" / "forward_ref.npy"
    Recording({"output": np.zeros((5, 8))}, {"stage": "forward"}).save(stale)
    comparison = kept_run("tests.cases.variety:Float32Only", out=tmp_path).stages["forward"]
    assert comparison.verdict == "aligned"
    assert comparison.tensors[0].basis == "repeat"
    assert comparison.tensors[0].fp64_rel is None
    assert comparison.notes[-1].startswith(
        "float64 does not run on the ref side, so only float32 is judged: the ref side crashed while recording "
        "forward in float64: RuntimeError: no kernel for float64"
    )
    assert re.search(r"; raised at .*tests/cases/variety\.py:\d+$", comparison.notes[-1])
    assert not stale.exists()  # nothing is judged by what an earlier model left
    assert read_summary(tmp_path)["stages"]["forward"]["notes"] == comparison.notes


@pytest.mark.slow
def test_where_float64_fails_a_wrong_port_is_still_found(twinalign: Twinalign, tmp_path: Path) -> None:
    options = ("--set", "side=paddle", "--out", tmp_path / "out")
    finished = twinalign("run", "tests.cases.variety:Float32OnlyWrong", *options)
    assert finished.returncode == 1, finished.stderr
    assert "01 forward  diverged" in finished.stdout
    assert "forward: float64 does not run on the paddle side, so only float32 is judged" in finished.stdout
    assert "no search for faults: layers are compared in float64" in finished.stdout


@pytest.mark.slow
def test_a_model_that_computes_in_float32_in_its_float64_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_run: KeptRun
) -> None:
    monkeypatch.chdir(ROOT)
    comparison = kept_run("tests.cases.variety:Float32Inside", out=tmp_path).stages["forward"]
    assert comparison.verdict == "aligned"
    assert comparison.tensors[0].fp64_rel is not None
    assert comparison.tensors[0].fp64_rel < 1e-12  # in float32 the sides differ by 1e-8 and more
    assert comparison.notes == []
    # What float32 would have hidden is found.
    wrong = kept_run("tests.cases.variety:Float32Inside", out=tmp_path, options={"factor": 1 + 1e-9}, locate=False)
    assert wrong.verdict == "diverged"


def test_a_search_that_crashes_leaves_the_verdict_standing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_run: KeptRun
) -> None:
    def crash(*_: object, **__: object) -> None:
        raise SideCrashError("the paddle side crashed while searching forward: out of memory")

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("twinalign.search.locator.locate", crash)
    result = kept_run("tests.cases.variety:Float32Inside", out=tmp_path, options={"factor": 1.0001})
    assert result.verdict == "diverged"  # also by float32 alone
    assert result.stages["forward"].notes[-1] == (
        "the search for faults failed: the paddle side crashed while searching forward: out of memory"
    )
    assert (tmp_path / "report.html").exists()


def test_a_run_that_crashes_leaves_no_verdict_of_an_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_run: KeptRun
) -> None:
    def crash(*_: object) -> None:
        raise SideCrashError("the paddle side crashed while recording forward")

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("twinalign.runs.run_stages.Recorder.record", crash)
    for name in ("summary.json", "report.html", "forward_ref.npy"):
        (tmp_path / name).touch()
    with pytest.raises(SideCrashError):
        kept_run("tests.cases.variety:Float32Inside", out=tmp_path)
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["forward_ref.npy"]


@pytest.mark.parametrize("name", ["google/vit", "../outside", "n" * 201, "模" * 67, "a\u202eb", "a\nb", "resnet:18"])
def test_a_case_whose_name_no_file_can_have(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("twinalign.recorder.recorder.SideProcess", lambda *_, **__: None)
    described = {"ref": {"parts": {"forward": "net", "loss": name}}}
    monkeypatch.setattr("twinalign.recorder.recorder.Recorder._on_each", lambda *_, **__: described)
    recorder = Recorder(RunSettings("tests.cases.variety:Float32Inside", out=tmp_path))
    with pytest.raises(InputError, match="weights are kept in files named after the case: give it a `name` without / "):
        recorder._start(["ref"])
    assert not (tmp_path / "case.json").exists()


def test_names_in_any_script_are_names() -> None:
    require_file_names("case.py", ["模型 v2", "moco_v3_vit_small", "ResNet-50 (bs=4)", "n" * 200])


CASE = """
{top}
from twinalign import Case

class Net(Case):
    def reference(self):
        from torch import nn
        return nn.Linear(3, 3)
    def reproduced(self):
        from {framework} import nn
        return nn.Linear(3, 3)
    def inputs(self, rng):
        return {{"x": rng.standard_normal((2, 3), dtype="float32")}}
"""


@pytest.mark.slow
def test_a_model_of_the_other_framework(twinalign: Twinalign, tmp_path: Path) -> None:
    (tmp_path / "case.py").write_text(CASE.format(top="import torch", framework="torch"))
    finished = twinalign("run", "case.py")
    assert last_line(finished, 2) == (
        "twinalign: Net.reproduced() returned torch.nn.modules.linear.Linear, which is not a paddle.nn.Layer; build "
        "the paddle model there"
    )
    assert f"paddle: note: {tmp_path}/case.py imports torch here as well; import it inside its own side's methods" in (
        finished.stderr
    )


def test_the_other_framework_is_not_there(twinalign: Twinalign, tmp_path: Path) -> None:
    (tmp_path / "case.py").write_text(CASE.format(top="import torch", framework="paddle"))
    (tmp_path / "without" / "sitecustomize.py").parent.mkdir()
    (tmp_path / "without" / "sitecustomize.py").write_text("import sys\nsys.modules['torch'] = None\n")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{tmp_path}/without:$PYTHONPATH" exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    finished = twinalign("run", "case.py", "--paddle-python", python)
    assert last_line(finished, 2) == (
        f"twinalign: {tmp_path}/case.py:2: imports torch on the paddle side, where it is not installed; import it "
        "inside the methods of its own side, not at the top of the file"
    )


FUSED = """
import paddle

class Fused(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.both = self.create_parameter([4, 3])
    def forward(self, x):
        return paddle.matmul(x, self.both[:3], transpose_y=True) + self.both[3]
"""

RULE = """
from twinalign.conversion import Stored, storage_rule

@storage_rule("paddle", "fused_layer.Fused", kind="linear")
def fused(layer):
    return [Stored.packed(layer, "both", ["weight", "bias"], [3, 1])]
"""


@pytest.mark.slow
def test_a_rule_beside_the_case(twinalign: Twinalign, tmp_path: Path) -> None:
    text = CASE.format(top="", framework="paddle").replace("from paddle import nn", "import fused_layer")
    first, _, second = text.rpartition("return nn.Linear(3, 3)")
    (tmp_path / "case.py").write_text(f'{first}return fused_layer.Fused(){second}    rules = ("my_rules.py",)\n')
    (tmp_path / "fused_layer.py").write_text(FUSED)
    (tmp_path / "my_rules.py").write_text(RULE)
    finished = twinalign("run", tmp_path / "case.py", "--out", tmp_path / "out", cwd=ROOT)
    assert finished.returncode == 0, finished.stderr


def test_frames_of_libraries_are_counted(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import json\ndef f():\n    return json.loads('{')\n")
    scope: dict[str, object] = {}
    exec(compile((tmp_path / "mine.py").read_text(), str(tmp_path / "mine.py"), "exec"), scope)
    with pytest.raises(json.JSONDecodeError) as caught:
        scope["f"]()  # type: ignore[operator]
    lines = shortened(caught.value).splitlines()
    assert f'  File "{tmp_path}/mine.py", line 3, in f' in lines
    assert lines[-1] == "  … 3 more frames in libraries"
    assert place(caught.value) == f"{tmp_path}/mine.py:3"
