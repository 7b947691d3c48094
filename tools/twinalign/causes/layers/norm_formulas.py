"""The parts that torch's norms consist of, so that a cause can write a norm out with a mistake in one of them."""

from typing import Any

from twinalign.backends.torch.reference_only.operations import FunctionCall


def values_and_axes(call: FunctionCall) -> tuple[Any, tuple[int, ...]]:
    """What a norm takes its statistics of, the input or its channels in groups, and along which axes."""
    x = call["input"]
    if call.name == "group_norm":
        return x.reshape(x.shape[0], call["num_groups"], -1), (-1,)
    if call.name == "layer_norm":
        return x, tuple(range(-len(call.get("normalized_shape", (0,))), 0))
    return x, tuple(range(2, x.dim())) if call.name == "instance_norm" else (0, *range(2, x.dim()))


def along_channels(x: Any) -> tuple[int, ...]:
    """Shape in which a vector with one element a channel is broadcast against `x`."""
    return 1, -1, *(1,) * (x.dim() - 2)


def affine(call: FunctionCall, x: Any) -> Any:
    """`x` with the weight and bias of a norm's call, along the axes that it has them on."""
    for name, combine in (("weight", x.__class__.__mul__), ("bias", x.__class__.__add__)):
        parameter = call.get(name)
        if parameter is not None:
            last = call.name in ("layer_norm", "rms_norm")
            x = combine(x, parameter if last else parameter.view(along_channels(x)))
    return x
