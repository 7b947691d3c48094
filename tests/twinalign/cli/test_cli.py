"""A user's mistakes end as one line, with the file or key and the remedy, and exit code 2; a crash ends with 4."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT, without_topic

pytestmark = pytest.mark.usefixtures("kept_processes")

INTERRUPTED = "twinalign: interrupted; no file is half-written, and the next run reuses finished recordings"
Twinalign = Callable[..., subprocess.CompletedProcess[str]]

TINY_CASE = """
from twinalign import Case

class Tiny(Case):
    name = "tiny"
    def reference(self):
        from torch import nn
        {reference}
        return nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    def reproduced(self):
        from paddle import nn
        {reproduced}
        return nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    def inputs(self, rng):
        return {{"x": rng.standard_normal((2, 3), dtype="float32")}}
"""


def write_case(folder: Path, reference: str = "pass", reproduced: str = "pass") -> Path:
    """A three-method case whose factories can be made to misbehave."""
    path = folder / "case.py"
    path.write_text(TINY_CASE.format(reference=reference, reproduced=reproduced))
    return path


def last_line(finished: subprocess.CompletedProcess[str]) -> str:
    """The one line that a user is left with; there is no traceback before it."""
    assert "Traceback" not in finished.stderr
    return without_topic(finished.stderr.strip().splitlines()[-1])


def test_three_methods_are_enough(twinalign: Twinalign, tmp_path: Path) -> None:
    finished = twinalign("run", write_case(tmp_path))
    assert finished.returncode == 0, finished.stderr
    assert "01 forward  aligned" in finished.stdout
    assert (tmp_path / "result" / "summary.json").is_file()


NAMES_DIFFER = """
from twinalign import Case

class Port(Case):
    name = "port"
    def reference(self):
        from torch import nn
        return nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 4), nn.BatchNorm1d(4))
    def reproduced(self):
        from paddle import nn
        class Net(nn.Layer):
            def __init__(self):
                super().__init__()
                self.out = nn.Linear(4, 4)
                self.stem = nn.Linear(4, 4)
                self.norm = nn.BatchNorm1D(4)
                self.act = nn.GELU()
            def forward(self, x):
                return self.norm(self.out(self.act(self.stem(x))))
        return Net()
    def inputs(self, rng):
        return {"x": rng.standard_normal((6, 4), dtype="float32")}
"""


@pytest.mark.slow
def test_layers_of_other_names_are_found_by_running_both(twinalign: Twinalign, tmp_path: Path) -> None:
    (tmp_path / "case.py").write_text(NAMES_DIFFER)
    finished = twinalign("run", "case.py")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    entries = json.loads((tmp_path / "result" / "weights" / "port_ledger.json").read_text())["entries"]
    partners = {entry["target"]: entry["source"] for entry in entries if entry["target"]}
    assert partners["stem.weight"] == ["0.weight"]
    assert partners["out.weight"] == ["2.weight"]
    assert partners["norm._mean"] == ["3.running_mean"]


def test_unknown_case(twinalign: Twinalign) -> None:
    finished = twinalign("run", "mocov3")
    assert finished.returncode == 2
    assert last_line(finished) == (
        "twinalign: unknown case 'mocov3'; registered: moco_v3_resnet18, moco_v3_resnet50, moco_v3_vit_base, "
        "moco_v3_vit_conv_base, moco_v3_vit_conv_small, moco_v3_vit_small; "
        "or give path/to/case.py or package.module:ClassName"
    )


def test_missing_case_file(twinalign: Twinalign) -> None:
    finished = twinalign("run", "nowhere/case.py")
    assert finished.returncode == 2
    assert last_line(finished) == (
        "twinalign: case 'nowhere/case.py': no file nowhere/case.py; give a path to a case.py, or a registered name"
    )


def test_missing_module(twinalign: Twinalign) -> None:
    finished = twinalign("run", "no_such_module:Case")
    assert finished.returncode == 2
    assert last_line(finished) == (
        "twinalign: case 'no_such_module:Case': no module no_such_module; check the name and PYTHONPATH"
    )


def test_unknown_stage(twinalign: Twinalign) -> None:
    finished = twinalign("run", "--stages", "forward,lose")
    assert finished.returncode == 2
    assert last_line(finished) == (
        "twinalign: --stages lose: unknown stage; did you mean loss? the stages are forward, data, metric, loss, "
        "backward, train, initial"
    )


def test_stage_that_the_case_lacks(twinalign: Twinalign, tmp_path: Path) -> None:
    finished = twinalign("run", write_case(tmp_path), "--stages", "loss")
    assert finished.returncode == 2
    assert last_line(finished) == (
        "twinalign: --stages loss: case tiny does not define it; it has forward, initial (see the methods of "
        "twinalign.Case)"
    )


@pytest.mark.parametrize("option", ["--seeds 3", "--switch-at 5", "--swap data", "--tensorboard"])
@pytest.mark.slow
def test_experiments_on_a_training_that_the_case_lacks(twinalign: Twinalign, tmp_path: Path, option: str) -> None:
    case = write_case(tmp_path)
    for _ in range(2):  # the second run knows the case from the first
        finished = twinalign("run", case, *option.split())
        assert finished.returncode == 2
        assert last_line(finished) == (
            f"twinalign: {option.split()[0]}: case tiny does not define train; it has forward, initial "
            "(see the methods of twinalign.Case)"
        )


@pytest.mark.parametrize("command", ["run", "record", "locate"])
def test_no_stage_at_all(twinalign: Twinalign, tmp_path: Path, command: str) -> None:
    side = ("--side", "ref", "--out", tmp_path) if command == "record" else ()
    finished = twinalign(command, write_case(tmp_path), *side, "--stages", " ,")
    assert finished.returncode == 2
    assert last_line(finished) == (
        "twinalign: --stages ' ,': names no stage; leave it out for all, or give some of forward, data, metric, loss, "
        "backward, train, initial"
    )


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            "run --device tpu",
            "Invalid value for '--device': 'tpu' is not one of 'cpu', 'gpu'; see twinalign run --help",
        ),
        ("run --nope", "No such option '--nope'; see twinalign run --help"),
        (
            "run --stagess loss",
            "No such option '--stagess'. Did you mean one of: '--seeds', '--stages'? see twinalign run --help",
        ),
        ("runn case.py", "No such command 'runn'. Did you mean 'run'? see twinalign --help"),
        ("case.py", "No such command 'case.py'. Did you mean 'run case.py'? see twinalign --help"),
        ("align", "No such command 'align'; see twinalign --help"),
    ],
)
def test_wrong_usage_is_one_line(twinalign: Twinalign, arguments: str, line: str) -> None:
    finished = twinalign(*arguments.split())
    assert finished.returncode == 2
    assert finished.stderr.strip().splitlines() == [f"twinalign: {line}"]


@pytest.mark.slow
def test_a_head_for_another_number_of_classes(twinalign: Twinalign, tmp_path: Path) -> None:
    case = write_case(tmp_path)
    before, after = case.read_text().split("def reproduced")
    case.write_text(f"{before}def reproduced{after.replace('nn.Linear(3, 3)', 'nn.Linear(3, 4)')}")
    finished = twinalign("run", case)
    assert finished.returncode == 2
    assert last_line(finished) == (
        "twinalign: the two models are different networks: `0` has weight 3×3 against 4×3, bias 3 against 4 in the "
        "paddle model. Make the port's layers those of the reference"
    )


def test_an_error_in_inputs_names_inputs(twinalign: Twinalign, tmp_path: Path) -> None:
    case = write_case(tmp_path)
    case.write_text(
        re.sub(r"(def inputs\(self, rng\):\n\s+)", r"\1raise KeyError('depth')\n        ", case.read_text())
    )
    finished = twinalign("run", case)
    assert finished.returncode == 4
    assert "twinalign: the ref side crashed while calling inputs() of forward: KeyError: 'depth'" in last_line(finished)


@pytest.mark.parametrize("command", ["run", "locate"])
def test_a_case_that_lies_here_is_not_passed_over_in_silence(
    command: str, twinalign: Twinalign, tmp_path: Path
) -> None:
    write_case(tmp_path)
    finished = twinalign(command, "--stages", "lose", cwd=tmp_path)
    assert finished.stderr.splitlines()[0] == (
        f"taking moco_v3_vit_small; for the case.py in this folder: twinalign {command} case.py"
    )
    assert "in this folder" not in twinalign(command, "case.py", "--stages", "lose", cwd=tmp_path).stderr


def test_missing_data_folder(twinalign: Twinalign, tmp_path: Path) -> None:
    finished = twinalign("run", "--data", tmp_path / "nowhere", "--stages", "data")
    assert finished.returncode == 2
    assert last_line(finished) == (
        f"twinalign: --data {tmp_path}/nowhere: no folder train with your images (a folder a class) in it, nor "
        "photos/train; leave --data out to have it made"
    )


def test_corrupt_image(twinalign: Twinalign, tmp_path: Path) -> None:
    import shutil

    for name in ("photos", "digits"):
        shutil.copytree(ROOT / "lite_data" / name, tmp_path / "data" / name)
    broken = sorted((tmp_path / "data" / "photos" / "val").rglob("*.png"))[0]
    broken.write_bytes(broken.read_bytes()[:200])
    finished = twinalign("run", "--data", tmp_path / "data", "--stages", "data")
    assert finished.returncode == 2
    assert str(broken) in last_line(finished)
    assert "cannot be read as an image" in last_line(finished)
    assert not list((tmp_path / "result").glob("*.npy"))
    assert not (tmp_path / "result" / "summary.json").exists()


def test_output_that_is_a_file(twinalign: Twinalign, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    finished = twinalign("run", write_case(tmp_path), "--out", tmp_path / "taken")
    assert finished.returncode == 2
    assert last_line(finished) == (
        f"twinalign: --out {tmp_path}/taken: cannot write there (File exists); name another folder"
    )


def test_unknown_option_of_the_case(twinalign: Twinalign, tmp_path: Path) -> None:
    finished = twinalign("run", write_case(tmp_path), "--set", "batsh=4")
    assert finished.returncode == 2
    assert last_line(finished).startswith("twinalign: --set batsh: case tiny has no such option; it has ")


def test_interpreter_that_does_not_start(twinalign: Twinalign, tmp_path: Path) -> None:
    finished = twinalign("run", write_case(tmp_path), "--ref-python", "/bin/false")
    assert finished.returncode == 2
    assert last_line(finished) == "twinalign: --ref-python /bin/false: not a working Python interpreter"


@pytest.mark.parametrize("side", ["reference", "reproduced"])
def test_error_in_the_users_code_names_side_and_stage(twinalign: Twinalign, tmp_path: Path, side: str) -> None:
    finished = twinalign("run", write_case(tmp_path, **{side: "raise KeyError('depth')"}))
    assert finished.returncode == 4
    name = "ref" if side == "reference" else "paddle"
    assert f"twinalign: the {name} side crashed while building the model of forward: KeyError: 'depth'" in last_line(
        finished
    )
    log = (tmp_path / "result" / "log" / f"recorder_{name}.log").read_text()
    assert "case.py" in log
    assert "twinalign/recorder" not in log
    # The line is preceded by the frames of the user's own code, and no others.
    assert re.findall(r'File ".*/(.*)", line \d+, in (\w+)', finished.stderr) == [("case.py", side)]
    assert "raise KeyError('depth')" in finished.stderr


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--no-locate", "--sequential"])
def test_inputs_that_neither_model_takes_are_nobodys_crash(twinalign: Twinalign, tmp_path: Path, option: str) -> None:
    case = write_case(tmp_path)
    case.write_text(case.read_text().replace("(2, 3)", "(2, 5)"))
    finished = twinalign("run", case, option)
    assert finished.returncode == 2
    assert re.fullmatch(
        r"twinalign: case tiny: change inputs\(rng\): neither model takes x \[2, 5\] float32; "
        r"ref: RuntimeError: .*; paddle: ValueError: .*",
        last_line(finished),
    )
    assert "crashed" not in finished.stderr


def test_a_model_that_alone_refuses_the_inputs_is_a_crash_of_its_side(twinalign: Twinalign, tmp_path: Path) -> None:
    case = write_case(tmp_path)
    before, after = case.read_text().split("def reproduced")
    wrong = "nn.Sequential(nn.Linear(3, 3), nn.Flatten(5))"
    case.write_text(f"{before}def reproduced{after.replace('nn.Sequential(nn.Linear(3, 3), nn.ReLU())', wrong)}")
    finished = twinalign("run", case)
    assert finished.returncode == 4
    assert "twinalign: the paddle side crashed while recording forward in float32: " in finished.stderr


def test_process_that_dies_is_reported(twinalign: Twinalign, tmp_path: Path) -> None:
    finished = twinalign("run", write_case(tmp_path, reproduced="import os; os.kill(os.getpid(), 11)"))
    assert finished.returncode == 4
    assert "the paddle side crashed while building the model of forward" in last_line(finished)
    assert "killed by SIGSEGV" in finished.stderr


def test_interrupted_run_leaves_nothing_half_written(tmp_path: Path) -> None:
    case = write_case(tmp_path, reference="import time; time.sleep(60)")
    process = subprocess.Popen(
        [sys.executable, "-m", "twinalign", "run", str(case)],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Tests that a shell runs in the background ignore interrupts, and their children with them.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 100
    while not (tmp_path / "result" / "case.json").exists():
        assert time.monotonic() < deadline
        time.sleep(0.2)
    os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert errors.strip().splitlines()[-1] == INTERRUPTED
    assert not list((tmp_path / "result").rglob("*.npy"))
    assert not list((tmp_path / "result").rglob(".*"))


def test_a_file_that_cannot_be_written_in_a_side_is_named(tmp_path: Path) -> None:
    case = write_case(tmp_path)
    finished = subprocess.run(
        [sys.executable, "-m", "twinalign", "run", str(case)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        # As on a full disk, but for one's own processes alone.
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000)),
    )
    assert finished.returncode == 2
    assert re.fullmatch(
        r"twinalign: \S*result/\S+: it exceeds the file size limit \(ulimit -f\); nothing was written; raise the limit",
        last_line(finished),
    )
    assert not list((tmp_path / "result").rglob("*.part"))


def test_help_names_every_command_and_exit_code(twinalign: Twinalign) -> None:
    finished = twinalign("--help")
    assert finished.returncode == 0
    for word in ("run", "record", "compare", "convert", "doctor", "0 all aligned", "4 a side crashed", "130"):
        assert word in finished.stdout


def test_doctor_says_what_works(twinalign: Twinalign) -> None:
    found = json.loads(twinalign("doctor", "--json").stdout)
    assert found["ref"]["paths"]["cpu float64"] == "works"
    assert found["paddle"]["paths"]["cpu float32"] == "works"
    assert found["paddle"]["paths"]["cpu bfloat16"].startswith("(NotFound)")


OWN_CASE = """
from twinalign import Case

class Own(Case):
    def reference(self):
        import torch
        return torch.nn.Linear(2, 2)
    def {reproduced}(self):
        import paddle
        return paddle.nn.Linear(2, 2)
    def inputs(self, rng):
        return {inputs}
"""


@pytest.mark.parametrize(
    ("source", "name", "message"),
    [
        ("class Own(Case)\n    pass\n", "", "case '{path}': {path}, line 1: expected ':'"),
        (
            OWN_CASE.format(reproduced="_port", inputs="{'x': rng.random((2, 2), 'float32')}"),
            "",
            "case Own: it has no method reproduced(); a case defines reference, reproduced and inputs",
        ),
        (
            OWN_CASE.format(reproduced="reproduce", inputs="{'x': rng.random((2, 2), 'float32')}"),
            "",
            "case '{path}': a Case has no 'reproduce', and Own never reads it; did you mean 'reproduced'? If it is "
            "your own, begin its name with _",
        ),
        (
            OWN_CASE.format(reproduced="reproduced", inputs="rng.random(2)"),
            "",
            "case Own: inputs(rng) returned ndarray; return a dictionary, name -> array",
        ),
        (
            OWN_CASE.format(reproduced="reproduced", inputs="{}"),
            "",
            "case Own: inputs(rng) returned an empty dictionary; return name -> array",
        ),
        (
            OWN_CASE.format(reproduced="reproduced", inputs="{}") + "    seeed = 3\n",
            "",
            "case '{path}': a Case has no 'seeed', and Own never reads it; did you mean 'seed'? If it is your own, "
            "begin its name with _",
        ),
        (
            OWN_CASE.format(reproduced="reproduced", inputs="{}"),
            ":own",
            "case '{path}:own': own is not a case in {path}; it has Own",
        ),
    ],
)
def test_a_wrong_case_gets_one_line(source: str, name: str, message: str, twinalign: Twinalign, tmp_path: Path) -> None:
    path = tmp_path / "own_case.py"
    path.write_text(source)
    finished = twinalign("run", f"{path}{name}", "--out", tmp_path / "out")
    assert finished.returncode == 2, finished.stderr
    assert last_line(finished) == f"twinalign: {message.format(path=path)}"
