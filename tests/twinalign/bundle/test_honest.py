"""Honest bundles that look odd: none is called false or suspect."""

from __future__ import annotations

import datetime
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import twinalign
from tests.twinalign.bundle.forging import Forgery
from twinalign.bundle.archive import Archive
from twinalign.bundle.fabrication_in_arrays import signs_in_arrays
from twinalign.bundle.layout import SUMMARY
from twinalign.bundle.verifying import verify_bundle
from twinalign.files.recordings import Recording
from twinalign.verdict.case_allowances import allowances_for
from twinalign.verdict.stage_recordings import StageRecordings

RNG = np.random.default_rng(0)
FEATURES = RNG.standard_normal((64, 32))
LOGITS = RNG.standard_normal((64, 1))
NORM, SOFTMAX = "paddle.nn.layer.norm.LayerNorm", "paddle.nn.layer.activation.Softmax"


def recorded(precisions: tuple[str, ...] = ("float32", "float64"), **arrays: np.ndarray) -> StageRecordings:
    """Both sides of a forward stage; the port differs from the reference in what is called `logits`."""
    found = {}
    for side in ("ref", "paddle"):
        for dtype in precisions:
            epsilon = np.finfo(dtype).eps * (2 if side == "paddle" else 1)
            own = {k: (a * (1 + epsilon * (k == "logits")) + 0).astype(dtype) for k, a in arrays.items()}
            if dtype == "float32":  # what computes in float32 rounds more than once
                own = {k: a * np.float32(1 + 2**-23) for k, a in own.items()}
            found[side, dtype] = Recording(own, {"seconds": 1.0})
    return StageRecordings(found)


def test_features_before_a_normalisation_may_be_bit_equal() -> None:
    signs, notes = signs_in_arrays("forward", recorded(features=FEATURES, logits=LOGITS), [NORM])
    assert signs == []
    assert len(notes) == 2
    assert notes[0].startswith("forward float32: features is bit-equal to the reference in all")


def test_a_table_may_be_bit_equal_where_no_float64_tells_that_it_does_not_round() -> None:
    signs, _ = signs_in_arrays("forward", recorded(("float32",), embedded=FEATURES, logits=LOGITS), [NORM])
    assert signs == []


def test_an_activation_may_stand_in_a_model_and_not_be_called() -> None:
    copied = recorded(features=FEATURES)
    assert signs_in_arrays("forward", copied, [SOFTMAX]) == ([], [])
    assert {sign.id for sign in signs_in_arrays("forward", copied, [NORM])[0]} == {"bit_equal"}


def test_normalisations_without_weights_may_outnumber_weights(bundle: Path, tmp_path: Path) -> None:
    forgery = Forgery(bundle)

    def more(metadata: Any) -> None:
        if NORM in metadata["layer_classes"]:
            metadata["layer_classes"][NORM]["count"] = 200

    for name in [name for name in forgery.members if name.endswith("_paddle.json")]:
        forgery.edit(name, more)
    assert verify_bundle(forgery.write(tmp_path / "more.zip")).signs == []


def test_normalisations_without_number_allow_no_fault() -> None:
    allowed = allowances_for("forward", {"layer_classes": {NORM: {"count": 10**6, "bases": []}}}, {})
    assert max(allowance.bound for allowance in allowed if not isinstance(allowance, str)) < 1.1e-7


@pytest.mark.parametrize("hours", [8, -11])
def test_a_clock_that_is_off_by_a_time_zone_is_no_sign(hours: int, bundle: Path) -> None:
    now = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=hours)
    result = verify_bundle(bundle, now=now)
    assert result.verdict == "confirmed"
    assert [note.partition(" at ")[0] for note in result.notes] == (["recorded"] if hours > 0 else [])


def test_a_bundle_of_two_gigabytes_is_read(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forgery = Forgery(bundle)
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 100_000)  # from there on zipfile writes as it does from 2 GiB on
    with Archive(forgery.write(tmp_path / "large.zip")) as archive:
        assert {name: bytes(archive.read(name)) for name in archive.names} == forgery.members


def test_only_reasons_may_differ_between_versions(bundle: Path, tmp_path: Path) -> None:
    forgery = Forgery(bundle)

    def claiming(**fields: Any) -> Callable[[dict], None]:
        return lambda summary: summary["stages"]["forward"]["tensors"][0].update(fields)

    forgery.edit(SUMMARY, claiming(reason="in other words"))
    assert verify_bundle(forgery.write(tmp_path / "same.zip")).verdict == "refuted"
    forgery.edit("manifest.json", lambda manifest: manifest.update(twinalign="0.0.9"))
    found = verify_bundle(forgery.write(tmp_path / "older.zip"))
    assert found.verdict == "confirmed"
    assert found.notes == [
        f"packed by twinalign 0.0.9 and checked by {twinalign.__version__}: verdicts and numbers are compared, "
        "the words of the reasons are not"
    ]
    forgery.edit(SUMMARY, claiming(max_abs=1.0))
    assert verify_bundle(forgery.write(tmp_path / "forged.zip")).verdict == "refuted"
