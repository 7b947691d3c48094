"""`twinalign compare` as a user runs it: files of any mixture, folders, options, exit codes, messages."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import paddle
import pytest
import torch
from safetensors.numpy import save_file

from tests.conftest import run_here
from twinalign.files.recordings import sample_positions
from twinalign.files.writer import write_reprod_log

RNG = np.random.default_rng(0)
LOGITS = RNG.standard_normal((4, 10)).astype("f4")


def compare(*arguments: object) -> subprocess.CompletedProcess[str]:
    return run_here(["compare", *map(str, arguments)], Path.cwd())


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    paths = {kind: tmp_path / f"a.{kind}" for kind in ("npy", "npz", "safetensors", "pth", "pdparams")}
    write_reprod_log(paths["npy"], {"logits": LOGITS})
    np.savez(paths["npz"], logits=LOGITS)
    save_file({"logits": LOGITS}, str(paths["safetensors"]))
    torch.save({"logits": torch.from_numpy(LOGITS)}, paths["pth"])
    paddle.save({"logits": paddle.to_tensor(LOGITS)}, str(paths["pdparams"]))
    return paths


def test_any_mixture_of_formats(files: dict[str, Path]) -> None:
    for kind in ("npz", "safetensors", "pth", "pdparams"):
        found = compare(files["npy"], files[kind])
        assert (found.returncode, found.stderr) == (0, "")
        assert found.stdout.splitlines()[-1] == "aligned: 1 aligned · reprod_log at 1e-06: passed"


def test_divergence_is_explained_and_ends_with_one(tmp_path: Path, files: dict[str, Path]) -> None:
    write_reprod_log(tmp_path / "b.npy", {"logits": LOGITS + np.float32(0.5)})
    found = compare(files["npy"], tmp_path / "b.npy", "--json", tmp_path / "out.json", "--md", tmp_path / "out.md")
    assert found.returncode == 1
    assert found.stdout.splitlines() == [
        "diverged     logits (max 0.5, mean 0.5): 40 of 40 elements (100%) are outside the tolerances of float32 "
        "(rtol 1.3e-06, atol 1e-05); it is the reference plus 0.5",
        "note: 1 of 1 tensors were judged by tolerances: there was no float64 recording and no repeat to measure "
        "rounding with",
        "reprod_log would say:",
        "  diff check failed",
        "diverged: 1 diverged · reprod_log at 1e-06: failed",
    ]
    report = json.loads((tmp_path / "out.json").read_text())
    assert (report["verdict"], report["classic"]["passed"]) == ("diverged", False)
    assert "| logits | diverged |" in (tmp_path / "out.md").read_text()


def test_float64_partners_and_inconclusive(tmp_path: Path) -> None:
    truth = RNG.standard_normal((64, 64))
    rounded = {name: (truth * (1 + 1e-4 * RNG.standard_normal(truth.shape))).astype("f4") for name in ("ref", "paddle")}
    for name, array in (*rounded.items(), ("ref64", truth), ("paddle64", truth)):
        write_reprod_log(tmp_path / f"{name}.npy", {"y": array})
    sides = tmp_path / "ref.npy", tmp_path / "paddle.npy"
    assert compare(*sides).returncode == 1
    found = compare(*sides, "--ref64", tmp_path / "ref64.npy", "--paddle64", tmp_path / "paddle64.npy")
    assert found.returncode == 0
    assert "aligned: 1 rounding · reprod_log at 1e-06: failed" in found.stdout
    write_reprod_log(tmp_path / "nan.npy", {"y": np.full(3, np.nan)})
    assert compare(tmp_path / "nan.npy", tmp_path / "nan.npy").returncode == 3


def recordings_with_partners(folder: Path) -> tuple[Path, Path]:
    truth = RNG.standard_normal((64, 64))
    (folder / "float64").mkdir()
    for name in ("y_ref.npy", "y_paddle.npy"):
        rounded = (truth * (1 + 1e-4 * RNG.standard_normal(truth.shape))).astype("f4")
        write_reprod_log(folder / name, {"y": rounded})
        write_reprod_log(folder / "float64" / name, {"y": truth})
    return folder / "y_ref.npy", folder / "y_paddle.npy"


def test_float64_runs_beside_both_files_are_taken(tmp_path: Path) -> None:
    sides = recordings_with_partners(tmp_path)
    found = compare(*sides)
    beside = [str(tmp_path / "float64" / side.name) for side in sides]
    assert found.returncode == 0
    assert f"note: rounding was measured with {beside[0]} and {beside[1]}, found next to the two" in found.stdout
    assert compare(*sides, "--rtol", "1e-6", "--atol", "0").returncode == 1
    for side in sides:
        metadata = {"weights_sha256": "a", "inputs_sha256": {"0": "b"}}
        side.with_suffix(".json").write_text(json.dumps({**metadata, "inputs_sha256": {"0": "b", "1": "c"}}))
        (tmp_path / "float64" / side.with_suffix(".json").name).write_text(json.dumps(metadata))
    assert compare(*sides).returncode == 0
    sides[1].with_suffix(".json").write_text(json.dumps({"weights_sha256": "b"}))
    found = compare(*sides)
    assert found.returncode == 1
    assert f"were not used: the metadata of y_paddle.npy has another weights_sha256 than {sides[1]}" in found.stdout
    Path(beside[1]).unlink()
    found = compare(*sides)
    assert found.returncode == 1
    assert "found beside" not in found.stdout
    assert "were not used" not in found.stdout


def test_float64_folders_inside_both_folders_are_taken(tmp_path: Path) -> None:
    for side in ("ref", "paddle"):
        (tmp_path / side / "float64").mkdir(parents=True)
        rounding = 1 + 1e-4 * RNG.standard_normal(LOGITS.shape)
        write_reprod_log(tmp_path / side / "q_rank0.npy", {"q": (LOGITS * rounding).astype("f4")})
        write_reprod_log(tmp_path / side / "float64" / "q_rank0.npy", {"q": LOGITS.astype("f8")})
    assert compare(tmp_path / "ref", tmp_path / "paddle").returncode == 0


def test_recordings_of_a_run_are_judged_as_the_run_judges_them(tmp_path: Path) -> None:
    """A float64 difference of 2e-8 passes with the allowance that the backward stage has for optimizer scalars."""
    sides = recordings_with_partners(tmp_path)
    truth = np.load(tmp_path / "float64" / "y_paddle.npy", allow_pickle=True).item()["y"]
    write_reprod_log(tmp_path / "float64" / "y_paddle.npy", {"y": truth * (1 + 2e-8)})
    rounded = {"y": truth.astype("f4")}
    for side in sides:
        write_reprod_log(side, rounded)
    assert compare(*sides).returncode == 1
    for side, name in zip(sides, ("ref", "paddle"), strict=True):
        side.with_suffix(".json").write_text(json.dumps({"side": name, "stage": "backward"}))
    found = compare(*sides)
    assert found.returncode == 0
    assert "allowed as paddle_optimizer_scalars" in found.stdout
    assert "note: conventions and allowances are those of `twinalign run` for stage backward" in found.stdout
    (tmp_path / "case.json").write_text(json.dumps({"description": [1]}))
    assert (compare(*sides).returncode, compare(*sides).stderr) == (1, "")
    sides[0].with_suffix(".json").write_text("[" * 100_000)
    found = compare(*sides)
    assert (found.returncode, found.stderr) == (0, "")
    assert "were not used: the metadata of y_ref.npy cannot be read" in found.stdout


def test_recordings_that_were_given_different_inputs_say_so_first(tmp_path: Path) -> None:
    sides = recordings_with_partners(tmp_path)
    machines = {"ref": {"processors": 16}, "paddle": {"processors": 2}}
    for steps in ({"0": "a", "1": "b"}, {"0": "a", "1": "c"}):
        for side, (name, environment) in zip(sides, machines.items(), strict=True):
            metadata = {"side": name, "stage": "loss", "environment": environment, "inputs_sha256": steps}
            if name == "ref":
                metadata["inputs_sha256"] = {"0": "a", "1": "b"}
            side.with_suffix(".json").write_text(json.dumps(metadata))
        found = compare(*sides)
        assert ("inputs of step" in found.stdout) is (steps["1"] == "c")
    assert found.returncode == 1
    assert found.stdout.startswith(
        "diverged     inputs of step 1: inputs(rng) gave the sides different arrays: it must depend on rng alone; on "
        "two machines, the libraries that it calls must have the same versions\n"
    )


def test_what_reprod_log_passes_is_listed_as_far_as_tensors_are(tmp_path: Path) -> None:
    arrays = {f"t{number}": np.full(3, np.nan, np.float32) for number in range(5)}
    for side in ("ref", "paddle"):
        write_reprod_log(tmp_path / f"{side}.npy", arrays)
    found = compare(tmp_path / "ref.npy", tmp_path / "paddle.npy", "--limit", "2").stdout
    assert found.count("the mean is NaN, which reprod_log passes") == 2
    assert "  (3 more of these)\n" in found
    whole = compare(tmp_path / "ref.npy", tmp_path / "paddle.npy", "--limit", "0").stdout
    assert whole.count("the mean is NaN, which reprod_log passes") == 5


def test_recordings_of_a_training_are_judged_as_trajectories(tmp_path: Path) -> None:
    """Tolerances would call growing rounding a divergence, and the reference's repeat a tensor that is missing."""
    steps = np.arange(40)
    loss = 2.0 + np.exp(-steps / 10)
    grown = 1e-7 * 1.4**steps
    curves = {"ref": loss, "paddle": loss + grown, "repeat": loss - 0.7 * grown, "wrong": loss + 0.01 * steps}
    for name in ("ref", "paddle", "wrong"):
        arrays = {"curve.loss": curves[name]}
        if name == "ref":
            arrays["repeat.curve.loss"] = curves["repeat"]
        write_reprod_log(tmp_path / f"{name}.npy", arrays)
        side = "ref" if name == "ref" else "paddle"
        (tmp_path / f"{name}.json").write_text(json.dumps({"side": side, "stage": "train"}))
    found = compare(tmp_path / "ref.npy", tmp_path / "paddle.npy")
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.startswith("rounding     curve.loss ")
    (tmp_path / "paddle.json").write_text(json.dumps({"side": "ref", "stage": "train"}))  # on another device, say
    assert compare(tmp_path / "ref.npy", tmp_path / "paddle.npy").stdout.startswith("rounding     curve.loss ")
    wrong = compare(tmp_path / "ref.npy", tmp_path / "wrong.npy", "--only", "curve.*")
    assert wrong.returncode == 1
    assert "the curves depart from step 1 on" in wrong.stdout
    assert compare(tmp_path / "ref.npy", tmp_path / "wrong.npy", "--only", "z").returncode == 2


def test_partners_that_measure_nothing_are_named(files: dict[str, Path]) -> None:
    single = files["npy"]
    wrong = "was not used: it has no tensor of the reference's names and shapes in higher precision"
    assert f"note: --ref64 {wrong}" in compare(single, single, "--ref64", single).stdout
    alone = "note: --paddle64 was not used: without --ref64 there is no float64 run to compare it with"
    assert alone in compare(single, single, "--paddle64", single).stdout


def test_names_out_of_a_file_forge_no_lines(tmp_path: Path) -> None:
    arrays = {"a\naligned: 1 aligned\x1b[2J": LOGITS}
    for name, shift in (("ref", 0), ("paddle", 1)):
        write_reprod_log(tmp_path / f"{name}.npy", {key: array + shift for key, array in arrays.items()})
    shown = {(): "a?aligned: 1 aligned?[2J", ("--md", "-"): r"a?aligned: 1 aligned?\[2J"}
    for options, name in shown.items():
        found = compare(tmp_path / "ref.npy", tmp_path / "paddle.npy", *options)
        assert name in found.stdout
        assert "\x1b" not in found.stdout


def test_what_stops_reprod_log_is_shown(tmp_path: Path) -> None:
    write_reprod_log(tmp_path / "flag.npy", {"flag": np.array([True])})
    shown = compare(tmp_path / "flag.npy", tmp_path / "flag.npy").stdout
    assert "reprod_log would say:\n  TypeError: flag: numpy boolean subtract" in shown


def test_classic_log_on_standard_output_alone(files: dict[str, Path]) -> None:
    lines = compare(files["npy"], files["npy"], "--log", "-").stdout.splitlines()
    assert [line.partition("INFO: ")[2] for line in lines] == [
        "logits: ",
        "\tmean diff: check passed: True, value: 0.0",
        "diff check passed",
    ]


def test_folders_of_ranks(tmp_path: Path) -> None:
    for side in ("ref", "paddle"):
        (tmp_path / side).mkdir()
        for rank in range(2):
            write_reprod_log(tmp_path / side / f"loss_{side}_rank{rank}.npy", {"q1": LOGITS + rank})
    found = compare(tmp_path / "ref", tmp_path / "paddle")
    assert found.returncode == 0
    assert found.stdout.splitlines()[0].startswith("aligned      loss_rank0:q1 ")
    (tmp_path / "paddle" / "loss_paddle_rank1.npy").unlink()
    found = compare(tmp_path / "ref", tmp_path / "paddle")
    assert found.returncode == 1
    assert "loss_rank1:q1: missing in the reproduction: float32 [4, 10]" in found.stdout


def test_samples_are_described_by_the_metadata_beside(tmp_path: Path) -> None:
    for side, value in (("ref", 0.0), ("paddle", 1.0)):
        sample = np.zeros(len(sample_positions(7000)), "f4")
        sample[-1] = value
        write_reprod_log(tmp_path / f"{side}.npy", {"weight": sample})
        metadata = {"sampled": {"weight": {"shape": [1000, 7]}}}
        (tmp_path / f"{side}.json").write_text(json.dumps(metadata))
    found = compare(tmp_path / "ref.npy", tmp_path / "paddle.npy", "--json", "-")
    tensor = json.loads(found.stdout)["tensors"][0]
    assert (tensor["shape"], tensor["worst_index"]) == ([1000, 7], [999, 6])


@pytest.mark.parametrize("shape", [[-5], [10**40], "text", None, [[1]], [0]])
def test_metadata_that_makes_no_sense_is_left_aside(shape: object, tmp_path: Path) -> None:
    for side, value in (("ref", 0.0), ("paddle", 1.0)):
        write_reprod_log(tmp_path / f"{side}.npy", {"weight": np.array([value, value], "f4")})
        (tmp_path / f"{side}.json").write_text(json.dumps({"sampled": {"weight": {"shape": shape}}}))
    found = compare(tmp_path / "ref.npy", tmp_path / "paddle.npy")
    assert (found.returncode, found.stderr) == (1, "")


def test_nonfinite_and_empty_tensors_leave_no_warning(tmp_path: Path) -> None:
    arrays = {"a": np.array([np.nan, np.inf, 1.0, 3e38], "f4"), "b": np.zeros((0, 2), "f4"), "c": np.ones(3, "f4")}
    other = {**arrays, "a": np.array([np.nan, np.inf, 1.0, -3e38], "f4")}
    for name, given in (("a", arrays), ("b", other)):
        write_reprod_log(tmp_path / f"{name}.npy", given)
        write_reprod_log(tmp_path / f"{name}64.npy", {key: array.astype("f8") for key, array in given.items()})
    partners = "--ref64", tmp_path / "a64.npy", "--paddle64", tmp_path / "b64.npy"
    for second, code in (("a", 0), ("b", 1)):
        found = compare(tmp_path / "a.npy", tmp_path / f"{second}.npy", *(partners if code else ()))
        assert (found.returncode, found.stderr) == (code, "")


USER_MISTAKES = [
    (("missing.npy", "a.npy"), "missing.npy: No such file or directory"),
    (("a.npy", "."), ": one is a directory and one is not; give two files or two folders"),
    (("a.npy", "text.npy"), "text.npy: its content is not .npy, .npz, .safetensors"),
    (("a.npy", "a.npy", "--rtol", "1e-3"), "--rtol and --atol: give both or neither"),
    (("a.npy", "a.npy", "--rtol", "nan", "--atol", "0"), "--rtol and --atol: numbers from 0 up"),
    (
        ("a.npy", "a.npy", "--json", "-", "--md", "-"),
        "--json, --md, --html and --log: only one of them can go to stdout",
    ),
    (("a.npy", "a.npy", "--only", "z*"), "a.npy: nothing to compare: no tensor is left after z*"),
    (("a.npy", "a.npy", "--allow", "all"), "allowance 'all' is unknown; known are"),
    (("a.npy", "a.npy", "--accept", "all"), "accept 'all': known conventions are"),
]


@pytest.mark.parametrize(("arguments", "message"), USER_MISTAKES, ids=[row[1][:40] for row in USER_MISTAKES])
def test_a_mistake_gets_one_line_and_ends_with_two(
    arguments: tuple[str, ...], message: str, tmp_path: Path, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text.npy").write_text("loss: 0.5")
    monkeypatch.chdir(tmp_path)
    found = compare(*arguments)
    assert found.returncode == 2
    assert found.stdout == ""
    assert len(found.stderr.splitlines()) == 1
    assert message in found.stderr


_IMPORTS = """
import sys
from twinalign.cli import main
try:
    main(["compare", *sys.argv[1:]])
except SystemExit:
    pass
loaded = {name.split(".")[0] for name in sys.modules}
print(sorted(loaded & {"torch", "paddle", "reprod_log", "rich", "PIL"}), file=sys.stderr)
"""


def test_comparing_imports_no_framework(files: dict[str, Path]) -> None:
    command = [sys.executable, "-c", _IMPORTS, str(files["pth"]), str(files["pdparams"])]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stderr.strip() == "[]"
