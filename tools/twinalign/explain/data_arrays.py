"""Hypotheses about what is done to an image once it is numbers: channels, axes, scale, normalisation, flips."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from twinalign.explain.data import USUAL_CONSTANTS, ImageHypothesis, ImageSubject, lines_between
from twinalign.explain.registry import Variant, register


def _channels(image: np.ndarray) -> int | None:
    """The axis of the channels, from the end: -3 or -1; None where there are none."""
    if image.ndim >= 3 and image.shape[-3] in (1, 3, 4):
        return -3
    return -1 if image.ndim >= 3 and image.shape[-1] in (1, 3, 4) else None


def _spread(values: np.ndarray, image: np.ndarray) -> np.ndarray:
    """A number for each channel, shaped to fit an image; raises ValueError where there are not as many."""
    axis = _channels(image)
    if axis is None or image.shape[axis] != len(values):
        raise ValueError("as many constants as channels")
    return values.reshape([-1, 1, 1] if axis == -3 else [-1])


def _between(mean: np.ndarray, deviation: np.ndarray, change: Callable[[np.ndarray], np.ndarray]) -> Callable:
    """What is done to an image before it is normalised, while it is in the range 0 … 1."""

    def changed(image: np.ndarray) -> np.ndarray:
        m, s = _spread(mean, image), _spread(deviation, image)
        return (change(image * s + m) - m) / s

    return changed


@register
class ChannelsReversed(ImageHypothesis):
    """BGR for RGB, before the normalisation or after it."""

    id = "channels_reversed"
    text = "the channels are in the order blue, green, red"
    difference = "image_backend"

    def of(self, subject: ImageSubject) -> Iterator[Variant]:
        """After the normalisation, and before it."""

        def reverse(image: np.ndarray) -> np.ndarray:
            axis = _channels(image)
            return image if axis is None else np.flip(image, axis)

        yield subject.changed("", reverse)
        for modes in (("HSV",), ()):  # the hue is shifted in HSV, and what comes back from there is not read
            yield subject.called(
                "as pictures are read", "PIL.Image:Image", "convert", functools.partial(_read_reversed, modes)
            )
        for mean, deviation in subject.constants:
            yield subject.changed("before they are normalised", _between(mean, deviation, reverse))


def _read_reversed(
    kept: tuple[str, ...], original: Callable, image: Any, mode: Any = None, *rest: Any, **named: Any
) -> Any:
    from PIL import Image

    found = original(image, mode, *rest, **named)
    return Image.merge("RGB", found.split()[::-1]) if mode == "RGB" and image.mode not in kept else found


@register
class FlipExtra(ImageHypothesis):
    """Mirrored once more, or not."""

    id = "flip_extra"
    text = "images are mirrored left to right once more, or once less"
    rank = 1

    def of(self, subject: ImageSubject) -> Iterator[Variant]:
        """The last axis, or the one before the channels."""
        yield subject.changed("", lambda image: np.flip(image, -1 if _channels(image) != -1 else -2))


@register
class FlipVertical(ImageHypothesis):
    """Upside down."""

    id = "flip_vertical"
    text = "images are flipped upside down"
    rank = 1

    def of(self, subject: ImageSubject) -> Iterator[Variant]:
        """By itself, and in place of the flip left to right."""

        def rows(image: np.ndarray) -> int:
            return -2 if _channels(image) != -1 else -3

        yield subject.called("not left to right", "PIL.Image:Image", "transpose", _upside_down)
        yield subject.changed("", lambda image: np.flip(image, rows(image)))
        yield subject.changed("and mirrored", lambda image: np.flip(image, (rows(image), rows(image) + 1)))


def _upside_down(original: Callable, image: object, method: int) -> object:
    return original(image, 1 if int(method) == 0 else method)


@register
class AxesTransposed(ImageHypothesis):
    """Height and width, or the axis of the channels."""

    id = "axes_transposed"
    text = "the axes of the image are exchanged"
    difference = "normalize_input"

    def of(self, subject: ImageSubject) -> Iterator[Variant]:
        """Height and width; channels last for first, first for last."""
        yield subject.changed("height and width", _height_and_width)
        yield subject.changed("channels last", lambda image: np.moveaxis(image, -3, -1))
        yield subject.changed("channels first", lambda image: np.moveaxis(image, -1, -3))


def _height_and_width(image: np.ndarray) -> np.ndarray:
    axes = (-1, -2) if image.ndim < 3 or _channels(image) != -1 else (-2, -3)
    return np.swapaxes(image, *axes)


@register
class LayoutReinterpreted(ImageHypothesis):
    """reshape for transpose: the numbers stay where they lie."""

    id = "layout_reinterpreted"
    text = "the image is reshaped where its axes should be exchanged: its numbers are scattered"

    def of(self, subject: ImageSubject) -> Iterator[Variant]:
        """Channels last read as channels first, and the other way round."""
        yield subject.changed("", lambda image: np.ascontiguousarray(np.moveaxis(image, -3, -1)).reshape(image.shape))
        yield subject.changed(
            "",
            lambda image: np.moveaxis(image.reshape(*image.shape[:-3], *image.shape[-2:], image.shape[-3]), -1, -3),
        )


@register
class NotScaled(ImageHypothesis):
    """Pixels from 0 to 255 where they should be from 0 to 1."""

    id = "scale_255"
    text = "pixels are not divided by 255"
    difference = "normalize_input"

    def of(self, subject: ImageSubject) -> Iterator[Variant]:
        """Of the result; before the normalisation; divided once more."""
        yield subject.changed("the result is 255 times too large", lambda image: image * 255)
        for mean, deviation in subject.constants:
            yield subject.changed("before they are normalised", _between(mean, deviation, lambda image: image * 255))
        yield subject.changed("but twice", lambda image: image / 255)
        for mean, deviation in subject.constants:
            yield subject.changed("but twice", _between(mean, deviation, lambda image: image / 255))
        for divisor in (256.0, 127.5, 128.0):
            for mean, deviation in subject.constants:
                change = _between(mean, deviation, functools.partial(np.multiply, 255 / divisor))
                yield subject.changed(f"but by {divisor:g}", change)


@register
class NormalizeBeforeScaling(ImageHypothesis):
    """(255 x - mean) / std / 255."""

    id = "normalize_before_scaling"
    text = "pixels are normalised before they are divided by 255"
    difference = "normalize_input"

    def of(self, subject: ImageSubject) -> Iterator[Variant]:
        """With each set of constants."""
        for mean, deviation in subject.constants:
            before = _between(mean, deviation, lambda image: image * 255)
            yield subject.changed("", functools.partial(_divided, before))


@register
class NormalizeMissing(ImageHypothesis):
    """Pixels from 0 to 1."""

    id = "normalize_missing"
    text = "the image is not normalised"

    def of(self, subject: ImageSubject) -> Iterator[Variant]:
        """From 0 to 1, and from 0 to 255."""
        for mean, deviation in subject.constants:
            for scale, detail in ((1.0, ""), (255.0, "nor divided by 255")):
                yield subject.changed(detail, functools.partial(_plain, mean, deviation, scale))


def _plain(mean: np.ndarray, deviation: np.ndarray, scale: float, image: np.ndarray) -> np.ndarray:
    return (image * _spread(deviation, image) + _spread(mean, image)) * scale


def _normalized(mean: np.ndarray, deviation: np.ndarray, image: np.ndarray) -> np.ndarray:
    normalized: np.ndarray = (image - _spread(mean, image)) / _spread(deviation, image)
    return normalized


def _divided(before: Callable[[np.ndarray], np.ndarray], image: np.ndarray) -> np.ndarray:
    return before(image) / 255


@register
class NormalizedTwice(ImageHypothesis):
    """Once by the transform, once by the training loop."""

    id = "normalized_twice"
    text = "the image is normalised twice"

    def of(self, subject: ImageSubject) -> Iterator[Variant]:
        """With each set of constants."""
        for mean, deviation in subject.constants:
            yield subject.changed("", functools.partial(_normalized, mean, deviation))


def _other_constants(
    subject: ImageSubject, others: Iterable[tuple[str, np.ndarray, np.ndarray]], mean: np.ndarray, deviation: np.ndarray
) -> Iterator[Variant]:
    for detail, other_mean, other_deviation in others:

        def change(image: np.ndarray, om: np.ndarray = other_mean, od: np.ndarray = other_deviation) -> np.ndarray:
            plain = image * _spread(deviation, image) + _spread(mean, image)
            return (plain - _spread(om, image)) / _spread(od, image)

        yield subject.changed(detail, change)


def _listed(values: np.ndarray) -> str:
    return ", ".join(f"{value:.4g}" for value in values)


@register
class NormalizeMean(ImageHypothesis):
    """Another mean."""

    id = "normalize_mean"
    text = "another mean is subtracted"

    def of(self, subject: ImageSubject) -> Iterator[Variant]:
        """None, reversed, usual ones."""
        for mean, deviation in subject.constants:
            others = [np.zeros(len(mean)), mean[::-1], *(np.array(m) for m, _ in USUAL_CONSTANTS)]
            named = ((f"{_listed(other)} for {_listed(mean)}", other, deviation) for other in others)
            yield from _other_constants(subject, named, mean, deviation)


@register
class NormalizeDeviation(ImageHypothesis):
    """Another deviation."""

    id = "normalize_std"
    text = "another standard deviation is divided by"

    def of(self, subject: ImageSubject) -> Iterator[Variant]:
        """None, reversed, squared, usual ones."""
        for mean, deviation in subject.constants:
            others = [np.ones(len(mean)), deviation[::-1], deviation**2, *(np.array(s) for _, s in USUAL_CONSTANTS)]
            named = ((f"{_listed(other)} for {_listed(deviation)}", mean, other) for other in others)
            yield from _other_constants(subject, named, mean, deviation)


@register
class NormalizeConstants(ImageHypothesis):
    """Both, or the line that fits."""

    id = "normalization_constants"
    text = "the image is normalised with other constants"
    rank = 1

    def of(self, subject: ImageSubject) -> Iterator[Variant]:
        """Usual pairs, both reversed, and, where the reference's are known, those that the port's images tell."""
        for mean, deviation in subject.constants:
            others = [(mean[::-1], deviation[::-1]), *((np.array(m), np.array(s)) for m, s in USUAL_CONSTANTS)]
            named = ((_exchange((m, s), (mean, deviation)), m, s) for m, s in others)
            yield from _other_constants(subject, named, mean, deviation)
        known = subject.known_constants
        fitted = _fitted(subject, *known) if known is not None else None
        if known is not None and fitted is not None:
            yield from _other_constants(subject, [(_exchange(fitted, known), *fitted)], *known)


def _exchange(port: tuple[np.ndarray, np.ndarray], reference: tuple[np.ndarray, np.ndarray]) -> str:
    stated = [f"mean {_listed(mean)} and deviation {_listed(deviation)}" for mean, deviation in (port, reference)]
    return " for ".join(stated)


def _rows(image: np.ndarray) -> np.ndarray:
    """A row for each channel; one row where there are no channels."""
    axis = _channels(image)
    return image.reshape(1, -1) if axis is None else np.moveaxis(image, axis, 0).reshape(image.shape[axis], -1)


def _fitted(subject: ImageSubject, mean: np.ndarray, deviation: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Mean and deviation with which the first image of the reference becomes the port's."""
    one, other = subject.reference["0"], subject.port["0"]
    if one.shape != other.shape or len(_rows(one)) != len(mean):
        return None
    lines = lines_between(_rows(_plain(mean, deviation, 1.0, one)), _rows(other))
    if lines is None or not all(slope for slope, _ in lines):
        return None
    return np.array([-start / slope for slope, start in lines]), np.array([1 / slope for slope, _ in lines])


@register
class ChannelsLinear(ImageHypothesis):
    """What other constants come down to where the reference's are not known: no more than that is proven."""

    id = "channels_linear"
    text = "pixels are the reference's times a factor, or plus a number"
    rank = 2

    def of(self, subject: ImageSubject) -> Iterator[Variant]:
        """The line of each channel, read off the first image."""
        one, other = subject.reference["0"], subject.port["0"]
        lines = lines_between(_rows(one), _rows(other)) if one.shape == other.shape else None
        if lines is None:
            return
        factors, starts = np.array(lines).T

        def change(image: np.ndarray) -> np.ndarray:
            return (
                image * _spread(factors, image) + _spread(starts, image) if len(lines) > 1 else image * factors + starts
            )

        smallest = 1e-6 * np.abs(other).max()
        words = [f"{a:.6g} x reference" + (f" {b:+.6g}" if abs(b) > smallest else "") for a, b in lines]
        same = len(set(words)) == 1
        each = [f"channel {number}: port = {text}" for number, text in enumerate(words)]
        yield subject.changed(f"port = {words[0]}" if same else "; ".join(each), change)
