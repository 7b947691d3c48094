"""The compiled colour operations and blur against torchvision's and Pillow's own, to the bit, and their guard."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest
import torchvision.transforms.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image, ImageFilter

from moco_common.data import loaders
from moco_common.images import kernels, pixels, training_augmentation

ROOT = Path(__file__).parents[2]
OFFICIAL = {
    "brightness": F.adjust_brightness,
    "contrast": F.adjust_contrast,
    "saturation": F.adjust_saturation,
    "hue": F.adjust_hue,
    "grayscale": lambda image: F.rgb_to_grayscale(image, 3),
    "blur": lambda image, sigma: image.filter(ImageFilter.GaussianBlur(sigma)),
}
STRENGTHS = {
    "brightness": st.floats(0, 2.5),
    "contrast": st.floats(0, 2.5),
    "saturation": st.floats(0, 2.5),
    "hue": st.floats(-0.5, 0.5),
    "grayscale": None,
    "blur": st.floats(0, 2) | st.floats(0, 40),
}
"""The range of each operation's strength; ColorJitter refuses to draw factors below 0."""


def to_image(array: np.ndarray) -> Image.Image:
    return Image.fromarray(np.ascontiguousarray(array))


def image_of(planes: np.ndarray) -> Image.Image:
    return to_image(planes.transpose(1, 2, 0))


def planes_of(image: Image.Image) -> np.ndarray:
    return np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1))


@pytest.fixture(scope="module")
def every_color() -> np.ndarray:
    """All colours there are: (3, 4096, 4096)."""
    levels = np.arange(256, dtype=np.uint8)
    return np.stack(np.meshgrid(levels, levels, levels, indexing="ij")).reshape(3, 4096, 4096)


def test_the_compiled_loops_are_in_use_here():
    # Or else all of the following would compare Pillow with itself.
    assert pixels.compiled_kernels() is kernels


@given(data=st.data(), name=st.sampled_from(list(OFFICIAL)))
@settings(max_examples=400, deadline=None)
def test_operations_are_the_official_ones_on_any_image(data, name):
    shape = st.tuples(st.integers(1, 40), st.integers(1, 40), st.just(3))
    array = data.draw(arrays.arrays(np.uint8, shape, elements=st.integers(0, 255), fill=st.integers(0, 255)))
    strength = () if STRENGTHS[name] is None else (data.draw(STRENGTHS[name]),)
    before = array.copy()
    expected = np.asarray(OFFICIAL[name](to_image(array), *strength))
    for given_as in (array, to_image(array), np.asfortranarray(array)):
        found = pixels.operate(name, given_as, *strength)
        assert isinstance(found, Image.Image) == isinstance(given_as, Image.Image)
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(pixels.by_pillow(name, array, *strength), expected)
    np.testing.assert_array_equal(array, before)


@pytest.mark.parametrize("name", OFFICIAL)
def test_operations_are_the_official_ones_on_a_photograph_sized_image(name):
    generator = np.random.RandomState(3)
    array = generator.randint(0, 256, (217, 331, 3)).astype(np.uint8)
    for strength in [()] if name == "grayscale" else [(share,) for share in (0.0, 0.1, 1 / 3, 0.45)]:
        expected = np.asarray(OFFICIAL[name](to_image(array), *strength))
        np.testing.assert_array_equal(pixels.operate(name, array, *strength), expected)


def test_images_that_may_not_be_written_to_and_views_of_others_are_taken():
    array = np.random.RandomState(0).randint(0, 256, (3, 20, 30)).astype(np.uint8)
    array.flags.writeable = False
    for view in (array.transpose(1, 2, 0), array.transpose(1, 2, 0)[:, ::-1], array.transpose(1, 2, 0)[3:9, ::2]):
        expected = np.asarray(F.adjust_hue(to_image(view), 0.2))
        np.testing.assert_array_equal(pixels.operate("hue", view, 0.2), expected)


# --- every value there is --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shift", [0.0, -0.1])
def test_hue_is_torchvisions_for_every_color(every_color, shift):
    expected = planes_of(F.adjust_hue(image_of(every_color), shift))
    np.testing.assert_array_equal(kernels.hue(every_color, shift), expected)


def test_way_back_from_hue_is_pillows_for_every_hue_saturation_and_value():
    high, low = np.meshgrid(np.arange(256), np.arange(256))
    colors = np.stack([high, np.minimum(low, high), np.minimum(low, high)]).astype(np.uint8)
    hue, *others = image_of(colors).convert("HSV").split()
    assert not np.asarray(hue).any()
    for shift in range(256):
        turned = Image.merge("HSV", (Image.new("L", hue.size, shift), *others)).convert("RGB")
        np.testing.assert_array_equal(kernels.turn_hue(colors, np.int32(shift)), planes_of(turned))


def test_luma_is_pillows_for_every_color(every_color):
    np.testing.assert_array_equal(kernels.luma(every_color), np.asarray(image_of(every_color).convert("L")))


def test_blends_are_pillows_for_every_pair_of_values():
    base, value = np.meshgrid(np.arange(256, dtype=np.uint8), np.arange(256, dtype=np.uint8))
    planes = np.stack([value, value[::-1], value // 2])
    start = to_image(np.stack([base] * 3, axis=-1))
    fractions = {whole / part for part in (2, 3, 5, 7, 17, 51, 64, 76, 100, 255) for whole in range(2 * part + 1)}
    random = np.random.RandomState(0).uniform(0.6, 1.4, 100)
    for factor in (-0.5, 3.0, *sorted(fractions)[::3], 2 / 3, 4 / 3, *random):
        expected = planes_of(Image.blend(start, image_of(planes), factor))
        np.testing.assert_array_equal(kernels.blend(base, planes, np.float32(factor)), expected, err_msg=str(factor))


@pytest.mark.parametrize("sigma", [0.0, 1e-3, 0.1, 0.3, 0.5, 0.99, 1.0, 1.5, 2.0, 3.7, 12.0])
def test_blur_is_pillows_at_all_small_sizes(sigma):
    generator = np.random.RandomState(1)
    for height in range(1, 12):
        for width in range(1, 12):
            planes = generator.randint(0, 256, (3, height, width)).astype(np.uint8)
            expected = planes_of(image_of(planes).filter(ImageFilter.GaussianBlur(sigma)))
            np.testing.assert_array_equal(kernels.blur(planes, sigma), expected, err_msg=f"{height} by {width}")


def test_blur_is_pillows_for_sigmas_all_over_the_recipes_range():
    planes = np.random.RandomState(2).randint(0, 256, (3, 30, 41)).astype(np.uint8)
    for sigma in np.linspace(0.1, 2.0, 2000):
        expected = planes_of(image_of(planes).filter(ImageFilter.GaussianBlur(float(sigma))))
        np.testing.assert_array_equal(kernels.blur(planes, float(sigma)), expected, err_msg=str(sigma))


# --- the guard -------------------------------------------------------------------------------------------------------


@pytest.fixture
def fresh(monkeypatch):
    """Have the guard look again, now and after the test."""
    pixels.compiled_kernels.cache_clear()
    yield monkeypatch
    monkeypatch.undo()
    pixels.compiled_kernels.cache_clear()
    assert pixels.compiled_kernels() is kernels


def assert_pillow_makes_the_pixels(capsys, reason: str) -> None:
    array = np.random.RandomState(0).randint(0, 256, (9, 7, 3)).astype(np.uint8)
    for name, strength in {"brightness": 0.7, "contrast": 1.3, "saturation": 1.1, "hue": 0.05, "blur": 1.2}.items():
        expected = np.asarray(OFFICIAL[name](to_image(array), strength))
        np.testing.assert_array_equal(pixels.operate(name, array, strength), expected)
    np.testing.assert_array_equal(
        pixels.operate("grayscale", array), np.asarray(OFFICIAL["grayscale"](to_image(array)))
    )
    assert capsys.readouterr().err == f"Pillow makes the views instead, which is slower: {reason}\n"


@pytest.mark.parametrize("name", OFFICIAL)
def test_an_operation_that_errs_in_one_pixel_is_left_to_pillow(fresh, capsys, name):
    right = getattr(kernels, name)

    def wrong(planes: np.ndarray, *strength: float) -> np.ndarray:
        result = right(planes, *strength)
        result[1, 5, 2] ^= 1
        return result

    fresh.setattr(kernels, name, wrong)
    assert_pillow_makes_the_pixels(capsys, f"the compiled loops give other pixels here ({name})")


def again(function):
    """Compile anew, with the functions that it calls as they are now."""
    return numba.njit(error_model="numpy")(function.py_func)


def test_rounding_of_a_fused_multiply_add_is_noticed(fresh, capsys):
    def fused(base, planes, factor):
        # Exact in float64, so that the only rounding is that to float32.
        value = base + np.float64(factor) * (planes.astype(np.float64) - base)
        return value.astype(np.float32).clip(0, 255).astype(np.uint8)

    fresh.setattr(kernels, "blend", fused)
    assert_pillow_makes_the_pixels(capsys, "the compiled loops give other pixels here (contrast, saturation)")


def test_one_rounding_less_on_the_way_back_from_hue_is_noticed(fresh, capsys, every_color):
    """It changes 16 of all 16.7 million colours."""

    @numba.njit
    def lowered(high, share):
        return np.uint8(np.int32(np.float64(high) * (1.0 - np.float64(share)) + 0.5))

    right = kernels.hue(every_color, 0.0)
    fresh.setattr(kernels, "lowered", lowered)
    fresh.setattr(kernels, "turn_hue", again(kernels.turn_hue))
    assert 0 < (kernels.hue(every_color, 0.0) != right).any(axis=0).sum() < 100
    assert_pillow_makes_the_pixels(capsys, "the compiled loops give other pixels here (hue)")


def test_weights_of_another_rounding_are_noticed(fresh, capsys):
    right = kernels.box_weights

    def off_by_one(sigma: float) -> tuple[int, int, int]:
        radius, inner, _ = right(sigma)
        return radius, inner - 1, (kernels.ONE - (2 * radius + 1) * (inner - 1)) // 2

    fresh.setattr(kernels, "box_weights", off_by_one)
    assert_pillow_makes_the_pixels(capsys, "the compiled loops give other pixels here (blur)")


def test_a_numba_that_does_not_work_is_done_without(fresh, capsys):
    def fail(planes: np.ndarray) -> np.ndarray:
        raise ImportError("Numba needs NumPy 2.6\nor less")

    fresh.setattr(kernels, "luma", fail)
    reason = "numba does not work here (ImportError: Numba needs NumPy 2.6 or less)"
    assert_pillow_makes_the_pixels(capsys, reason)


# --- where and when they compile ------------------------------------------------------------------------------------


def run(program: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.slow
@pytest.mark.parametrize("package", ["moco_ref", "moco_paddle"])
def test_numba_is_loaded_for_the_first_view_and_not_before(package):
    program = f"""
import sys
import numpy as np
from PIL import Image
from moco_common.images import augmentation
from {package}.data import evaluation_transform
from {package}.programs import classification, train
image = Image.new("RGB", (40, 30))
evaluation_transform(32)(image)
print("numba" in sys.modules)
assert "torchvision" not in sys.modules  # its import takes longer than torch's own
augmentation.gaussian_blur(np.asarray(image), 1.0)
print("numba" in sys.modules)
"""
    found = run(program, PYTHONPATH=os.pathsep.join([str(ROOT), str(ROOT / "tools")]))
    assert found.stdout.split() == ["False", "True"], found.stderr


def test_loader_compiles_before_its_workers_start(tmp_path):
    (tmp_path / "class").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "class" / "a.png")

    compiled = []

    def framework_loader(dataset, batch_sampler, workers):
        compiled.append(pixels.compiled_kernels.cache_info().currsize)
        return []

    pixels.compiled_kernels.cache_clear()
    for strength in (0.0, 0.4):
        augmentation = training_augmentation.TrainingAugmentation(training_augmentation.jittered(strength))
        loaders.build_training_loader(framework_loader, None, tmp_path, 1, 8, augmentation=augmentation)
    pixels.compiled_kernels.cache_clear()
    loaders.build_pretraining_loader(framework_loader, None, tmp_path, 1, 8)
    assert compiled == [0, 1, 1]


@pytest.mark.slow
@pytest.mark.parametrize("writable", [True, False])
def test_loops_compile_where_no_folder_can_be_written(tmp_path, writable):
    package = tmp_path / "alone"
    package.mkdir()
    (package / "__init__.py").touch()
    for file in ("kernels.py", "pixels.py"):
        (package / file).write_bytes((ROOT / "moco_common" / "images" / file).read_bytes())
    if not writable:
        (package / "__pycache__").touch()  # a file: root, who may write everywhere, makes no folder of it either
    program = "from alone import pixels; print(pixels.compiled_kernels().__name__)"
    home = str(tmp_path if writable else package / "__init__.py")
    environment = {"PYTHONPATH": str(tmp_path), "HOME": home, "XDG_CACHE_HOME": home, "NUMBA_CACHE_DIR": ""}
    found = run(program, **environment)
    assert (found.stdout, found.stderr) == ("alone.kernels\n", "")
    assert bool(list(tmp_path.rglob("*.nbi"))) == writable
