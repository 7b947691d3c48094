"""Faults of convolutions' geometry, of padding and of pooling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from twinalign.explain.calls import Call, Change, Site
from twinalign.explain.linear import CONVOLUTIONS
from twinalign.explain.registry import register
from twinalign.explain.rewrite import Rewrite, changing
from twinalign.explain.subject import LayerSubject

POOLS = tuple(f"{kind}_pool{n}d" for kind in ("max", "avg") for n in (1, 2, 3))
WINDOWED = (*CONVOLUTIONS, *POOLS)


def spread(value: Any, axes: int) -> tuple[int, ...]:
    """A number or a sequence as one number an axis."""
    return tuple(value) if isinstance(value, Sequence) else (value,) * axes


class _Geometry(Rewrite):
    """An argument of a windowed function with other values."""

    functions = WINDOWED
    argument = ""
    default: int | None = 1
    values: tuple[int, ...] = ()

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """The same value along all axes, and the axes in the other order."""
        axes = len(site.shape()) - 2
        given = site.get(self.argument, self.default)
        if given is None or isinstance(given, str):
            given = site.get("kernel_size", 1)
        current = spread(given, axes)
        tried = [(value,) * axes for value in self.values] + [current[::-1]]
        tried += [(*current[:-1], value) for value in self.values] + [(value, *current[1:]) for value in self.values]
        for values in dict.fromkeys(tried):
            if values != current:
                yield f"{list(values)} in place of {list(current)}", changing(**{self.argument: values})


@register
class WindowStride(_Geometry):
    """Of a convolution or a pooling."""

    id = "window_stride"
    phase = "forward"
    text = "the stride is another"
    argument = "stride"
    default = None
    values = (1, 2, 3, 4)


@register
class WindowPadding(_Geometry):
    """Of a convolution or a pooling."""

    id = "window_padding"
    phase = "forward"
    text = "the padding is another"
    argument = "padding"
    default = 0
    values = (0, 1, 2, 3)


@register
class WindowDilation(_Geometry):
    """Of a convolution or a maximum pooling."""

    id = "window_dilation"
    phase = "forward"
    text = "the dilation is another"
    argument = "dilation"
    values = (1, 2, 3, 4)

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Alone, and with as much more padding as keeps the size."""
        yield from super().changes(site, subject)
        axes = len(site.shape()) - 2
        kernel = site.shape("weight")[2:] or spread(site.get("kernel_size", 1), axes)
        padding, current = site.get("padding", 0), spread(site.get("dilation", 1), axes)
        for value in self.values:
            if not isinstance(padding, str) and (value,) * axes != current:
                grown = [(k - 1) * (value - d) // 2 for k, d in zip(kernel, current, strict=True)]
                wide = tuple(p + more for p, more in zip(spread(padding, axes), grown, strict=True))
                yield f"{value}, with padding {list(wide)}", changing(dilation=(value,) * axes, padding=wide)


@register
class PoolKernel(_Geometry):
    """The window's size."""

    id = "pool_kernel"
    phase = "forward"
    text = "the pooling window has another size"
    float32_constants = True
    functions = POOLS
    argument = "kernel_size"
    values = (1, 2, 3, 4, 5, 7)


@register
class OutputPadding(_Geometry):
    """Of a transposed convolution."""

    id = "output_padding"
    phase = "forward"
    text = "the transposed convolution's output padding is another"
    functions = CONVOLUTIONS[3:]
    argument = "output_padding"
    default = 0
    values = (0, 1)


@register
class ConvolutionGroups(Rewrite):
    """A weight of one shape can be taken for other groups only where the input allows it."""

    id = "convolution_groups"
    phase = "forward"
    text = "the convolution's channels are grouped in another way"
    functions = CONVOLUTIONS

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Channels dealt out to the groups in turn, or gathered."""
        groups = site.get("groups", 1)
        if groups > 1:
            for outputs in (False, True):
                side = "output" if outputs else "input"
                yield f"{side} channels dealt out to the groups in turn", _dealt(groups, outputs, gathered=False)
                yield f"{side} channels gathered from the groups in turn", _dealt(groups, outputs, gathered=True)
            yield "the first group's weights in every group", _first_group(groups)


def _dealt(groups: int, outputs: bool, gathered: bool) -> Change:
    def change(call: Call) -> Any:
        x = call.result if outputs else call["input"]
        sizes = (groups, -1) if gathered else (-1, groups)
        dealt = x.reshape(x.shape[0], *sizes, *x.shape[2:]).transpose(1, 2).reshape(x.shape)
        return dealt if outputs else call.run(input=dealt)

    return change


def _first_group(groups: int) -> Change:
    def change(call: Call) -> Any:
        rows = call["weight"].shape[0] // groups
        return call.run(weight=call["weight"][:rows].repeat(groups, *(1,) * (call["weight"].dim() - 1)))

    return change


@register
class SamePadding(Rewrite):
    """padding='same' with a stride pads the end more than the beginning, and by the input's size."""

    id = "padding_same"
    phase = "forward"
    text = "the padding is that of 'same': as much as the stride needs, the odd one at the end"
    difference = "conv_same_stride"
    rank = 1
    functions = ("conv1d", "conv2d", "conv3d", "max_pool2d", "avg_pool2d")

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """The odd one at the end, or at the beginning."""
        yield "", _same(at_end=True)
        yield "but the odd one at the beginning", _same(at_end=False)


def _same(at_end: bool) -> Change:
    def change(call: Call) -> Any:
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

    return change


@register
class PaddingMode(Rewrite):
    """Of a pad before, or of the zeros inside a convolution."""

    id = "padding_mode"
    phase = "forward"
    text = "the border is padded in another mode"
    functions = ("pad", *CONVOLUTIONS[:3])

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Every mode that torch has."""
        for mode in ("constant", "reflect", "replicate", "circular"):
            if site.name == "pad":
                if mode != site.get("mode", "constant"):
                    yield f"{mode} in place of {site.get('mode', 'constant')}", changing(mode=mode, value=None)
            elif mode != "constant":
                yield f"{mode} in place of zeros", _padded_before(mode)


def _padded_before(mode: str) -> Change:
    def change(call: Call) -> Any:
        x = call["input"]
        amounts = [n for width in reversed(spread(call.get("padding", 0), x.dim() - 2)) for n in (width, width)]
        return call.run(input=call.torch.nn.functional.pad(x, amounts, mode=mode), padding=0)

    return change


@register
class PaddingValue(Rewrite):
    """Zeros for minus infinity or for another constant."""

    id = "padding_value"
    phase = "forward"
    text = "the border is padded with another value"
    functions = ("pad",)

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Usual values."""
        for value in subject.candidates(("value",), (0.0, 1.0, -1.0, float("-inf")), site.get("value", 0.0)):
            yield f"{value:g}", changing(value=value)


@register
class PaddingOrder(Rewrite):
    """torch pads from the last axis backwards, paddle a full list from the first."""

    id = "padding_order"
    phase = "forward"
    text = "the widths of the padding are taken in another order"
    difference = "pad_order"
    functions = ("pad",)

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Axes in the other order, ends swapped, both."""
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


@register
class PoolPaddingCounted(Rewrite):
    """torch counts the zeros of the padding by default, paddle does not."""

    id = "pool_padding_counted"
    phase = "forward"
    text = "average pooling counts the padding, or does not"
    float32_constants = True
    difference = "avgpool_exclusive"
    functions = ("avg_pool1d", "avg_pool2d", "avg_pool3d")

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """The other way."""
        counted = site.get("count_include_pad", True)
        yield ("not counted" if counted else "counted"), changing(count_include_pad=not counted)


@register
class PoolCeilMode(Rewrite):
    """Whether the last window may hang over the edge."""

    id = "pool_ceil_mode"
    phase = "forward"
    text = "the pooling's output size is rounded the other way (ceil_mode)"
    float32_constants = True
    difference = "maxpool_ceil"
    functions = POOLS

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """The other way; paddle besides keeps a last window that begins in the padding."""
        ceil = site.get("ceil_mode", False)
        yield ("down" if ceil else "up"), changing(ceil_mode=not ceil)
        if site.name.startswith("avg"):
            both = changing(ceil_mode=not ceil, count_include_pad=not site.get("count_include_pad", True))
            yield f"{'down' if ceil else 'up'}, and the padding counted otherwise", both
        if ceil:
            yield "a last window that begins in the padding is kept", _window_kept


def _window_kept(call: Call) -> Any:
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
    inside = call.run(input=pad(call.torch.ones_like(x), amounts), padding=0, ceil_mode=False)
    return sums / inside


@register
class PoolKind(Rewrite):
    """Maximum for average, or the other way round."""

    id = "pool_kind"
    phase = "forward"
    text = "maximum and average pooling stand in for each other"
    functions = (*POOLS, *(f"adaptive_{kind}_pool{n}d" for kind in ("max", "avg") for n in (1, 2, 3)))
    rank = -1  # two trials, before the fifty geometries of a window

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """The other one, its padding counted or not."""
        if "max" in site.name:
            yield "average", _other_pool(True)
            yield "average that does not count the padding", _other_pool(False)
        else:
            yield "maximum", _other_pool(None)


def _other_pool(counted: bool | None) -> Change:
    def change(call: Call) -> Any:
        other = call.name.replace("avg", "max") if counted is None else call.name.replace("max", "avg")
        pool = getattr(call.torch.nn.functional, other)
        if "adaptive" in other:
            return pool(call["input"], call["output_size"])
        options = {name: call.get(name) for name in ("stride", "padding", "ceil_mode") if call.get(name) is not None}
        if counted is not None:
            options["count_include_pad"] = counted
        return pool(call["input"], call["kernel_size"], **options)

    return change


@register
class PoolDivisor(Rewrite):
    """Sums where means are meant."""

    id = "pool_divisor"
    phase = "forward"
    text = "average pooling divides by another number"
    float32_constants = True
    difference = "avgpool_divisor"
    functions = ("avg_pool2d", "avg_pool3d")

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """One, or the port's own."""
        for value in subject.candidates(("divisor", "divisor_override"), (1.0,), site.get("divisor_override", 0)):
            if value >= 1:
                yield f"{value:g}", changing(divisor_override=int(value))
