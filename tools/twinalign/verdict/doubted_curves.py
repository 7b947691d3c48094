"""What other curves of a training say of one that departs."""

from collections.abc import Container, Sequence

from twinalign.files.curve_names import BUFFER_NORM, CURVE_PREFIX, WEIGHT_NORM
from twinalign.verdict.results import DIVERGED, INCONCLUSIVE, ROUNDING, TensorVerdict

OF_SINGLE_TENSORS = (CURVE_PREFIX + WEIGHT_NORM, CURVE_PREFIX + BUFFER_NORM)


def doubt_norms_alone(tensors: Sequence[TensorVerdict]) -> None:
    """If only norms of single tensors depart, a float64 run is needed to tell a fault from rounding.

    Rounding flips the sign of a gradient near zero, and an optimizer makes a full step of it: one repeat of the
    reference need not show that in the same tensor as the port.
    """
    wrong = [tensor for tensor in tensors if tensor.verdict == DIVERGED]
    if all(tensor.name.startswith(OF_SINGLE_TENSORS) for tensor in wrong):
        for tensor in wrong:
            tensor.verdict = INCONCLUSIVE
            tensor.reason += (
                "; rounding that flips the sign of a gradient near zero does this too, and no other curve departs: set "
                "float64_train_steps in the case to tell the two apart"
            )


def excuse_numbers(tensors: Sequence[TensorVerdict], agreeing: Container[str]) -> None:
    """Excuse numbers that are recorded once, behind the loop: rounding moves the weights that they are made of.

    A curve that departs by rounding shows how far. `agreeing`: what agrees in float64.
    """
    curves = (t for t in tensors if t.verdict == ROUNDING and not t.name.startswith(OF_SINGLE_TENSORS))
    moved = max((curve.max_rel or 0.0 for curve in curves), default=0.0)
    for tensor in tensors:
        is_once = tensor.shape == (1,) and tensor.name in agreeing
        if tensor.verdict == DIVERGED and is_once and tensor.max_rel is not None and tensor.max_rel <= moved:
            tensor.verdict = ROUNDING
            tensor.reason = f"the value differs by {tensor.max_rel:.2g}, and curves by up to {moved:.2g} by rounding"
