"""Wrong steps, wrong samples: each written out by paddle's, numpy's or Pillow's means, apart from twinalign's own."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import paddle
import paddle.vision.transforms as P
import paddle.vision.transforms.functional as F
import torchvision.transforms as T
from data_case import MEAN, STD, Jitter, cropped, jittered, picture, scaled
from PIL import Image, ImageFilter, ImageOps

Chain = list[tuple[str, Callable[[Any], Any]]]


def step(name: str, function: Callable[[Any], Any]) -> Callable[[Chain, int], Chain]:
    return lambda chain, index: [(n, function if n == name else f) for n, f in chain]


def around(name: str, change: Callable[..., Callable[[Any], Any]]) -> Callable[[Chain, int], Chain]:
    return lambda chain, index: [(n, change(f) if n == name else f) for n, f in chain]


def without(name: str) -> Callable[[Chain, int], Chain]:
    return lambda chain, index: [entry for entry in chain if entry[0] != name]


def exchanged(one: str, other: str) -> Callable[[Chain, int], Chain]:
    def change(chain: Chain, index: int) -> Chain:
        functions = dict(chain)
        names = [{one: other, other: one}.get(name, name) for name, _ in chain]
        return [(name, functions[name]) for name in names]

    return change


def not_antialiased(image: Image.Image) -> Image.Image:
    """What resizing a tensor does in paddle."""
    size = F.resize(image, 40).size
    pixels = paddle.to_tensor(np.asarray(image).transpose(2, 0, 1)[None].astype("float64"))
    small = paddle.nn.functional.interpolate(pixels, size=[size[1], size[0]], mode="bilinear", align_corners=False)
    return Image.fromarray(np.rint(small.numpy()[0].transpose(1, 2, 0)).astype(np.uint8))


def plain_gray(image: Image.Image) -> Image.Image:
    mean = np.asarray(image).mean(axis=-1).astype(np.uint8)
    return Image.fromarray(np.stack([mean] * 3, axis=-1))


def with_jitter(**changes: Callable[[Any], Any]) -> Callable[[Chain, int], Chain]:
    """The port's function itself goes wrong; what it is told stays."""

    def change(function: Any) -> Callable[[Any], Any]:
        told = function.keywords["jitter"]

        def wrong(image: Image.Image, jitter: Jitter) -> Image.Image:
            values = {name: changes.get(name, lambda v: v)(value) for name, value in vars(jitter).items()}
            return jittered(image, Jitter(**values), "paddle")

        return functools.partial(wrong, jitter=told)

    return around("jitter", change)


def deep_solarize(image: Image.Image) -> Image.Image:
    pixels = np.asarray(image)
    return Image.fromarray(np.where(pixels < 100, pixels, 255 - pixels).astype(np.uint8))


def wavy(image: np.ndarray) -> np.ndarray:
    return (image - MEAN) / STD + 0.1 * np.sin(np.arange(image.shape[-1]))


STEPS: dict[str, Callable[[Chain, int], Chain]] = {
    "resize_interpolation nearest": step("resize", lambda image: F.resize(image, 40, "nearest")),
    "resize_interpolation bicubic": step("resize", lambda image: F.resize(image, 40, "bicubic")),
    "resize_antialias": step("resize", not_antialiased),
    "resize_rounding": step("resize", lambda image: F.resize(image, (40, F.resize(image, 40).size[0] + 1))),
    "crop_offset": step("crop", lambda image: F.crop(image, 4, 5, 32, 30)),
    "crop_offset exchanged": step("crop", lambda image: F.crop(image, 5, 3, 32, 30)),
    "crop_size": step("crop", lambda image: F.crop(image, 3, 5, 33, 31)),
    "step_missing flip": step("flip", lambda image: image),
    "step_missing saturation": with_jitter(saturation=lambda f: 1.0),
    "step_missing blur": without("blur"),
    "step_doubled contrast": with_jitter(
        order=lambda order: tuple(p for o in order for p in ([o, o] if o == 1 else [o]))
    ),
    "step_doubled": lambda chain, index: [entry for e in chain for entry in ([e, e] if e[0] == "blur" else [e])],
    "step_order": exchanged("blur", "solarize"),
    "flip_vertical": step("flip", ImageOps.flip),
    "flip_rotated": step("flip", lambda image: image.rotate(180)),
    "jitter_factor": with_jitter(brightness=lambda f: 2 - f),
    "argument_negated": with_jitter(hue=lambda h: -h),
    "jitter_order": with_jitter(order=lambda order: (0, 1, 2, 3)),
    "step_arguments": step("crop", functools.partial(cropped, box=(1, 8, 32, 30), framework="paddle")),
    "grayscale_mean": step("grayscale", plain_gray),
    "blur_sigma": step("blur", lambda image: image.filter(ImageFilter.GaussianBlur(2.6))),
    "solarize_threshold": step("solarize", deep_solarize),
    "decode_mode": around("load", lambda load: lambda nothing: load(nothing).convert("L").convert("RGB")),
    "channels_reversed": around("load", lambda load: lambda nothing: Image.merge("RGB", load(nothing).split()[::-1])),
    "channels_reversed late": around("normalize", lambda f: lambda image: f(image)[::-1]),
    "channels_reversed before": around("normalize", lambda f: lambda image: f(image[::-1])),
    "scale_255": around("to_tensor", lambda f: lambda image: 255 * f(image)),
    "normalize_before_scaling": step("normalize", lambda image: (255 * image - MEAN) / STD / 255),
    "step_missing normalize": step("normalize", lambda image: image),
    "normalized_twice": step("normalize", lambda image: ((image - MEAN) / STD - MEAN) / STD),
    "normalize_mean": step("normalize", lambda image: (image - 0.5) / STD),
    "normalize_std": step("normalize", lambda image: (image - MEAN) / STD[::-1]),
    "normalization_constants": step("normalize", lambda image: (image - 0.5) / 0.5),
    "normalization_constants odd": step("normalize", lambda image: (image - 0.43) / 0.21),
    "axes_transposed": around("to_tensor", lambda f: lambda image: f(image).swapaxes(1, 2)),
    "axes_transposed last": around("normalize", lambda f: lambda image: f(image).transpose(1, 2, 0)),
    "layout_reinterpreted": step(
        "to_tensor", lambda image: (np.asarray(image).astype(np.float32) / 255).reshape(3, image.size[1], image.size[0])
    ),
    "unknown": step("normalize", wavy),
}

Samples = Iterator[dict[str, Any]]


def labelled(change: Callable[[int], int]) -> Callable[[Samples], Samples]:
    return lambda samples: ({**sample, "label": np.int64(change(int(sample["label"])))} for sample in samples)


def neighbours(samples: Samples) -> Samples:
    for first in samples:
        yield from [*itertools.islice(samples, 1), first]


def labels_before(samples: Samples) -> Samples:
    kept = list(samples)
    labels = [sample["label"] for sample in kept]
    return iter([{**sample, "label": labels[place - 1]} for place, sample in enumerate(kept)])


def images(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Samples], Samples]:
    return lambda samples: ({**sample, "image": change(sample["image"])} for sample in samples)


SAMPLES: dict[str, Callable[[Samples], Samples]] = {
    "order_shifted": lambda samples: itertools.islice(samples, 1, None),
    "sample_repeated": lambda samples: itertools.chain([first := next(samples), first], samples),
    "order_swapped": neighbours,
    "sampler_shard": lambda samples: itertools.islice(samples, 1, None, 2),
    "sampler_shard of four": lambda samples: itertools.islice(samples, 0, None, 4),
    "sampler_order": lambda samples: (list(samples)[i] for i in ()),
    "drop_last": lambda samples: itertools.islice(samples, 5),
    "order_reversed": lambda samples: iter(list(samples)[::-1]),
    "labels_shifted": labelled(lambda label: label + 1),
    "classes_renumbered": labelled(lambda label: (2, 0, 3, 1)[label]),
    "labels_of_neighbours": labels_before,
    "channels_reversed sample": images(lambda image: image[::-1].copy()),
    "scale_255 sample": images(lambda image: image * 255),
    "flip_extra sample": images(lambda image: image[..., ::-1].copy()),
    "normalize_missing sample": images(lambda image: image * STD + MEAN),
    "channels_linear sample": images(lambda image: image * np.float32(0.25 / 0.226)),
}


def shuffled(samples: Samples) -> Samples:
    kept = list(samples)
    return iter([kept[i] for i in (3, 0, 5, 2, 1, 4, 6, 7, 8, 9)])


SAMPLES["sampler_order"] = shuffled


def composed(framework: str, fault: str) -> Any:
    """torchvision's Compose, or paddle's with another filter, another order, or without a step."""
    if framework == "torch":
        return T.Compose(
            [T.Resize(40), T.CenterCrop(32), T.ToTensor(), T.Normalize(MEAN.ravel().tolist(), STD.ravel().tolist())]
        )
    interpolation = "bicubic" if fault == "resize_interpolation" else "bilinear"
    crop = [] if fault == "step_missing" else [P.CenterCrop(32)]
    size = 41 if fault == "step_arguments" else 40
    mean = [0.5, 0.5, 0.5] if fault == "normalize_mean" else MEAN.ravel().tolist()
    return P.Compose([P.Resize(size, interpolation), *crop, P.ToTensor(), P.Normalize(mean, STD.ravel().tolist())])


__all__ = ["SAMPLES", "STEPS", "composed", "picture", "scaled"]


def faulty(fault: str, samples: Iterator[Any]) -> Iterator[Any]:
    """Samples with a fault, if there is one of that name. Both sides call it: no line is of the port alone."""
    found: Iterator[Any] = SAMPLES.get(fault, lambda samples: samples)(samples)
    return found
