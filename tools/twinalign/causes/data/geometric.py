"""Resizing and cropping of images."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from twinalign.backends.torch.reference_only.operations import FunctionCall
from twinalign.causes.data.subject import IMAGE, ImageSubject, image_cause, picture
from twinalign.causes.registry import Variant, Within
from twinalign.replay.wrong_unit import rewriting

_FILTERS = {"nearest": 0, "Lanczos": 1, "bilinear": 2, "bicubic": 3, "box": 4, "Hamming": 5}
_BY_ONE = ((1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, -1))
Box = tuple[int, int, int, int]
"""Left, top, right, bottom."""


@image_cause(difference="resize_interpolation_default")
def resize_interpolation(subject: ImageSubject) -> Iterator[Variant]:
    """Images are resized with another filter."""
    for name, number in _FILTERS.items():

        def resize(
            original: Callable, image: Any, size: Any, resample: Any = None, *rest: Any, n: int = number, **named: Any
        ) -> Any:
            return original(image, size, n, *rest, **named)

        yield subject.called(name, IMAGE, "resize", resize)


@image_cause(difference="resize_tensor_antialias")
def resize_antialias(subject: ImageSubject) -> Iterator[Variant]:
    """Images are resized without antialiasing."""
    # From four neighbours, however much smaller the image becomes: paddle's resizing of tensors, OpenCV's of arrays.
    for name, method in (("bilinear", 2), ("bicubic", 3)):

        def resize(original: Callable, image: Any, size: Any, *rest: Any, method: int = method, **named: Any) -> Any:
            scale = image.size[0] / size[0], image.size[1] / size[1]
            return image.transform(tuple(size), 0, (scale[0], 0, 0, 0, scale[1], 0), method)

        yield subject.called(name, IMAGE, "resize", resize)
    for name, rounding in (("rounded", np.rint), ("cut off", np.floor)):

        def sampled(original: Callable, image: Any, size: Any, *rest: Any, r: Any = rounding, **named: Any) -> Any:
            return picture(r(bilinear(np.asarray(image), size[1], size[0])))

        yield subject.called(f"bilinear, {name}", IMAGE, "resize", sampled)
    yield Within("in tensors", lambda: rewriting().intercepting(None, _without_antialiasing))


def _without_antialiasing(call: FunctionCall) -> Any:
    return call.run(antialias=False) if call.name == "interpolate" else call.run()


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


@image_cause(difference="resize_int")
def resize_rounding(subject: ImageSubject) -> Iterator[Variant]:
    """The size to which images are resized differs."""

    def resized(detail: str, other: Callable[[int, int], tuple[int, int]]) -> Variant:
        def resize(original: Callable, image: Any, size: Any, *rest: Any, **named: Any) -> Any:
            return original(image, other(*size), *rest, **named)

        return subject.called(detail, IMAGE, "resize", resize)

    for by in _BY_ONE:
        yield resized(f"by {by[0]}, {by[1]} pixels", lambda w, h, by=by: (w + by[0], h + by[1]))  # type: ignore[misc]
    yield resized("a square of the shorter side", lambda *size: (min(size), min(size)))
    yield resized("a square of the longer side", lambda *size: (max(size), max(size)))


def _cropped(subject: ImageSubject, detail: str, other: Callable[[Box, Any], Box]) -> Variant:
    """The variant that crops to another box, made of that of the reference and the image."""

    def crop(original: Callable, image: Any, box: Any = None) -> Any:
        return original(image, other(box, image))

    return subject.called(detail, IMAGE, "crop", crop)


def _at(left: int, top: int, box: Box) -> Box:
    return left, top, left + box[2] - box[0], top + box[3] - box[1]


@image_cause(difference="centercrop")
def crop_offset(subject: ImageSubject) -> Iterator[Variant]:
    """Images are cropped at another place."""
    for x, y in [(x, y) for size in (1, 2) for x in (0, size, -size) for y in (0, size, -size) if x or y]:

        def moved(box: Box, image: Any, x: int = x, y: int = y) -> Box:
            return _at(box[0] + x, box[1] + y, box)

        yield _cropped(subject, f"{x:+d} to the right, {y:+d} down", moved)

    def centred(box: Box, image: Any) -> Box:
        return _at((image.size[0] - box[2] + box[0]) // 2, (image.size[1] - box[3] + box[1]) // 2, box)

    yield _cropped(subject, "top and left exchanged", lambda box, image: _at(box[1], box[0], box))
    yield _cropped(subject, "in the corner", lambda box, image: _at(0, 0, box))
    yield _cropped(subject, "in the middle", centred)


@image_cause(difference="random_resized_crop")
def crop_size(subject: ImageSubject) -> Iterator[Variant]:
    """The crop has another size."""
    for width, height in _BY_ONE:

        def larger(box: Box, image: Any, width: int = width, height: int = height) -> Box:
            return box[0], box[1], box[2] + width, box[3] + height

        yield _cropped(subject, f"by {width}, {height} pixels", larger)

    def exchanged(box: Box, image: Any) -> Box:
        return box[0], box[1], box[0] + box[3] - box[1], box[1] + box[2] - box[0]

    yield _cropped(subject, "height and width exchanged", exchanged)
