"""What Pillow does to pictures: other arguments, another way to resize, blur, grey or read, steps left out or moved."""

import functools
import itertools
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from twinalign.causes.component import Others, enter_rows
from twinalign.causes.data.subject import (
    CONVERT,
    CROP,
    ENHANCE,
    FILTER,
    FLIP,
    PARTS,
    RESIZE,
    SOLARIZE,
    Chain,
    Given,
    ImageSubject,
    called,
    image_cause,
    of_part,
    picture,
    told,
)
from twinalign.causes.registry import Variant, Within
from twinalign.replay.wrong_unit import rewriting

_FUNCTIONS = {"flip": FLIP, "filter": FILTER, "solarisation": SOLARIZE, "resizing": RESIZE, "cropping": CROP}
_FLIP_LEFT_RIGHT, _ROTATE_180 = 0, 3
_FILTERS = {"nearest": 0, "Lanczos": 1, "bilinear": 2, "bicubic": 3, "box": 4, "Hamming": 5}
_BY_ONE = ((1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, -1))
_BY_ONE_OR_TWO = [(x, y) for size in (1, 2) for x in (0, size, -size) for y in (0, size, -size) if x or y]
_WIDTHS: dict[str, Callable[[float], float]] = {
    "twice the width": lambda sigma: 2 * sigma,
    "half the width": lambda sigma: sigma / 2,
    "the width squared": lambda sigma: sigma**2,
    "the root of the width": lambda sigma: sigma**0.5,
    "the width rounded": round,
    "three times the width": lambda sigma: 3 * sigma,
}
_GREY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "the plain mean": lambda p: p.mean(axis=-1),
    "BT.709's weights": lambda p: p @ [0.2126, 0.7152, 0.0722],
    "BT.601's weights for blue, green, red": lambda p: p @ [0.114, 0.587, 0.299],
    "the weights 0.2989, 0.587, 0.114": lambda p: p @ [0.2989, 0.587, 0.114],
    "the largest and the smallest colour's mean": lambda p: (p.max(axis=-1) + p.min(axis=-1)) / 2,
    "green alone": lambda p: p[..., 1],
}
_FACTORS: dict[str, Callable[[float], float]] = {
    "1/f": lambda f: 1 / f,
    "2 - f": lambda f: 2 - f,
    "f squared": lambda f: f * f,
    "f - 1": lambda f: f - 1,
}
Box = tuple[int, int, int, int]
"""Left, top, right, bottom."""


def turned(method: int, other: int) -> int:
    """How an image is transposed, with another method in the place of mirroring it left to right."""
    return other if int(method) == _FLIP_LEFT_RIGHT else method


def _larger(given: Given, by: tuple[int, int]) -> tuple[int, ...]:
    return tuple(map(operator.add, given["size"], by))


def _boxed(change: Callable[..., Box]) -> Callable[[Given], Box]:
    """Another box, made of the edges of the one that is given and of the image's width and height."""
    return lambda given: change(*given["box"], *given["self"].size)


def _moved(place: Callable[..., tuple[int, int]]) -> Callable[[Given], Box]:
    """The box at a place that is made of where it is, and of how much the image is wider and higher than the box."""

    def moved(left: int, top: int, right: int, bottom: int, width: int, height: int) -> Box:
        x, y = place(left, top, width - right + left, height - bottom + top)
        return x, y, x + right - left, y + bottom - top

    return _boxed(moved)


_THRESHOLDS = {f"{threshold}": threshold for threshold in (127, 129, 64, 192, 0, 256, *range(257))}
_SIZES = {
    **{f"by {x}, {y} pixels": functools.partial(_larger, by=(x, y)) for x, y in _BY_ONE},
    "a square of the shorter side": lambda given: (min(given["size"]),) * 2,
    "a square of the longer side": lambda given: (max(given["size"]),) * 2,
}
_PLACES = {
    **{
        f"{x:+d} to the right, {y:+d} down": _moved(lambda left, top, *rest, x=x, y=y: (left + x, top + y))
        for x, y in _BY_ONE_OR_TWO
    },
    "top and left exchanged": _moved(lambda left, top, *rest: (top, left)),
    "in the corner": _moved(lambda *given: (0, 0)),
    "in the middle": _moved(lambda left, top, wider, higher: (wider // 2, higher // 2)),
}
_BOXES = {
    **{
        f"by {x}, {y} pixels": _boxed(lambda *given, x=x, y=y: (given[0], given[1], given[2] + x, given[3] + y))
        for x, y in _BY_ONE
    },
    "height and width exchanged": _boxed(lambda x, y, right, bottom, *size: (x, y, x + bottom - y, y + right - x)),
}


def _transformed(method: int, original: Callable, image: Any, size: Any, *rest: Any, **named: Any) -> Any:
    scale = image.size[0] / size[0], image.size[1] / size[1]
    return image.transform(tuple(size), 0, (scale[0], 0, 0, 0, scale[1], 0), method)


def _sampled(rounding: np.ufunc, original: Callable, image: Any, size: Any, *rest: Any, **named: Any) -> Any:
    return picture(rounding(bilinear(np.asarray(image), size[1], size[0])))


def bilinear(pixels: np.ndarray, height: int, width: int) -> np.ndarray:
    """Pixels `[H, W]` or `[H, W, C]` at other sizes, each from its four neighbours, centres at half pixels."""
    values = pixels.astype(np.float64)
    for axis, size in ((0, height), (1, width)):
        length = values.shape[axis]
        at = np.clip((np.arange(size) + 0.5) * length / size - 0.5, 0, length - 1)
        low = np.floor(at).astype(int)
        share = (at - low).reshape([-1 if a == axis else 1 for a in range(values.ndim)])
        high = np.minimum(low + 1, length - 1)
        values = values.take(low, axis) * (1 - share) + values.take(high, axis) * share
    return values


def _blur(kind: str, width: Callable[[float], float], given: Given) -> Any:
    from PIL import ImageFilter

    return getattr(ImageFilter, kind)(width(given["filter"].radius))


def _gaussian(truncated: float, original: Callable, image: Any, kernel: Any) -> Any:
    """A convolution with a sampled Gaussian, borders mirrored, rounded at the end."""
    sigma, values = float(kernel.radius), np.asarray(image).astype(np.float64)
    reach = int(truncated * sigma + 0.5)
    weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) / sigma) ** 2)
    weights /= weights.sum()
    for axis in (0, 1):
        padding = [(reach, reach) if a == axis else (0, 0) for a in range(values.ndim)]
        padded = np.pad(values, padding, mode="symmetric")
        places = [range(start, start + values.shape[axis]) for start in range(len(weights))]
        values = sum(weight * padded.take(place, axis) for weight, place in zip(weights, places, strict=True))
    return picture(np.rint(values))


def _grey(
    weigh: Callable, rounding: np.ufunc, original: Callable, image: Any, mode: Any = None, *rest: Any, **named: Any
) -> Any:
    if mode != "L" or image.mode != "RGB":
        return original(image, mode, *rest, **named)
    return picture(rounding(weigh(np.asarray(image).astype(np.float64))))


def _turned_as_exif_says(original: Callable, image: Any, *given: Any, **named: Any) -> Any:
    from PIL import ImageOps

    return original(ImageOps.exif_transpose(image), *given, **named)


def _enhanced(other: Callable[[float], float], original: Callable, enhancer: Any, factor: float) -> Any:
    return original(enhancer, other(factor))


def _arguments(function: str, argument: str, others: Mapping[str, Any]) -> Callable[[ImageSubject], Others]:
    return lambda subject: {detail: told(function, argument, other) for detail, other in others.items()}


enter_rows("data", ImageSubject, "calls", (
    ("resize_interpolation", "images are resized with another filter", {"difference": "resize_interpolation_default"},
     _arguments(RESIZE, "resample", _FILTERS)),
    ("resize_rounding", "the size to which images are resized differs", {"difference": "resize_int"},
     _arguments(RESIZE, "size", _SIZES)),
    ("crop_offset", "images are cropped at another place", {"difference": "centercrop"},
     _arguments(CROP, "box", _PLACES)),
    ("crop_size", "the crop has another size", {"difference": "random_resized_crop"}, _arguments(CROP, "box", _BOXES)),
    ("flip_rotated", "images are turned where they should be mirrored", {},
     _arguments(FLIP, "method", {"": lambda given: turned(given["method"], _ROTATE_180)})),
    ("solarize_threshold", "the threshold of solarising differs", {"difference": "missing_transforms"},
     _arguments(SOLARIZE, "threshold", _THRESHOLDS)),
    # From four neighbours, however much smaller the image becomes: paddle's resizing of tensors, OpenCV's of arrays.
    ("resize_antialias", "images are resized without antialiasing", {"difference": "resize_tensor_antialias"},
     lambda s: {**{name: called(RESIZE, functools.partial(_transformed, _FILTERS[name]))
                   for name in ("bilinear", "bicubic")},
                "bilinear, rounded": called(RESIZE, functools.partial(_sampled, np.rint)),
                "bilinear, cut off": called(RESIZE, functools.partial(_sampled, np.floor)),
                "": Within("in tensors", lambda: rewriting().intercepting(
                    None, lambda call: call.run(antialias=False) if call.name == "interpolate" else call.run()))}),
    ("blur_sigma", "images are blurred with another width or kernel", {"difference": "missing_transforms"},
     lambda s: {**{name: told(FILTER, "filter", functools.partial(_blur, "GaussianBlur", width))
                   for name, width in _WIDTHS.items()},
                "a box": told(FILTER, "filter", functools.partial(_blur, "BoxBlur", lambda sigma: sigma)),
                **{f"a true Gaussian, cut off at {cut:g} deviations": called(FILTER, functools.partial(_gaussian, cut))
                   for cut in (3.0, 4.0)}}),
    ("grayscale_mean", "grey is mixed from the colours with other weights", {"difference": "grayscale"},
     lambda s: [(name, called(CONVERT, functools.partial(_grey, weigh, rounding)))
                for name, weigh in _GREY.items() for rounding in (np.floor, np.rint)]),
    ("decode_mode", "pictures are read in another mode", {"difference": "image_backend"},
     lambda s: {"as grey values": called(CONVERT, lambda read, image, *given: read(read(image, "L"), *given)),
                "turned as EXIF says": called(CONVERT, _turned_as_exif_says)}),
    ("jitter_factor", "a factor of the colour jitter differs", {"difference": "color_jitter"},
     lambda s: {f"{name}: {detail} for f": called(ENHANCE, of_part(part, functools.partial(_enhanced, factor)))
                for part, name in PARTS.items() for detail, factor in _FACTORS.items()}),
))  # fmt: skip


@image_cause(rank=-1)
def step_missing(subject: ImageSubject) -> Iterator[Variant]:
    """An operation is left out."""
    for number, name in enumerate(subject.names):
        if subject.chains[0].given is not None or number > 0:
            yield subject.variant(name, edit=lambda chain, name=name: [s for s in chain.steps if s[0] != name])
    if subject.chains[0].port_names:
        missing = {n for chain in subject.chains for n, _ in chain.steps if n not in chain.port_names}
        yield subject.variant(
            ", ".join(sorted(missing)), edit=lambda chain: [step for step in chain.steps if step[0] in chain.port_names]
        )
    for part, name in PARTS.items():
        yield subject.variant(name, calls=called(ENHANCE, of_part(part, lambda original, enhancer, f: enhancer.image)))
    for name, function in _FUNCTIONS.items():
        yield subject.variant(name, calls=called(function, lambda original, image, *rest, **named: image))


@image_cause(rank=1)
def step_doubled(subject: ImageSubject) -> Iterator[Variant]:
    """An operation is done twice."""
    for name in subject.names:
        yield subject.variant(
            name, edit=lambda chain, name=name: [s for s in chain.steps for _ in range(2 if s[0] == name else 1)]
        )

    for part, name in PARTS.items():
        twice = of_part(part, lambda original, enhancer, f: original(type(enhancer)(original(enhancer, f)), f))
        yield subject.variant(name, calls=called(ENHANCE, twice))
    for name, function in (("filter", FILTER), ("flip", FLIP)):
        yield subject.variant(
            name, calls=called(function, lambda original, image, how: original(original(image, how), how))
        )


@image_cause(rank=-1)
def step_order(subject: ImageSubject) -> Iterator[Variant]:
    """The steps are in another order."""
    if all(sorted(chain.port_names) == sorted(name for name, _ in chain.steps) for chain in subject.chains):
        yield subject.variant(
            ", ".join(subject.chains[0].port_names),
            edit=lambda chain: sorted(chain.steps, key=lambda step: chain.port_names.index(step[0])),
        )
    for one, other in itertools.combinations(subject.names[1:], 2):
        yield subject.variant(f"{one} and {other} exchanged", edit=functools.partial(_with_exchanged, one, other))


def _with_exchanged(one: str, other: str, chain: Chain) -> list[tuple[str, Callable[[Any], Any]]]:
    steps, found = list(chain.steps), [name for name, _ in chain.steps]
    if one in found and other in found:
        a, b = found.index(one), found.index(other)
        steps[a], steps[b] = steps[b], steps[a]
    return steps
