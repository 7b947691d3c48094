"""Runs that are judged in half precision, or without float64, are packed and checked by the same rules."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import twinalign
from tests.conftest import ROOT
from tests.twinalign.bundle.forging import Forgery
from twinalign.bundle.verifying import Verification, verify_bundle
from twinalign.errors import InputError

pytestmark = pytest.mark.usefixtures("kept_processes")

SUMMARY = "result/summary.json"
FORWARD = "result/{}forward_{}.npy"


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def packed(folder: Path, case: str, **asked: Any) -> tuple[Path, Verification]:
    run = twinalign.run(f"tests.cases.variety:{case}", out=folder / "run", locate=False, **asked)
    assert run.verdict == "aligned"
    twinalign.pack(folder / "run", folder / "b.zip", partial=True)
    return folder / "b.zip", verify_bundle(folder / "b.zip")


def refused(bundle: Path, change: Callable[[Forgery], Any]) -> str:
    forgery = Forgery(bundle)
    change(forgery)
    with pytest.raises(InputError) as error:
        verify_bundle(forgery.write(bundle.with_name("forged.zip")))
    return str(error.value)


@pytest.mark.slow
def test_a_model_without_float64_is_packed_with_its_repeat(tmp_path: Path) -> None:
    bundle, verification = packed(tmp_path, "Float32Only")
    assert verification.verdict == "confirmed"
    assert verification.notes[0].startswith("forward: no float64 on the ref side, so that less is proven (")
    names = Forgery(bundle).members
    assert {FORWARD.format("repeat/", "ref"), FORWARD.format("float64/", "paddle")} <= set(names)
    assert FORWARD.format("float64/", "ref") not in names

    def unsaid(forgery: Forgery) -> None:
        forgery.edit(SUMMARY, lambda summary: summary["stages"]["forward"].pop("without_float64"))

    assert "result/float64/forward_ref.npy is missing, but stage forward is claimed; refused" in refused(bundle, unsaid)

    # A repeat that moves further would hide any fault; what it is said to be, it is.
    forgery = Forgery(bundle)
    forgery.edit(FORWARD.format("repeat/", "ref")[:-3] + "json", lambda metadata: metadata.update(dtype="float64"))
    found = verify_bundle(forgery.write(tmp_path / "forged.zip"))
    assert any("its metadata says dtype float64, but its name says float32" in sign.text for sign in found.signs)

    # Nor may it be anywhere else.
    forgery = Forgery(bundle)
    far = {key: a * -3 for key, a in forgery.arrays(FORWARD.format("repeat/", "ref")).items()}
    forgery.store(FORWARD.format("repeat/", "ref"), far)
    found = verify_bundle(forgery.write(tmp_path / "forged.zip"))
    assert any("its repeat is further from it than rounding can carry it" in sign.text for sign in found.signs)

    # The verdict rests on it: without it nothing says how much rounding may do.
    forgery = Forgery(bundle)
    for suffix in ("npy", "json"):
        del forgery.members[FORWARD.format("repeat/", "ref")[:-3] + suffix]
    assert verify_bundle(forgery.write(tmp_path / "forged.zip")).verdict == "refuted"


@pytest.mark.slow
def test_half_precision_is_packed_and_confirmed(tmp_path: Path) -> None:
    # What an earlier run left in the folder is no part of this one.
    twinalign.run("tests.cases.variety:HalfPrecision", out=tmp_path / "run", locate=False)
    bundle, verification = packed(tmp_path, "HalfPrecision", precision="bfloat16", accuracy_compatible=True)
    assert (verification.verdict, verification.notes) == ("confirmed", [])
    names = set(Forgery(bundle).members)
    assert {FORWARD.format("bfloat16/", side) for side in ("ref", "paddle")} <= names
    assert FORWARD.format("", "ref") not in names

    def both(forgery: Forgery) -> None:
        for side in ("ref", "paddle"):
            for suffix in ("npy", "json"):
                content = forgery.members[FORWARD.format("bfloat16/", side)[:-3] + suffix]
                forgery.members[FORWARD.format("", side)[:-3] + suffix] = content

    message = "stage forward is recorded in bfloat16 and in float32, but only one is compared; refused"
    assert message in refused(bundle, both)

    # A fault in the half precision arrays shows as it does in float32.
    forgery = Forgery(bundle)
    name = FORWARD.format("bfloat16/", "paddle")
    forgery.change_arrays(name, lambda arrays: arrays.update({key: a * np.float32(1.5) for key, a in arrays.items()}))
    assert verify_bundle(forgery.write(tmp_path / "forged.zip")).recomputed == "diverged"
