"""Independent calls of a step have no order; another batch is another batch."""

from __future__ import annotations

import numpy as np
import pytest

from twinalign.verdict.call_order import part_in_other_order, port_in_order
from twinalign.verdict.training_comparison import compare_training

STEPS, CALLS = 6, 4
RMS = 1 + np.random.default_rng(0).random((STEPS, CALLS))
SIZES = np.tile([4.0, 4.0, 2.0, 2.0], (STEPS, 1))
LOSS = np.linspace(2, 1, STEPS)


def curves(rms: np.ndarray = RMS, sizes: np.ndarray = SIZES) -> dict[str, np.ndarray]:
    named = {"loss": LOSS, "batch_rms": rms.ravel(), "batch_size": sizes.ravel()}
    return {f"curve.{name}": curve for name, curve in named.items()}


def judged(port: dict[str, np.ndarray]) -> tuple[str, list[str]]:
    with_repeat = curves() | {f"repeat.{name}": curve for name, curve in curves().items()}
    found = compare_training(with_repeat, port, with_repeat, port)
    return found.verdict, found.notes


def test_independent_calls_of_a_step_have_no_order() -> None:
    order = [2, 0, 3, 1]
    verdict, notes = judged(curves(RMS[:, order], SIZES[:, order]))
    assert verdict == "aligned"
    assert notes == [
        "within a step the port calls its models in another order than the reference, on the same batches: batches are "
        "compared in the reference's order"
    ]


@pytest.mark.parametrize(
    "port",
    [curves(RMS[[1, 0, *range(2, STEPS)]]), curves(RMS * 1.01), curves(RMS[:, [2, 0, 3, 1]])],
    ids=["of other steps", "other batches", "of other sizes"],
)
def test_other_batches_are_a_divergence(port: dict[str, np.ndarray]) -> None:
    assert judged(port)[0] == "diverged"


def test_what_is_in_order_stays() -> None:
    assert port_in_order(curves(), curves(RMS * (1 + 1e-7)), "curve.") is None


@pytest.mark.parametrize(
    ("rms", "is_so"),
    [(RMS, False), (RMS * 1.01, False), (RMS[:, [0, 2, 1, 3]], True), (np.vstack([RMS[:2], RMS[2:] + 1]), False)],
    ids=["as it is", "others", "in another order", "others later"],
)
def test_calls_may_part_in_their_order_alone(rms: np.ndarray, is_so: bool) -> None:
    theirs, ours = (
        {name.removeprefix("curve."): one for name, one in some.items()} for some in (curves(), curves(rms))
    )
    assert part_in_other_order(theirs, ours) is is_so
