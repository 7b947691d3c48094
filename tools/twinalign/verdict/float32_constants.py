"""Which of paddle's own layers keep a constant in float32, and what that is allowed to do in float64."""

from __future__ import annotations

from collections.abc import Iterable

from twinalign.verdict.allowances import ALWAYS, KNOWN_ALLOWANCES

# Parts of the names of paddle's own layer classes, and the allowance for each. A subclass in the port may have closed
# the gap and gets none.
_LAYERS = (
    ("BatchNorm", "paddle_batch_norm_epsilon"),
    ("BatchNorm", "paddle_batch_norm_momentum"),
    ("AvgPool", "paddle_average_pool"),
    ("Hardswish", "paddle_hard_activation"),
    ("Hardsigmoid", "paddle_hard_activation"),
    # The others that keep one, as ELU, have mostly one that float32 holds exactly: alpha = 1.
    (".SELU", "paddle_activation_constant"),
)

_OUTPUT = "output"


def allowances_of_classes(names: Iterable[str]) -> list[str]:
    """Ids of the allowances for layer classes of these full names, each once."""
    own = [name for name in names if name.startswith("paddle.")]
    return list(dict.fromkeys(allowance for name in own for part, allowance in _LAYERS if part in name))


def bound_of_classes(names: Iterable[str]) -> float:
    """Greatest relative difference that float32 constants explain in what such layers return, in float64."""
    found = [KNOWN_ALLOWANCES[allowance] for allowance in (*ALWAYS, *allowances_of_classes(names))]
    return max(allowance.bound for allowance in found if allowance.covers(_OUTPUT))
