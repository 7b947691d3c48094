"""Differences that random draws explain: dropout in training mode takes other elements in each framework.

The reference is recorded once more with another seed, which shows what its draws alone change; docs/verdict.md, "Random
draws".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from twinalign.verdict.results import DIVERGED, INCONCLUSIVE, TensorVerdict

BASIS = "draws"
MOST = 1000.0
"""A difference is set aside up to this many times what other draws change: of a single number, one draw in a thousand
changes so much less than another."""


def draws_of(reference: Mapping[str, Any], reproduced: Mapping[str, Any]) -> tuple[dict[str, float], list[str]]:
    """What draws change, by name, and what is to be said of them, from the metadata of a recording of each side.

    Nothing is explained by draws where the port makes none.
    """
    changes = {str(name): float(change) for name, change in (reference.get("changed_by_draws") or {}).items()}
    if changes and reproduced.get("draws") is False:
        return {}, ["the reference draws random numbers here (dropout in training mode?), and the port draws none"]
    return changes, []


def set_aside_draws(tensors: Iterable[TensorVerdict], changes: Mapping[str, float]) -> None:
    """Make inconclusive what diverged in numbers by no more than `MOST` times the change that other draws make.

    Args:
        tensors: judged.
        changes: Name -> root mean square of what another seed changes in the reference, absolute.
    """
    for tensor in tensors:
        change = changes.get(tensor.name, 0.0)
        if tensor.verdict != DIVERGED or tensor.basis == "structure" or tensor.rms_abs is None:
            continue
        if 0.0 < tensor.rms_abs <= MOST * change:
            tensor.verdict, tensor.basis = INCONCLUSIVE, BASIS
            tensor.reason = (
                f"drawn at random: another seed changes the reference itself by {change:.2g} (RMS), and the port "
                f"differs by {tensor.rms_abs:.2g}"
            )
