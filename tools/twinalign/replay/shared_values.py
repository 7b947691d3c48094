"""Which values of the port's code the reference computes as well, recognised by their prints."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from twinalign.replay.code_lines import Print

_SAME = 1e-9
"""Two float64 computations from the same inputs agree to this share of the greatest value."""
_WORD = re.compile(r"[A-Za-z_]\w*")


def narrowed_down(
    steps: Sequence[Mapping[str, Any]], results: Sequence[Print], given: Sequence[Print] = ()
) -> dict[str, Any] | None:
    """The first step whose values are not among `results`, and the last step before it whose values are, if any.

    A step counts only if a result has its shape, because another layout is no fault; nor is the same order of values
    in another shape, nor what only the port computes on the way to values that both sides have. What layers return is
    `given`, whatever the code has handed to them.
    """
    shapes = {tuple(shape) for shape, _ in results}
    known, handed = _are_among(steps, results), _are_among(steps, given)
    computed = [one and not other for one, other in zip(known, handed, strict=True)]
    seen: list[Mapping[str, Any]] = []
    for at, step in enumerate(steps):
        if known[at]:
            seen.append(step)
        elif tuple(step["print"][0]) in shapes and not leads_to_known(steps[at:], computed[at:]):
            unknown = _shown(step)  # which another part of what the line returns, or an earlier call, may not be
            before = [shown for one in seen if (shown := _shown(one)) != unknown]
            return {"unknown": unknown, "known": before[-1] if before else None}
    return None


def _are_among(steps: Sequence[Mapping[str, Any]], results: Sequence[Print]) -> list[bool]:
    """Whether the values of each step are among the results, in any shape."""
    samples: dict[int, list[np.ndarray]] = {}
    for shape, sample in results:
        samples.setdefault(math.prod(shape), []).append(np.array(sample))
    prints = [step["print"] for step in steps]
    return [
        any(_is_same(np.array(sample), theirs) for theirs in samples.get(math.prod(shape), []))
        for shape, sample in prints
    ]


def leads_to_known(steps: Sequence[Mapping[str, Any]], known: Sequence[bool]) -> bool:
    """Whether values that both sides compute come of the first step's, by the names that the lines read."""
    names, returned = {steps[0]["name"]} - {""}, not steps[0]["name"]
    for step, is_known in zip(steps[1:], known[1:], strict=True):
        reads = returned or not names.isdisjoint(_WORD.findall(step["source"].partition("=")[2] or step["source"]))
        if reads and is_known:
            return True
        returned = reads and not step["name"]
        if step["name"]:
            names = names | {step["name"]} if reads else names - {step["name"]}
    return False


def same_as_one_of(found: Print, known: Sequence[Print]) -> bool:
    """Whether some of the prints is one of the same values."""
    shape, sample = found
    alike = [other for of, other in known if tuple(of) == shape and len(other) == len(sample)]
    if not alike or not sample:
        return bool(alike)
    ours = np.array(sample)
    largest = np.abs(ours).max()
    # Most differ in the first number already, which takes no time to see.
    return any(abs(sample[0] - one[0]) <= 2 * _SAME * largest and _is_same(ours, np.array(one)) for one in alike)


def _is_same(ours: np.ndarray, theirs: np.ndarray) -> bool:
    if ours.shape != theirs.shape:  # complex values have two numbers each
        return False
    scale = max(np.abs(ours).max(initial=0.0), np.abs(theirs).max(initial=0.0))
    return bool(np.abs(ours - theirs).max(initial=0.0) <= _SAME * scale)


def _shown(step: Mapping[str, Any]) -> dict[str, Any]:
    return {name: step[name] for name in ("name", "file", "line", "source")}
