"""Which float64 differences the constants of a port's layers and optimizer, stored in float32, explain."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from twinalign.verdict import KNOWN_ALLOWANCES
from twinalign.verdict.float32_constants import allowances_of_classes

if TYPE_CHECKING:
    from twinalign.verdict import Allowance

_NORMALISATION = "paddle.nn.layer.norm."
_SELU = "paddle.nn.layer.activation.SELU"
_MOST_SELU = 10
"""Through more of them a quarter of the float32 rounding, which is allowed as well, is more."""
_MOST_NORMALISATIONS = 1000
"""With more the allowance for epsilons would cover what float32 rounds, and with it faults."""


def allowances_for(stage: str, metadata: Mapping[str, Any], description: Mapping[str, Any]) -> list[Allowance | str]:
    """Allowances that the port's own layers and the stage call for, and those that the case names.

    Of train only those that the case names: what layers and optimizer leave of a curve is in the repeat of the
    reference that it is judged by.
    """
    classes = metadata.get("layer_classes", {})
    found: list[Allowance | str] = list(description.get("allowances", ()))
    if stage == "train":
        return found
    found += allowances_of_classes(classes)
    if stage == "backward":
        found += ["paddle_optimizer_scalars", "paddle_adam_first_moment", "paddle_adam_second_moment"]
        found.append("paddle_adam_bias_correction")
    if stage in ("loss", "backward"):
        found.append("paddle_long_sums")
    # The bound is measured for one layer; what several leave adds up on the way through them.
    count = min(counted_normalisations(metadata), _MOST_NORMALISATIONS)
    epsilon, scale = (KNOWN_ALLOWANCES[name] for name in ("float32_epsilon", "paddle_batch_norm_scale"))
    if "paddle_batch_norm_epsilon" in found:
        found.append(dataclasses.replace(scale, low_bound=scale.low_bound * count))
    if _SELU in classes:
        constant, layers = KNOWN_ALLOWANCES["paddle_activation_constant"], min(classes[_SELU]["count"], _MOST_SELU)
        found.append(dataclasses.replace(constant, bound=constant.bound * layers))
    return [*found, dataclasses.replace(epsilon, bound=epsilon.bound * max(1, count))]


def counted_normalisations(metadata: Mapping[str, Any]) -> int:
    """How many normalisation layers the port's model has, by the metadata of a recording of it."""
    return sum(
        entry["count"]
        for name, entry in metadata.get("layer_classes", {}).items()
        if any(base.startswith(_NORMALISATION) for base in (name, *entry["bases"]))
    )
