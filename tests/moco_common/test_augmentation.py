"""Augmentation of both twins: pixels against the official recipe's, draws against torchvision's distributions."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import itertools
import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torchvision.transforms as T
from PIL import Image

from moco_common.images import augmentation as common

GOLDEN = Path(__file__).parents[1] / "golden"
FIGURES = json.loads((GOLDEN / "augmentation.json").read_text())
PIXELS = np.load(GOLDEN / "augmentation.npz")
# Pipeline step of the golden figures -> name of the operation here.
OPERATIONS = {
    "RandomResizedCrop": "crop",
    "RandomApply[ColorJitter]": "jitter",
    "RandomGrayscale": "grayscale",
    "RandomApply[GaussianBlur]": "blur",
    "RandomApply[Solarize]": "solarize",
    "RandomHorizontalFlip": "flip",
}


@pytest.fixture(params=["moco_ref", "moco_paddle"])
def augmentation(request) -> SimpleNamespace:
    """What both twins share, with a twin's own cutting and scaling."""
    data = importlib.import_module(f"{request.param}.data")
    own = {name: getattr(data, name) for name in ("crop_and_resize", "resize_and_center", "build_two_views")}
    own["evaluation_transform"] = data.evaluation_transform
    return SimpleNamespace(**{**vars(common), "apply_view": partial(common.apply_view, data.crop_and_resize), **own})


@pytest.fixture(scope="module")
def golden_image() -> Image.Image:
    """The golden figures' test image, made by their rule."""
    y, x = np.mgrid[0:260, 0:310].astype(np.float64)
    base = np.stack([127 + 100 * np.sin(x / 23 + c) * np.cos(y / (17 + 3 * c)) for c in range(3)], axis=-1)
    noisy = base + np.random.RandomState(5).randn(260, 310, 3) * 12
    pixels = np.rint(noisy).clip(0, 255).astype(np.uint8)
    assert digest(pixels) == FIGURES["test_image"]["sha256"]
    return Image.fromarray(pixels)


def digest(pixels: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(pixels).tobytes()).hexdigest()


def golden_draws(augmentation, view: dict) -> tuple[object, int]:
    """The official pipeline's draws as this package's `ViewDraws`, and the number of crops that it tried."""
    steps = {OPERATIONS[step["op"]]: [value for _, value in step["draws"]] for step in view["steps"] if step["draws"]}
    names = {OPERATIONS[step["op"]]: [name for name, _ in step["draws"]] for step in view["steps"] if step["draws"]}
    *tries, top, left = steps["crop"]
    height, width = augmentation.crop_size(310, 260, tries[-2], float(np.exp(np.float32(tries[-1]))))
    # The official draw of top and left is from a range that tells the box's size.
    assert names["crop"][-2:] == [f"torch.randint(0,{260 - height + 1})", f"torch.randint(0,{310 - width + 1})"]
    jitter = None
    if steps["jitter"][0] <= 0.8:
        _, order, brightness, contrast, saturation, hue = steps["jitter"]
        jitter = augmentation.JitterDraws(tuple(order), brightness, contrast, saturation, hue)
    draws = augmentation.ViewDraws(
        crop=(top, left, height, width),
        jitter=jitter,
        grayscale=steps["grayscale"][0] < 0.2,
        blur_sigma=steps["blur"][1] if len(steps["blur"]) == 2 else None,
        solarize="solarize" in steps and steps["solarize"][0] <= 0.2,
        flip=steps["flip"][0] < 0.5,
    )
    return draws, len(tries) // 2


@pytest.mark.parametrize("case", FIGURES["cases"], ids=lambda case: f"seed{case['seed']}")
@pytest.mark.parametrize("number", [1, 2])
def test_golden_draws_give_the_official_pixels_after_each_operation(augmentation, golden_image, case, number):
    view = case["views"][number - 1]
    draws, _ = golden_draws(augmentation, view)
    seen = {}
    result = augmentation.apply_view(golden_image, draws, 224, watch=lambda name, image: seen.update({name: image}))
    image = None
    for place, step in enumerate(view["steps"]):
        name = OPERATIONS.get(step["op"])
        if name is None:
            continue
        image = seen.get(name, image)  # an operation that was not drawn leaves the image as it was
        pixels = np.asarray(image)
        assert digest(pixels)[:16] == step["uint8_sha256"], step["op"]
        assert int(pixels.sum()) == step["uint8_sum"]
        stored = f"s{case['seed']}/v{number}/{place}_{step['op']}"
        if stored in PIXELS:
            np.testing.assert_array_equal(pixels[::16, ::16], PIXELS[stored])
    assert result.dtype == np.float32
    assert result.shape == (3, 224, 224)
    for row, column, *values in view["final"]["px"]:
        np.testing.assert_array_equal(result[:, row, column], np.array(values, dtype=np.float32))
    np.testing.assert_allclose(result.mean(axis=(1, 2), dtype=np.float64), view["final"]["mean"], rtol=0, atol=2e-6)


@pytest.mark.parametrize("name", FIGURES["single_ops"])
def test_single_operations_give_the_official_pixels(augmentation, golden_image, name):
    def jitter(part: int, **factors: float):
        neutral = {"brightness": 1.0, "contrast": 1.0, "saturation": 1.0, "hue": 0.0}
        # One part four times over is no permutation, and `order` with one part is no pipeline: run the one alone.
        return augmentation.JitterDraws((part,), **{**neutral, **factors})

    operation, _, argument = name.rstrip(")").partition("(")
    if operation == "crop_resize":
        box = [int(part.split("=")[1]) for part in argument.partition(")")[0].split(",")]
        image = augmentation.crop_and_resize(golden_image, tuple(box), 224)
    elif operation in ("brightness", "contrast", "saturation", "hue"):
        part = ("brightness", "contrast", "saturation", "hue").index(operation)
        image = augmentation.adjust_colors(golden_image, jitter(part, **{operation: float(argument)}))
    elif operation == "blur":
        image = augmentation.gaussian_blur(golden_image, float(argument))
    elif operation.startswith("lincls_val"):
        image = augmentation.resize_and_center(golden_image, 224)
    else:
        function = {"gray": "to_grayscale", "solarize": "solarize", "hflip": "hflip"}[operation]
        image = getattr(augmentation, function)(golden_image)
    assert digest(np.asarray(image)) == FIGURES["single_ops"][name]["sha256"]


def test_normalisation_is_torchvisions_bit_for_bit(augmentation):
    # All 256 values in all three channels.
    pixels = np.stack([np.arange(256, dtype=np.uint8)] * 3, axis=-1)[None]
    image = Image.fromarray(np.ascontiguousarray(pixels))
    expected = T.Compose([T.ToTensor(), T.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])])(image).numpy()
    np.testing.assert_array_equal(augmentation.normalize(image), expected)


@pytest.mark.parametrize("size", [(310, 260), (64, 200), (41, 40), (33, 33)])
def test_evaluation_transform_is_the_official_one(augmentation, golden_image, size):
    image = golden_image.resize(size)
    official = T.Compose(
        [T.Resize(256), T.CenterCrop(224), T.ToTensor(), T.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])]
    )
    np.testing.assert_array_equal(augmentation.evaluation_transform(224)(image), official(image).numpy())


def random_image(generator: np.random.RandomState) -> Image.Image:
    """An image with flat, dark, bright and noisy parts, of a random size."""
    height, width = generator.randint(20, 120, 2)
    coarse = generator.randint(0, 256, (height // 7 + 1, width // 7 + 1, 3)).astype(np.uint8)
    smooth = np.asarray(Image.fromarray(coarse).resize((width, height), generator.choice([0, 2, 3])))
    noise = generator.randint(-30, 31, smooth.shape) * generator.randint(0, 2)
    return Image.fromarray((smooth.astype(np.int64) + noise).clip(0, 255).astype(np.uint8))


@pytest.mark.parametrize("seed", range(40))
def test_operations_are_torchvisions_on_any_image(augmentation, seed):
    """The official operations, by torchvision and Pillow, against ours, over random images and draws."""
    generator = np.random.RandomState(seed)
    image = random_image(generator)
    recipe = dataclasses.replace(augmentation.VIEW_2, blur_probability=0.7, solarize_probability=0.5)
    draws = augmentation.draw_view(*image.size, recipe, augmentation.addressed_uniforms(seed, 0, 0, 1))
    seen = []
    augmentation.apply_view(image, draws, 48, watch=lambda name, image: seen.append((name, np.asarray(image))))
    for (name, pixels), (expected_name, expected) in itertools.zip_longest(seen, official_steps(image, draws, 48)):
        assert name == expected_name
        np.testing.assert_array_equal(pixels, np.asarray(expected), err_msg=name)


def official_steps(image: Image.Image, draws, size: int):
    """The recipe in torchvision's and Pillow's own words, operation by operation."""
    from PIL import ImageFilter, ImageOps

    functional = T.functional
    image = functional.resized_crop(image, *draws.crop, [size, size], T.InterpolationMode.BILINEAR)
    yield "crop", image
    if draws.jitter is not None:
        parts = ("brightness", "contrast", "saturation", "hue")
        for part in draws.jitter.order:
            image = getattr(functional, f"adjust_{parts[part]}")(image, getattr(draws.jitter, parts[part]))
        yield "jitter", image
    if draws.grayscale:
        image = functional.rgb_to_grayscale(image, 3)
        yield "grayscale", image
    if draws.blur_sigma is not None:
        image = image.filter(ImageFilter.GaussianBlur(radius=draws.blur_sigma))
        yield "blur", image
    if draws.solarize:
        image = ImageOps.solarize(image)
        yield "solarize", image
    if draws.flip:
        image = functional.hflip(image)
        yield "flip", image


# --- draws ---------------------------------------------------------------------------------------------------------

COUNT = 4000


def ks_distance(first: np.ndarray, second: np.ndarray) -> float:
    """Largest distance of two empirical distributions, over the distance that one pair in 10,000 exceeds."""
    both = np.sort(np.concatenate([first, second]))
    shares = [np.searchsorted(np.sort(part), both, side="right") / len(part) for part in (first, second)]
    allowed = np.sqrt(-np.log(1e-4 / 2) / 2 * (len(first) + len(second)) / (len(first) * len(second)))
    return float(np.abs(shares[0] - shares[1]).max() / allowed)


def our_draws(augmentation, recipe, width: int = 310, height: int = 260) -> list:
    addresses = ((3, index % 7, index, 1) for index in range(COUNT))
    return [
        augmentation.draw_view(width, height, recipe, augmentation.addressed_uniforms(*address))
        for address in addresses
    ]


@pytest.mark.slow
@pytest.mark.parametrize("size", [(310, 260), (60, 400), (900, 100)], ids=["usual", "tall", "wide"])
@pytest.mark.parametrize("crop_min", [0.08, 0.2])
def test_crops_are_distributed_as_torchvisions(augmentation, size, crop_min):
    torch.manual_seed(0)
    image = Image.new("RGB", size)
    theirs = np.array([T.RandomResizedCrop.get_params(image, [crop_min, 1.0], [3 / 4, 4 / 3]) for _ in range(COUNT)])
    recipe = dataclasses.replace(augmentation.VIEW_1, crop_area=(crop_min, 1.0))
    ours = np.array([draws.crop for draws in our_draws(augmentation, recipe, *size)])
    for column, name in enumerate(("top", "left", "height", "width")):
        assert ks_distance(ours[:, column], theirs[:, column]) < 1, name
    # Joint facts: area, shape, and how far the box lies within the room that is left to it.
    width, height = size
    for name, fact in {
        "area": lambda box: box[:, 2] * box[:, 3],
        "ratio": lambda box: box[:, 3] / box[:, 2],
        "top within room": lambda box: box[:, 0] / (height - box[:, 2] + 1),
        "left within room": lambda box: box[:, 1] / (width - box[:, 3] + 1),
    }.items():
        assert ks_distance(fact(ours), fact(theirs)) < 1, name


def test_a_wrong_crop_distribution_is_noticed(augmentation):
    torch.manual_seed(0)
    image = Image.new("RGB", (310, 260))
    theirs = np.array([T.RandomResizedCrop.get_params(image, [0.08, 1.0], [3 / 4, 4 / 3]) for _ in range(COUNT)])
    wrong = dataclasses.replace(augmentation.VIEW_1, crop_area=(0.2, 1.0))
    ours = np.array([draws.crop for draws in our_draws(augmentation, wrong)])
    assert ks_distance(ours[:, 2], theirs[:, 2]) > 1


@pytest.mark.parametrize("size", [(40, 400), (400, 40)])
def test_crop_falls_back_to_torchvisions_centre(augmentation, size):
    image = Image.new("RGB", size)
    # The whole area at a ratio that cannot fit: ten tries fail.
    theirs = T.RandomResizedCrop.get_params(image, [1.0, 1.0], [3 / 4, 4 / 3])
    assert augmentation.central_crop(*size, (3 / 4, 4 / 3)) == tuple(theirs)
    recipe = dataclasses.replace(augmentation.VIEW_1, crop_area=(1.0, 1.0))
    draws = augmentation.draw_view(*size, recipe, augmentation.addressed_uniforms(0, 0, 0, 1))
    assert draws.crop == tuple(theirs)


@pytest.mark.parametrize("case", FIGURES["cases"], ids=lambda case: f"seed{case['seed']}")
def test_first_box_that_fits_is_taken_as_in_the_official_draws(augmentation, case):
    """The golden draws, put at the places of ours, lead to the official box."""
    for view in case["views"]:
        draws, tries = golden_draws(augmentation, view)
        values = [value for _, value in view["steps"][0]["draws"]]
        uniforms = np.zeros(36)
        low, high = case["crop_min"], 1.0
        log_low, log_high = np.log(3 / 4), np.log(4 / 3)
        for place in range(tries):
            uniforms[place] = (values[2 * place] - low) / (high - low)
            uniforms[10 + place] = (values[2 * place + 1] - log_low) / (log_high - log_low)
        top, left, height, width = draws.crop
        uniforms[20] = (top + 0.5) / (260 - height + 1)
        uniforms[21] = (left + 0.5) / (310 - width + 1)
        recipe = dataclasses.replace(augmentation.VIEW_1, crop_area=(low, high))
        assert augmentation.draw_view(310, 260, recipe, uniforms).crop == draws.crop


CHANCES = {
    "jitter": (lambda draws: draws.jitter is not None, 0.8, 0.8),
    "grayscale": (lambda draws: draws.grayscale, 0.2, 0.2),
    "blur": (lambda draws: draws.blur_sigma is not None, 1.0, 0.1),
    "solarize": (lambda draws: draws.solarize, 0.0, 0.2),
    "flip": (lambda draws: draws.flip, 0.5, 0.5),
}


def chance_is_off(draws: list, name: str, view: int) -> bool:
    """Whether an operation's frequency is further from its chance than five standard deviations."""
    happens, *chances = CHANCES[name]
    chance = chances[view - 1]
    share = np.mean([happens(one) for one in draws])
    return bool(abs(share - chance) > 5 * np.sqrt(chance * (1 - chance) / len(draws)))


@pytest.mark.parametrize("view", [1, 2])
def test_operations_happen_as_often_as_in_the_official_recipe(augmentation, view):
    two_views = augmentation.build_two_views()
    draws = our_draws(augmentation, two_views.recipes[view - 1])
    assert [name for name in CHANCES if chance_is_off(draws, name, view)] == []


@pytest.mark.parametrize("name", CHANCES)
def test_a_wrong_probability_is_noticed(augmentation, name):
    wrong = dataclasses.replace(augmentation.VIEW_2, **{f"{name}_probability": CHANCES[name][2] + 0.05})
    draws = our_draws(augmentation, wrong)
    assert [other for other in CHANCES if chance_is_off(draws, other, 2)] == [name]


def test_jitter_factors_are_distributed_as_torchvisions(augmentation):
    torch.manual_seed(0)
    official = T.ColorJitter(0.4, 0.4, 0.2, 0.1)
    ranges = (official.brightness, official.contrast, official.saturation, official.hue)
    theirs = [official.get_params(*ranges) for _ in range(COUNT)]
    ours = [one.jitter for one in our_draws(augmentation, augmentation.VIEW_1) if one.jitter is not None]
    for place, name in enumerate(("brightness", "contrast", "saturation", "hue")):
        factors = np.array([getattr(one, name) for one in ours])
        assert ks_distance(factors, np.array([one[1 + place] for one in theirs])) < 1, name
        assert ranges[place][0] <= factors.min()
        assert factors.max() <= ranges[place][1]
    orders = [one.order for one in ours]
    counts = np.array([orders.count(order) for order in itertools.permutations(range(4))])
    assert counts.sum() == len(ours)
    expected = len(ours) / 24
    assert ((counts - expected) ** 2 / expected).sum() < 58.6  # chi-square with 23 degrees of freedom, p = 6e-5


def test_blur_sigma_is_uniform_between_a_tenth_and_two(augmentation):
    sigmas = np.array([one.blur_sigma for one in our_draws(augmentation, augmentation.VIEW_1)])
    assert ks_distance(sigmas, np.linspace(0.1, 2.0, 100_000)) < 1


# --- addresses -----------------------------------------------------------------------------------------------------


def test_draws_depend_on_each_part_of_the_address_and_on_nothing_else(augmentation):
    base = augmentation.addressed_uniforms(1, 2, 3, 1)
    np.random.seed(0)
    np.testing.assert_array_equal(base, augmentation.addressed_uniforms(1, 2, 3, 1))
    for address in ((0, 2, 3, 1), (1, 0, 3, 1), (1, 2, 0, 1), (1, 2, 3, 2), (2, 1, 3, 1), (1, 3, 2, 1)):
        assert not np.isclose(base, augmentation.addressed_uniforms(*address)).any()


def test_addressed_uniforms_stay_what_they_were(augmentation):
    # Pinned: another bit stream under some numpy release would part two processes, or a resumed run from its past.
    expected = [0.11494940584210478, 0.7215760864337499, 0.489336643802028, 0.35547571637084086]
    np.testing.assert_array_equal(augmentation.addressed_uniforms(7, 3, 11, 2, 4), expected)


def test_neighbouring_addresses_are_uncorrelated(augmentation):
    table = np.array(
        [[augmentation.addressed_uniforms(0, e, i, v) for i in range(500)] for e in (0, 1) for v in (1, 2)]
    )
    flat = table - 0.5
    for first, second in itertools.combinations(range(4), 2):  # same sample, other epoch or view
        assert abs(np.corrcoef(flat[first].ravel(), flat[second].ravel())[0, 1]) < 5 / np.sqrt(flat[0].size)
    neighbours = flat[:, 1:].ravel(), flat[:, :-1].ravel()
    assert abs(np.corrcoef(*neighbours)[0, 1]) < 5 / np.sqrt(neighbours[0].size)


def test_a_changed_probability_moves_no_other_draw(augmentation):
    uniforms = augmentation.addressed_uniforms(0, 0, 0, 1)
    usual = augmentation.draw_view(310, 260, augmentation.VIEW_1, uniforms)
    never = dataclasses.replace(augmentation.VIEW_1, blur_probability=0.0, jitter_probability=0.0)
    changed = augmentation.draw_view(310, 260, never, uniforms)
    assert changed == dataclasses.replace(usual, blur_sigma=None, jitter=None)


def test_both_twins_make_the_same_views(golden_image):
    ours = [importlib.import_module(f"{name}.data") for name in ("moco_ref", "moco_paddle")]
    for index in range(12):
        views = [module.build_two_views(64, 0.08, seed=5)(golden_image, 1, index) for module in ours]
        for reference, reproduced in zip(*views, strict=True):
            np.testing.assert_array_equal(reference, reproduced)


def test_view_one_and_view_two_differ_as_the_recipe_says(augmentation):
    first, second = augmentation.build_two_views(crop_min=0.2).recipes
    assert first.crop_area == second.crop_area == (0.2, 1.0)
    assert (first.blur_probability, second.blur_probability) == (1.0, 0.1)
    assert (first.solarize_probability, second.solarize_probability) == (0.0, 0.2)


def test_wrong_options_are_refused_in_one_line(augmentation):
    with pytest.raises(ValueError, match=r"^crop_min: 0 is not a share of the image's area; give more than 0 and at"):
        augmentation.build_two_views(crop_min=0)
    with pytest.raises(ValueError, match=r"^seed: -1 is negative; give 0 or more$"):
        augmentation.build_two_views(seed=-1)
