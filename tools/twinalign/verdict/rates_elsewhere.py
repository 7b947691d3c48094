"""Learning rates that a port keeps in another place, such as the factor of a group inside of its `step()`.

An optimizer is judged by what it does: where all parameters agree after every step, it makes the same steps.
"""

import re
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from twinalign.files.curve_names import CURVE_PREFIX, LEARNING_RATE, WEIGHT_NORM
from twinalign.verdict.results import ALIGNED, DIVERGED, INCONCLUSIVE, Comparison, whole

_PLACE = re.compile(rf"^(step\d+\.|{re.escape(CURVE_PREFIX)})")
_PARAMETERS = ".parameter."
_SAME = 1e-6
"""Relative: of rates that a side keeps in float32."""


def factor_of_rates(reference: Sequence[float] | np.ndarray, port: Sequence[float] | np.ndarray) -> float | None:
    """What the port's rates are the reference's times, in every step; None where that is no one number but 1."""
    one, other = (np.asarray(rates, np.float64).ravel() for rates in (reference, port))
    told = np.flatnonzero(one)
    if one.shape != other.shape or not len(told) or not np.isfinite(other).all():
        return None
    factor = float(other[told[0]] / one[told[0]])
    is_one = np.abs(other - factor * one).max() <= _SAME * np.abs(other).max()
    return factor if factor and abs(factor - 1.0) > _SAME and is_one else None


def are_rates(names: Collection[str]) -> bool:
    """Whether there are curves or quantities, and all of them are learning rates."""
    return bool(names) and all(_PLACE.sub("", name).startswith(LEARNING_RATE) for name in names)


def excuse_rates(comparison: Comparison, reference: Mapping[str, np.ndarray], port: Mapping[str, np.ndarray]) -> None:
    """Call rates aligned that are one factor off in every step, where all else agrees and parameters are among it."""
    wrong = [one for one in comparison.tensors if one.verdict in (DIVERGED, INCONCLUSIVE) and one.accepted is None]
    seen = any(_PARAMETERS in one.name or WEIGHT_NORM in one.name for one in comparison.tensors)
    if not seen or not are_rates([one.name for one in wrong]):
        return
    both: dict[str, tuple[list[float], list[float]]] = {}
    for name in sorted(reference.keys() & port.keys()):
        if are_rates([name]):
            rates = both.setdefault(_PLACE.sub("", name), ([], []))
            for told, side in zip(rates, (reference, port), strict=True):
                told.extend(np.ravel(side[name]).tolist())
    factors = {name: factor_of_rates(*rates) for name, rates in both.items()}
    found = [factors.get(_PLACE.sub("", one.name).partition(" ")[0]) for one in wrong]
    if any(factor is None for factor in found):
        return
    for one, factor in zip(wrong, found, strict=True):
        one.verdict, one.fp64_rel, one.noise_ratio = ALIGNED, None, None
        one.reason = f"{factor:.6g} times the reference's in every step, while all parameters agree behind each"
    comparison.verdict = whole(comparison.tensors)
    comparison.notes.append(
        f"the port's learning rate is {found[0]:.6g} times the reference's, and all parameters agree after every step: "
        "the port has the rest of the rate elsewhere, such as inside of step(); it is judged by what it does"
    )
