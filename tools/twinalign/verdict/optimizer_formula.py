"""One step of Adam, AdamW or SGD in float64, from recorded weights, gradients and state.

Adam: Kingma and Ba, arXiv:1412.6980, algorithm 1; decoupled decay: Loshchilov and Hutter, arXiv:1711.05101,
algorithm 2.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

KNOWN = ("adam", "sgd")


def updated(
    weights: np.ndarray, gradient: np.ndarray, state: Mapping[str, np.ndarray], settings: Mapping[str, Any], made: int
) -> dict[str, np.ndarray] | None:
    """The weights after a step under `updated`, and the state after it by its names; None for an unknown optimizer.

    Args:
        weights, gradient: of one parameter, any shape.
        state: `moment1` and `moment2`, or `velocity`; zero where missing.
        settings: as in `Backend.optimizer_settings`.
        made: steps made before this one.
    """
    if settings.get("kind") not in KNOWN:
        return None
    w, g = weights.astype(np.float64), gradient.astype(np.float64)
    rate, decay = settings["lr"], settings["weight_decay"]
    if settings["decoupled"]:
        w = w * (1 - rate * decay)
    else:
        g = g + decay * w
    if settings["kind"] == "sgd":
        momentum = settings["momentum"]
        if not momentum:
            return {"updated": w - rate * g}
        velocity = state.get("velocity")
        kept = g if velocity is None else momentum * velocity.astype(np.float64) + (1 - settings["dampening"]) * g
        return {"updated": w - rate * (g + momentum * kept if settings["nesterov"] else kept), "velocity": kept}
    beta1, beta2, zero = settings["beta1"], settings["beta2"], np.zeros(w.shape)
    first = beta1 * state.get("moment1", zero).astype(np.float64) + (1 - beta1) * g
    second = beta2 * state.get("moment2", zero).astype(np.float64) + (1 - beta2) * g * g
    corrected = np.sqrt(second / (1 - beta2 ** (made + 1))) + settings["epsilon"]
    return {"updated": w - rate / (1 - beta1 ** (made + 1)) * first / corrected, "moment1": first, "moment2": second}


def left_over(made: np.ndarray, found: np.ndarray, before: np.ndarray, dtype_epsilon: float) -> float:
    """How far a recomputed array is from the recorded one, over what storing it rounds; at most about 1 is agreement.

    `before`: what the step moved. Four units in the last place of the greatest of the three, and 2^-15 of the movement,
    are rounding: an optimizer of float32 rounds in each of its operations, and a kernel's powers of beta are float32.
    """
    apart = np.abs(made - found.astype(np.float64))
    before = before.astype(np.float64)
    size = np.maximum(np.abs(made), np.abs(before))
    allowed = 4 * dtype_epsilon * size + 2.0**-15 * np.abs(made - before) + 1e-30
    # An average near zero: rounding of the larger numbers that cancel in it.
    allowed = allowed + dtype_epsilon * float(np.sqrt(np.mean(np.square(made)))) if made.size else allowed
    return float(np.max(apart / allowed)) if apart.size else 0.0
