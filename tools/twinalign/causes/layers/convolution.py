"""Faults of convolutions' geometry, of padding and of pooling."""

from collections.abc import Callable, Sequence
from typing import Any

from twinalign.backends.torch.reference_only.operations import FunctionCall, Site
from twinalign.causes.layers.changed_calls import Changes, as_change, called, changing, enter_edits, forward
from twinalign.causes.layers.linear import CONVOLUTIONS
from twinalign.causes.layers.subject import LayerSubject
from twinalign.causes.layers.ways import FLOAT32, made, number, switch

POOLS = tuple(f"{kind}_pool{n}d" for kind in ("max", "avg") for n in (1, 2, 3))
WINDOWED = (*CONVOLUTIONS, *POOLS)


def spread(value: Any, axes: int) -> tuple[int, ...]:
    """A number or a sequence as one number an axis."""
    return tuple(value) if isinstance(value, Sequence) else (value,) * axes


def window(argument: str, values: Sequence[int], default: int | None) -> Callable[[Site, LayerSubject], Changes]:
    """The same value along all axes, the axes in the other order, one axis changed."""

    def ways(site: Site, subject: LayerSubject) -> Changes:
        axes = len(site.shape()) - 2
        given = site.get(argument, default)
        if given is None or isinstance(given, str):
            given = site.get("kernel_size", 1)
        current = spread(given, axes)
        tried = [(value,) * axes for value in values] + [current[::-1]]
        tried += [(*current[:-1], value) for value in values] + [(value, *current[1:]) for value in values]
        for other in dict.fromkeys(tried):
            if other != current:
                yield f"{list(other)} in place of {list(current)}", changing(**{argument: other})

    return ways


@forward(*WINDOWED)
def window_dilation(site: Site, subject: LayerSubject) -> Changes:
    """The dilation differs."""
    yield from window("dilation", range(1, 5), 1)(site, subject)
    axes = len(site.shape()) - 2
    kernel = site.shape("weight")[2:] or spread(site.get("kernel_size", 1), axes)
    padding, current = site.get("padding", 0), spread(site.get("dilation", 1), axes)
    for value in range(1, 5):
        if not isinstance(padding, str) and (value,) * axes != current:
            grown = [(k - 1) * (value - d) // 2 for k, d in zip(kernel, current, strict=True)]
            wide = tuple(p + more for p, more in zip(spread(padding, axes), grown, strict=True))
            yield f"{value}, with padding {list(wide)}", changing(dilation=(value,) * axes, padding=wide)


@forward(*CONVOLUTIONS)
def convolution_groups(site: Site) -> Changes:
    """The convolution's channels are grouped in another way."""
    # A weight of one shape can be taken for other groups only where the input allows it.
    groups = site.get("groups", 1)
    if groups > 1:
        for outputs in (False, True):
            side = "output" if outputs else "input"
            yield f"{side} channels dealt out to the groups in turn", _dealt(groups, outputs, gathered=False)
            yield f"{side} channels gathered from the groups in turn", _dealt(groups, outputs, gathered=True)
        yield "the first group's weights in every group", _first_group(groups)


@as_change
def _dealt(call: FunctionCall, groups: int, outputs: bool, gathered: bool) -> Any:
    x = call.result if outputs else call["input"]
    sizes = (groups, -1) if gathered else (-1, groups)
    dealt = x.reshape(x.shape[0], *sizes, *x.shape[2:]).transpose(1, 2).reshape(x.shape)
    return dealt if outputs else call.run(input=dealt)


@as_change
def _first_group(call: FunctionCall, groups: int) -> Any:
    rows = call["weight"].shape[0] // groups
    return call.run(weight=call["weight"][:rows].repeat(groups, *(1,) * (call["weight"].dim() - 1)))


@as_change
def _padded_as_same(call: FunctionCall, at_end: bool) -> Any:
    x = call["input"]
    axes = x.dim() - 2
    kernel = tuple(call["weight"].shape[2:]) if "weight" in call.arguments else spread(call["kernel_size"], axes)
    stride = spread(call.get("stride", 1 if "weight" in call.arguments else kernel), axes)
    dilation = spread(call.get("dilation", 1), axes)
    amounts: list[int] = []
    for size, k, s, d in zip(x.shape[2:], kernel, stride, dilation, strict=True):
        total = max((-(-size // s) - 1) * s + (k - 1) * d + 1 - size, 0)
        small = total // 2
        amounts = [small, total - small, *amounts] if at_end else [total - small, small, *amounts]
    value = float("-inf") if call.name.startswith("max") else 0.0
    return call.run(input=call.torch.nn.functional.pad(x, amounts, value=value), padding=0)


@forward("pad", *CONVOLUTIONS[:3])
def padding_mode(site: Site) -> Changes:
    """The border is padded in another mode."""
    for mode in ("constant", "reflect", "replicate", "circular"):
        if site.name == "pad":
            if mode != site.get("mode", "constant"):
                yield f"{mode} in place of {site.get('mode', 'constant')}", changing(mode=mode, value=None)
        elif mode != "constant":
            yield f"{mode} in place of zeros", _padded_before(mode)


@as_change
def _padded_before(call: FunctionCall, mode: str) -> Any:
    x = call["input"]
    amounts = [n for width in reversed(spread(call.get("padding", 0), x.dim() - 2)) for n in (width, width)]
    return call.run(input=call.torch.nn.functional.pad(x, amounts, mode=mode), padding=0)


@forward("pad", difference="pad_order")
def padding_order(site: Site) -> Changes:
    """The widths of the padding are taken in another order."""
    # torch pads from the last axis backwards; paddle takes a full list from the first axis on.
    widths = list(site.get("pad", ()))
    pairs = [widths[at : at + 2] for at in range(0, len(widths), 2)]
    missing = 2 * len(site.shape()) - len(widths)
    orders = {
        "first axis first": [n for pair in reversed(pairs) for n in pair],
        "beginning and end swapped": [n for pair in pairs for n in reversed(pair)],
        "the whole list backwards": widths[::-1],
        "from the first axis on": [0] * missing + [n for pair in reversed(pairs) for n in pair],
    }
    for name, order in orders.items():
        if order != widths:
            yield name, changing(pad=order)


@forward(*POOLS, difference="maxpool_ceil", float32_constants=True)
def pool_ceil_mode(site: Site) -> Changes:
    """The pooling's output size is rounded the other way (ceil_mode)."""
    ceil = site.get("ceil_mode", False)
    yield ("down" if ceil else "up"), changing(ceil_mode=not ceil)
    if site.name.startswith("avg"):
        both = changing(ceil_mode=not ceil, count_include_pad=not site.get("count_include_pad", True))
        yield f"{'down' if ceil else 'up'}, and the padding counted otherwise", both
    if ceil:
        yield "a last window that begins in the padding is kept", _window_kept


def _window_kept(call: FunctionCall) -> Any:
    """Pool with as much more padding at the end as makes every window of the rounded-up size whole."""
    x = call["input"]
    axes = x.dim() - 2
    kernel, padding = spread(call["kernel_size"], axes), spread(call.get("padding", 0), axes)
    stride = spread(call.get("stride", kernel), axes)
    amounts: list[int] = []
    for size, k, s, p in zip(x.shape[2:], kernel, stride, padding, strict=True):
        windows = -(-(size + 2 * p - k) // s) + 1
        amounts = [p, (windows - 1) * s + k - size - p, *amounts]
    pad = call.torch.nn.functional.pad
    if call.name.startswith("max"):
        # A window of padding alone gives the smallest float32 in paddle.
        return call.run(input=pad(x, amounts, value=-3.4028234663852886e38), padding=0, ceil_mode=False)
    sums = call.run(input=pad(x, amounts), padding=0, ceil_mode=False)
    return sums / call.run(input=pad(call.torch.ones_like(x), amounts), padding=0, ceil_mode=False)


enter_edits("forward", (
    ("window_stride", "the stride differs", WINDOWED, window("stride", (1, 2, 3, 4), None), {}),
    ("window_padding", "the padding differs", WINDOWED, window("padding", (0, 1, 2, 3), 0), {}),
    ("pool_kernel", "the pooling window has another size", POOLS,
     window("kernel_size", (1, 2, 3, 4, 5, 7), 1), FLOAT32),
    ("output_padding", "the transposed convolution's output padding differs", CONVOLUTIONS[3:],
     window("output_padding", (0, 1), 0), {}),
    # padding='same' with a stride pads the end more than the beginning, by an amount that depends on the input's size.
    ("padding_same", "the padding is that of 'same': as much as the stride needs, the odd one at the end",
     ("conv1d", "conv2d", "conv3d", "max_pool2d", "avg_pool2d"),
     made({"": _padded_as_same(at_end=True), "but the odd one at the beginning": _padded_as_same(at_end=False)}),
     {"difference": "conv_same_stride", "rank": 1}),
    ("padding_value", "the border is padded with another value", ("pad",),
     number("value", 0.0, 0.0, 1.0, -1.0, float("-inf")), {}),
    # torch counts the zeros of the padding by default, paddle does not.
    ("pool_padding_counted", "average pooling counts the padding, or does not", POOLS[3:],
     switch("count_include_pad", True, "counted", "not counted"), {"difference": "avgpool_exclusive", **FLOAT32}),
    ("pool_divisor", "average pooling divides by another number", ("avg_pool2d", "avg_pool3d"),
     lambda site, subject: [
         (f"{value:g}", changing(divisor_override=int(value))) for value in subject.candidates(
             ("divisor", "divisor_override"), (1.0,), site.get("divisor_override", 0)) if value >= 1],
     {"difference": "avgpool_divisor", **FLOAT32}),
    # It goes first, being two trials, where the geometries of a window are fifty.
    ("pool_kind", "maximum pooling is used in place of average pooling, or the other way round",
     (*POOLS, *(f"adaptive_{kind}_pool{n}d" for kind in ("max", "avg") for n in (1, 2, 3))),
     lambda site, subject: {
         "average": called(site.name.replace("max", "avg")),
         "average that does not count the padding": called(site.name.replace("max", "avg"), count_include_pad=False),
     }.items() if "max" in site.name else [("maximum", called(site.name.replace("avg", "max")))], {"rank": -1}),
))  # fmt: skip
