"""What is gathered about rounding, against the same taken element by element."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from twinalign.verdict.noise import ZERO_SHARE, gather


def naive(r32: np.ndarray, p32: np.ndarray, r64: np.ndarray, p64: np.ndarray) -> dict[str, Any]:
    """The definition, one element after the other."""
    errors = [float(a) - float(b) for a, b in zip(r32, r64, strict=True) if math.isfinite(float(a) - float(b))]
    typical = math.sqrt(sum(e * e for e in errors) / len(errors)) if errors else 0.0
    groups: dict[str, dict[str, list[float]]] = {g: {} for g in ("zero", "ordinary")}
    mask, odd = [], 0
    for a, b, c, d in zip(r32.tolist(), p32.tolist(), r64.tolist(), p64.tolist(), strict=True):
        odd += not (math.isfinite(c) and math.isfinite(d)) and c != d and not (math.isnan(c) and math.isnan(d))
        finite = all(math.isfinite(value) for value in (a, b, c, d))
        limit = ZERO_SHARE * max(abs(a - c), typical) if finite else 0.0
        mask.append(finite and limit > 0 and abs(c) <= limit)
        if finite:
            group = groups["zero" if mask[-1] else "ordinary"]
            values = {"reference": a - c, "reproduced": b - c, "truth": c, "own": b - d, "high": d - c}
            for name, value in values.items():
                group.setdefault(name, []).append(value)
    return {"groups": groups, "mask": mask, "odd": odd}


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.sampled_from([1, 7, 300, 8192, 8193, 20000]),
    zeros=st.sampled_from(["none", "first", "many", "all"]),
    odd=st.lists(st.tuples(st.integers(0, 3), st.sampled_from([np.nan, np.inf, -np.inf])), max_size=3),
)
def test_groups_and_distances_are_those_of_the_definition(
    seed: int, size: int, zeros: str, odd: list[tuple[int, float]]
) -> None:
    rng = np.random.default_rng(seed)
    r64 = rng.standard_normal(size)
    p64 = r64 * (1 + 1e-14 * rng.standard_normal(size))
    where = {"none": slice(0, 0), "first": slice(0, 1), "many": rng.random(size) < 0.3, "all": slice(None)}[zeros]
    r64[where], p64[where] = 0.0, 1e-20
    r32, p32 = ((values + 1e-7 * rng.standard_normal(size)).astype(np.float32) for values in (r64, p64))
    for which, value in odd:
        (r32, p32, r64, p64)[which][rng.integers(size)] = value

    found, wanted = gather(r32, p32, r64, p64), naive(r32, p32, r64, p64)
    assert found.nonfinite_differ == wanted["odd"]
    assert (found.zero_mask is not None and found.zero_mask.tolist()) == (any(wanted["mask"]) and wanted["mask"])
    for name, lists in wanted["groups"].items():
        group = getattr(found, name)
        for kind in ("reference", "reproduced", "truth", "own", "high"):
            values, distance = lists.get(kind, []), getattr(group, kind)
            assert distance.count == len(values)
            assert math.isclose(distance.squares, math.fsum(v * v for v in values), rel_tol=1e-9, abs_tol=1e-300)
            assert distance.greatest == max((abs(v) for v in values), default=0.0)
