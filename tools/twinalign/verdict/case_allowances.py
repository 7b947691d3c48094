"""The float64 differences that float32 constants in a port's layers and optimizer explain."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from twinalign.verdict.allowances import ALWAYS, KNOWN_ALLOWANCES, Allowance

_NORMALISATION = "paddle.nn.layer.norm."
_SELU = "paddle.nn.layer.activation.SELU"
_MOST_SELU = 10
"""Through more of them a quarter of the float32 rounding, which is allowed as well, is more."""
_MOST_NORMALISATIONS = 1000
"""With more the allowance for epsilons would cover what float32 rounds, and with it faults."""
_SLOWEST = 2.0**-25 / 1e-4
"""Error of a momentum of 0.9999 at most: the slowest known statistics are those of MNASNet, 0.9997."""


def allowances_for(stage: str, metadata: Mapping[str, Any], description: Mapping[str, Any]) -> list[Allowance | str]:
    """Allowances for the port's layers, the kernels that it called and the stage, and those that the case names.

    For train only those that the case names, and those for momenta and for clipping: the repeat of the reference
    already shows what layers and optimizer do to curves.
    """
    classes, kernels = metadata.get("layer_classes", {}), metadata.get("kernels", {})
    found: list[Allowance | str] = list(description.get("allowances", ()))
    momentum = KNOWN_ALLOWANCES["paddle_batch_norm_momentum"]
    momenta = kernels.get("batch_norm", {}).get("momentum", ())
    if error := min(_SLOWEST, max(map(momentum_error, momenta), default=0.0)):
        found.append(momentum._replace(bound=0.0, low_of_movement=error))
    if stage == "train":
        return [*found, *_clipping(kernels.get("clip_by_norm", {}).get("limit", ()))]
    called = "batch_norm" in kernels
    exact = [part for kernel, part in _EXACT_WHERE_CALLED if kernel in kernels]
    of_layers = [name for name in allowances_of_classes(classes) if not any(part in name for part in exact)]
    found += dict.fromkeys([*of_layers, *(allowance for kernel, allowance in _KERNELS if kernel in kernels)])
    if stage == "backward":
        found += ["paddle_optimizer_scalars", "paddle_adam_second_moment", "paddle_adam_bias_correction"]
    if stage in ("metric", "loss", "backward"):
        found.append("paddle_long_sums")
    if stage == "forward" and momenta:  # one batch, of which the running mean takes a share
        mean = KNOWN_ALLOWANCES["paddle_batch_norm_mean"]
        found.append(mean._replace(low_of_deviation=mean.low_of_deviation * min(1.0, 1 - min(momenta))))
    # The bound is measured for one layer; what several leave adds up on the way through them.
    count = min(counted_normalisations(metadata), _MOST_NORMALISATIONS)
    epsilon, scale = (KNOWN_ALLOWANCES[name] for name in ("float32_epsilon", "paddle_batch_norm_scale"))
    if called or "paddle_batch_norm_epsilon" in found:
        found.append(scale._replace(low_bound=scale.low_bound * max(1, count)))
    if _SELU in classes:  # called as a function, it is allowed what one layer is
        constant, layers = KNOWN_ALLOWANCES["paddle_activation_constant"], min(classes[_SELU]["count"], _MOST_SELU)
        found.append(constant._replace(bound=constant.bound * layers))
    return [*found, epsilon._replace(bound=epsilon.bound * max(1, count))]


def _clipping(limits: Iterable[float]) -> list[Allowance]:
    """For gradients that paddle's optimizers clip by a norm: what torch adds to a norm of at least the limit."""
    known = KNOWN_ALLOWANCES["paddle_clipping_by_norm"]
    shares = [known.bound / limit for limit in limits if limit > 0]
    return [known._replace(bound=share, low_of_movement=share) for share in shares if share == max(shares)]


def counted_normalisations(metadata: Mapping[str, Any]) -> int:
    """Number of normalisation layers in the port's model, from the metadata of a recording."""
    return sum(
        entry["count"]
        for name, entry in metadata.get("layer_classes", {}).items()
        if any(base.startswith(_NORMALISATION) for base in (name, *entry["bases"]))
    )


# Parts of the names of paddle's own layer classes, and the allowance for each. A subclass in the port may have closed
# the gap: the kernels that it calls tell.
_LAYERS = (
    ("BatchNorm", "paddle_batch_norm_epsilon"),
    ("BatchNorm", "paddle_batch_norm_momentum"),
    ("AvgPool", "paddle_average_pool"),
    ("Hardswish", "paddle_hard_activation"),
    ("Hardsigmoid", "paddle_hard_activation"),
    # Others, such as ELU, mostly have a constant that float32 represents exactly: alpha = 1.
    (".SELU", "paddle_activation_constant"),
)


# Kernels whose constants a float64 run has exactly where their calls were seen, and what names their allowances.
_EXACT_WHERE_CALLED = (("batch_norm", "batch_norm"), ("avg_pool", "average_pool"))

# Kernels that the port called, whether by paddle's layers, subclasses of them or functions, and the allowance for each.
_KERNELS = (
    ("hardswish", "paddle_hard_activation"),
    ("hardsigmoid", "paddle_hard_activation"),
    ("selu", "paddle_activation_constant"),
    ("softmax", "paddle_softmax_floor"),  # noted only where a weight came to lie on its floor
)


def momentum_error(momentum: float) -> float:
    """Relative error of the share of a new batch in running statistics, `1 - momentum`, of a float32 momentum.

    With `m` and `m32` for the two, a step moves them by `(1 - m32) (batch - running)` in place of
    `(1 - m) (batch - running)`: off by `|m - m32| / (1 - m)` of the change.
    """
    with np.errstate(over="ignore"):
        return abs(momentum - float(np.float32(momentum))) / (1 - momentum) if momentum < 1 else 0.0


_OUTPUT = "output"


def allowances_of_classes(names: Iterable[str]) -> list[str]:
    """Ids of the allowances for layer classes of these full names, each once."""
    own = [name for name in names if name.startswith("paddle.")]
    return list(dict.fromkeys(allowance for name in own for part, allowance in _LAYERS if part in name))


def bound_of_classes(names: Iterable[str], kernels: Iterable[str] = ()) -> float:
    """Greatest relative difference that float32 constants explain in what such layers return, in float64.

    `kernels` are those that their code calls, as functions say.
    """
    called = [allowance for kernel, allowance in _KERNELS if kernel in kernels]
    found = [KNOWN_ALLOWANCES[allowance] for allowance in (*ALWAYS, *allowances_of_classes(names), *called)]
    return max(allowance.bound for allowance in found if allowance.covers(_OUTPUT))
