"""Hypotheses about colours and filters of images: blur, solarisation, grey, decoding, factors of the colour jitter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from twinalign.explain.data import ImageHypothesis, ImageSubject
from twinalign.explain.data_images import ENHANCER, IMAGE, PARTS, of_part, type_of
from twinalign.explain.registry import Variant, register


@register
class BlurSigma(ImageHypothesis):
    """Another width, another kernel."""

    id = "blur_sigma"
    text = "images are blurred with another width or kernel"
    difference = "missing_transforms"

    def of(self, subject: ImageSubject) -> Iterator[Variant]:
        """Twice, half, root, square; a box; three times the width as kernels of OpenCV have it."""
        for name, width in (
            ("twice the width", lambda sigma: 2 * sigma),
            ("half the width", lambda sigma: sigma / 2),
            ("the width squared", lambda sigma: sigma**2),
            ("the root of the width", lambda sigma: sigma**0.5),
            ("the width rounded", round),
            ("three times the width", lambda sigma: 3 * sigma),
        ):
            yield subject.called(name, IMAGE, "filter", _blurred("GaussianBlur", width))
        yield subject.called("a box", IMAGE, "filter", _blurred("BoxBlur", lambda sigma: sigma))
        for truncated in (3.0, 4.0):
            yield subject.called(
                f"a true Gaussian, cut off at {truncated:g} deviations", IMAGE, "filter", _gaussian(truncated)
            )


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
        return type_of(image, np.rint(values))

    return blur


@register
class SolarizeThreshold(ImageHypothesis):
    """Another threshold."""

    id = "solarize_threshold"
    text = "images are solarised from another threshold on"
    difference = "missing_transforms"

    def of(self, subject: ImageSubject) -> Iterator[Variant]:
        """Any other one, the likely ones first."""
        for threshold in dict.fromkeys([127, 129, 64, 192, 0, 256, *range(257)]):
            yield subject.called(
                f"{threshold}",
                "PIL.ImageOps",
                "solarize",
                lambda original, image, *rest, t=threshold, **named: original(image, t),
            )


@register
class GrayscaleWeights(ImageHypothesis):
    """A plain mean for luma."""

    id = "grayscale_mean"
    text = "grey is made of the colours with other weights"
    difference = "grayscale"

    def of(self, subject: ImageSubject) -> Iterator[Variant]:
        """The plain mean, BT.709's weights, the largest, a single channel; each rounding."""
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

                def convert(
                    original: Callable,
                    image: Any,
                    mode: Any = None,
                    *rest: Any,
                    w: Any = weigh,
                    r: Any = rounding,
                    **named: Any,
                ) -> Any:
                    if mode != "L" or image.mode != "RGB":
                        return original(image, mode, *rest, **named)
                    return type_of(image, r(w(np.asarray(image).astype(np.float64))))

                yield subject.called(name, IMAGE, "convert", convert)


@register
class DecodeMode(ImageHypothesis):
    """Grey for colour, BGR for RGB, or turned as EXIF says."""

    id = "decode_mode"
    text = "pictures are read in another mode"
    difference = "image_backend"

    def of(self, subject: ImageSubject) -> Iterator[Variant]:
        """As grey values; with the EXIF orientation applied."""

        def grey(original: Callable, image: Any, mode: Any = None, *rest: Any, **named: Any) -> Any:
            return original(original(image, "L"), mode, *rest, **named)

        def turned(original: Callable, image: Any, mode: Any = None, *rest: Any, **named: Any) -> Any:
            from PIL import ImageOps

            return original(ImageOps.exif_transpose(image), mode, *rest, **named)

        yield subject.called("as grey values", IMAGE, "convert", grey)
        yield subject.called("turned as EXIF says", IMAGE, "convert", turned)


@register
class EnhanceFactor(ImageHypothesis):
    """The other way: 1/f or 2 - f for f."""

    id = "jitter_factor"
    text = "a factor of the colour jitter is another one"
    difference = "color_jitter"

    def of(self, subject: ImageSubject) -> Iterator[Variant]:
        """Its inverse, its mirror, its square, of each part."""
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
