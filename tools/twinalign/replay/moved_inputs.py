"""Other inputs of a unit, on which what is proven on the recorded ones is tried again."""

import numpy as np

from twinalign.replay.case_run import is_whole

_OTHER_INPUTS = 0.1
"""From this relative size on noise makes other inputs, on which two changes are told apart."""


def noisy(array: np.ndarray, size: float, generator: np.random.Generator, whole: bool = False) -> np.ndarray:
    """An array of floating point moved by noise of a relative size, any other as it is.

    Several numbers that are all whole have no rounding: a mask, lengths and positions that are kept as floating point
    stay, since code compares and truncates them, unless `whole` numbers are to be moved as well. Where the noise makes
    other inputs, they are drawn anew from their own values, and integers and flags are, too. Fractions, from 0 to 1,
    stay fractions: code takes probabilities' logarithms, and looks for draws between the steps of a distribution.
    """
    if not size:
        return array
    if array.size > 1 and not whole and (array.dtype.kind in "iub" or is_whole(array)):
        if size < _OTHER_INPUTS:
            return array
        if len(values := np.unique(array)) > 1:
            return generator.choice(values, array.shape)
    if array.dtype.kind != "f":
        return array
    moved = array * (1 + size * generator.standard_normal(array.shape))
    is_fraction = array.size > 1 and array.min() >= 0.0 and array.max() <= 1.0
    return np.abs((moved + 1.0) % 2.0 - 1.0) if is_fraction else moved
