"""What is done to an image once it is numbers: order of channels and axes, scale, normalisation, flips."""

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from twinalign.causes.component import Others, Pairs, enter_rows
from twinalign.causes.data.pictures import turned
from twinalign.causes.data.subject import (
    CONVERT,
    FLIP,
    USUAL_CONSTANTS,
    Change,
    Constants,
    ImageSubject,
    called,
    constants_between,
    image_cause,
    lines_between,
    told,
)
from twinalign.causes.registry import Variant

_FLIP_TOP_BOTTOM = 1


def _channels(image: np.ndarray) -> int | None:
    """The axis of the channels, from the end: -3 or -1; None where there are none."""
    if image.ndim >= 3 and image.shape[-3] in (1, 3, 4):
        return -3
    return -1 if image.ndim >= 3 and image.shape[-1] in (1, 3, 4) else None


def _rows_and_columns(image: np.ndarray) -> tuple[int, int]:
    """The axes of height and width, from the end."""
    return (-3, -2) if _channels(image) == -1 else (-2, -1)


def _spread(values: np.ndarray, image: np.ndarray) -> np.ndarray:
    """A number for each channel, shaped to fit an image; raises ValueError where there are not as many."""
    axis = _channels(image)
    if axis is None or image.shape[axis] != len(values):
        raise ValueError("as many constants as channels")
    return values.reshape([-1, 1, 1] if axis == -3 else [-1])


def _normalized(constants: Constants, image: np.ndarray) -> np.ndarray:
    mean, deviation = (_spread(values, image) for values in constants)
    normalized: np.ndarray = (image - mean) / deviation
    return normalized


def _plain(constants: Constants, image: np.ndarray) -> np.ndarray:
    """What was normalised, back in the range 0 … 1."""
    mean, deviation = (_spread(values, image) for values in constants)
    return image * deviation + mean


def _before_normalising(subject: ImageSubject, detail: str, change: Change) -> Pairs:
    """Something is done to an image before it is normalised, while it is in the range 0 … 1."""
    for constants in subject.constants:
        around = functools.partial(lambda c, image: _normalized(c, change(_plain(c, image))), constants)
        yield detail, around


def _reversed(image: np.ndarray) -> np.ndarray:
    axis = _channels(image)
    return image if axis is None else np.flip(image, axis)


def _channels_reversed(subject: ImageSubject) -> Pairs:
    yield "", _reversed
    for modes in (("HSV",), ()):  # the hue is shifted in HSV, and what comes back from there is not read
        yield (
            "",
            subject.variant("as pictures are read", calls=called(CONVERT, functools.partial(_read_reversed, modes))),
        )
    yield from _before_normalising(subject, "before they are normalised", _reversed)


def _read_reversed(
    kept: tuple[str, ...], original: Callable, image: Any, mode: Any = None, *rest: Any, **named: Any
) -> Any:
    from PIL import Image

    found = original(image, mode, *rest, **named)
    return Image.merge("RGB", found.split()[::-1]) if mode == "RGB" and image.mode not in kept else found


def _scaled(subject: ImageSubject) -> Pairs:
    yield "the result is 255 times too large", lambda image: image * 255
    yield from _before_normalising(subject, "before they are normalised", lambda image: image * 255)
    yield "but twice", lambda image: image / 255
    yield from _before_normalising(subject, "but twice", lambda image: image / 255)
    for divisor in (256.0, 127.5, 128.0):
        yield from _before_normalising(subject, f"but by {divisor:g}", functools.partial(np.multiply, 255 / divisor))


def _with_constants(*ways: tuple[str, Callable[[Constants, np.ndarray], np.ndarray]]) -> Callable[..., Others]:
    """What is done with the mean and deviation of the reference, or with each that may be."""
    return lambda subject: [(d, functools.partial(way, known)) for known in subject.constants for d, way in ways]


enter_rows("data", ImageSubject, "change", (
    ("channels_reversed", "the channels are in the order blue, green, red", {"difference": "image_backend"},
     _channels_reversed),
    ("flip_extra", "images are mirrored left to right once more, or once less", {"rank": 1},
     lambda s: {"": lambda image: np.flip(image, _rows_and_columns(image)[1])}),
    ("flip_vertical", "images are flipped upside down", {"rank": 1},
     lambda s: {"not left to right": s.variant("not left to right", calls=told(
                    FLIP, "method", lambda given: turned(given["method"], _FLIP_TOP_BOTTOM))),
                "": lambda image: np.flip(image, _rows_and_columns(image)[0]),
                "and mirrored": lambda image: np.flip(image, _rows_and_columns(image))}),
    ("axes_transposed", "the axes of the image are exchanged", {"difference": "normalize_input"},
     lambda s: {"height and width": lambda image: np.swapaxes(image, *_rows_and_columns(image)),
                "channels last": lambda image: np.moveaxis(image, -3, -1),
                "channels first": lambda image: np.moveaxis(image, -1, -3)}),
    ("layout_reinterpreted", "the image is reshaped where its axes should be exchanged: its numbers are scattered", {},
     lambda s: [("", lambda image: np.ascontiguousarray(np.moveaxis(image, -3, -1)).reshape(image.shape)),
                ("", lambda image: np.moveaxis(image.reshape(*image.shape[:-3], *image.shape[-2:], image.shape[-3]),
                                               -1, -3))]),
    ("scale_255", "pixels are not divided by 255", {"difference": "normalize_input"}, _scaled),
    ("normalize_before_scaling", "pixels are normalised before they are divided by 255",
     {"difference": "normalize_input"},
     _with_constants(("", lambda known, image: _normalized(known, _plain(known, image) * 255) / 255))),
    ("normalize_missing", "the image is not normalised", {},
     _with_constants(("", _plain), ("nor divided by 255", lambda known, image: _plain(known, image) * 255))),
    ("normalized_twice", "the image is normalised twice", {}, _with_constants(("", _normalized))),
))  # fmt: skip


def _listed(values: np.ndarray) -> str:
    return ", ".join(f"{value:.4g}" for value in values)


def _with_other(own: Constants, others: Iterable[Constants], say: Callable[[Constants], str]) -> Pairs:
    """Other constants than the reference's own, of which `say` tells what the text does."""
    for other in others:
        change = functools.partial(lambda other, image: _normalized(other, _plain(own, image)), other)
        yield f"{say(other)} for {say(own)}", change


def _means(known: Constants) -> list[Constants]:
    mean, deviation = known
    return [(m, deviation) for m in (np.zeros(len(mean)), mean[::-1], *(usual for usual, _ in USUAL_CONSTANTS))]


def _deviations(known: Constants) -> list[Constants]:
    mean, deviation = known
    others = (np.ones(len(mean)), deviation[::-1], deviation**2, *(usual for _, usual in USUAL_CONSTANTS))
    return [(mean, other) for other in others]


def _say_both(constants: Constants) -> str:
    return f"mean {_listed(constants[0])} and deviation {_listed(constants[1])}"


def _constants(subject: ImageSubject) -> Pairs:
    for mean, deviation in subject.constants:
        yield from _with_other((mean, deviation), [(mean[::-1], deviation[::-1]), *USUAL_CONSTANTS], _say_both)
    known = subject.known_constants
    of_port = _constants_of_port(subject, known) if known is not None else None
    if known is not None and of_port is not None:
        yield from _with_other(known, [of_port], _say_both)


enter_rows("data", ImageSubject, "change", (
    ("normalize_mean", "another mean is subtracted", {},
     lambda s: [other for c in s.constants for other in _with_other(c, _means(c), lambda one: _listed(one[0]))]),
    ("normalize_std", "the image is divided by another standard deviation", {},
     lambda s: [other for c in s.constants for other in _with_other(c, _deviations(c), lambda one: _listed(one[1]))]),
    ("normalization_constants", "the image is normalised with other constants", {"rank": 1}, _constants),
))  # fmt: skip


def _rows(image: np.ndarray) -> np.ndarray:
    """A row for each channel; one row where there are no channels."""
    axis = _channels(image)
    return image.reshape(1, -1) if axis is None else np.moveaxis(image, axis, 0).reshape(image.shape[axis], -1)


def _constants_of_port(subject: ImageSubject, known: Constants) -> Constants | None:
    """Mean and deviation with which the first image of the reference becomes the port's."""
    one, other = subject.reference["0"], subject.port["0"]
    if one.shape != other.shape or len(_rows(one)) != len(known[0]):
        return None
    return constants_between(_rows(_plain(known, one)), _rows(other))


@image_cause(rank=2)
def channels_linear(subject: ImageSubject) -> Iterator[Variant]:
    """Values are the reference's times a factor, or plus a number."""
    # Other constants come down to this where the reference's are not known: no more than that is proven.
    one, other = subject.reference["0"], subject.port["0"]
    lines = lines_between(_rows(one), _rows(other)) if one.shape == other.shape else None
    if lines is None:
        return
    factors, starts = np.array(lines).T

    def change(image: np.ndarray) -> np.ndarray:
        if len(lines) == 1:
            return image * factors + starts
        return image * _spread(factors, image) + _spread(starts, image)

    smallest = 1e-6 * np.abs(other).max()
    words = [f"{a:.6g} x reference" + (f" {b:+.6g}" if abs(b) > smallest else "") for a, b in lines]
    same = len(set(words)) == 1
    each = [f"channel {number}: port = {text}" for number, text in enumerate(words)]
    yield subject.variant(f"port = {words[0]}" if same else "; ".join(each), change=change)
