"""Planted training faults are caught by stage 06 alone, and named."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import twinalign
from lite_data import prepare as lite_data
from pipeline.twins import default_data
from tests.cases.training_faults import FAULTS
from tests.pooled import pooled_processes

pytestmark = pytest.mark.slow

CAUSES = {
    "decay_reaches_norms_and_biases": ("decay_on_one_dimensional", "scales of normalisation layers (with 0.1)"),
    "average_inverted": ("ema_inverted", "the other way round"),
    "augmentation_missing": ("step_missing", "blur"),
    "last_batch_kept": ("drop_last", "4 samples instead of 16 at step 4"),
    "warmup_missing": ("warmup_missing", "begins at 0.002, where the reference's rises from 0"),
    "batch_norm_momentum": ("training_batch_norm_momentum", "the other framework's convention"),
    "base_rate": ("training_rate", "0.25 times, as learning_rate shows"),
}


@pytest.fixture(scope="session")
def few_digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """68 digits to train on and 40 to validate with: four batches of 16, and four samples that fill none."""
    lite_data.prepare(default_data())
    folder = tmp_path_factory.mktemp("few")
    for split, count in (("train", 68), ("val", 40)):
        classes = sorted((default_data() / "digits" / split).iterdir())
        files = itertools.islice(itertools.chain(*zip(*(sorted(c.iterdir()) for c in classes), strict=False)), count)
        for file in files:
            target = folder / "digits" / split / file.parent.name / file.name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)
        (folder / "photos" / split).mkdir(parents=True)
    return folder


@pytest.fixture(scope="module", autouse=True)
def processes() -> Iterator[None]:
    with pooled_processes():
        yield


def run(fault: str, data: Path, out: Path) -> twinalign.runs.run_result.RunResult:  # type: ignore[name-defined]
    options = {"fault": fault, "data": str(data)}
    return twinalign.run("tests.cases.training_faults:FewSteps", stages=["train"], out=out, options=options)


@pytest.mark.parametrize("fault", FAULTS)
def test_stage_06_catches_and_names_it(fault: str, few_digits: Path, tmp_path: Path) -> None:
    result = run(fault, few_digits, tmp_path)
    assert result.verdict == "diverged"
    assert result.located is not None
    explanations = [found.explanation for found in result.located.faults if found.explanation is not None]
    assert [explanation.id for explanation in explanations] == [CAUSES[fault][0]], result.located.to_json()
    assert CAUSES[fault][1] in explanations[0].text
    if fault == "decay_reaches_norms_and_biases":
        training = result.stages["train"].training
        assert training is not None
        (first,) = training["first_to_part"]
        assert first["step"] == 1  # the first step's rate is 0
        assert set(first["parameters"]) == {name for name in first["parameters"] if not _is_matrix(name)}
        assert len(first["parameters"]) == 8  # biases are 0 as yet, and what decays them shows a step later


def _is_matrix(name: str) -> bool:
    return name.endswith(".weight") and not any(part in name for part in ("norm", "head.1", "head.4", "predictor.1"))


def test_without_a_fault_nothing_is_found(few_digits: Path, tmp_path: Path) -> None:
    result = run("", few_digits, tmp_path)
    assert (result.verdict, result.located) == ("aligned", None)
