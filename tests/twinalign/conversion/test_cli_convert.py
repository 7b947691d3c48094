"""`twinalign convert` as a user runs it: its own process, and one more for each model."""

from __future__ import annotations

import json
from pathlib import Path

import paddle
import pytest
import torch

MODELS = Path(__file__).with_name("models.py")


def save(tmp_path, reference):
    torch.manual_seed(0)
    torch.save(reference.state_dict(), tmp_path / "a.pth")


def test_without_a_model_by_explicit_rules(twinalign, tmp_path):
    save(tmp_path, torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3)))
    done = twinalign("convert", "a.pth", "a.pdparams", "--layer", "0=Linear", "--ledger", "ledger.json")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[1].split()[:4] == ["0.weight", "0.weight", "3×3", "transposed"]
    assert lines[-2:] == ["7 keys in, 6 out: 3 copied, 1 transposed, 2 renamed, 1 dropped", "wrote a.pdparams"]
    ledger = json.loads((tmp_path / "ledger.json").read_text())
    assert ledger["source"] == {
        "file": "a.pth",
        "framework": "torch",
        "format": "torch",
        "entry": None,
        "prefix": "",
    }
    assert len(ledger["entries"]) == 7
    assert list(paddle.load(str(tmp_path / "a.pdparams"))) == [
        "0.weight",
        "0.bias",
        "1.weight",
        "1.bias",
        "1._mean",
        "1._variance",
    ]


def test_a_mistake_is_one_line_and_exit_code_2(twinalign, tmp_path):
    save(tmp_path, torch.nn.Linear(3, 3))
    done = twinalign("convert", "a.pth", "a.pdparams")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("twinalign: a.pth: are these weights of Linear layers, of Embeddings, or matrices")
    assert not (tmp_path / "a.pdparams").exists()


def test_options_that_cannot_be_met_are_refused_before_anything_is_written(twinalign, tmp_path):
    save(tmp_path, torch.nn.Sequential(torch.nn.Linear(3, 3)))
    convert = "convert", "a.pth", "a.pdparams", "--layer", "0=Linear"
    done = twinalign(*convert, "--ledger", "no/ledger.json")
    assert (done.returncode, done.stderr) == (
        2,
        "twinalign: --ledger no/ledger.json: no such folder no; make it first (twinalign help output-files)\n",
    )
    done = twinalign(*convert, "--prefix", "module.", "--export", "timm")
    assert done.returncode == 2
    assert done.stderr == (
        "twinalign: --prefix does not apply to --export, whose format fixes the names; leave it out "
        "(twinalign help convert-direction)\n"
    )
    assert not (tmp_path / "a.pdparams").exists()


@pytest.mark.slow
def test_two_models_in_processes_of_their_own(twinalign, tmp_path):
    from twinalign.conversion.model_factory import load_factory

    save(tmp_path, load_factory(f"{MODELS}:TorchBranches")[0]())
    models = ("--ref", f"{MODELS}:TorchBranches", "--input", "2,3,8,8", "--quiet")
    done = twinalign("convert", "a.pth", "a.pdparams", *models, "--paddle", f"{MODELS}:PaddleBranches", "--verify")
    assert done.returncode == 0, done.stderr
    assert "verified in float64: outputs differ by" in done.stdout
    done = twinalign("convert", "a.pth", "b.pdparams", *models, "--paddle", f"{MODELS}:PaddleBranchesDifferent")
    assert done.returncode == 1
    assert done.stderr.startswith("twinalign: the two models compute different things: from 'norm' (paddle: 'bn') on")
    assert not (tmp_path / "b.pdparams").exists()


@pytest.mark.slow
def test_a_factory_that_fails_is_reported_as_that_side(twinalign, tmp_path):
    save(tmp_path, torch.nn.Linear(3, 3))
    done = twinalign("convert", "a.pth", "a.pdparams", "--ref", f"{MODELS}:failing")
    assert done.returncode == 4
    said = f"twinalign: the ref model {MODELS}:failing failed: RuntimeError: the data is not here"
    assert done.stderr == f"{said} (twinalign help side-crashed)\n"


def test_the_converter_imports_no_framework(twinalign, tmp_path):
    save(tmp_path, torch.nn.LayerNorm(3))
    (tmp_path / "torch.py").write_text("raise SystemExit('torch was imported')")
    (tmp_path / "paddle.py").write_text("raise SystemExit('paddle was imported')")
    done = twinalign("convert", "a.pth", "a.pdparams", "--quiet")
    assert done.returncode == 0, done.stderr
    done = twinalign("convert", "a.pth", "a.pdparams", "--ref", f"{MODELS}:torch_mlp")
    assert "torch was imported" in done.stderr, "the guard does not see an import"
