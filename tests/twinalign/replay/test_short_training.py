"""Trainings that end as soon as they have shown what they are made for."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from twinalign.causes.registry import known_causes
from twinalign.causes.training import mistakes
from twinalign.causes.training.subject import TrainingSubject
from twinalign.files.curve_names import GRADIENT_NORM, LEARNING_RATE, WEIGHT_NORM
from twinalign.replay import short_training
from twinalign.replay.changed_steps import StepChange
from twinalign.replay.short_training import EnoughError, Followed, PortTraining, RefutedError

NAME = f"{WEIGHT_NORM}fc.weight"
PORT = {NAME: np.array([1.0, 2.0, 3.0]), "loss": np.array([5.0, 4.0, 3.0])}
ALLOWED = {NAME: 0.1, "loss": 0.1}


def test_a_step_that_is_not_the_ports_ends_the_training_before_the_next_one_begins() -> None:
    followed = Followed(PORT, ALLOWED, None, None)
    followed.at_once({NAME: [1.05], GRADIENT_NORM: [9.0]})
    with pytest.raises(RefutedError):
        followed.at_once({NAME: [1.05, 2.2], GRADIENT_NORM: [9.0, 9.0]})


def test_what_the_loop_records_is_judged_once_it_is_there() -> None:
    followed = Followed(PORT, ALLOWED, None, None)
    followed.at_once({NAME: [1.0]})
    with pytest.raises(RefutedError):
        followed.on_step(1, {NAME: 1.0, "loss": 6.0})


def test_curves_are_judged_as_they_are_changed_in_the_end() -> None:
    followed = Followed(PORT, ALLOWED, lambda curves: {n: 2 * curve for n, curve in curves.items()}, None)
    followed.at_once({NAME: [0.5]})
    followed.on_step(1, {NAME: 0.5, "loss": 2.5})
    with pytest.raises(RefutedError):
        followed.on_step(2, {NAME: 1.0, "loss": 4.0})


def test_a_training_with_more_steps_than_the_port_is_refuted() -> None:
    followed = Followed({NAME: np.array([1.0])}, {NAME: 0.1}, None, None)
    followed.at_once({NAME: [1.0]})
    with pytest.raises(RefutedError):
        followed.at_once({NAME: [1.0, 2.0]})


def test_a_training_ends_with_the_value_that_is_asked_for() -> None:
    followed = Followed(PORT, {}, None, (NAME, 1))
    followed.at_once({NAME: [7.0]})
    with pytest.raises(EnoughError):
        followed.at_once({NAME: [7.0, 8.0]})
    assert followed.finished()[NAME].tolist() == [7.0, 8.0]


@pytest.fixture
def subject(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrainingSubject:
    """A training of three steps, the port's of two, which cannot run."""

    def train(*given: Any, **named: Any) -> Any:
        raise AssertionError("a training is made")

    monkeypatch.setattr(short_training, "train", train)
    curves = {side: tmp_path / f"{side}.npz" for side in ("ref", "port", "weights")}
    np.savez(curves["ref"], **{NAME: np.array([1.0, 2.0, 3.0]), GRADIENT_NORM: np.ones(3), "loss": np.ones(3)})
    np.savez(curves["port"], **{NAME: np.array([1.0, 2.5]), GRADIENT_NORM: np.ones(2), "loss": 2 * np.ones(3)})
    np.savez(curves["weights"], **{"fc.weight": np.ones((2, 2))})
    worker: Any = SimpleNamespace(backend=None, fresh_case=lambda stage: None)
    weights = {"path": str(curves["weights"])}
    return TrainingSubject(worker, weights, str(curves["ref"]), str(curves["port"]), {})


def test_what_only_changes_curves_makes_no_training(subject: TrainingSubject) -> None:
    with subject.variant("", finish=lambda curves: {"loss": 2 * curves["loss"]}).apply():
        assert subject.run()["loss"].tolist() == [2.0, 2.0, 2.0]


def test_a_wrong_number_of_steps_is_made_by_what_changes_it_alone(subject: TrainingSubject) -> None:
    subject.impatient = True
    with subject.variant("", change=StepChange(gradient=lambda moment: moment.gradient)).apply():
        assert subject.run() == {}
    with subject.variant("", around=lambda model: None).apply():
        assert subject.run() == {}

    def outermost(model: Any) -> None:
        """Leaves steps out."""

    outermost.outermost = True  # type: ignore[attr-defined]
    with subject.variant("", around=outermost).apply(), pytest.raises(AssertionError, match="a training is made"):
        subject.run()


def test_causes_that_cannot_be_why_are_not_tried(subject: TrainingSubject) -> None:
    causes = {cause.id: cause for cause in known_causes("train")}
    assert (subject.more_steps, subject.first) == (-1, np.inf)
    assert not list(causes["step_twice"].variants(subject))
    subject.more_steps = 1
    assert list(causes["step_twice"].variants(subject))
    assert list(causes["gradients_accumulate"].variants(subject))
    subject.first = 0.0  # gradients add up from the second step on
    assert not list(causes["gradients_accumulate"].variants(subject))


def test_no_rate_is_fitted_where_the_first_step_is_right(
    subject: TrainingSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another rate would be seen in it, unless the rate begins at zero."""
    fitted: list[str] = []

    def fitting(subject: TrainingSubject, make: Any, name: str) -> Any:
        fitted.append(name)
        return iter(())

    monkeypatch.setattr(mistakes, "_fitting", fitting)
    subject.wrong, subject.first = ["fc.weight"], 1.0
    for rate, wanted in ((0.1, []), (0.0, [NAME])):
        subject.reference[LEARNING_RATE] = np.full(3, rate)
        assert all("as loss shows" in variant.detail for variant in mistakes.training_rate(subject))
        assert fitted == wanted


def test_a_rate_alone_refutes_no_edit_of_a_training(tmp_path: Path) -> None:
    """The port keeps a part of its rate in its step: with the edit that mends it, its rate is what it was."""
    right = {"learning_rate": np.full(3, 0.5), "weight_norm.a": np.array([1.0, 0.9, 0.8])}
    moved = {f"moved.{name}": curve * (1 + 1e-12) for name, curve in right.items()}
    np.savez(tmp_path / "ref.npz", **right, **moved)
    mended = [False]

    def train(most: int, at_once: Any, on_step: Any = lambda step, values: None) -> Any:
        size = right["weight_norm.a"] * (1.0 if mended[0] else 0.5)
        curves = {"learning_rate": np.full(3, 1.0), "weight_norm.a": size}
        for step in range(1, most + 1):
            at_once({name: list(curve[:step]) for name, curve in curves.items()})
            on_step(step, {name: float(curve[step - 1]) for name, curve in curves.items()})
        return curves

    training = PortTraining(train, str(tmp_path / "ref.npz"), (), {"learning_rate": 0, "weight_norm.a": 0})
    assert training.wrong()
    mended[0] = True
    assert not training.wrong()
