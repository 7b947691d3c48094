"""RandAugment: pixels and draws against timm's, which is here for these tests alone."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
import timm.data.auto_augment as oracle
from PIL import Image, ImageFilter

from moco_common.data import samplers
from moco_common.data.folders import ImageFolder
from moco_common.data.loaders import build_training_loader
from moco_common.images import augmentation, rand_augment, training_augmentation

FILL = 124, 116, 104
METHODS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
DRAWS = 6000


@pytest.fixture(scope="module")
def image() -> Image.Image:
    noise = Image.fromarray(np.random.RandomState(0).randint(0, 256, (60, 48, 3), dtype="uint8"))
    # Smooth enough that a wrong interpolation is not lost in noise, and not over the whole range of values.
    return noise.filter(ImageFilter.GaussianBlur(2)).point(lambda value: 20 + value * 4 // 5)


def transform(policy: str, method: str = "bilinear") -> Any:
    return oracle.rand_augment_transform(policy, {"img_mean": FILL, "interpolation": METHODS[method]})


def test_operations_are_timms_in_timms_order() -> None:
    operations = rand_augment.OPERATIONS
    assert [operation.name for operation in transform("rand-m9").ops] == list(operations)
    increasing = [operation.name.removesuffix("Increasing") for operation in transform("rand-m9-inc1").ops]
    assert increasing == list(operations)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("policy", ["rand-m9", "rand-m9-inc1"])
def test_pixels_are_timms(image: Image.Image, monkeypatch, policy: str, method: str) -> None:
    own = rand_augment.parse_policy(policy, METHODS[method])
    changed = set()
    for operation in transform(policy, method).ops:
        name = operation.name.removesuffix("Increasing")
        operation.prob = 1.0
        for magnitude in (0.0, 0.7, 3.3, 5.0, 8.96, 10.0):
            for is_negative in (False, True):
                operation.magnitude = magnitude
                monkeypatch.setattr(random, "random", lambda answer=float(is_negative): answer)
                try:
                    expected = np.asarray(operation(image))
                except ValueError:
                    # Newer Pillows refuse to keep no bit of a value; with older ones timm makes the picture black.
                    assert operation.level_fn(magnitude, operation.hparams) == (0,)
                    expected = np.zeros_like(image)
                found = np.asarray(own.apply(image, rand_augment.DrawnOperation(name, magnitude, is_negative)))
                assert np.array_equal(found, expected), (name, magnitude, is_negative)
                if not np.array_equal(found, np.asarray(image)):
                    changed.add(name)
    assert changed == set(rand_augment.OPERATIONS)


def timms_draws(monkeypatch, policy: str) -> tuple[Counter, list[float], Counter]:
    """How often timm chose which operations, their magnitudes, and how often it went which way."""
    names, magnitudes, signs = Counter(), [], Counter()
    augment = transform(policy)
    for operation in augment.ops:
        name = operation.name.removesuffix("Increasing")

        def level(magnitude: float, hparams: Any, name: str = name) -> tuple[str, float]:
            signs[oracle._randomly_negate(1)] += 1
            return name, magnitude

        def note(picture: Any, name: str, magnitude: float, **_: Any) -> Any:
            names[name] += 1
            magnitudes.append(magnitude)
            return picture

        monkeypatch.setattr(operation, "level_fn", level)
        monkeypatch.setattr(operation, "aug_fn", note)
    random.seed(0)
    np.random.seed(0)
    for _ in range(DRAWS):
        augment(None)
    return names, magnitudes, signs


@pytest.mark.parametrize(
    "policy", ["rand-m9-mstd0.5-inc1", "rand-m9-mstd0.5", "rand-m3-n3-mstd2", "rand-m6-n1-mstd101", "rand"]
)
def test_draws_have_timms_distribution(monkeypatch, policy: str) -> None:
    names, magnitudes, signs = timms_draws(monkeypatch, policy)
    own = rand_augment.parse_policy(policy)
    drawn = [own.draw(augmentation.addressed_uniforms(1, 0, index, 6, own.draws)) for index in range(DRAWS)]
    operations = [operation for layers in drawn for operation in layers]
    found = Counter(operation.name for operation in operations)
    count = DRAWS * own.layers
    # Of the two samples together: which operation, or none, stood in a layer.
    table = [[*(c[name] for name in rand_augment.OPERATIONS), count - c.total()] for c in (names, found)]
    assert scipy.stats.chi2_contingency(table).pvalue > 1e-3
    ours = [operation.magnitude for operation in operations]
    assert scipy.stats.ks_2samp(ours, magnitudes).pvalue > 1e-3
    directions = Counter(-1 if operation.is_negative else 1 for operation in operations)
    assert scipy.stats.chi2_contingency([[c[1], c[-1]] for c in (signs, directions)]).pvalue > 1e-3
    # Both layers of a picture are drawn apart, the same operation twice included.
    if own.layers == 2:
        both = [layers for layers in drawn if len(layers) == 2]
        assert abs(len(both) / DRAWS - 0.25) < 4 * (0.25 * 0.75 / DRAWS) ** 0.5
        assert 0 < sum(one.name == other.name for one, other in both) / len(both) < 0.15


def test_another_deviation_or_magnitude_is_told_apart(monkeypatch) -> None:
    """The test above can fail."""
    _, magnitudes, _ = timms_draws(monkeypatch, "rand-m9-mstd0.5-inc1")
    for policy in ("rand-m9-mstd0.6-inc1", "rand-m8.9", "rand-m8-mstd0.5"):
        own = (
            rand_augment.RandAugment(8.9, deviation=0.5) if policy == "rand-m8.9" else rand_augment.parse_policy(policy)
        )
        ours = [
            operation.magnitude
            for index in range(DRAWS)
            for operation in own.draw(augmentation.addressed_uniforms(1, 0, index, 6, own.draws))
        ]
        assert scipy.stats.ks_2samp(ours, magnitudes).pvalue < 1e-3, policy


@pytest.mark.parametrize(
    "policy",
    [
        "v0",
        "original",
        "augmix-m3",
        "3a",
        "rand-w0",
        "rand-m11",
        "rand-m9.5",
        "rand-n0",
        "rand-m9-m8",
        "rand-",
        "Rand-m9",
    ],
)
def test_other_policies_get_one_line(policy: str) -> None:
    with pytest.raises(ValueError, match=r"^--aa: '") as caught:
        rand_augment.parse_policy(policy)
    assert str(caught.value) == (
        f"--aa: {policy!r} is not supported; give rand, and after it any of -mM (magnitude, 0 to 10), -nN "
        "(operations a picture, from 1), -mstdS (deviation of the magnitude) and -inc1, as in rand-m9-mstd0.5-inc1"
    )


@pytest.fixture(scope="module")
def pictures(tmp_path_factory, image: Image.Image) -> Path:
    root = tmp_path_factory.mktemp("pictures")
    for name in "ab":
        (root / name).mkdir()
        for number in range(6):
            image.rotate(number * 30 + ord(name)).save(root / name / f"{number}.png")
    return root


def crop_and_resize(image: Image.Image, crop: tuple[int, int, int, int], image_size: int) -> Image.Image:
    top, left, height, width = crop
    box = image.crop((left, top, left + width, top + height))
    return box.resize((image_size, image_size), Image.Resampling.BILINEAR)


def loaded(root: Path, policy: str | None) -> np.ndarray:
    """The views of an epoch, without a framework's loader."""
    augment = policy and rand_augment.parse_policy(policy)
    loader = build_training_loader(
        lambda *_: [],
        crop_and_resize,
        root,
        4,
        32,
        seed=3,
        augmentation=training_augmentation.TrainingAugmentation(rand_augment=augment),
    )
    loader.batch_sampler.set_epoch(1)
    return np.stack([loader.dataset[address][0] for batch in loader.batch_sampler for address in batch])


def test_a_view_is_cropped_flipped_augmented_and_normalised(pictures: Path) -> None:
    """The whole view by hand: timm's operations between flip and normalisation, on the loader's own draws."""
    found = loaded(pictures, "rand-n4-m8-mstd1-inc1")
    own = rand_augment.parse_policy("rand-n4-m8-mstd1-inc1")
    folder = ImageFolder(pictures)
    for view, index in zip(found, samplers.epoch_order(12, 3, 1), strict=True):
        image = folder.load(int(index))
        draws = augmentation.draw_view(
            *image.size, training_augmentation.CROP_AND_FLIP, augmentation.addressed_uniforms(3, 1, int(index), 1)
        )
        top, left, height, width = draws.crop
        image = image.crop((left, top, left + width, top + height)).resize((32, 32), Image.Resampling.BILINEAR)
        if draws.flip:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        image = own(image, augmentation.addressed_uniforms(3, 1, int(index), 6, own.draws))
        expected = (np.asarray(image) / 255 - augmentation.IMAGENET_MEAN) / augmentation.IMAGENET_STD
        np.testing.assert_allclose(view, expected.transpose(2, 0, 1), rtol=0, atol=1e-5)
    assert not np.array_equal(found, loaded(pictures, None))


def test_bicubic_crops_are_pillows(image: Image.Image) -> None:
    import torchvision.transforms.functional as functional

    found = training_augmentation.crop_and_resize_bicubic(image, (5, 3, 40, 30), 24)
    expected = functional.resized_crop(image, 5, 3, 40, 30, [24, 24], functional.InterpolationMode.BICUBIC)
    assert np.array_equal(np.asarray(found), np.asarray(expected))
