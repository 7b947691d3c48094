"""Input pipelines: image operations that do something else, and samples that come out altered."""

from collections.abc import Callable
from typing import Any

import numpy as np

from twinalign.patching import replaced
from twinalign.planted_faults.case_contents import CaseContents, own_modules
from twinalign.planted_faults.catalogue import Registration, in_process
from twinalign.planted_faults.fault_sites import Original, ProcessSite, handed_to
from twinalign.planted_faults.where_to_plant import Find, component

ANY_SPLIT = ("dataset.*",)
"""What may be named for a fault of the input pipeline, which may show in any split."""


def _uses(name: str) -> Find:
    """The first split whose samples pass through an image operation."""

    def find(contents: CaseContents) -> str | None:
        return next((f"dataset.{split}" for split, names in contents.transforms.items() if name in names), None)

    return find


def _operation(name: str, cause: str, fault: str = "") -> Registration:
    """A fault whose function `(original, image, ...)` takes the calls of an image operation."""
    how = handed_to(ProcessSite.transform, name)
    return in_process("data", _uses(name), cause, also=ANY_SPLIT, id=fault, how=how)


def _decoding(cause: str) -> Registration:
    """A fault whose function `(original, image, ...)` takes the calls of Pillow's `convert`."""
    return in_process("data", _uses("convert"), cause, also=ANY_SPLIT, how=_replace_convert)


def _replace_convert(run: Original) -> Callable[[ProcessSite], None]:
    def plant(site: ProcessSite) -> None:
        from PIL import Image

        site.around(Image.Image, "convert", run)

    return plant


def _like(image: Any, pixels: np.ndarray) -> Any:
    """Pixels in the form of an image: an array where that is one, Pillow's otherwise."""
    from PIL import Image

    return pixels if isinstance(image, np.ndarray) else Image.fromarray(pixels)


_operation("resize", "resize_interpolation", "resize_takes_nearest").add(
    "Images are resized by the nearest pixel", lambda original, image, size, *_, **__: original(image, size, "nearest")
)
_operation("resize", "resize_interpolation", "resize_bicubic").add(
    "Images are resized by cubic interpolation",
    lambda original, image, size, *_, **__: original(image, size, "bicubic"),
)


@_operation("resize", "resize_antialias")
def resize_without_antialiasing(original: Original, image: Any, *others: Any, **keywords: Any) -> Any:
    """Images are resized bilinearly, without antialiasing."""
    from PIL import Image

    wanted = original(image, *others, **keywords).size
    scale_x, scale_y = image.size[0] / wanted[0], image.size[1] / wanted[1]
    matrix = (scale_x, 0, 0, 0, scale_y, 0)
    return image.transform(wanted, Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR)


@_operation("center_crop", "crop_offset")
def center_crop_off_by_one(original: Original, image: Any, size: Any) -> Any:
    """The central crop is one pixel off."""
    from PIL import ImageChops

    return original(ImageChops.offset(image, -1, -1), size)


_operation("crop", "crop_offset", "crop_rows_for_columns").add(
    "A crop takes its top for its left",
    lambda original, image, top, left, height, width: original(image, left, top, height, width),
)
_operation("hflip", "step_missing", "flip_forgotten").add("Images are never flipped", lambda original, image: image)
_operation("hflip", "flip_vertical", "flip_upside_down").add(
    "Images are flipped upside down, not left to right",
    lambda original, image: _like(image, np.ascontiguousarray(np.asarray(image)[::-1])),
)
_operation("adjust_brightness", "step_missing", "brightness_forgotten").add(
    "Brightness is not jittered", lambda original, image, factor: image
)
_operation("adjust_contrast", "step_doubled", "contrast_twice").add(
    "Contrast is jittered twice", lambda original, image, factor: original(original(image, factor), factor)
)
_operation("adjust_saturation", "step_missing", "saturation_forgotten").add(
    "Saturation is not jittered", lambda original, image, factor: image
)
_operation("adjust_hue", "argument_negated", "hue_reversed").add(
    "The hue is shifted the other way", lambda original, image, factor: original(image, -factor)
)


@_operation("to_grayscale", "grayscale_mean")
def grayscale_by_mean(original: Original, image: Any, *_: Any, **__: Any) -> Any:
    """Grey is the plain mean of the colours."""
    mean = np.asarray(image).mean(axis=-1, keepdims=True).astype(np.uint8)
    return _like(image, np.repeat(mean, 3, axis=-1))


@_operation("gaussian_blur", "blur_sigma")
def blur_twice_as_wide(original: Original, image: Any, *others: Any, **keywords: Any) -> Any:
    """The blur is twice as wide."""
    from PIL import ImageFilter

    (width,) = (*others, *keywords.values())  # a standard deviation, or Pillow's filter that has it
    radius = getattr(width, "radius", None)
    return original(image, 2 * width if radius is None else ImageFilter.GaussianBlur(2 * radius))


_operation("gaussian_blur", "step_missing", "blur_forgotten").add(
    "Images are not blurred", lambda original, image, *_, **__: image
)


@_operation("solarize", "solarize_threshold")
def solarize_threshold_low(original: Original, image: Any, *_: Any, **__: Any) -> Any:
    """Solarisation inverts from 64 on."""
    pixels = np.asarray(image)
    return _like(image, np.where(pixels < 64, pixels, 255 - pixels))


_operation("solarize", "step_missing", "solarize_forgotten").add(
    "Images are never solarised", lambda original, image, *_, **__: image
)


@_decoding("channels_reversed")
def images_read_as_bgr(original: Original, image: Any, mode: Any = None, *others: Any, **keywords: Any) -> Any:
    """Pictures are read with blue first, as OpenCV has them."""
    from PIL import Image

    found = original(image, mode, *others, **keywords)
    return Image.merge("RGB", found.split()[::-1]) if mode == "RGB" else found


def _constant(contents_or_site: Any, name: str) -> list[Any]:
    """The modules of the port that hold a tuple of three numbers of this name."""
    return [
        m
        for m in own_modules(contents_or_site.case)
        if isinstance(getattr(m, name, None), (tuple, list)) and len(getattr(m, name)) == 3
    ]


def _set_constant(site: ProcessSite, name: str, value: Any) -> None:
    for module in _constant(site.contents, name):
        site.stack.enter_context(replaced(module, name, value))


def _normalised(fault: str, name: str, cause: str) -> Registration:
    """A fault that is a value: it stands in the port's own modules for the constant of this name."""
    find = component("dataset.train", lambda contents: _constant(contents, name), needs="data")
    how = handed_to(_set_constant, name)
    return in_process("data", find, cause, "normalization_constants", also=ANY_SPLIT, id=fault, how=how)


_normalised("mean_not_subtracted", "IMAGENET_MEAN", "normalize_mean").add(
    "The mean colour is not subtracted", (0.0, 0.0, 0.0)
)
_normalised("deviation_of_another_order", "IMAGENET_STD", "normalize_std").add(
    "The colours' deviations are in the order blue, green, red", (0.225, 0.224, 0.229)
)


@_operation("resize", "resize_rounding")
def resize_one_pixel_wider(original: Original, image: Any, size: Any, *others: Any, **keywords: Any) -> Any:
    """Images are resized to one pixel more in width."""
    width, height = original(image, size, *others, **keywords).size
    return original(image, (height, width + 1), *others, **keywords)


_operation("crop", "crop_size", "crop_one_row_less").add(
    "A crop has one row of pixels less",
    lambda original, image, top, left, height, width: original(image, top, left, height - 1, width),
)
_operation("hflip", "flip_rotated", "flip_by_half_a_turn").add(
    "Images are turned by half a turn, not mirrored",
    lambda original, image: _like(image, np.ascontiguousarray(np.asarray(image)[::-1, ::-1])),
)
_operation("adjust_contrast", "jitter_factor", "contrast_inverted").add(
    "Contrast is jittered by one over the factor", lambda original, image, factor: original(image, 1 / factor)
)
_operation("adjust_hue", "argument_other", "hue_twice_as_far").add(
    "The hue is shifted twice as far", lambda original, image, factor: original(image, 2 * factor)
)


@_decoding("decode_mode")
def images_read_as_grey(original: Original, image: Any, mode: Any = None, *others: Any, **keywords: Any) -> Any:
    """Pictures are read as grey values."""
    return original(original(image, "L") if mode == "RGB" else image, mode, *others, **keywords)
