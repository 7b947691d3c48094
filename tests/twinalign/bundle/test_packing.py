"""What `pack` packs, and what it refuses: stale, aliased or incomplete runs, each by name."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.twinalign.bundle.forging import Forgery
from twinalign.bundle.archive import Archive, write_archive
from twinalign.bundle.packing import pack_run
from twinalign.bundle.verifying import verify_bundle
from twinalign.errors import InputError

Twinalign = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run_folder(honest: Path, tmp_path: Path) -> Path:
    """A copy of the honest run, to be spoilt."""
    return Path(shutil.copytree(honest / "run", tmp_path / "run"))


def edit(path: Path, change: Callable[[Any], Any]) -> None:
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def test_bundle_is_a_zip_with_a_manifest_of_everything(bundle: Path) -> None:
    with zipfile.ZipFile(bundle) as archive:
        assert archive.testzip() is None
        manifest = json.loads(archive.read("manifest.json"))
        others = [name for name in archive.namelist() if name != "manifest.json"]
        assert sorted(others) == sorted(manifest["members"])
        for name in others:
            content = archive.read(name)
            digest = hashlib.sha256(content).hexdigest()
            assert manifest["members"][name] == {"size": len(content), "sha256": digest}
    assert {"result/summary.json", "result/case.json", "result/losses_ref.npy"} <= set(others)
    assert {"result/float64/losses_paddle.npy", "result/log/backward_diff.log"} <= set(others)
    assert {"result/weights/tiny_moco_ledger.json", "source/tests/cases/tiny.py"} <= set(others)
    assert "source/moco_paddle/models/moco.py" in others
    assert not any("twinalign/" in name for name in others)
    assert manifest["missing_stages"] == ["train"]
    assert set(manifest["hashes"]["weights"]) == {"tiny_moco", "tiny_moco_metric"}
    assert "tiny_moco 0" in manifest["hashes"]["inputs"]
    assert manifest["environment"]["ref"]["framework"] == "torch"


def test_same_run_gives_the_same_bytes(honest: Path, run_folder: Path, tmp_path: Path) -> None:
    for path in run_folder.rglob("*"):
        os.utime(path, (0, 0))
    pack_run(run_folder, tmp_path / "again.zip", partial=True)
    assert (tmp_path / "again.zip").read_bytes() == (honest / "bundle.zip").read_bytes()


def test_reader_and_writer_agree_on_names_of_any_script(tmp_path: Path) -> None:
    members = {"manifest.json": b"{}", "source/模型/案例.py": b"x = 1\n", "source/empty.py": b""}
    write_archive(tmp_path / "b.zip", members)
    with Archive(tmp_path / "b.zip") as archive:
        assert {name: bytes(archive.read(name)) for name in archive.names} == members


def change_weights(run: Path) -> None:
    path = run / "weights" / "tiny_moco_ref.npz"
    with np.load(path) as stored:
        arrays = dict(stored)
    next(iter(arrays.values()))[...] += 1
    np.savez(path, **arrays)


def change_code(run: Path) -> None:
    for path in run.rglob("loss_paddle.json"):
        edit(path, lambda m: m["code_sha256"].update({str(Path(__file__)): "0" * 64}))


def other_summary(run: Path) -> None:
    edit(run / "summary.json", lambda s: s["stages"]["loss"]["tensors"][0].update(max_abs=0.5))


def other_inputs(run: Path) -> None:
    for folder in ("", "float64/"):
        edit(run / f"{folder}forward_paddle.json", lambda m: m["inputs_sha256"].update({"0": "0" * 64}))


def link(run: Path) -> None:
    (run / "forward_paddle.npy").unlink()
    os.link(run / "forward_ref.npy", run / "forward_paddle.npy")


def copy_arrays(run: Path) -> None:
    for folder in ("", "float64/"):
        shutil.copy(run / f"{folder}forward_ref.npy", run / f"{folder}forward_paddle.npy")


def copy_and_claim(run: Path) -> None:
    copy_arrays(run)
    claim = {"max_abs": 0.0, "fp64_rel": 0.0}
    edit(run / "summary.json", lambda s: [tensor.update(claim) for tensor in s["stages"]["forward"]["tensors"]])


def lose_code(run: Path) -> None:
    for path in run.rglob("loss_paddle.json"):
        edit(path, lambda m: m["code_sha256"].update({str(run / "gone.py"): "0" * 64}))


def copy_all(run: Path) -> None:
    for suffix in ("npy", "json"):
        shutil.copy(run / f"forward_ref.{suffix}", run / f"forward_paddle.{suffix}")


def both_torch(run: Path) -> None:
    environment = json.loads((run / "loss_ref.json").read_text())["environment"]
    edit(run / "loss_paddle.json", lambda m: m.update(environment=environment))


def old_metadata(run: Path) -> None:
    edit(run / "data_ref.json", lambda m: m.pop("recorded_at"))


REFUSED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "other weights": (change_weights, "forward_ref.npy: stale: the weights of tiny_moco have changed since"),
    "other code": (change_code, "loss_paddle.npy: stale: .*test_packing.py has changed since it was recorded"),
    "other options": (
        lambda run: edit(run / "case.json", lambda c: c["identity"]["paddle"]["options"].update(steps="9")),
        "forward_paddle.npy: stale: recorded under another case, option or interpreter",
    ),
    "other recordings than the summary's": (other_summary, "summary.json: stale: loss .*: max_abs is claimed as 0.5"),
    "other inputs": (other_inputs, "forward_paddle.npy: the two sides had different inputs"),
    "a link": (link, "forward_paddle.npy: aliased: it is the same file as .*forward_ref.npy"),
    "a copy of the file": (
        copy_all,
        "forward_paddle.npy: aliased: this belongs to the paddle side .paddle., but was recorded as ref",
    ),
    "a copy of the arrays": (copy_arrays, "forward_paddle.npy: aliased: it is a copy of .*forward_ref.npy"),
    "a copy of the arrays with its summary": (copy_and_claim, "bit-equal to the reference"),
    "code that is gone": (lose_code, "loss_paddle.npy: stale: .*gone.py no longer exists"),
    "one framework": (both_torch, "loss_paddle.npy: aliased: .* recorded as paddle with torch"),
    "no recording": (lambda run: (run / "loss_ref.npy").unlink(), "loss_ref.npy: incomplete: it is missing"),
    "no float64 on one side": (
        lambda run: (run / "float64" / "loss_ref.npy").unlink(),
        "float64/loss_ref.npy: incomplete: it is missing",
    ),
    "no log": (lambda run: (run / "log" / "loss_diff.log").unlink(), "loss_diff.log: incomplete: it is missing"),
    "no ledger": (
        lambda run: (run / "weights" / "tiny_moco_ledger.json").unlink(),
        "tiny_moco_ledger.json: incomplete: it is missing",
    ),
    "no weights": (
        lambda run: (run / "weights" / "tiny_moco_ref.npz").unlink(),
        "tiny_moco_ref.npz: incomplete: no weights to check the recordings against",
    ),
    "no summary": (lambda run: (run / "summary.json").unlink(), "summary.json: no finished run there"),
    "no description": (lambda run: (run / "case.json").unlink(), "case.json: missing or malformed"),
    "metadata of an earlier version": (
        old_metadata,
        "data_ref.npy: incomplete: its metadata are missing or were written by an earlier",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_pack_refuses(name: str, run_folder: Path, tmp_path: Path) -> None:
    spoil, expected = REFUSED[name]
    spoil(run_folder)
    with pytest.raises(InputError, match=expected) as caught:
        pack_run(run_folder, tmp_path / "out" / "bundle.zip", partial=True)
    assert "\n" not in str(caught.value)
    assert not any((tmp_path / "out").glob("*")) if (tmp_path / "out").exists() else True


@pytest.mark.parametrize("name", ["summary.json", "weights/tiny_moco_ref.npz"])
def test_what_is_no_bundle_is_not_overwritten(name: str, run_folder: Path) -> None:
    before = (run_folder / name).read_bytes()
    with pytest.raises(InputError, match=f"{name}: exists already and is not a bundle; give FILE another name"):
        pack_run(run_folder, run_folder / name, partial=True)
    assert (run_folder / name).read_bytes() == before


def test_a_bundle_takes_the_place_of_an_earlier_one(honest: Path, run_folder: Path, tmp_path: Path) -> None:
    write_archive(tmp_path / "b.zip", {"manifest.json": b"{}"})
    pack_run(run_folder, tmp_path / "b.zip", partial=True)
    assert (tmp_path / "b.zip").read_bytes() == (honest / "bundle.zip").read_bytes()


def test_a_place_that_cannot_be_written_is_named_and_not_the_passing_file(run_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    expected = r"file/b.zip: cannot be written there \(.*\); give FILE in a folder that you can write to"
    with pytest.raises(InputError, match=expected):
        pack_run(run_folder, tmp_path / "file" / "b.zip", partial=True)


def test_an_interruption_leaves_nothing(run_folder: Path, tmp_path: Path) -> None:
    def interrupt(text: str) -> None:
        if text.startswith("checking"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pack_run(run_folder, tmp_path / "out" / "b.zip", partial=True, progress=interrupt)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_run_is_given_by_its_folder(run_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"summary.json: a file; give the folder of a finished run"):
        pack_run(run_folder / "summary.json", tmp_path / "b.zip")


def test_guide_demands_six_stages(run_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match="incomplete: the guide also asks for train; record it, or pack with --partial"
    ):
        pack_run(run_folder, tmp_path / "bundle.zip")


def test_diverged_run_can_be_packed_and_is_verified_as_such(bundle: Path, run_folder: Path, tmp_path: Path) -> None:
    forgery = Forgery(bundle)
    forgery.change_arrays("result/loss_paddle.npy", lambda arrays: arrays.update(loss=arrays["loss"] + np.float32(1)))
    forgery.claim_what_is(tmp_path / "claim.zip")
    for name in ("loss_paddle.npy", "summary.json", "log/loss_diff.log"):
        (run_folder / name).write_bytes(forgery.members[f"result/{name}"])
    assert pack_run(run_folder, tmp_path / "diverged.zip", partial=True).recomputed == "diverged"
    assert verify_bundle(tmp_path / "diverged.zip").verdict == "diverged"


def test_commands_from_an_empty_folder(honest: Path, run_folder: Path, twinalign: Twinalign, tmp_path: Path) -> None:
    packed = twinalign("pack", run_folder, "b.zip", "--partial")
    assert packed.returncode == 0, packed.stderr
    assert "packed without train, and says so" in packed.stdout
    refused = twinalign("pack", run_folder, "c.zip")
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    verified = twinalign("verify", "b.zip", "--json", "b.json")
    assert verified.returncode == 0, verified.stderr
    assert verified.stdout.splitlines()[-1].startswith("confirmed: the arrays confirm the claim: aligned in forward,")
    result = json.loads((tmp_path / "b.json").read_text())
    assert result["verdict"] == "confirmed"
    with zipfile.ZipFile(tmp_path / "b.zip") as archive:
        assert result["manifest_sha256"] == hashlib.sha256(archive.read("manifest.json")).hexdigest()
    missing = twinalign("verify", "none.zip")
    said = "twinalign: none.zip: No such file or directory (twinalign help input-files)\n"
    assert (missing.returncode, missing.stderr) == (2, said)
    without = twinalign("verify", "b.zip", "--data", "d")
    assert without.returncode == 2
    assert "give --replay as well" in without.stderr


WITHOUT_FRAMEWORKS = """
import sys
frameworks = ("torch", "paddle", "torchvision", "reprod_log")
for name in (*frameworks, "rich", "PIL", "jinja2", "safetensors", "skimage", "sklearn"): sys.modules[name] = None
from twinalign.cli import main
main(["verify", sys.argv[1]])
"""


def test_numpy_alone_is_enough_to_verify(bundle: Path, tmp_path: Path) -> None:
    finished = subprocess.run(
        [sys.executable, "-c", WITHOUT_FRAMEWORKS, str(bundle)], capture_output=True, text=True, cwd=tmp_path
    )
    assert finished.returncode == 0, finished.stderr
    assert "confirmed" in finished.stdout


def test_absence_of_frameworks_is_really_tested(tmp_path: Path) -> None:
    code = WITHOUT_FRAMEWORKS.partition("from")[0] + "import torch"
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert "ModuleNotFoundError" in finished.stderr


@pytest.mark.slow
def test_replay_runs_the_packed_case_and_no_other(bundle: Path, twinalign: Twinalign, tmp_path: Path) -> None:
    finished = twinalign("verify", bundle, "--replay", "--data", ROOT / "lite_data", "--json", "b.json")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "run again here: aligned; packed recordings compared with those made here: aligned" in finished.stdout
    forgery = Forgery(bundle)
    member = "source/tests/cases/tiny.py"
    forgery.members[member] += f"\nimport pathlib; pathlib.Path({str(tmp_path / 'ran')!r}).touch()\n".encode()
    forgery.write(tmp_path / "other.zip")
    assert verify_bundle(tmp_path / "other.zip").verdict == "suspect"
    assert not (tmp_path / "ran").exists()
    again = twinalign("verify", "other.zip", "--replay", "--data", ROOT / "lite_data")
    assert again.returncode == 3
    assert (tmp_path / "ran").exists()
