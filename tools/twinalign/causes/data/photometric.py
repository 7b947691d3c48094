"""Colours and filters of images: blur, solarisation, grey, decoding, factors of the colour jitter."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from twinalign.causes.data.subject import ENHANCER, IMAGE, PARTS, ImageSubject, image_cause, of_part, picture
from twinalign.causes.registry import Variant


@image_cause(difference="missing_transforms")
def blur_sigma(subject: ImageSubject) -> Iterator[Variant]:
    """Images are blurred with another width or kernel."""
    widths: dict[str, Callable[[float], float]] = {
        "twice the width": lambda sigma: 2 * sigma,
        "half the width": lambda sigma: sigma / 2,
        "the width squared": lambda sigma: sigma**2,
        "the root of the width": lambda sigma: sigma**0.5,
        "the width rounded": round,
        "three times the width": lambda sigma: 3 * sigma,
    }
    for name, width in widths.items():
        yield subject.called(name, IMAGE, "filter", _blurred("GaussianBlur", width))
    yield subject.called("a box", IMAGE, "filter", _blurred("BoxBlur", lambda sigma: sigma))
    for cut in (3.0, 4.0):
        name = f"a true Gaussian, cut off at {cut:g} deviations"
        yield subject.called(name, IMAGE, "filter", _gaussian(cut))


def _blurred(kind: str, width: Callable[[float], float]) -> Callable[..., Any]:
    def blur(original: Callable, image: Any, kernel: Any) -> Any:
        from PIL import ImageFilter

        return original(image, getattr(ImageFilter, kind)(width(kernel.radius)))

    return blur


def _gaussian(truncated: float) -> Callable[..., Any]:
    """A convolution with a sampled Gaussian, borders mirrored, rounded at the end."""

    def blur(original: Callable, image: Any, kernel: Any) -> Any:
        sigma, values = float(kernel.radius), np.asarray(image).astype(np.float64)
        reach = int(truncated * sigma + 0.5)
        weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) / sigma) ** 2)
        weights /= weights.sum()
        for axis in (0, 1):
            padding = [(reach, reach) if a == axis else (0, 0) for a in range(values.ndim)]
            padded = np.pad(values, padding, mode="symmetric")
            values = sum(
                weight * padded.take(range(start, start + values.shape[axis]), axis)
                for start, weight in enumerate(weights)
            )
        return picture(np.rint(values))

    return blur


@image_cause(difference="missing_transforms")
def solarize_threshold(subject: ImageSubject) -> Iterator[Variant]:
    """The threshold of solarising differs."""
    for threshold in dict.fromkeys([127, 129, 64, 192, 0, 256, *range(257)]):

        def solarize(original: Callable, image: Any, *rest: Any, t: int = threshold, **named: Any) -> Any:
            return original(image, t)

        yield subject.called(f"{threshold}", "PIL.ImageOps", "solarize", solarize)


@image_cause(difference="grayscale")
def grayscale_mean(subject: ImageSubject) -> Iterator[Variant]:
    """Grey is mixed from the colours with other weights."""
    weightings: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "the plain mean": lambda p: p.mean(axis=-1),
        "BT.709's weights": lambda p: p @ [0.2126, 0.7152, 0.0722],
        "BT.601's weights for blue, green, red": lambda p: p @ [0.114, 0.587, 0.299],
        "the weights 0.2989, 0.587, 0.114": lambda p: p @ [0.2989, 0.587, 0.114],
        "the largest and the smallest colour's mean": lambda p: (p.max(axis=-1) + p.min(axis=-1)) / 2,
        "green alone": lambda p: p[..., 1],
    }
    for name, weigh in weightings.items():
        for rounding in (np.floor, np.rint):
            yield subject.called(name, IMAGE, "convert", _to_grey(weigh, rounding))


def _to_grey(weigh: Callable[[np.ndarray], np.ndarray], rounding: np.ufunc) -> Callable[..., Any]:
    def convert(original: Callable, image: Any, mode: Any = None, *rest: Any, **named: Any) -> Any:
        if mode != "L" or image.mode != "RGB":
            return original(image, mode, *rest, **named)
        return picture(rounding(weigh(np.asarray(image).astype(np.float64))))

    return convert


@image_cause(difference="image_backend")
def decode_mode(subject: ImageSubject) -> Iterator[Variant]:
    """Pictures are read in another mode."""

    def grey(original: Callable, image: Any, mode: Any = None, *rest: Any, **named: Any) -> Any:
        return original(original(image, "L"), mode, *rest, **named)

    def turned(original: Callable, image: Any, mode: Any = None, *rest: Any, **named: Any) -> Any:
        from PIL import ImageOps

        return original(ImageOps.exif_transpose(image), mode, *rest, **named)

    yield subject.called("as grey values", IMAGE, "convert", grey)
    yield subject.called("turned as EXIF says", IMAGE, "convert", turned)


@image_cause(difference="color_jitter")
def jitter_factor(subject: ImageSubject) -> Iterator[Variant]:
    """A factor of the colour jitter differs."""
    changes: dict[str, Callable[[float], float]] = {
        "1/f": lambda f: 1 / f,
        "2 - f": lambda f: 2 - f,
        "f squared": lambda f: f * f,
        "f - 1": lambda f: f - 1,
    }
    for part, name in PARTS.items():
        for detail, change in changes.items():

            def enhance(original: Callable, enhancer: Any, factor: float, c: Any = change) -> Any:
                return original(enhancer, c(factor))

            yield subject.called(f"{name}: {detail} for f", ENHANCER, "enhance", of_part(part, enhance))
