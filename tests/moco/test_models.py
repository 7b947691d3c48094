"""Models of both twins: names, shapes and initialisation of the official release, and the parts of a MoCo step."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
import scipy.stats
import torch
import torchvision

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
LARGE = pytest.mark.slow
ARCHITECTURES = [
    "resnet18",
    "vit_small",
    pytest.param("resnet50", marks=LARGE),
    pytest.param("vit_conv_small", marks=LARGE),
    pytest.param("vit_base", marks=LARGE),
    pytest.param("vit_conv_base", marks=LARGE),
]


def digits_moco(twin, dtype: str = "float64") -> Any:
    """A MoCo that is small enough for every test."""
    model = twin.module("models.moco").build_moco("vit_digits", dim=16, mlp_dim=32)
    return twin.to(model, dtype)


def noise_weights(twin, model: Any, fill: Any) -> dict[str, np.ndarray]:
    return {
        key: fill(key, value.shape).astype(value.dtype)
        for key, value in twin.state(model).items()
        if not key.endswith(("num_batches_tracked", "pos_embed"))
    }


def digit_views(twin, seed: int = 0) -> list[Any]:
    return [twin.tensor(np.random.RandomState(seed + view).randn(6, 3, 32, 32)) for view in (1, 2)]


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_state_and_counts_equal_official_release(twin, golden_figures, arch: str) -> None:
    figures = golden_figures("models.json")[arch]
    model = twin.module("models.moco").build_moco(arch)
    assert model.temperature == figures["T"]
    expected = [(key, tuple(shape), dtype) for key, shape, dtype in figures["state_dict"]]
    if not twin.is_torch:
        expected = [entry for entry in expected if not entry[0].endswith("num_batches_tracked")]
    actual = [(key, value.shape, str(value.dtype)) for key, value in twin.state(model).items()]
    assert actual == expected
    statistics = ("running_mean", "running_var")
    parameters = {
        twin.reference_name(key): parameter
        for key, parameter in model.named_parameters()
        if not twin.reference_name(key).endswith(statistics)
    }
    assert list(parameters) == figures["named_parameters_order"]
    sizes = {key: int(np.prod(parameter.shape)) for key, parameter in parameters.items()}
    assert sum(sizes.values()) == figures["params_total"]
    trainable = [key for key, parameter in parameters.items() if twin.is_trainable(parameter)]
    assert trainable == figures["requires_grad"]
    assert sum(sizes[key] for key in trainable) == figures["params_requires_grad"]


@pytest.mark.parametrize("arch", ["vit_small", pytest.param("vit_conv_small", marks=LARGE)])
def test_stop_grad_conv1_freezes_what_it_freezes_in_the_official_release(twin, golden_figures, arch: str) -> None:
    figures = golden_figures("models.json")[arch]
    model = twin.module("models.moco").build_moco(arch, stop_grad_conv1=True)
    trainable = [key for key, parameter in model.named_parameters() if twin.is_trainable(parameter)]
    assert trainable == figures["requires_grad_stop_grad_conv1"]


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_initial_distributions_equal_official_release(twin, golden_figures, arch: str) -> None:
    """Standard deviations within five standard errors of the official run's, both being samples."""
    twin.seed(0)
    state = twin.state(twin.module("models.moco").build_moco(arch))
    figures = golden_figures("models.json")[arch]["init_seed0"]
    wrong = {}
    for key, official in figures.items():
        array = state[key].astype("float64")
        if official["std"] == 0:
            is_right = (array == official["mean"]).all()
        else:
            error = official["std"] / np.sqrt(array.size)
            is_right = (
                abs(array.std() - official["std"]) < 5 * error
                and abs(array.mean() - official["mean"]) < 8 * error
                # A bounded distribution reaches its bound in either, a normal one has no such thing.
                and 0.7 < np.abs(array).max() / official["absmax"] < 1.4
            )
        if not is_right:
            wrong[key] = array.std(), array.mean(), np.abs(array).max(), official
    assert not wrong
    for key, array in state.items():
        if key.startswith("momentum_encoder."):
            assert (array == state[key.replace("momentum_encoder.", "base_encoder.")]).all(), key


@pytest.mark.parametrize("arch", ["resnet18", "vit_digits"])
def test_initial_distributions_of_the_twins_are_one(twins, arch: str) -> None:
    """Kolmogorov and Smirnov, parameter by parameter, over three seeds; a ResNet's also against torchvision's."""
    samples: list[dict[str, list[np.ndarray]]] = []
    for twin in twins:
        found: dict[str, list[np.ndarray]] = {}
        for seed in (11, 12, 13):
            twin.seed(seed)
            state = twin.state(twin.module("models.moco").build_moco(arch, dim=32, mlp_dim=64))
            for key, array in state.items():
                if not key.startswith("momentum_encoder.") and not key.endswith("num_batches_tracked"):
                    found.setdefault(key, []).append(array.ravel()[:4000])
        samples.append(found)
    if arch == "resnet18":
        torch.manual_seed(14)
        official = torchvision.models.resnet18(zero_init_residual=True).state_dict()
        samples.append({f"base_encoder.{key}": [value.numpy().ravel()[:4000]] for key, value in official.items()})
    keys = [key for key in samples[0] if all(key in other for other in samples[1:]) or ".fc." in key]
    assert len(keys) > 30
    wrong = {}
    for key in keys:
        reference, *others = (np.concatenate(found[key]) for found in samples if key in found)
        for other in others:
            if np.ptp(reference) == 0:
                is_right = (other == reference[0]).all()
            else:
                is_right = scipy.stats.ks_2samp(reference, other).pvalue > 1e-3 / len(keys)
            if not is_right:
                wrong[key] = reference.std(), other.std()
        # Seeds differ, and each other's numbers are not repeated.
        if np.ptp(reference) > 0 and not key.endswith("pos_embed"):
            assert not np.array_equal(samples[0][key][0], samples[0][key][1]), key
    assert not wrong


def test_position_embedding_equals_official_release(twin, golden_figures) -> None:
    with np.load(GOLDEN / "pos_embed.npz") as file:
        official = file["pos_embed_vit_small_full"]
    embedding = twin.array(twin.module("models.vision_transformer").sincos_position_embedding(14, 14, 384))[0]
    assert embedding.dtype == np.float32
    if twin.is_torch:
        digest = golden_figures("facts.json")["pos_embed_vit_small_224"]["sha256_exact_f32"]
        assert hashlib.sha256(embedding.tobytes()).hexdigest() == digest
    # Elsewhere sine and cosine may round otherwise.
    np.testing.assert_allclose(embedding, official, rtol=0, atol=2e-7)
    base = golden_figures("facts.json")["pos_embed_vit_base_224"]["values_at"]
    embedding = twin.array(twin.module("models.vision_transformer").sincos_position_embedding(14, 14, 768))[0]
    for row, column, value in base:
        assert embedding[row, column] == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize(
    "arch", ["resnet34", "resnet101", "resnet152", "resnext50_32x4d", "resnext101_64x4d", "wide_resnet50_2"]
)
def test_resnet_family_equals_torchvision(twins, arch: str) -> None:
    with torch.device("meta"):
        own, other = twins[0].module("models.moco").build_encoder(arch), getattr(torchvision.models, arch)()
    shapes = [{key: value.shape for key, value in model.state_dict().items()} for model in (own, other)]
    assert shapes[0] == shapes[1]
    assert list(shapes[0]) == list(shapes[1])


@pytest.mark.parametrize("arch", ["resnet18", pytest.param("resnext50_32x4d", marks=LARGE)])
def test_resnets_compute_what_torchvision_computes(twin, fill, arch: str) -> None:
    own, other = twin.module("models.moco").build_encoder(arch, num_classes=10), getattr(torchvision.models, arch)
    other = other(num_classes=10).double().eval()
    own = twin.to(own, "float64")
    own.eval()
    weights = noise_weights(twin, own, fill)
    twin.load(own, weights)
    other.load_state_dict({key: torch.from_numpy(array) for key, array in weights.items()}, strict=False)
    images = np.random.RandomState(0).randn(2, 3, 64, 64)
    expected = other(torch.from_numpy(images)).detach().numpy()
    np.testing.assert_allclose(twin.array(own(twin.tensor(images))), expected, rtol=1e-9, atol=1e-12)


def test_twins_agree_in_float64(twins) -> None:
    twins[0].seed(0)
    weights = twins[0].state(digits_moco(twins[0]))
    results = []
    for twin in twins:
        model = digits_moco(twin)
        twin.load(model, weights)
        model.train()
        loss = model(*digit_views(twin), 0.9)
        loss.backward()
        results.append((twin.array(loss), twin.gradients(model), twin.state(model)))
    (loss, gradients, state), (other_loss, other_gradients, other_state) = results
    # paddle's norms keep their epsilon in float32, where the features hardly vary over the batch it is felt.
    assert other_loss == pytest.approx(loss, rel=1e-8)
    assert gradients.keys() == other_gradients.keys()
    assert all(key.startswith(("base_encoder.", "predictor.")) for key in gradients)
    for key, gradient in gradients.items():
        difference = np.abs(other_gradients[key] - gradient).max()
        assert difference <= 1e-7 * np.abs(gradient).max() + 1e-12, key
    for key, array in other_state.items():
        np.testing.assert_allclose(array, state[key], rtol=1e-7, atol=1e-9, err_msg=key)


def test_momentum_encoder_moves_before_the_keys_and_without_its_statistics(twin) -> None:
    model = digits_moco(twin)
    model.train()
    # Other base weights, so that moving is seen; with m = 0 the momentum encoder becomes the base encoder.
    weights = {k: a * 1.5 for k, a in twin.state(model).items() if k.startswith("base_encoder.blocks")}
    assert weights
    twin.load(model, weights)
    views = digit_views(twin)
    *_, k1, _ = model.embed(*views, 0.0)
    np.testing.assert_allclose(twin.array(k1), twin.array(model.base_encoder(views[0])), rtol=1e-12, atol=1e-12)
    assert not twin.is_trainable(k1)
    state = twin.state(model)
    for key in weights:
        np.testing.assert_array_equal(state[key.replace("base_", "momentum_")], weights[key])
    statistics = "head.1.running_mean"
    assert (state[f"base_encoder.{statistics}"] != state[f"momentum_encoder.{statistics}"]).any()


@pytest.mark.parametrize("m", [0.99, 0.5])
def test_momentum_update_is_the_moving_average(twin, m: float) -> None:
    model = digits_moco(twin)
    before = twin.state(model)
    twin.load(model, {"base_encoder.head.0.weight": before["base_encoder.head.0.weight"] + 1})
    k = before["momentum_encoder.head.0.weight"].copy()
    model.update_momentum_encoder(m)
    expected = m * k + (1 - m) * (k + 1)
    np.testing.assert_allclose(twin.state(model)["momentum_encoder.head.0.weight"], expected, rtol=1e-12)


@pytest.mark.parametrize("temperature", [0.2, 1.0, 0.005])
def test_loss_equals_the_paper(twin, temperature: float) -> None:
    """At 0.005 log-probabilities go below -64, where paddle's own cross entropy ends."""
    model = twin.module("models.moco").build_moco("vit_digits", dim=16, mlp_dim=32, temperature=temperature)
    q, k = (np.random.RandomState(seed).randn(5, 16) for seed in (0, 1))
    q_unit, k_unit = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (q, k))
    logits = q_unit @ k_unit.T / temperature
    logits = logits - logits.max(axis=1, keepdims=True)
    log_probability = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    if temperature == 0.005:
        assert log_probability.diagonal().min() < -64
    expected = -log_probability.diagonal().mean() * 2 * temperature
    loss = model.contrastive_loss(twin.tensor(q), twin.tensor(k))
    assert twin.array(loss).shape == ()
    assert twin.array(loss) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("shape", [(6, 4), (2, 4, 3, 3)], ids=str)
def test_batch_norm_keeps_torchs_statistics(twin, shape: tuple[int, ...]) -> None:
    reference = (torch.nn.BatchNorm1d if len(shape) == 2 else torch.nn.BatchNorm2d)(4).double()
    normalization = twin.module("models.normalization")
    name = [name for name in normalization.__all__ if name.lower() == f"batchnorm{len(shape) // 2}d"]
    own = twin.to(getattr(normalization, name[0])(4), "float64")
    plain = paddle.nn.BatchNorm1D(4) if len(shape) == 2 else paddle.nn.BatchNorm2D(4)
    plain.to(dtype="float64")
    for step in range(3):
        x = np.random.RandomState(step).randn(*shape) * 3 + 1
        expected = reference(torch.from_numpy(x)).detach().numpy()
        np.testing.assert_allclose(twin.array(own(twin.tensor(x))), expected, rtol=1e-9, atol=1e-11)
        plain(paddle.to_tensor(x))
    state = twin.state(own)
    np.testing.assert_allclose(state["running_mean"], reference.running_mean.numpy(), rtol=1e-13)
    np.testing.assert_allclose(state["running_var"], reference.running_var.numpy(), rtol=1e-13)
    # The gap that the twin's layer closes is there.
    assert np.abs(plain._variance.numpy() - reference.running_var.numpy()).max() > 1e-3
    own.eval()
    reference.eval()
    expected = reference(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(twin.array(own(twin.tensor(x))), expected, rtol=1e-9, atol=1e-11)


def test_batch_norm_refuses_a_single_value(twin) -> None:
    normalization = twin.module("models.normalization")
    layer = getattr(normalization, normalization.__all__[0])(4)
    layer.train()
    with pytest.raises(ValueError, match=r"^Expected more than 1 value per channel when training, got input size"):
        layer(twin.tensor(np.ones((1, 4), dtype="float32")))


def test_conversion_rules_see_batch_norms_and_linears(twins) -> None:
    _, twin = twins
    encoder = twin.module("models.moco").build_encoder("resnet18", num_classes=2)
    assert isinstance(encoder.bn1, paddle.nn.BatchNorm2D)
    assert isinstance(encoder.fc, paddle.nn.Linear)


def test_wrong_use_gets_one_line(twin) -> None:
    builder = twin.module("models.moco")
    with pytest.raises(ValueError, match=r"^no architecture is called 'vit_tiny'; there are vit_small, vit_base, "):
        builder.build_moco("vit_tiny")
    with pytest.raises(ValueError, match=r"^stop_grad_conv1 is for the ViT architectures, 'resnet18' is none$"):
        builder.build_moco("resnet18", stop_grad_conv1=True)
    with pytest.raises(ValueError, match=r"^image_size must be a multiple of the patch size 4, got 33$"):
        builder.build_encoder("vit_digits", image_size=33)
    encoder = builder.build_encoder("vit_digits", num_classes=2)
    with pytest.raises(ValueError, match=r"^images must be 32 x 32 pixels for this encoder, got 64 x 48: resize them"):
        encoder(twin.tensor(np.zeros((1, 3, 64, 48), dtype="float32")))
