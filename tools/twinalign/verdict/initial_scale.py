"""How far the deviations of two sides' initial values are apart, and which known factors that may be."""

import math
import re
from collections.abc import Iterable, Sequence

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


def fitting_factors(
    reference: np.ndarray, port: np.ndarray, shape: Sequence[int], name: str = "", names: Iterable[str] = ()
) -> list[str]:
    """In words, the known factors that the port's deviation may be of the reference's; of draws of one family.

    `shape`: of the tensor, in the reference's layout. `name` is its name, and `names` are those of all tensors: they
    say how many layers there are, and which one it stands in.
    """
    ratio, error = deviation_ratio(reference, port)
    factors = _factors(shape) | _factors_of_depth(name, names)
    return [text for text, factor in factors.items() if abs(math.log(ratio / factor)) <= _WITHIN * error]


def _factors_of_depth(name: str, names: Iterable[str]) -> dict[str, float]:
    """Factors by which deep networks scale what is added to the way through them."""
    found: dict[str, float] = {}
    for place in re.finditer(r"\.(\d+)\.", name):
        before, after = name[: place.start(1)], name[place.end(1) :]
        beside = {one[len(before) : -len(after)] for one in names if one.startswith(before) and one.endswith(after)}
        counted = {f"the number of its layers, {len(beside)}": len(beside)} if len(beside) > 1 else {}
        for text, count in {**counted, f"its layer's place, {int(place[1]) + 1}": int(place[1]) + 1}.items():
            for of, value in ((f"√(2 · {text})", 2.0 * count), (f"√({text})", float(count))):
                if value > 1.0 and value not in (2.0, 4.0):  # those are known by other names
                    found |= {of: math.sqrt(value), f"one over {of}": 1.0 / math.sqrt(value)}
    return found


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
