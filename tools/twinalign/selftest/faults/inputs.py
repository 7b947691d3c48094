"""Input pipelines: image operations that do something else, and samples that come out altered."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from twinalign.selftest.catalogue import in_case, in_process
from twinalign.selftest.places import CasePlace, Find, ProcessPlace, component
from twinalign.selftest.survey import Survey, own_modules

_ANY_SPLIT = ("dataset.*",)


def _uses(name: str) -> Find:
    """The first split whose samples pass through an image operation."""

    def find(survey: Survey) -> str | None:
        return next((f"dataset.{split}" for split, names in survey.transforms.items() if name in names), None)

    return find


def _operation(name: str, *causes: str) -> Any:
    return in_process("data", _uses(name), causes=causes, also=_ANY_SPLIT)


@_operation("resize", "resize_interpolation", "resize_filter")
def resize_takes_nearest(place: ProcessPlace) -> None:
    """Images are resized by the nearest pixel."""
    place.transform("resize", lambda original, image, size, *_, **__: original(image, size, "nearest"))


@_operation("resize", "resize_interpolation", "resize_filter")
def resize_bicubic(place: ProcessPlace) -> None:
    """Images are resized by cubic interpolation."""
    place.transform("resize", lambda original, image, size, *_, **__: original(image, size, "bicubic"))


@_operation("resize", "resize_antialias")
def resize_without_antialiasing(place: ProcessPlace) -> None:
    """Images are resized bilinearly, without antialiasing."""

    def resize(original: Callable[..., Any], image: Any, size: Any, *others: Any, **keywords: Any) -> Any:
        from PIL import Image

        wanted = original(image, size, *others, **keywords).size
        scale_x, scale_y = image.size[0] / wanted[0], image.size[1] / wanted[1]
        matrix = (scale_x, 0, 0, 0, scale_y, 0)
        return image.transform(wanted, Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR)

    place.transform("resize", resize)


@_operation("center_crop", "crop_offset", "crop_shifted")
def center_crop_off_by_one(place: ProcessPlace) -> None:
    """The central crop is one pixel off."""

    def crop(original: Callable[..., Any], image: Any, size: Any) -> Any:
        from PIL import ImageChops

        return original(ImageChops.offset(image, -1, -1), size)

    place.transform("center_crop", crop)


@_operation("crop", "crop_offset", "crop_shifted")
def crop_rows_for_columns(place: ProcessPlace) -> None:
    """A crop takes its top for its left."""
    place.transform("crop", lambda original, image, top, left, height, width: original(image, left, top, height, width))


@_operation("hflip", "step_missing", "flip_missing")
def flip_forgotten(place: ProcessPlace) -> None:
    """Images are never flipped."""
    place.transform("hflip", lambda original, image: image)


def _like(image: Any, pixels: np.ndarray) -> Any:
    """Pixels in the form of an image: an array where that is one, Pillow's otherwise."""
    from PIL import Image

    return pixels if isinstance(image, np.ndarray) else Image.fromarray(pixels)


@_operation("hflip", "step_swapped", "flip_vertical")
def flip_upside_down(place: ProcessPlace) -> None:
    """Images are flipped upside down, not left to right."""
    place.transform("hflip", lambda original, image: _like(image, np.ascontiguousarray(np.asarray(image)[::-1])))


@_operation("adjust_brightness", "step_missing")
def brightness_forgotten(place: ProcessPlace) -> None:
    """Brightness is not jittered."""
    place.transform("adjust_brightness", lambda original, image, factor: image)


@_operation("adjust_contrast", "step_doubled")
def contrast_twice(place: ProcessPlace) -> None:
    """Contrast is jittered twice."""
    place.transform("adjust_contrast", lambda original, image, factor: original(original(image, factor), factor))


@_operation("adjust_saturation", "step_missing")
def saturation_forgotten(place: ProcessPlace) -> None:
    """Saturation is not jittered."""
    place.transform("adjust_saturation", lambda original, image, factor: image)


@_operation("adjust_hue", "hue_reversed", "argument_negated")
def hue_reversed(place: ProcessPlace) -> None:
    """The hue is shifted the other way."""
    place.transform("adjust_hue", lambda original, image, factor: original(image, -factor))


@_operation("to_grayscale", "grayscale_mean", "grayscale_weights")
def grayscale_by_mean(place: ProcessPlace) -> None:
    """Grey is the plain mean of the colours."""

    def grey(original: Callable[..., Any], image: Any, *_: Any, **__: Any) -> Any:
        mean = np.asarray(image).mean(axis=-1, keepdims=True).astype(np.uint8)
        return _like(image, np.repeat(mean, 3, axis=-1))

    place.transform("to_grayscale", grey)


@_operation("gaussian_blur", "blur_sigma", "blur_radius")
def blur_twice_as_wide(place: ProcessPlace) -> None:
    """The blur is twice as wide."""
    from PIL import ImageFilter

    def blur(original: Callable[..., Any], image: Any, *others: Any, **keywords: Any) -> Any:
        (width,) = (*others, *keywords.values())  # a standard deviation, or Pillow's filter that has it
        radius = getattr(width, "radius", None)
        return original(image, 2 * width if radius is None else ImageFilter.GaussianBlur(2 * radius))

    place.transform("gaussian_blur", blur)


@_operation("gaussian_blur", "step_missing")
def blur_forgotten(place: ProcessPlace) -> None:
    """Images are not blurred."""
    place.transform("gaussian_blur", lambda original, image, *_, **__: image)


@_operation("solarize", "solarize_threshold")
def solarize_threshold_low(place: ProcessPlace) -> None:
    """Solarisation inverts from 64 on."""

    def solarize(original: Callable[..., Any], image: Any, *_: Any, **__: Any) -> Any:
        pixels = np.asarray(image)
        return _like(image, np.where(pixels < 64, pixels, 255 - pixels))

    place.transform("solarize", solarize)


@_operation("solarize", "step_missing")
def solarize_forgotten(place: ProcessPlace) -> None:
    """Images are never solarised."""
    place.transform("solarize", lambda original, image, *_, **__: image)


@_operation("convert", "channels_reversed", "rgb_bgr")
def images_read_as_bgr(place: ProcessPlace) -> None:
    """Pictures are read with blue first, as OpenCV has them."""
    from PIL import Image

    def convert(original: Callable[..., Any], image: Any, mode: Any = None, *others: Any, **keywords: Any) -> Any:
        found = original(image, mode, *others, **keywords)
        return Image.merge("RGB", found.split()[::-1]) if mode == "RGB" else found

    place.around(Image.Image, "convert", convert)


def _constant(survey_or_place: Any, name: str) -> list[Any]:
    """The modules of the port that hold a tuple of three numbers of this name."""
    return [
        m
        for m in own_modules(survey_or_place.case)
        if isinstance(getattr(m, name, None), (tuple, list)) and len(getattr(m, name)) == 3
    ]


def _holds(name: str) -> Find:
    return component("dataset.train", lambda survey: _constant(survey, name), needs="data")


def _set_constant(place: ProcessPlace, name: str, value: Any) -> None:
    from twinalign.patching import replaced

    for module in _constant(place.survey, name):
        place.stack.enter_context(replaced(module, name, value))


@in_process("data", _holds("IMAGENET_MEAN"), causes=("normalize_mean", "normalization_constants"), also=_ANY_SPLIT)
def mean_not_subtracted(place: ProcessPlace) -> None:
    """The mean colour is not subtracted."""
    _set_constant(place, "IMAGENET_MEAN", (0.0, 0.0, 0.0))


@in_process("data", _holds("IMAGENET_STD"), causes=("normalize_std", "normalization_constants"), also=_ANY_SPLIT)
def deviation_of_another_order(place: ProcessPlace) -> None:
    """The colours' deviations are in the order blue, green, red."""
    _set_constant(place, "IMAGENET_STD", (0.225, 0.224, 0.229))


def _is_image(array: Any) -> bool:
    return array.dtype.kind == "f" and array.ndim >= 3 and array.shape[-3] == 3


def _split_with(fits: Callable[[np.ndarray], bool]) -> Find:
    def find(survey: Survey) -> str | None:
        splits = survey.samples.items()
        found = (split for split, parts in splits if any(fits(array) for array in parts.values()))
        return next((f"dataset.{split}" for split in found), None)

    return find


def _changed(value: Any, fits: Callable[[np.ndarray], bool], change: Callable[[np.ndarray], np.ndarray]) -> Any:
    """A sample whose fitting arrays are changed, tensors turned into arrays on the way."""
    if isinstance(value, Mapping):
        return {key: _changed(part, fits, change) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(_changed(part, fits, change) for part in value)
    array = np.asarray(value.numpy() if hasattr(value, "numpy") else value)
    return np.ascontiguousarray(change(array)).astype(array.dtype) if fits(array) else value


def _samples(place: CasePlace, fits: Callable[[np.ndarray], bool], change: Callable[[np.ndarray], np.ndarray]) -> None:
    def run(original: Callable[..., Any], framework: str, split: str) -> Iterator[Any]:
        for sample in original(framework, split):
            yield _changed(sample, fits, change)

    place.around("dataset", run)


def _image(*causes: str) -> Any:
    return in_case("data", _split_with(_is_image), causes=causes, also=_ANY_SPLIT)


@_image("channels_reversed", "rgb_bgr")
def samples_bgr(place: CasePlace) -> None:
    """Samples come with blue first."""
    _samples(place, _is_image, lambda image: image[..., ::-1, :, :])


@_image("scale_255", "scaling_missing")
def samples_not_scaled(place: CasePlace) -> None:
    """Samples are 255 times too large."""
    _samples(place, _is_image, lambda image: image * 255)


@_image("axes_transposed", "image_transposed")
def samples_transposed(place: CasePlace) -> None:
    """Height and width of samples are exchanged."""
    _samples(place, _is_image, lambda image: image.swapaxes(-1, -2))


@_image("step_doubled", "flip_extra")
def samples_flipped(place: CasePlace) -> None:
    """Samples are flipped once more."""
    _samples(place, _is_image, lambda image: image[..., ::-1])


_MEAN, _STD = (np.array(v)[:, None, None] for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))


@_image("normalized_twice", "step_doubled")
def samples_normalised_twice(place: CasePlace) -> None:
    """Samples are normalised twice."""
    _samples(place, _is_image, lambda image: (image - _MEAN) / _STD)


@_image("normalize_before_scaling", "step_order")
def samples_normalised_before_scaling(place: CasePlace) -> None:
    """Samples are normalised before they are scaled to 1."""
    _samples(place, _is_image, lambda image: ((image * _STD + _MEAN) * 255 - _MEAN) / _STD / 255)


@_image("step_missing", "normalize_missing")
def samples_not_normalised(place: CasePlace) -> None:
    """Samples are not normalised."""
    _samples(place, _is_image, lambda image: image * _STD + _MEAN)


def _is_label(array: np.ndarray) -> bool:
    return array.dtype.kind in "iu" and array.ndim <= 1


@in_case("data", _split_with(_is_label), causes=("labels_shifted",), also=_ANY_SPLIT)
def labels_from_one(place: CasePlace) -> None:
    """Labels count from one."""
    _samples(place, _is_label, lambda label: label + 1)


_ANY_DATA = component("dataset.train", lambda survey: "train" in survey.samples, needs="data")


def _reordered(place: CasePlace, order: Callable[[Iterable[Any]], Iterable[Any]]) -> None:
    place.around("dataset", lambda original, framework, split: order(original(framework, split)))


@in_case("data", _ANY_DATA, causes=("order_shifted", "sampler_order"), also=_ANY_SPLIT)
def first_sample_lost(place: CasePlace) -> None:
    """The first sample is left out."""
    _reordered(place, lambda samples: itertools.islice(iter(samples), 1, None))


@in_case("data", _ANY_DATA, causes=("sample_repeated", "sampler_order"), also=_ANY_SPLIT)
def first_sample_repeated(place: CasePlace) -> None:
    """The first sample comes twice."""

    def order(samples: Iterable[Any]) -> Iterator[Any]:
        for index, sample in enumerate(samples):
            if index == 0:
                yield sample
            yield sample

    _reordered(place, order)


@in_case("data", _ANY_DATA, causes=("order_swapped", "sampler_order"), also=_ANY_SPLIT)
def neighbours_exchanged(place: CasePlace) -> None:
    """Every two samples change places."""

    def order(samples: Iterable[Any]) -> Iterator[Any]:
        iterator = iter(samples)
        for first in iterator:
            yield from [*itertools.islice(iterator, 1), first]

    _reordered(place, order)


def _ends_early(survey: Survey) -> bool:
    """Whether the recorded samples reach the end of a split."""
    return len(list(itertools.islice(iter(survey.case.dataset("paddle", "val")), survey.case.data_samples + 1))) <= (
        survey.case.data_samples
    )


@in_case(
    "data",
    component("dataset.val", lambda s: "val" in s.samples and _ends_early(s), needs="data"),
    causes=("drop_last", "sample_missing"),
    also=_ANY_SPLIT,
)
def last_sample_dropped(place: CasePlace) -> None:
    """The last, incomplete batch is dropped."""

    def order(samples: Iterable[Any]) -> Iterator[Any]:
        iterator = iter(samples)
        before = list(itertools.islice(iterator, 1))
        for sample in iterator:
            yield from before
            before = [sample]

    _reordered(place, order)
