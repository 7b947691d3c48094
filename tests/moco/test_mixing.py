"""Fine-tuning's augmentation: mixed batches against arithmetic in numpy, draws against the distributions' moments."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from PIL import Image
from torchvision import transforms

from moco_common.images import augmentation, training_augmentation
from moco_common.images.rand_augment import parse_policy
from moco_common.images.training_augmentation import TrainingAugmentation


def batch(twin, classes: int = 5) -> tuple[Any, Any, np.ndarray, np.ndarray]:
    random = np.random.RandomState(0)
    views, labels = random.randn(6, 3, 20, 30).astype("float32"), random.randint(0, classes, 6)
    return twin.tensor(views), twin.tensor(labels), views, np.eye(classes)[labels]


def mixing(twin, **options: Any) -> Any:
    return twin.module("training.mixing").Mixing(5, **options)


def test_mixup_is_the_weighted_sum_with_the_reversed_batch(twin) -> None:
    tensors, labels, views, truth = batch(twin)
    found = mixing(twin, mixup=0.8, smoothing=0.1)
    share, box = found.draw(20, 30, 2, 3)
    assert 0 < share < 1
    assert box == (0, 0, 0, 0)
    mixed, targets = (twin.array(tensor) for tensor in found(tensors, labels, 2, 3))
    np.testing.assert_allclose(mixed, share * views + (1 - share) * views[::-1], rtol=0, atol=1e-6)
    smooth = truth * 0.9 + 0.1 / 5
    np.testing.assert_allclose(targets, share * smooth + (1 - share) * smooth[::-1], rtol=0, atol=1e-6)


def test_cutmix_counts_the_pixels_that_are_anothers(twin) -> None:
    tensors, labels, views, truth = batch(twin)
    found = mixing(twin, cutmix=1.0)
    for iteration in range(20):
        mixed, targets = (twin.array(tensor) for tensor in found(tensors, labels, 0, iteration))
        foreign = (mixed != views).all(axis=1)
        # In every picture the same box, filled from the reversed batch.
        assert (foreign == foreign[0]).all()
        assert np.array_equal(mixed, np.where(foreign[:, None], views[::-1], views))
        rows, columns = foreign[0].any(axis=1).sum(), foreign[0].any(axis=0).sum()
        assert foreign[0].sum() == rows * columns
        share = 1 - foreign[0].mean()
        np.testing.assert_allclose(targets, share * truth + (1 - share) * truth[::-1], rtol=0, atol=1e-6)


def test_shares_have_the_beta_distribution(twin) -> None:
    found = mixing(twin, mixup=0.4, seed=7)
    shares = [found.draw(8, 8, 1, iteration)[0] for iteration in range(2000)]
    assert scipy.stats.kstest(shares, scipy.stats.beta(0.4, 0.4).cdf).pvalue > 1e-3
    assert scipy.stats.kstest(shares, scipy.stats.beta(0.5, 0.5).cdf).pvalue < 1e-3


def test_chances_are_the_options(twin) -> None:
    found = mixing(twin, mixup=1.0, cutmix=1.0, mixup_prob=0.6, mixup_switch_prob=0.25)
    kinds = []
    for iteration in range(3000):
        share, box = found.draw(224, 224, 0, iteration)
        kinds.append("none" if share == 1 else "cutmix" if any(box) else "mixup")
    for kind, chance in (("none", 0.4), ("mixup", 0.45), ("cutmix", 0.15)):
        assert abs(kinds.count(kind) / 3000 - chance) < 4 * (chance * (1 - chance) / 3000) ** 0.5 + 0.005


def test_twins_draw_and_mix_alike(twins) -> None:
    results = []
    for twin in twins:
        tensors, labels, _, _ = batch(twin)
        found = mixing(twin, mixup=0.8, cutmix=1.0, smoothing=0.1)
        results.append([[twin.array(part) for part in found(tensors, labels, 0, place)] for place in range(6)])
    for ours, theirs in zip(*results, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)


def test_loss_of_shares_is_torchs(twin) -> None:
    random = np.random.RandomState(1)
    logits, shares = random.randn(4, 5) * 50, random.dirichlet(np.ones(5), 4)
    actual = twin.module("training.classification").cross_entropy(twin.tensor(logits), twin.tensor(shares))
    expected = torch.nn.functional.cross_entropy(torch.from_numpy(logits), torch.from_numpy(shares))
    assert float(actual) == pytest.approx(float(expected), rel=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--mixup", "-1"], "--mixup: must be 0 or more, got -1.0"),
        (["--smoothing", "1.5"], "--smoothing: must be from 0 to 1, got 1.5"),
        (["--reprob", "2"], "--reprob: must be from 0 to 1, got 2.0"),
        (["--color-jitter", "3"], "--color-jitter: must be from 0 to 1, got 3.0"),
        (["--drop-path", "1"], "--drop-path: must be from 0 to below 1, got 1.0"),
        (["--repeated-aug", "--repeats", "0"], "--repeats: must be 1 or more, got 0"),
        (["--clip-grad", "0"], "--clip-grad: must be more than 0, got 0.0"),
        (["--model-ema", "--model-ema-decay", "1.5"], "--model-ema-decay: must be from 0 to 1, got 1.5"),
        (
            ["--aa", "augmix-m3"],
            "--aa: 'augmix-m3' is not supported; give rand, and after it any of -mM (magnitude, 0 to 10), -nN "
            "(operations a picture, from 1), -mstdS (deviation of the magnitude) and -inc1, as in rand-m9-mstd0.5-inc1",
        ),
    ],
)
def test_options_out_of_range_are_one_line(twin, noise: Path, tmp_path: Path, capsys, options, message: str) -> None:
    text = f"finetune {noise} -a vit_digits -b 8 --epochs 2 --warmup-epochs 1 --device cpu --workers 0 --output"
    assert twin.module("__main__").main([*text.split(), str(tmp_path), *options]) == 2
    assert capsys.readouterr().err == f"error: {message}\n"


@pytest.fixture(scope="module")
def noise(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("noise")
    random = np.random.RandomState(0)
    for name in "ab":
        (root / name).mkdir()
        for number in range(6):
            array = random.randint(0, 256, (40, 36, 3), dtype="uint8")
            Image.fromarray(array).save(root / name / f"{number}.png")
    return root


def loaded(twin, root: Path, **options: Any) -> list[np.ndarray]:
    build = twin.module("data").build_training_loader
    loader = build(root, 4, 32, seed=3, augmentation=TrainingAugmentation(**options))
    loader.set_epoch(1)
    return [twin.array(views) for views, _, _ in loader]


def test_erasing_puts_normal_noise_into_a_box(twin, noise: Path) -> None:
    plain, erased = loaded(twin, noise), loaded(twin, noise, erase_probability=1.0)
    filled = []
    for before, after in zip(np.concatenate(plain), np.concatenate(erased), strict=True):
        changed = (before != after).all(axis=0)
        assert np.array_equal(before[:, ~changed], after[:, ~changed])
        rows, columns = changed.any(axis=1).sum(), changed.any(axis=0).sum()
        assert changed.sum() == rows * columns
        assert 0.01 < changed.mean() < 0.36
        filled.append(after[:, changed].ravel())
    values = np.concatenate(filled)
    assert scipy.stats.kstest(values, scipy.stats.norm.cdf).pvalue > 1e-3
    assert all(np.array_equal(one, other) for one, other in zip(plain, loaded(twin, noise), strict=True))


def test_erased_boxes_come_as_often_as_asked_and_over_the_whole_view() -> None:
    boxes = [
        training_augmentation.draw_erasing(224, 224, 0.25, augmentation.addressed_uniforms(0, 0, index, 4, 23))
        for index in range(4000)
    ]
    found = np.array([box for box in boxes if box is not None])
    assert abs(len(found) / 4000 - 0.25) < 0.03
    area = found[:, 2] * found[:, 3] / 224**2
    # Long boxes of a large area do not fit, and are drawn again.
    assert area.min() == pytest.approx(0.02, abs=2e-3)
    assert area.max() == pytest.approx(1 / 3, abs=2e-2)
    assert abs(np.log(found[:, 3] / found[:, 2]).mean()) < 0.1
    assert abs((found[:, 0] / (224 - found[:, 2])).mean() - 0.5) < 0.05


def test_jitter_is_torchvisions_without_hue(noise: Path) -> None:
    image = Image.open(noise / "a" / "0.png")
    recipe = training_augmentation.jittered(0.4)
    for index in range(12):
        draws = augmentation.draw_view(*image.size, recipe, augmentation.addressed_uniforms(0, 0, index, 1))
        assert sorted(draws.jitter.order) == [0, 1, 2]
        parts = {
            part: transforms.ColorJitter(**{name: (getattr(draws.jitter, name),) * 2})
            for part, name in enumerate(("brightness", "contrast", "saturation"))
        }
        expected = image
        for part in draws.jitter.order:
            expected = parts[part](expected)
        assert np.array_equal(np.asarray(augmentation.adjust_colors(image, draws.jitter)), np.asarray(expected))
        assert 0.6 <= draws.jitter.brightness <= 1.4
    assert training_augmentation.jittered(0.0) == training_augmentation.CROP_AND_FLIP


def test_repeats_have_draws_of_their_own(twin, noise: Path) -> None:
    """A repeat is augmented anew and erased anew; the first has the draws that a picture without repeats has."""
    policy, build = parse_policy("rand-m9-mstd0.5-inc1"), twin.module("data").build_training_loader
    drawn = TrainingAugmentation(rand_augment=policy, erase_probability=0.5)
    plain = build(noise, 12, 32, seed=3, augmentation=drawn)
    repeated = build(noise, 12, 32, seed=3, augmentation=drawn, repeats=3)
    (views, labels, shown), (copies, copied_labels, copied) = (
        [twin.array(part) for part in next(iter(loader))] for loader in (plain, repeated)
    )
    assert copied.tolist() == np.repeat(shown[:4], 3).tolist()
    assert copied_labels.tolist() == np.repeat(labels[:4], 3).tolist()
    for place in range(4):
        first, second, third = copies[3 * place : 3 * place + 3]
        assert np.array_equal(first, views[place])
        assert not np.array_equal(first, second)
        assert not np.array_equal(second, third)


def test_fine_tuning_with_all_of_it_resumes_to_the_bit(twin, noise: Path, tmp_path: Path) -> None:
    text = (
        "-a vit_digits -b 4 --warmup-epochs 1 --lr 0.05 --device cpu --workers 0 --epochs 2 --mixup 0.8 --cutmix 1 "
        "--optimizer adamw --wd 0.1 --filter-bias-and-bn "
        "--smoothing 0.1 --reprob 0.5 --aa rand-m9-mstd0.5-inc1 --drop-path 0.5 --repeated-aug --repeats 2 "
        "--train-interpolation bicubic --clip-grad 1 --model-ema"
    )
    main, suffix = twin.module("__main__").main, twin.module("files.checkpoint").SUFFIX
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert main(["finetune", str(noise), *text.split(), "--output", str(whole)]) == 0
    classifier = twin.module("training.classification")
    train_step, calls = classifier.train_step, []

    def interrupted(*arguments: Any) -> float:
        calls.append(1)
        loss = train_step(*arguments)
        if len(calls) == 5:
            signal.raise_signal(signal.SIGINT)
        return loss

    classifier.train_step = interrupted
    try:
        assert main(["finetune", str(noise), *text.split(), "--output", str(parts)]) == 128 + signal.SIGINT
    finally:
        classifier.train_step = train_step
    assert len(calls) == 5  # of three an epoch
    resume = ["--resume", str(parts / f"interrupted{suffix}")]
    assert main(["finetune", str(noise), *text.split(), "--output", str(parts), *resume]) == 0
    read_weights = twin.module("files.weights").read_weights
    for use_average in (False, True):
        one, other = (read_weights(folder / f"checkpoint{suffix}", use_average)[0] for folder in (whole, parts))
        assert one.keys() == other.keys()
        assert all(np.array_equal(np.asarray(one[key]), np.asarray(other[key])) for key in one)
    judge = ["--evaluate", "--use-ema", "--resume", str(whole / f"checkpoint{suffix}")]
    assert main(["finetune", str(noise), *text.split(), *judge]) == 0
