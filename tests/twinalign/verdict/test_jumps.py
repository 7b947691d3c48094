"""What a step (a quantisation, a threshold) makes of rounding, in the port and in the reference that is moved."""

from __future__ import annotations

import numpy as np

from twinalign.verdict.array_comparison import compare_arrays
from twinalign.verdict.results import TensorVerdict


def judged(port: np.ndarray, repeat: np.ndarray | None, exact: np.ndarray | None = None) -> TensorVerdict:
    """A reference of normal numbers that rounds by 1e-7, its float64, the port and the repeat of the reference."""
    low = reference().astype(np.float32)
    return compare_arrays(
        {"output": low},
        {"output": (reference() + port).astype(np.float32)},
        reference64={"output": reference()},
        reproduced64={"output": reference() if exact is None else exact},
        reference_repeat=None if repeat is None else {"output": (low + repeat).astype(np.float32)},
    ).tensors[0]


def reference() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((64, 32))


def crossing(row: int, size: float) -> np.ndarray:
    """What one value that crosses a step before a linear layer changes: a row."""
    change = np.zeros((64, 32))
    change[row] = size * np.random.default_rng(row + 1).standard_normal(32)
    return change


def test_what_the_moved_reference_does_too_is_a_step() -> None:
    found = judged(crossing(3, 1e-3), crossing(7, 1e-3))
    assert found.verdict == "rounding"
    assert found.reason.startswith("the float64 runs agree (0 relative); the reference itself changes by 0.00")
    assert "in float32 when last bits of its weights and inputs move, and the port's error is 0.00" in found.reason
    assert found.reason.endswith("a step, such as a quantisation or a threshold, lies between")


def test_without_such_a_jump_float32_alone_diverges() -> None:
    smooth = 1e-6 * np.random.default_rng(9).standard_normal((64, 32))
    for repeat in (None, np.zeros((64, 32)), smooth, crossing(7, 1e-5)):
        assert judged(crossing(3, 1e-3), repeat).verdict == "diverged"


def test_a_port_far_beyond_the_jump_diverges() -> None:
    everywhere = 1e-3 * np.random.default_rng(9).standard_normal((64, 32))
    assert judged(everywhere, crossing(7, 1e-3)).verdict == "diverged"


def test_a_change_as_smooth_as_rounding_excuses_nothing() -> None:
    port, repeat = (2e-6 * np.random.default_rng(seed).standard_normal((64, 32)) for seed in (8, 9))
    assert judged(port, repeat).verdict == "diverged"


def test_what_float64_shows_is_no_rounding() -> None:
    assert judged(crossing(3, 1e-3), crossing(7, 1e-3), reference() + crossing(3, 1e-3)).verdict == "diverged"
