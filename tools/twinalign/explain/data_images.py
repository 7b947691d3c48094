"""Hypotheses about image operations: resizing, cropping, colours, blur. Both frameworks' come down to Pillow's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from twinalign.explain.data import ImageHypothesis, ImageSubject
from twinalign.explain.registry import Variant, register

IMAGE = "PIL.Image:Image"
ENHANCER = "PIL.ImageEnhance:_Enhance"
_FILTERS = {"nearest": 0, "Lanczos": 1, "bilinear": 2, "bicubic": 3, "box": 4, "Hamming": 5}
_FLIP_LEFT_RIGHT, _FLIP_TOP_BOTTOM, _ROTATE_180 = 0, 1, 3


@register
class ResizeInterpolation(ImageHypothesis):
    """Another filter."""

    id = "resize_interpolation"
    text = "images are resized with another filter"
    difference = "resize_interpolation_default"

    def of(self, subject: ImageSubject) -> Iterator[Variant]:
        """Each of Pillow's."""
        for name, number in _FILTERS.items():

            def resize(
                original: Callable,
                image: Any,
                size: Any,
                resample: Any = None,
                *rest: Any,
                n: int = number,
                **named: Any,
            ) -> Any:
                return original(image, size, n, *rest, **named)

            yield subject.called(name, IMAGE, "resize", resize)


@register
class ResizeAntialias(ImageHypothesis):
    """Four neighbours, however much smaller the image becomes: paddle's resizing of tensors, OpenCV's of arrays."""

    id = "resize_antialias"
    text = "images are resized without antialiasing"
    difference = "resize_tensor_antialias"

    def of(self, subject: ImageSubject) -> Iterator[Variant]:
        """Bilinearly and bicubically, by Pillow's sampling and by arithmetic with each rounding; in tensors too."""
        from twinalign.explain.data_tensors import without_antialiasing

        for name, method in (("bilinear", 2), ("bicubic", 3)):

            def resize(
                original: Callable, image: Any, size: Any, *rest: Any, method: int = method, **named: Any
            ) -> Any:
                scale = image.size[0] / size[0], image.size[1] / size[1]
                return image.transform(tuple(size), 0, (scale[0], 0, 0, 0, scale[1], 0), method)

            yield subject.called(name, IMAGE, "resize", resize)
        for name, rounding in (("rounded", np.rint), ("cut off", np.floor)):

            def sampled(
                original: Callable, image: Any, size: Any, *rest: Any, rounding: Any = rounding, **named: Any
            ) -> Any:
                return type_of(image, rounding(bilinear(np.asarray(image), size[1], size[0])))

            yield subject.called(f"bilinear, {name}", IMAGE, "resize", sampled)
        yield without_antialiasing(subject)


def type_of(image: Any, values: np.ndarray) -> Any:
    """Values as a Pillow image."""
    from PIL import Image

    return Image.fromarray(values.clip(0, 255).astype(np.uint8))


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


@register
class ResizeRounding(ImageHypothesis):
    """The long side is a pixel more or less, or the aspect is not kept."""

    id = "resize_rounding"
    text = "the size to which images are resized is another one"
    difference = "resize_int"

    def of(self, subject: ImageSubject) -> Iterator[Variant]:
        """A pixel more or less for one side or both; a square; the other side's length."""
        for width, height in ((1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, -1)):

            def resize(
                original: Callable, image: Any, size: Any, *rest: Any, by: Any = (width, height), **named: Any
            ) -> Any:
                return original(image, (size[0] + by[0], size[1] + by[1]), *rest, **named)

            yield subject.called(f"by {width}, {height} pixels", IMAGE, "resize", resize)
        for name, choose in (("a square of the shorter side", min), ("a square of the longer side", max)):

            def square(
                original: Callable, image: Any, size: Any, *rest: Any, choose: Any = choose, **named: Any
            ) -> Any:
                return original(image, (choose(size), choose(size)), *rest, **named)

            yield subject.called(name, IMAGE, "resize", square)


@register
class CropOffset(ImageHypothesis):
    """Off by a pixel, or top for left."""

    id = "crop_offset"
    text = "images are cropped at another place"
    difference = "centercrop"

    def of(self, subject: ImageSubject) -> Iterator[Variant]:
        """By a pixel or two in any direction; top and left exchanged; at a corner; in the middle."""
        steps = [(x, y) for size in (1, 2) for x in (0, size, -size) for y in (0, size, -size) if x or y]
        for x, y in steps:
            yield subject.called(f"{x:+d} to the right, {y:+d} down", IMAGE, "crop", _cropped(_moved(x, y)))
        yield subject.called("top and left exchanged", IMAGE, "crop", _cropped(lambda b, i: (b[1], b[0])))
        yield subject.called("in the corner", IMAGE, "crop", _cropped(lambda b, i: (0, 0)))
        yield subject.called(
            "in the middle",
            IMAGE,
            "crop",
            _cropped(lambda b, i: ((i.size[0] - b[2] + b[0]) // 2, (i.size[1] - b[3] + b[1]) // 2)),
        )


def _moved(x: int, y: int) -> Callable[[Any, Any], tuple[int, int]]:
    return lambda box, image: (box[0] + x, box[1] + y)


def _cropped(place: Callable[[Any, Any], tuple[int, int]]) -> Callable[..., Any]:
    """A crop of the same size whose left and top are given by the box and the image."""

    def crop(original: Callable, image: Any, box: Any = None) -> Any:
        left, top = place(box, image)
        return original(image, (left, top, left + box[2] - box[0], top + box[3] - box[1]))

    return crop


@register
class CropSize(ImageHypothesis):
    """A pixel more or less, height for width."""

    id = "crop_size"
    text = "the crop has another size"
    difference = "random_resized_crop"

    def of(self, subject: ImageSubject) -> Iterator[Variant]:
        """A pixel more or less, height and width exchanged."""
        for width, height in ((1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, -1)):

            def crop(original: Callable, image: Any, box: Any = None, by: Any = (width, height)) -> Any:
                return original(image, (box[0], box[1], box[2] + by[0], box[3] + by[1]))

            yield subject.called(f"by {width}, {height} pixels", IMAGE, "crop", crop)

        def exchanged(original: Callable, image: Any, box: Any = None) -> Any:
            return original(image, (box[0], box[1], box[0] + box[3] - box[1], box[1] + box[2] - box[0]))

        yield subject.called("height and width exchanged", IMAGE, "crop", exchanged)


PARTS = {"Brightness": "brightness", "Contrast": "contrast", "Color": "saturation", "Sharpness": "sharpness"}
"""Pillow's enhancers and what they change."""


def of_part(part: str, change: Callable[[Callable, Any, float], Any]) -> Callable[..., Any]:
    """What Pillow's enhancer of this kind does instead."""

    def enhance(original: Callable, enhancer: Any, factor: float) -> Any:
        if type(enhancer).__name__ != part:
            return original(enhancer, factor)
        return change(original, enhancer, factor)

    return enhance


@register
class OperationMissing(ImageHypothesis):
    """One operation within a step, or a whole step, is not done."""

    id = "step_missing"
    text = "an operation is left out"
    rank = -1

    def of(self, subject: ImageSubject) -> Iterator[Variant]:
        """A step of the chain; the step itself; a flip, a filter, a part of the colour jitter, a solarisation."""
        for number, name in enumerate(subject.names):
            if subject.chains[0].given is not None or number > 0:
                yield subject.edited(name, lambda chain, name=name: [s for s in chain.steps if s[0] != name])  # type: ignore[misc]
        if subject.port_names:
            names = {id(chain): set(own) for chain, own in zip(subject.chains, subject.port_names, strict=True)}
            listed = {n for chain in subject.chains for n, _ in chain.steps if n not in names[id(chain)]}
            yield subject.edited(
                ", ".join(sorted(listed)), lambda chain: [step for step in chain.steps if step[0] in names[id(chain)]]
            )
        for part, name in PARTS.items():
            yield subject.called(name, ENHANCER, "enhance", of_part(part, lambda o, enhancer, f: enhancer.image))
        yield subject.called("flip", IMAGE, "transpose", lambda original, image, method: image)
        yield subject.called("filter", IMAGE, "filter", lambda original, image, kernel: image)
        yield subject.called("solarisation", "PIL.ImageOps", "solarize", lambda original, image, *rest, **named: image)
        yield subject.called("resizing", IMAGE, "resize", lambda original, image, *rest, **named: image)
        yield subject.called("cropping", IMAGE, "crop", lambda original, image, *rest, **named: image)


@register
class OperationDoubled(ImageHypothesis):
    """One operation within a step, or a whole step, is done twice."""

    id = "step_doubled"
    text = "an operation is done twice"

    def of(self, subject: ImageSubject) -> Iterator[Variant]:
        """A step of the chain; the step itself; a part of the colour jitter, a filter, a flip."""
        for name in subject.names:

            def edit(chain: Any, name: str = name) -> list:
                return [step for one in chain.steps for step in ([one, one] if one[0] == name else [one])]

            yield subject.edited(name, edit)
        for part, name in PARTS.items():

            def twice(original: Callable, enhancer: Any, factor: float) -> Any:
                return original(type(enhancer)(original(enhancer, factor)), factor)

            yield subject.called(name, ENHANCER, "enhance", of_part(part, twice))
        yield subject.called(
            "filter", IMAGE, "filter", lambda original, image, kernel: original(original(image, kernel), kernel)
        )
        yield subject.called("flip", IMAGE, "transpose", lambda original, image, m: original(original(image, m), m))


@register
class StepOrder(ImageHypothesis):
    """Two steps have changed places."""

    id = "step_order"
    text = "the steps are in another order"
    rank = -1

    def of(self, subject: ImageSubject) -> Iterator[Variant]:
        """The port's, where it has the same ones; any two of them exchanged."""
        if subject.port_names and all(
            sorted(own) == sorted(name for name, _ in chain.steps)
            for chain, own in zip(subject.chains, subject.port_names, strict=True)
        ):
            places = {id(chain): list(own) for chain, own in zip(subject.chains, subject.port_names, strict=True)}
            yield subject.edited(
                ", ".join(subject.port_names[0]),
                lambda chain: sorted(chain.steps, key=lambda step: places[id(chain)].index(step[0])),
            )
        names = subject.names
        for first in range(1, len(names)):
            for second in range(first + 1, len(names)):

                def edit(chain: Any, one: str = names[first], other: str = names[second]) -> list:
                    found = [name for name, _ in chain.steps]
                    if one not in found or other not in found:
                        return list(chain.steps)
                    steps = list(chain.steps)
                    a, b = found.index(one), found.index(other)
                    steps[a], steps[b] = steps[b], steps[a]
                    return steps

                yield subject.edited(f"{names[first]} and {names[second]} exchanged", edit)


@register
class FlipKind(ImageHypothesis):
    """Turned by half for mirrored."""

    id = "flip_rotated"
    text = "images are turned where they should be mirrored"

    def of(self, subject: ImageSubject) -> Iterator[Variant]:
        """By half a turn."""

        def turn(original: Callable, image: Any, method: Any) -> Any:
            return original(image, _ROTATE_180 if int(method) == _FLIP_LEFT_RIGHT else method)

        yield subject.called("", IMAGE, "transpose", turn)
