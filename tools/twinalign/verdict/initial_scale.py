"""How far the deviations of two sides' initial values are apart, and which known factors that may be."""

import math
from collections.abc import Sequence

import numpy as np

from twinalign.verdict.initializers import fans

_WITHIN = 4.0
"""Standard errors of the measured ratio: a factor that is farther from it does not fit."""
_GAINS = {
    "√2 (the gain of ReLU)": math.sqrt(2.0),
    "5/3 (the gain of tanh)": 5.0 / 3.0,
    "3/4 (the gain of SELU)": 0.75,
    "√(1/3) (the gain of leaky ReLU with a slope of √5, or a deviation taken for a bound)": math.sqrt(1.0 / 3.0),
}
"""Of `torch.nn.init.calculate_gain`."""


def deviation_ratio(reference: np.ndarray, port: np.ndarray) -> tuple[float, float]:
    """The port's standard deviation over the reference's, and the standard error of the ratio's logarithm."""
    variances, errors = [], []
    for values in (reference.astype(np.float64), port.astype(np.float64)):
        variance = float(values.var())
        tail = float(((values - values.mean()) ** 4).mean() / variance**2)
        variances.append(variance)
        errors.append((max(tail, 1.1) - 1.0) / values.size)
    return math.sqrt(variances[1] / variances[0]), math.sqrt(sum(errors)) / 2.0


def fitting_factors(reference: np.ndarray, port: np.ndarray, shape: Sequence[int]) -> list[str]:
    """In words, the known factors that the port's deviation may be of the reference's; of draws of one family.

    `shape`: of the tensor, in the reference's layout.
    """
    ratio, error = deviation_ratio(reference, port)
    return [text for text, factor in _factors(shape).items() if abs(math.log(ratio / factor)) <= _WITHIN * error]


def _factors(shape: Sequence[int]) -> dict[str, float]:
    found = {}
    if len(shape) > 1:
        fan_in, fan_out = fans(shape)
        sizes = {"fan_in": fan_in, "fan_out": fan_out, "the mean of both fans": (fan_in + fan_out) / 2.0}
        for wanted, size in sizes.items():
            for taken, other in sizes.items():
                if size != other:
                    found[f"the scale by {taken} in place of {wanted}"] = math.sqrt(size / other)
    for text, gain in _GAINS.items():
        found |= {text: gain, f"one over {text}": 1.0 / gain}
    return found | {"2": 2.0, "1/2": 0.5, "10": 10.0, "1/10": 0.1}
