"""Attention that one side packs in one tensor and the other keeps in three: every stage and the search for faults."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import twinalign as api
from tests.conftest import ROOT, KeptRun
from twinalign.files.recordings import Recording

pytestmark = pytest.mark.usefixtures("kept_processes")


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize("name", ["Attention", "Transformer", "ReferencePacks", "PortPacks"])
@pytest.mark.slow
def test_a_right_port_is_aligned_in_every_stage(name: str, tmp_path: Path, kept_run: KeptRun) -> None:
    result = kept_run(f"tests.cases.attention:{name}", out=tmp_path)
    assert {stage: found.verdict for stage, found in result.stages.items()} == dict.fromkeys(
        ("forward", "loss", "backward", "train"), "aligned"
    )
    recorded = [Recording.load(tmp_path / f"losses_{side}.npy").arrays for side in ("ref", "paddle")]
    assert recorded[0].keys() == recorded[1].keys()
    assert any("velocity" in key for key in recorded[0])
    curves = [Recording.load(tmp_path / f"train_{side}.npy").arrays for side in ("ref", "paddle")]
    assert {key for key in curves[0] if not key.startswith("repeat.")} == set(curves[1])


def test_what_the_reference_packs_is_recorded_whole(tmp_path: Path, kept_run: KeptRun) -> None:
    kept_run("tests.cases.attention:Attention", out=tmp_path, stages=["backward"])
    for name in ("gradient", "parameter", "velocity"):
        ref, port = (
            Recording.load(tmp_path / f"losses_{side}.npy").arrays[f"step0.{name}.attn.in_proj_weight"]
            for side in ("ref", "paddle")
        )
        assert ref.shape == (48, 16)
        np.testing.assert_allclose(port, ref, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("name", ["Attention", "Transformer", "ReferencePacks", "PortPacks"])
def test_a_right_port_is_no_alarm(name: str, tmp_path: Path) -> None:
    assert api.locate(f"tests.cases.attention:{name}", out=tmp_path).faults == []


def test_swapped_projections_are_located_and_proven(tmp_path: Path) -> None:
    (fault,) = api.locate("tests.cases.attention:SwappedProjections", out=tmp_path, stages=["forward"]).faults
    assert (fault.paddle_layer, fault.phase) == ("attn", "forward")
    assert fault.explanation is not None
    assert fault.explanation.id == "qkv_order"
    assert "k, q, v where q, k, v are meant" in fault.explanation.text


def test_a_part_that_does_not_learn_is_located(tmp_path: Path) -> None:
    faults = api.locate("tests.cases.attention:FrozenKeys", out=tmp_path, explain=False).faults
    assert [(fault.paddle_layer, fault.phase) for fault in faults][:1] == [("attn", "backward")]
    assert "gradient.parameter.in_proj_weight" in str(faults[0].evidence)
