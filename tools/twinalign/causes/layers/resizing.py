"""Faults of interpolation and of grid sampling."""

from typing import Any

from twinalign.backends.torch.reference_only.operations import FunctionCall, Site
from twinalign.causes.layers.changed_calls import Changes, changing, enter_edits, forward
from twinalign.causes.layers.subject import LayerSubject
from twinalign.causes.layers.ways import choice, switch

SMOOTH = ("linear", "bilinear", "bicubic", "trilinear")


@forward("interpolate")
def interpolate_mode(site: Site) -> Changes:
    """Interpolation uses another mode."""
    current = site.get("mode", "nearest")
    for mode in ("nearest", "nearest-exact", "bilinear", "bicubic", "linear", "trilinear", "area"):
        if mode == current:
            continue
        for aligned in (False, True) if mode in SMOOTH else (None,):
            corners = ", corners aligned" if aligned else ""
            changed = changing(mode=mode, align_corners=aligned, antialias=False)
            yield f"{mode} in place of {current}{corners}", changed


@forward("interpolate", difference="interpolate_align")
def interpolate_align_mode(call: FunctionCall) -> Any:
    """Interpolation takes its points without half pixels (align_mode 1)."""
    torch, x, shape = call.torch, call["input"], call.result.shape
    if call.get("mode", "nearest") not in SMOOTH or call.get("mode") == "bicubic" or call.get("antialias", False):
        raise ValueError("not linear")
    given = call.get("scale_factor")
    for axis in range(2, x.dim()):
        old, new = x.shape[axis], shape[axis]
        factor = given[axis - 2] if isinstance(given, (tuple, list)) else given
        # With align_mode=1 of older paddle code, source = scale * target.
        at = torch.arange(new, dtype=x.dtype) * (old / new if factor is None else 1.0 / factor)
        low = at.floor().long().clamp(max=old - 1)
        high = (low + 1).clamp(max=old - 1)
        weight = (at - low).to(x.dtype).view(-1, *(1,) * (x.dim() - axis - 1))
        x = x.index_select(axis, low) * (1.0 - weight) + x.index_select(axis, high) * weight
    return x


def _other_factors(site: Site, subject: LayerSubject) -> Changes:
    if site.get("scale_factor") is not None:
        yield "from the sizes", changing(recompute_scale_factor=True)
    if (own := subject.port_numbers.get("scale_factor")) is not None:
        yield f"from the factor {own:g}", changing(size=None, scale_factor=own)


def _other_samplings(site: Site, subject: LayerSubject) -> Changes:
    yield from choice("mode", "bilinear", "bilinear", "nearest", "bicubic", text="{} interpolation")(site, subject)
    yield from choice("padding_mode", "zeros", "zeros", "border", "reflection", text="{} outside")(site, subject)
    yield "x and y swapped", lambda call: call.run(grid=call["grid"].flip(-1))


@forward("pixel_shuffle", "pixel_unshuffle", "channel_shuffle")
def pixel_shuffle_order(call: FunctionCall) -> Any:
    """Pixel shuffle takes the channels in another order."""
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


enter_edits("forward", (
    ("interpolate_align_corners", "interpolation aligns the corners, or does not", ("interpolate",),
     switch("align_corners", False, modes=SMOOTH), {"difference": "interpolate_align"}),
    ("interpolate_antialias", "interpolation smooths before it reduces (antialias), or does not", ("interpolate",),
     switch("antialias", False), {}),
    # Paddle aligns corners by default, torch does not.
    ("grid_align_corners", "the sampling grid aligns the corners, or does not", ("grid_sample", "affine_grid"),
     switch("align_corners", False), {"difference": "grid_sample_align"}),
    # A factor that is not a whole number gives other points than the size it leads to.
    ("interpolate_scale_factor",
     "the source points follow from the sizes, not from the scale factor, or the other way round", ("interpolate",),
     _other_factors, {"difference": "interpolate_scale_factor"}),
    ("grid_sample_mode", "the grid is sampled in another mode", ("grid_sample",), _other_samplings, {}),
))  # fmt: skip
