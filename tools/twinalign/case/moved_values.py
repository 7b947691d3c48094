"""Change values by as little as two frameworks may differ: the effect is the measure of rounding."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from twinalign.sides import HALVES

_HALF_CHANGE = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
OF_FLOAT32 = 1e-6
"""Relative difference that rounding to float32 here and there makes of the same values: of a batch, say."""
FLOAT64_CHANGE = 1e-10
"""Relative change of the weights of a float64 training that is repeated."""

_PERIOD = 1021
_UNITS = 4
"""Units in the last place by which tables computed by one formula, or what a few operations have made, may differ."""


def moved_arrays(
    arrays: Iterable[tuple[str, np.ndarray]], dtype: str, constants: bool = False
) -> Iterator[tuple[str, np.ndarray]]:
    """Name and array, floating-point ones changed by one unit in the last place of `dtype`.

    With `constants`, those in float64 are changed by 10^-10, the effect of a normalisation's epsilon stored in float32.
    """
    for name, array in arrays:
        if array.dtype.kind != "f":
            yield name, array
        elif constants and dtype == "float64":
            yield name, array * (1 + FLOAT64_CHANGE)
        elif dtype in HALVES:  # held in float32 here
            yield name, (array * (1 + _HALF_CHANGE[dtype])).astype(array.dtype)
        else:  # inputs are float32 in a float64 run too
            finest = array.astype(np.float64) if dtype == "float64" else array
            yield name, np.nextafter(finest, np.array(np.inf, dtype=finest.dtype))


def moved_at_random(arrays: Mapping[str, np.ndarray], draw: int, units: int = 1) -> dict[str, np.ndarray]:
    """The arrays, each floating-point element changed up or down by so many units in the last place, by a seed."""
    random = np.random.RandomState(draw)
    moved = {}
    for name, array in arrays.items():
        moved[name] = array
        if array.dtype.kind == "f":
            towards = np.where(random.randint(0, 2, array.shape, dtype=np.int8), np.inf, -np.inf)
            for _ in range(units):
                moved[name] = np.nextafter(moved[name], towards.astype(array.dtype))
    return moved


def moved_values(arrays: Mapping[str, np.ndarray], dtype: str, repeat: int) -> dict[str, np.ndarray]:
    """What repeat number `repeat` starts from: the first is one unit up, the others four units up or down at random."""
    return dict(moved_arrays(arrays.items(), dtype)) if repeat == 1 else moved_at_random(arrays, repeat, _UNITS)


def scaled_by_pattern(array: np.ndarray, number: int) -> np.ndarray:
    """The array itself, in float64, for 0, and for other numbers with every element scaled by 0 to 1.5.

    The scaling depends on the layout, which must be the reference's. Elements of a gradient that almost vanish show
    what only a falling second moment does.
    """
    array = array.astype(np.float64)
    if number == 0:
        return array
    pattern = 0.75 + 0.75 * np.sin(np.arange(_PERIOD) * 2.399963 + number)
    return np.asarray(array * np.resize(pattern, array.shape))  # numpy makes a scalar of a single number


def whole_numbers_kept(moved: Mapping[str, np.ndarray], arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Moved inputs with each whole number as it was: a label, a mask or a count, exact in every framework.

    Nothing but 0 to 1 may enter a binary cross-entropy as a target.
    """
    kept = dict(moved)
    for name, array in arrays.items():
        if array.dtype.kind == "f":
            kept[name] = np.where(array == np.rint(array), array.astype(kept[name].dtype), kept[name])
    return kept


def rounding_of_table(values: np.ndarray, shape: Sequence[int]) -> float:
    """By how much elements of a table may differ that one formula has made in float32.

    An angle or another argument that grows up to a table's length in places is rounded by so many units itself.
    """
    units = max(_UNITS, *shape) if shape else _UNITS
    return units * float(np.finfo(np.float32).eps) * float(np.abs(values).max(initial=0.0))
