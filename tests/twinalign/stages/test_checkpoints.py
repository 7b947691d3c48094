"""Trainings that were stopped go on: the place of checkpoints, and a run that dies on both sides."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import twinalign
from tests.conftest import ROOT
from twinalign.errors import InputError, SideCrashError
from twinalign.files.freshness import hash_paths
from twinalign.files.recordings import Recording
from twinalign.stages import train
from twinalign.stages.checkpoints import CheckpointPlace, TrainingRecord

pytestmark = pytest.mark.usefixtures("kept_processes")

CASE = f"{ROOT / 'tests' / 'twinalign' / 'search' / 'training_case.py'}:Training"


def place_of(folder: Path, weights: str = "w") -> CheckpointPlace:
    code = folder / "code.py"
    if not code.exists():
        code.write_text("pass")

    def made_by() -> Mapping[str, Any]:
        return {"identity": {"case": "c"}, "code_sha256": hash_paths([code]), "weights_sha256": weights}

    return CheckpointPlace(folder / "run" / "train.checkpoint", made_by)


def kept(place: CheckpointPlace, text: str = "state") -> None:
    record = TrainingRecord(place)
    record("loss", 3.0)
    record("loss", 2.0)
    record.beside(lambda: {"gradient_norm": [0.5]}, lambda curves: None)
    record.checkpoint(lambda path: path.write_text(text))


def test_state_and_curves_come_back(tmp_path: Path) -> None:
    kept(place_of(tmp_path))
    record = TrainingRecord(place_of(tmp_path))
    taken: dict[str, Any] = {}
    record.beside(dict, taken.update)
    path = record.resume()
    assert path is not None
    assert path.read_text() == "state"
    assert record.told == {"loss": [3.0, 2.0]}
    assert taken == {"gradient_norm": [0.5]}
    place_of(tmp_path).remove()
    assert list((tmp_path / "run").iterdir()) == []


def test_nothing_is_continued_that_other_code_or_weights_have_begun(tmp_path: Path) -> None:
    kept(place_of(tmp_path))
    assert TrainingRecord(place_of(tmp_path, "others")).resume() is None
    (tmp_path / "code.py").write_text("pass  # changed")
    assert TrainingRecord(place_of(tmp_path)).resume() is None
    assert TrainingRecord(None).resume() is None


def test_a_save_that_fails_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    place = place_of(tmp_path)
    kept(place, "first")

    def save(path: Path) -> None:
        path.write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        TrainingRecord(place).checkpoint(save)
    path = TrainingRecord(place).resume()
    assert path is not None
    assert path.read_text() == "first"
    # Killed between the two renames: the one before has the other name.
    place.folder.rename(place.folder.with_name("train.checkpoint.old"))
    path = TrainingRecord(place).resume()
    assert path is not None
    assert path.read_text() == "first"


@pytest.mark.slow
def test_a_run_that_died_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    def run(out: str, stop: str) -> Any:
        options = {"stop": str(tmp_path / stop)}
        return twinalign.run(
            CASE, stages=["train"], out=tmp_path / out, options=options, precision="float32", locate=False
        )

    with pytest.raises(SideCrashError, match="stopped"):
        run("stopped", "a")
    for framework in ("torch", "paddle"):
        (tmp_path / f"a.{framework}").touch()  # where one side's death ended the other before it came to die
    result = run("stopped", "a")
    for framework in ("torch", "paddle"):
        (tmp_path / f"b.{framework}").touch()  # this one never stops
    whole = run("whole", "b")
    assert (result.verdict, whole.verdict) == ("aligned", "aligned")
    for side in ("ref", "paddle"):
        first, second = (Recording.load(tmp_path / out / f"train_{side}.npy") for out in ("stopped", "whole"))
        assert first.arrays.keys() == second.arrays.keys()
        for name, array in second.arrays.items():
            np.testing.assert_array_equal(first.arrays[name], array, err_msg=name)
        assert len(first.metadata["step_seconds"]) == 5
    assert not list((tmp_path / "stopped").glob("*.checkpoint*"))


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        (0, 1.5, "record(0, …): the name of a curve comes first; "),
        ("loss", {"loss": 1.5}, "record('loss', dict): the value must be one number; "),
        ("loss", np.zeros(2), "record('loss', ndarray): the value must be one number; "),
    ],
)
def test_another_call_of_record_is_told_from_the_right_one(name: Any, value: Any, said: str) -> None:
    with pytest.raises(InputError) as caught:
        TrainingRecord()(name, value)
    assert str(caught.value) == f'{said}call record("loss", float(loss)) once a step'


@pytest.mark.parametrize("outcome", [0.5, (1, 2, 3), "good", None])
def test_an_outcome_is_an_accuracy_with_its_number_of_samples(outcome: Any) -> None:
    assert train._outcome("net", "top1", (70.5, 100)).tolist() == [70.5, 100]
    with pytest.raises(InputError) as caught:
        train._outcome("net", "top1", outcome)
    assert str(caught.value) == (
        f"case net: train returned 'top1' = {outcome!r}; an outcome is (percent, samples), an accuracy and its number "
        "of samples; any other number is told by record('top1', value)"
    )
