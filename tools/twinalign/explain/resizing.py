"""Faults of interpolation and of grid sampling."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from twinalign.explain.calls import Call, Change, Site
from twinalign.explain.registry import register
from twinalign.explain.rewrite import Rewrite, any_of, changing
from twinalign.explain.subject import LayerSubject

SMOOTH = ("linear", "bilinear", "bicubic", "trilinear")


@register
class InterpolateCorners(Rewrite):
    """Whether the outermost points or the outermost pixels' edges coincide."""

    id = "interpolate_align_corners"
    phase = "forward"
    text = "interpolation aligns the corners, or does not"
    difference = "interpolate_align"
    functions = ("interpolate",)

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """The other way."""
        if site.get("mode", "nearest") in SMOOTH:
            aligned = bool(site.get("align_corners", False))
            yield f"align_corners {not aligned} in place of {aligned}", changing(align_corners=not aligned)


@register
class InterpolateMode(Rewrite):
    """Nearest, linear, cubic, area."""

    id = "interpolate_mode"
    phase = "forward"
    text = "interpolation uses another mode"
    functions = ("interpolate",)

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Every other mode; the smooth ones with corners aligned and not."""
        current = site.get("mode", "nearest")
        for mode in ("nearest", "nearest-exact", "bilinear", "bicubic", "linear", "trilinear", "area"):
            if mode == current:
                continue
            for aligned in (False, True) if mode in SMOOTH else (None,):
                corners = ", corners aligned" if aligned else ""
                changed = changing(mode=mode, align_corners=aligned, antialias=False)
                yield f"{mode} in place of {current}{corners}", changed


@register
class InterpolateAntialias(Rewrite):
    """Of a reduction in size."""

    id = "interpolate_antialias"
    phase = "forward"
    text = "interpolation smooths before it reduces (antialias), or does not"
    functions = ("interpolate",)

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """The other way."""
        smooth = site.get("antialias", False)
        yield f"antialias {not smooth} in place of {smooth}", changing(antialias=not smooth)


@register
class InterpolateAlignMode(Rewrite):
    """align_mode=1 of older paddle code: source = scale * target, without half pixels."""

    id = "interpolate_align_mode"
    phase = "forward"
    text = "interpolation takes its points without half pixels (align_mode 1)"
    difference = "interpolate_align"
    functions = ("interpolate",)
    ways = any_of({"": lambda call: _linear(call, lambda at, old, new, scale, axis: at * scale)})


def _linear(call: Call, source: Any) -> Any:
    """Linear interpolation along every spatial axis, from `source(target, old size, new size, scale, axis)`."""
    torch, x, shape = call.torch, call["input"], call.result.shape
    if call.get("mode", "nearest") not in ("linear", "bilinear", "trilinear"):
        raise ValueError("not linear")
    given = call.get("scale_factor")
    for axis in range(2, x.dim()):
        old, new = x.shape[axis], shape[axis]
        factor = given[axis - 2] if isinstance(given, (tuple, list)) else given
        scale = old / new if factor is None else 1.0 / factor
        at = source(torch.arange(new, dtype=x.dtype), old, new, scale, axis).clamp(min=0.0)
        low = at.floor().long().clamp(max=old - 1)
        high = (low + 1).clamp(max=old - 1)
        weight = (at - low).to(x.dtype).view(-1, *(1,) * (x.dim() - axis - 1))
        x = x.index_select(axis, low) * (1.0 - weight) + x.index_select(axis, high) * weight
    return x


@register
class InterpolateCoordinates(Rewrite):
    """Paddle computes the source points of a linear interpolation in float32, whatever the data."""

    id = "interpolate_float32_coordinates"
    phase = "forward"
    text = "the source points of the interpolation are computed in float32"
    difference = "interpolate_fp32_coords"
    functions = ("interpolate",)

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """With one rounding for a product and a difference, or two: that is the compiler's choice, axis by axis."""
        corners = bool(site.get("align_corners", False))
        for detail, fused in (("", {2}), ("fused along all axes", {2, 3, 4}), ("fused along none", set[int]())):
            yield detail, _in_float32(corners, fused)


def _in_float32(corners: bool, fused: set[int]) -> Change:
    def source(at: Any, old: int, new: int, scale: float, axis: int) -> Any:
        ratio = at.new_tensor((old - 1) / (new - 1) if corners and new > 1 else scale).float().to(at.dtype)
        if corners:
            return (at * ratio).float().to(at.dtype)
        product = (at + 0.5) * ratio
        product = product if axis in fused else product.float().to(at.dtype)
        return (product - 0.5).float().to(at.dtype)

    return lambda call: _linear(call, source)


@register
class InterpolateScale(Rewrite):
    """A factor that is no whole number gives other points than the size that it leads to."""

    id = "interpolate_scale_factor"
    phase = "forward"
    text = "the source points follow from the sizes, not from the scale factor, or the other way round"
    difference = "interpolate_scale_factor"
    functions = ("interpolate",)

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Recomputed from the sizes; or from the nearest usual factor."""
        if site.get("scale_factor") is not None:
            yield "from the sizes", changing(recompute_scale_factor=True)
        for own in (subject.port_numbers.get("scale_factor"),):
            if own is not None:
                yield f"from the factor {own:g}", changing(size=None, scale_factor=own)


@register
class GridCorners(Rewrite):
    """Paddle aligns corners by default, torch does not."""

    id = "grid_align_corners"
    phase = "forward"
    text = "the sampling grid aligns the corners, or does not"
    difference = "grid_sample_align"
    functions = ("grid_sample", "affine_grid")

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """The other way."""
        aligned = bool(site.get("align_corners", False))
        yield f"align_corners {not aligned} in place of {aligned}", changing(align_corners=not aligned)


@register
class GridMode(Rewrite):
    """Of grid_sample: interpolation, and what lies outside."""

    id = "grid_sample_mode"
    phase = "forward"
    text = "the grid is sampled in another mode"
    functions = ("grid_sample",)

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Every other."""
        for mode in ("bilinear", "nearest", "bicubic"):
            if mode != site.get("mode", "bilinear"):
                yield f"{mode} interpolation", changing(mode=mode)
        for padding in ("zeros", "border", "reflection"):
            if padding != site.get("padding_mode", "zeros"):
                yield f"{padding} outside", changing(padding_mode=padding)
        yield "x and y swapped", lambda call: call.run(grid=call["grid"].flip(-1))


@register
class PixelShuffleOrder(Rewrite):
    """Channels outside or inside the block."""

    id = "pixel_shuffle_order"
    phase = "forward"
    text = "pixel shuffle takes the channels in another order"
    functions = ("pixel_shuffle", "pixel_unshuffle", "channel_shuffle")
    ways = any_of({"": lambda call: _shuffled(call)})


def _shuffled(call: Call) -> Any:
    x = call["input"]
    factor = call.get("upscale_factor") or call.get("1")
    if call.name == "channel_shuffle":
        groups = x.shape[1] // factor
        return x.reshape(x.shape[0], groups, factor, *x.shape[2:]).transpose(1, 2).reshape(x.shape)
    if call.name == "pixel_unshuffle":
        result = call.result
        parts = result.reshape(x.shape[0], x.shape[1], factor * factor, *result.shape[2:])
        return parts.transpose(1, 2).reshape(result.shape)
    channels = x.shape[1] // factor**2
    return call.run(input=x.reshape(x.shape[0], factor**2, channels, *x.shape[2:]).transpose(1, 2).reshape(x.shape))
