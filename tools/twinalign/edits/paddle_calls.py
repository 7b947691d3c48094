"""How arguments of torch's functions are spelled in paddle, and what stands for what."""

import dataclasses
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any


def _same(value: Any) -> Any:
    return value


def _whole(value: Any) -> Any:
    """A tuple of equal numbers as the number, which is how people write it."""
    if isinstance(value, (tuple, list)) and value and all(item == value[0] for item in value):
        return value[0]
    return list(value) if isinstance(value, tuple) else value


@dataclasses.dataclass(frozen=True)
class Argument:
    """An argument in paddle: its name in a layer and in a function, the value for torch's, and torch's default."""

    layer: str
    function: str
    value: Callable[[Any], Any] = _same
    default: Any = None


def _of(name: str, value: Callable[[Any], Any] = _same, default: Any = None) -> Argument:
    return Argument(name, name, value, default)


_EPSILON = _of("epsilon", default=1e-5)
_WINDOW: dict[str, Argument] = {
    "stride": _of("stride", _whole),
    "padding": _of("padding", _whole, 0),
    "dilation": _of("dilation", _whole, 1),
    "groups": _of("groups", default=1),
    "output_padding": _of("output_padding", _whole, 0),
    "padding_mode": _of("padding_mode", default="zeros"),
}
_POOL: dict[str, Argument] = {
    "kernel_size": _of("kernel_size", _whole),
    "stride": _of("stride", _whole),
    "padding": _of("padding", _whole, 0),
    "ceil_mode": _of("ceil_mode", default=False),
    "count_include_pad": _of("exclusive", lambda counted: not counted, True),
    "divisor_override": _of("divisor_override"),
}
_AXIS = {"dim": _of("axis", default=-1)}
_REDUCTION = {
    "reduction": _of("reduction", default="mean"),
    "label_smoothing": _of("label_smoothing", default=0.0),
    "ignore_index": _of("ignore_index", default=-100),
    "beta": _of("delta", default=1.0),
    "delta": _of("delta", default=1.0),
    "margin": _of("margin", default=1.0),
}

ARGUMENTS: dict[str, Mapping[str, Argument]] = {
    "layer_norm": {"eps": _EPSILON},
    "group_norm": {"eps": _EPSILON, "num_groups": _of("num_groups")},
    "instance_norm": {"eps": Argument("epsilon", "eps", default=1e-5)},
    "batch_norm": {"eps": _EPSILON, "momentum": _of("momentum", lambda m: round(1.0 - m, 12), 0.1)},
    "rms_norm": {"eps": _EPSILON},
    "gelu": {"approximate": _of("approximate", lambda form: form == "tanh", "none")},
    "leaky_relu": {"negative_slope": _of("negative_slope", default=0.01)},
    "elu": {"alpha": _of("alpha", default=1.0)},
    "celu": {"alpha": _of("alpha", default=1.0)},
    "softplus": {"beta": _of("beta", default=1.0)},
    "hardtanh": {"min_val": _of("min", default=-1.0), "max_val": _of("max", default=1.0)},
    "softmax": _AXIS,
    "log_softmax": _AXIS,
    "interpolate": {
        "align_corners": _of("align_corners", bool, False),
        "mode": _of("mode", default="nearest"),
        "scale_factor": _of("scale_factor", _whole),
    },
    "pad": {"mode": _of("mode", default="constant"), "value": _of("value", default=0.0)},
    **{f"{kind}{n}d": _WINDOW for kind in ("conv", "conv_transpose") for n in (1, 2, 3)},
    **{f"{kind}_pool{n}d": _POOL for kind in ("max", "avg") for n in (1, 2, 3)},
    **dict.fromkeys(
        (
            *("cross_entropy", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "kl_div"),
            *("binary_cross_entropy", "binary_cross_entropy_with_logits"),
        ),
        _REDUCTION,
    ),
}
"""torch's function -> its argument -> paddle's."""

_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

LAYERS: Mapping[str, str] = _TABLES["layers"]
"""torch's function -> paddle's layer class of the same meaning, for what is exchanged as a whole."""

KINDS = {**LAYERS, "identity": "Identity"}
"""The same with what no function does."""

FUNCTIONS: Mapping[str, str] = _TABLES["functions"]
"""torch's function -> paddle's in `nn.functional`, where the names differ."""

EXCHANGED = (
    *("gelu_form", "activation_swapped", "layer_swapped", "layer_with_own_weights", "pool_kind", "softmax_kind"),
)
"""Causes whose remedy is the reference's call in place of the port's."""

GIVEN_BY_CAUSE: Mapping[str, Sequence[str]] = _TABLES["given_by_cause"]
"""Cause that changes a call as a whole -> the reference's arguments that remedy it."""

OPTIMIZER_SETTINGS: Mapping[str, Mapping[str, str]] = _TABLES["optimizer_settings"]
"""paddle's optimizer -> its keyword -> the setting of torch's."""

OPTIMIZER_CLASSES: Mapping[str, Mapping[str, str]] = _TABLES["optimizer_classes"]
"""Cause of wrong steps -> paddle's optimizer -> the one that takes such steps as the reference's."""

OPTIMIZER_CAUSES: Mapping[str, Sequence[str]] = _TABLES["optimizer_causes"]
"""Cause of wrong steps -> the keywords of paddle's optimizer that may mend it."""
