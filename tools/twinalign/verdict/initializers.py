"""Known ways to initialise a parameter, and which of them a tensor's values fit.

Fans are those of torch.nn.init and paddle.nn.initializer: `in * kernel` and `out * kernel` of a weight
[out, in, *kernel].
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

_POINTS, _APART = 512, 16
_P_OF_A_FIT = 1e-4
"""A right initialiser is refused once in so many tensors; it then goes without a name, and no verdict depends on it."""
_WRITABLE_DIGITS = 3
_UNCUT = 1.0 / 0.8796256610342398
"""Deviation of a normal distribution over its deviation once it is truncated at two of its own."""
_MOST_OTHERS, _MOST_PARTS = 2, 4
_CLEARLY = math.log(1e6)
"""Logarithm of how much less likely a right initialiser makes the values than a wrong one, once in so many tensors."""
_UNLIKELIER = 30.0
"""How much less likely a number is to be written with one more digit."""


@dataclasses.dataclass(frozen=True)
class Initializer:
    """A distribution with all its numbers, and how it is written."""

    name: str
    """In the field's words, as `Xavier uniform`."""
    family: str
    """`normal`, `truncated normal` or `uniform`."""
    scale: float
    """Standard deviation of a normal distribution before it is truncated; the bound of a uniform one."""
    written: str
    """The call in paddle that gives it."""
    cut: float = math.inf
    """Absolute bound of a truncated normal distribution."""
    mean: float = 0.0
    digits: int = 0
    """How many digits its number has, where it follows from no shape: with more of them any sample can be met."""

    def written_for(self, shape: Sequence[int], own_shape: Sequence[int]) -> str:
        """The call for a weight of this shape in torch's layout that the port has in a shape of its own.

        paddle takes the fans of a matrix from its layout [in, out]: where these are not the weight's, numbers tell.
        """
        own = fans(own_shape if len(own_shape) != 2 else own_shape[::-1])
        same = own == fans(shape) if self.name.startswith("Kaiming") else sum(own) == sum(fans(shape))
        if same or not self.name.startswith(("Kaiming", "Xavier")) or self.written.startswith("Uniform"):
            return self.written
        return (
            f"Uniform(-{self.scale:.6g}, {self.scale:.6g})"
            if self.family == "uniform"
            else f"Normal(0.0, {self.scale:.6g})"
        )

    def cumulative(self, values: np.ndarray) -> np.ndarray:
        """Probability of at most each value."""
        centred = (values - self.mean) / self.scale
        if self.family == "uniform":
            return np.clip((centred + 1.0) / 2.0, 0.0, 1.0)
        below = _normal_cumulative(centred)
        if math.isinf(self.cut):
            return below
        ends = _normal_cumulative(np.array([-self.cut / self.scale, self.cut / self.scale]))
        return np.clip((below - ends[0]) / (ends[1] - ends[0]), 0.0, 1.0)

    def likelihood(self, values: np.ndarray) -> float:
        """Logarithm of the values' density."""
        centred = (values - self.mean) / self.scale
        if self.family == "uniform":
            return -values.size * math.log(2.0 * self.scale)
        within = 1.0 if math.isinf(self.cut) else math.erf(self.cut / self.scale / math.sqrt(2.0))
        density = -0.5 * float(np.square(centred).sum())
        return density - values.size * math.log(self.scale * math.sqrt(2.0 * math.pi) * within)


def fans(shape: Sequence[int]) -> tuple[int, int]:
    """(fan in, fan out) of a weight in torch's layout; a vector counts as one of each element."""
    if len(shape) < 2:
        return max(math.prod(shape), 1), max(math.prod(shape), 1)
    kernel = math.prod(shape[2:])
    return max(shape[1] * kernel, 1), max(shape[0] * kernel, 1)


def fitting(draws: np.ndarray, shape: Sequence[int], weight_shape: Sequence[int] | None = None) -> list[Initializer]:
    """The known initialisers that the values may come from, the likeliest first.

    Args:
        draws: values of all seeds, any shape.
        shape: of the whole tensor, in the reference's layout.
        weight_shape: of the weight beside it in the same layer, whose fan in bounds torch's biases.
    """
    values = np.sort(draws, axis=None).astype(np.float64)
    chances = [(_chance(values, one), one) for one in _candidates(values, shape, weight_shape)]
    chances = [(chance, one) for chance, one in chances if chance > _P_OF_A_FIT]
    likely = {id(one): one.likelihood(values) for _, one in chances}
    least = max(likely.values(), default=0.0) - _CLEARLY
    fits = [(chance / _UNLIKELIER**one.digits, one) for chance, one in chances if likely[id(one)] >= least]
    # Two of one scale, such as fan out and twice the fan in, differ in the last bits: the first is the commoner.
    return [one for _, one in sorted(fits, key=lambda pair: -round(pair[0], 6))]


def described(draws: np.ndarray, found: Sequence[Initializer]) -> str:
    """What the values look like: the likeliest known initialiser and others that fit, else their mean and deviation.

    A number that is written with more digits fits any sample, and is not said beside what fits without.
    """
    if found:
        first, *others = dict.fromkeys(one.name for one in found if one.digits <= max(found[0].digits, 1))
        shown = others[:_MOST_OTHERS]
        return f"{first} ({' and '.join(shown)} {'fit' if shown[1:] else 'fits'} as well)" if shown else first
    low, high = float(draws.min()), float(draws.max())
    return f"mean {draws.mean():.3g}, deviation {draws.std():.3g}, from {low:.3g} to {high:.3g}"


def families_of(draws: np.ndarray) -> set[str]:
    """The families whose shape the values may have, whatever their numbers."""
    values = np.sort(draws, axis=None).astype(np.float64)
    values -= values.mean()
    deviation, reach = float(values.std()), float(np.abs(values).max())
    uncut = _UNCUT * deviation
    candidates = [
        Initializer("", "normal", deviation, ""),
        Initializer("", "uniform", reach * (1.0 + 1.0 / values.size), ""),
        Initializer("", "truncated normal", uncut, "", max(2.0 * uncut, reach)),
    ]
    return {one.family for one in candidates if _chance(values, one) > _P_OF_A_FIT}


def _candidates(values: np.ndarray, shape: Sequence[int], weight_shape: Sequence[int] | None) -> Iterator[Initializer]:
    deviation = float(values.std())
    near = [
        one for one in _by_fans(shape, weight_shape) if _deviation(one) and 0.8 < deviation / _deviation(one) < 1.25
    ]
    yield from near
    mean = float(values.mean())
    centre = 0.0 if abs(mean) < 6.0 * deviation / math.sqrt(values.size) else float(f"{mean:.2g}")
    for digits in range(1, _WRITABLE_DIGITS + 1):
        std, uncut, bound = (float(f"{deviation * factor:.{digits}g}") for factor in (1.0, _UNCUT, math.sqrt(3.0)))
        called, name = f"Normal({centre:g}, {std:g})", f"normal, deviation {std:g}"
        name += f", mean {centre:g}" if centre else ""
        yield Initializer(name, "normal", std, called, mean=centre, digits=digits)
        low, high = f"{centre - bound:g}", f"{centre + bound:g}"
        name = f"uniform from {low} to {high}" if centre else f"uniform within ±{bound:g}"
        yield Initializer(name, "uniform", bound, f"Uniform({low}, {high})", mean=centre, digits=digits)
        called = f"TruncatedNormal({centre:g}, {uncut:g}, a={centre - 2 * uncut:g}, b={centre + 2 * uncut:g})"
        name = f"normal, deviation {uncut:g}, truncated at 2 deviations"
        yield Initializer(name, "truncated normal", uncut, called, 2.0 * uncut, centre, digits)


def _by_fans(shape: Sequence[int], weight_shape: Sequence[int] | None) -> Iterator[Initializer]:
    if len(shape) < 2 and weight_shape is not None and len(weight_shape) > 1:
        fan_in = fans(weight_shape)[0]
        bound = 1.0 / math.sqrt(fan_in)
        yield Initializer("uniform within ±1/√fan_in", "uniform", bound, f"Uniform({-bound:.6g}, {bound:.6g})")
    if len(shape) < 2:
        return
    by_fan = list(zip(fans(shape), ("fan_in", "fan_out"), ("", "mode='fan_out'"), strict=True))
    for fan, of, mode in by_fan:
        bound, more = 1.0 / math.sqrt(fan), f", {mode}" if mode else ""
        leaky = f"KaimingUniform(negative_slope=5**0.5, nonlinearity='leaky_relu'{more})"
        yield Initializer(f"Kaiming uniform(a=√5) by {of}", "uniform", bound, leaky)
        yield Initializer(f"Kaiming uniform by {of}", "uniform", math.sqrt(6.0) * bound, f"KaimingUniform({mode})")
        yield Initializer(f"Kaiming normal by {of}", "normal", math.sqrt(2.0) * bound, f"KaimingNormal({mode})")
    both = sum(fans(shape))
    yield Initializer("Xavier uniform", "uniform", math.sqrt(6.0 / both), "XavierUniform()")
    yield Initializer("Xavier normal", "normal", math.sqrt(2.0 / both), "XavierNormal()")
    if len(shape) > 2:  # a convolution that stands for a matrix, as of patches
        flat = sum(fans((shape[0], math.prod(shape[1:]))))
        bound, deviation, of = math.sqrt(6.0 / flat), math.sqrt(2.0 / flat), "of the weight as one matrix"
        yield Initializer(f"Xavier uniform {of}", "uniform", bound, f"Uniform({-bound:.6g}, {bound:.6g})")
        yield Initializer(f"Xavier normal {of}", "normal", deviation, f"Normal(0.0, {deviation:.6g})")
    parts = shape[0] // shape[1] if len(shape) == 2 and shape[0] % shape[1] == 0 else 1
    if 2 <= parts <= _MOST_PARTS:  # queries, keys and values in one tensor, or the gates of a recurrent layer
        bound = math.sqrt(3.0 / shape[1])
        name = f"Xavier uniform of each of {parts} stacked parts"
        yield Initializer(name, "uniform", bound, f"Uniform({-bound:.6g}, {bound:.6g})")
    for fan, of, _ in by_fan:
        yield Initializer(f"LeCun normal by {of}", "normal", fan**-0.5, f"Normal(0.0, {fan**-0.5:.6g})")


def _deviation(one: Initializer) -> float:
    return one.scale / math.sqrt(3.0) if one.family == "uniform" else one.scale


def _chance(values: np.ndarray, one: Initializer) -> float:
    """Kolmogorov-Smirnov's test of sorted values against a distribution, at evenly spaced ranks."""
    every = np.unique(np.linspace(0, values.size - 1, min(values.size, _POINTS)).astype(int))
    bound = one.scale if one.family == "uniform" else one.cut
    reach = max(values[-1] - one.mean, one.mean - values[0]) / bound
    if reach > 1.0 + 1e-6:
        return 0.0
    chance = 1.0
    for ranks in (every[::_APART], every):  # few tell most distributions that do not fit
        distance = float(np.abs(one.cumulative(values[ranks]) - (ranks + 0.5) / values.size).max())
        chance = kolmogorov(distance * math.sqrt(values.size))
        if chance <= _P_OF_A_FIT:
            return 0.0
    # The largest of n values lies within a fraction 1/n of the bound, which tells bounds apart that deviations do not.
    within = min(reach, 1.0) ** values.size if one.family == "uniform" else 1.0
    return chance * within


def kolmogorov(statistic: float) -> float:
    """Upper bound of the probability that Kolmogorov's statistic is at least this (its series' first term)."""
    return min(1.0, 2.0 * math.exp(-2.0 * statistic * statistic))


_normal_cumulative: Callable[[np.ndarray], np.ndarray] = np.vectorize(
    lambda value: 0.5 * math.erfc(-value / math.sqrt(2.0)), otypes=[float]
)
