"""Wrong optimizers and schedules are located and explained; right ones are no alarm, and unknown faults stay so."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import optimizer_faults  # noqa: E402
from optimizer_case import SHAPES  # noqa: E402

from twinalign.search.components import ComponentContext  # noqa: E402
from twinalign.search.faults import Fault  # noqa: E402
from twinalign.search.optimizer import _course, locate_optimizer  # noqa: E402

CASE = f"{HERE / 'optimizer_case.py'}:Steps"
TRANSPOSED = ("first.weight", "second.weight", "third.weight")


@pytest.fixture
def context(folder: Path) -> dict[str, Any]:
    """Weights and gradients of the small model, laid out for both frameworks by hand."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal(shape) * 0.3 for name, shape in SHAPES.items()}
    np.savez(folder / "ref.npz", **weights)
    np.savez(folder / "paddle.npz", **{n: w.T if n in TRANSPOSED else w for n, w in weights.items()})
    np.savez(folder / "gradients.npz", **{n: 0.3 * rng.standard_normal(shape) ** 3 for n, shape in SHAPES.items()})
    given = {
        "ref": {"path": str(folder / "ref.npz")},
        "paddle": {"path": str(folder / "paddle.npz"), "canonical": {n: [[n, n in TRANSPOSED]] for n in SHAPES}},
    }
    return {"folder": folder, "weights": {"backward": given}, "gradients": folder / "gradients.npz"}


@pytest.fixture
def found(processes: Any, context: dict[str, Any]) -> Any:
    def locate(kind: str, fault: str, scheduled: bool = False) -> list[Fault]:
        options = {"kind": kind, "fault": fault, "scheduled": "yes" if scheduled else ""}
        return locate_optimizer(ComponentContext(processes(CASE, options), stages=("forward", "backward"), **context))

    return locate


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "fault"), [key for key in optimizer_faults.FAULTS if key[1] != "unknown"])
def test_a_wrong_optimizer_is_explained(found: Any, kind: str, fault: str) -> None:
    # Some faults show only, or as such, where the rate moves.
    moving = ("decay_without_rate", "rate_inside_momentum", "rate_twice", "epsilon_inside_root and rate")
    faults = found(kind, fault, scheduled=fault.startswith(moving))
    assert [f.reference_layer for f in faults] == ["optimizer"]
    assert faults[0].explanation is not None, faults[0].evidence
    assert faults[0].explanation.id == fault.split()[0], faults[0].explanation


def test_a_parameter_without_a_gradient_hides_no_cause(found: Any, context: dict[str, Any]) -> None:
    with np.load(context["gradients"]) as stored:
        kept = {name: stored[name] for name in stored if name != "pos_embed"}
    np.savez(context["gradients"], **kept)
    (fault,) = found("rmsprop", "epsilon_inside_root")
    assert fault.explanation is not None
    assert fault.explanation.id == "epsilon_inside_root"


@pytest.mark.parametrize("kind", optimizer_faults.CLEAN)
def test_a_right_optimizer_is_no_alarm(found: Any, kind: str) -> None:
    assert found(kind, "") == []


@pytest.mark.slow
def test_an_optimizer_that_no_cause_makes_is_unexplained(found: Any) -> None:
    (fault,) = found("adamw", "unknown")
    assert fault.explanation is None
    assert fault.evidence["parameters_wrong"] == len(SHAPES)


def test_the_parameters_that_lack_decay_are_named(found: Any) -> None:
    (fault,) = found("adamw", "decay_missing_on_bias")
    assert sorted(fault.evidence["parameters"]) == ["first.bias", "norm.bias"]
    assert fault.evidence["first_step"] == 0


@pytest.mark.parametrize("fault", [name for name in optimizer_faults.SCHEDULES if not name.startswith("unknown")])
def test_a_wrong_schedule_is_explained_and_not_the_optimizer(found: Any, fault: str) -> None:
    faults = found("adamw", fault, scheduled=True)
    assert [f.reference_layer for f in faults] == ["schedule"]
    assert faults[0].explanation is not None, faults[0].evidence
    assert faults[0].explanation.id == fault.split()[0], faults[0].explanation


def test_a_right_schedule_is_no_alarm(found: Any) -> None:
    assert found("adamw", "", scheduled=True) == []


def test_a_schedule_that_no_cause_makes_is_unexplained(found: Any) -> None:
    (fault,) = found("adamw", "unknown schedule", scheduled=True)
    assert fault.explanation is None
    assert fault.evidence["values"]["learning_rate"]["first_step"] == 1


def test_optimizer_and_schedule_are_told_apart_when_both_are_wrong(found: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(optimizer_faults.SCHEDULES, "decay_missing", optimizer_faults.SCHEDULES["schedule_factor"])
    faults = found("adamw", "decay_missing", scheduled=True)
    assert [(f.reference_layer, f.explanation.id) for f in faults] == [
        ("schedule", "schedule_factor"),
        ("optimizer", "decay_missing"),
    ]


def test_values_that_move_alike_are_one_fault() -> None:
    reference, port = [0.1, 0.2, 0.15], [0.1, 0.2, 0.1]
    larger = [[10.0 * value for value in side] for side in (reference, port)]
    assert _course(reference, port) == _course(*larger)
    assert _course(reference, port) != _course(reference, [0.1, 0.2, 0.11])
    assert _course(reference, port) != _course(reference, [10.0 * value for value in port])
    assert _course(reference, None) != _course(None, reference)
