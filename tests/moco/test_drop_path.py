"""Drop path of both twins: what it does against timm's networks, what it draws against its address and its chances."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm.layers
import timm.models.resnet
import timm.models.vision_transformer
import torch
from PIL import Image

from moco_common.data.samplers import places_of_rank
from moco_common.images.rand_augment import parse_policy
from moco_common.images.training_augmentation import TrainingAugmentation

RATE = 0.6


def network(twin, arch: str, rate: float = RATE) -> Any:
    twin.seed(0)
    if arch == "vit":
        kind = twin.module("models.vision_transformer").VisionTransformer
        return kind(dim=16, depth=4, num_heads=2, patch_size=8, image_size=32, num_classes=5, drop_path=rate)
    return twin.module("models.moco").build_encoder(arch, 5, drop_path=rate)


def timms(arch: str) -> torch.nn.Module:
    torch.manual_seed(1)
    if arch == "vit":
        return timm.models.vision_transformer.VisionTransformer(
            img_size=32, patch_size=8, embed_dim=16, depth=4, num_heads=2, num_classes=5, drop_path_rate=RATE
        )
    block, depths = {
        "resnet18": (timm.models.resnet.BasicBlock, (2, 2, 2, 2)),
        "resnet50": (timm.models.resnet.Bottleneck, (3, 4, 6, 3)),
    }[arch]
    return timm.models.resnet.ResNet(block, depths, num_classes=5, drop_path_rate=RATE, zero_init_last=False)


def paths(twin, model: Any) -> list[Any]:
    layers = model.modules() if twin.is_torch else model.sublayers()
    return [layer for layer in layers if type(layer).__name__ == "DropPath"]


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["vit", "resnet18", "resnet50"])
def test_outputs_and_gradients_are_timms_for_the_same_draws(twin, arch: str) -> None:
    reference = timms(arch).double().train()
    factors: list[np.ndarray] = []

    def note(layer: Any, inputs: tuple, output: torch.Tensor) -> None:
        kept = output.detach().flatten(1).abs().sum(1) > 0
        factors.append(kept.numpy() / (1 - layer.drop_prob))

    layers = [layer for layer in reference.modules() if isinstance(layer, timm.layers.DropPath)]
    for layer in layers:
        layer.register_forward_hook(note)
    x = np.random.RandomState(2).randn(6, 3, 32, 32)
    torch.manual_seed(3)
    expected = reference(torch.from_numpy(x))
    (expected**2).sum().backward()

    model = network(twin, arch)
    twin.load(model, {key: value.numpy().astype("float32") for key, value in reference.state_dict().items()})
    twin.to(model, "float64").train()
    own = paths(twin, model)
    assert [path.rate for path in own] == pytest.approx([layer.drop_prob for layer in layers])
    assert {0.0} < {value for column in factors for value in column}
    for path, column in zip(own, factors, strict=True):
        path.factors = column
    output = model(twin.tensor(x))
    (output**2).sum().backward()
    scale = float(expected.detach().abs().max())
    # The reference's weights were float32 to begin with; the running statistics it has moved are not used in training.
    np.testing.assert_allclose(twin.array(output), expected.detach().numpy(), rtol=0, atol=1e-9 * scale)
    gradients = twin.gradients(model)
    assert {name for name, _ in reference.named_parameters()} - gradients.keys() <= {"pos_embed"}
    for name, parameter in reference.named_parameters():
        if name in gradients:
            found, wanted = gradients[name], parameter.grad.numpy()
            np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-8 * max(np.abs(wanted).max(), 1.0), err_msg=name)


def test_nothing_changes_without_it_or_in_evaluation(twin) -> None:
    for arch in ("vit", "resnet18"):
        plain, dropping = network(twin, arch, 0.0), network(twin, arch)
        assert paths(twin, plain) == []
        assert len(paths(twin, dropping)) == {"vit": 6, "resnet18": 7}[arch]
        assert list(plain.state_dict()) == list(dropping.state_dict())
        twin.load(dropping, twin.state(plain))
        x = twin.tensor(np.random.RandomState(0).randn(2, 3, 32, 32).astype("float32"))
        plain.eval(), dropping.eval()
        assert np.array_equal(twin.array(plain(x)), twin.array(dropping(x)))


def test_training_without_draws_is_refused(twin) -> None:
    model = network(twin, "vit")
    model.train()
    x = twin.tensor(np.zeros((3, 3, 32, 32), dtype="float32"))
    message = r"^drop path: nothing is drawn for 3 samples; call draw_paths before the step$"
    with pytest.raises(RuntimeError, match=message):
        model(x)
    twin.module("models.drop_path").draw_paths(model, 2, 0, 0, 0)
    with pytest.raises(RuntimeError, match=message):
        model(x)
    with pytest.raises(ValueError, match=r"^--drop-path: must be from 0 to below 1, got 1.0$"):
        network(twin, "vit", 1.0)


def drawn(twin, model: Any, *address: int, samples: int = 8) -> np.ndarray:
    twin.module("models.drop_path").draw_paths(model, samples, *address)
    return np.array([path.factors for path in paths(twin, model)])


def test_draws_depend_on_their_address_alone_and_are_both_twins(twins) -> None:
    tables = []
    for twin in twins:
        model = network(twin, "vit")
        base = drawn(twin, model, 1, 2, 3)
        assert base.shape == (6, 8)
        for other in ((0, 2, 3), (1, 0, 3), (1, 2, 0)):
            assert not np.array_equal(base, drawn(twin, model, *other))
        assert np.array_equal(base, drawn(twin, model, 1, 2, 3))
        tables.append(base)
    assert np.array_equal(*tables)


def test_chances_are_the_rates(twin) -> None:
    model = network(twin, "vit")
    table = np.concatenate([drawn(twin, model, 0, 0, iteration, samples=50) for iteration in range(60)], axis=1)
    for row, path in zip(table, paths(twin, model), strict=True):
        assert set(np.unique(row)) == {0.0, 1 / (1 - path.rate)}
        assert abs((row == 0).mean() - path.rate) < 4 * (path.rate * (1 - path.rate) / row.size) ** 0.5
    # Branches and samples are drawn apart.
    assert np.abs(np.corrcoef(table) - np.eye(len(table))).max() < 0.08


def test_ranks_drop_what_one_process_drops(twin) -> None:
    whole = drawn(twin, network(twin, "vit"), 0, 1, 2, samples=12)
    found = twin.simulate_ranks(3, lambda rank: drawn(twin, network(twin, "vit"), 0, 1, 2, samples=4))
    for rank, own in enumerate(found):
        assert np.array_equal(own, whole[:, places_of_rank(12, rank, 3)])


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("pictures")
    generator = np.random.RandomState(0)
    for number in range(24):
        path = root / f"class{number % 3}" / f"{number:02d}.png"
        path.parent.mkdir(exist_ok=True)
        array = generator.randint(0, 256, (9, 9, 3), dtype="uint8") // 2 + 40 * (number % 3)
        Image.fromarray(array.astype("uint8")).resize((40, 36)).save(path)
    return root


def trained(twin, root: Path, initial: dict[str, np.ndarray], rate: float = 0.5) -> tuple[list, dict[str, np.ndarray]]:
    """Losses and weights of a training in float64 with all that fine-tuning has."""
    classifier = twin.module("training.classification")
    model = classifier.build_classifier("vit_digits", 3, drop_path=rate)
    twin.load(model, initial)
    twin.to(model, "float64")
    parameters = [parameter for parameter in model.parameters() if twin.is_trainable(parameter)]
    # A momentum that paddle's kernel, which keeps it in float32, can represent.
    optimizer = twin.module("training.optimizer").build_optimizer("sgd", parameters, 0.1, 0.0, 0.5)
    rand_augment = parse_policy("rand-m9-mstd0.5-inc1")
    augmentation = TrainingAugmentation(rand_augment=rand_augment, erase_probability=0.25)
    loader = twin.module("data").build_training_loader(root, 8, 32, 5, augmentation=augmentation, repeats=3)
    mixing = twin.module("training.mixing").Mixing(3, mixup=0.8, cutmix=1.0, smoothing=0.1, seed=5)
    records: list[Any] = []
    args = Namespace(lr=0.25, epochs=4, warmup_epochs=1, seed=5)
    classifier.train_classifier(
        model, loader, optimizer, args, on_step=records.append, frozen=False, mixing=mixing, clip_grad=0.5
    )
    return [record.loss for record in records], twin.state(model)


def test_twins_train_alike_in_float64(twins, pictures: Path) -> None:
    twins[0].seed(0)
    initial = twins[0].state(twins[0].module("training.classification").build_classifier("vit_digits", 3))
    initial = {key: array.copy() for key, array in initial.items()}
    (losses, state), (their_losses, their_state) = (trained(twin, pictures, initial) for twin in twins)
    assert len(losses) == 12
    np.testing.assert_allclose(their_losses, losses, rtol=1e-7)
    moved = {key: np.abs(array - initial[key]).max() for key, array in state.items()}
    assert max(moved.values()) > 1e-2
    for key, array in state.items():
        np.testing.assert_allclose(their_state[key], array, rtol=0, atol=1e-7, err_msg=key)
    # Without the same paths they would not: a rate that is another by little gives other losses.
    other, _ = trained(twins[1], pictures, initial, rate=0.45)
    assert np.abs(np.array(other) / losses - 1).max() > 1e-3
