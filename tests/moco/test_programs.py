"""The programs around pre-training: classifiers, neighbours, predictions, exports, summaries, recipes."""

from __future__ import annotations

import json
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch
import torchvision
from PIL import Image
from torch.utils.flop_counter import FlopCounterMode

from moco_common.programs import classification, recipes, train
from moco_common.programs.recipes import parse_with_recipe
from moco_common.training.reporting import Reporter, StepRecord

CLASSES = ("blue", "green", "red")


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> Path:
    """train/ and val/ with three colours of noise, as easy to tell apart as can be."""
    root = tmp_path_factory.mktemp("colours")
    generator = np.random.RandomState(0)
    for split, count in (("train", 8), ("val", 4)):
        for place, name in enumerate(CLASSES):
            folder = root / split / name
            folder.mkdir(parents=True)
            for number in range(count):
                array = generator.randint(0, 90, (40, 36, 3), dtype="uint8")
                array[..., 2 - place] += 150
                Image.fromarray(array).save(folder / f"{number}.png")
    return root


@pytest.fixture
def pretrained(twin, tmp_path: Path) -> Path:
    return save_moco(twin, tmp_path)


def save_moco(twin, folder: Path, arch: str = "vit_digits", average: bool = False) -> Path:
    twin.seed(5)
    model = twin.module("models.moco").build_moco(arch, 8, 16)
    optimizer = twin.module("training.optimizer").build_optimizer("sgd", model.parameters(), 0.1, 0.0)
    checkpoint = twin.module("files.checkpoint")
    path = folder / f"pretrained{checkpoint.SUFFIX}"
    kept = twin.module("training.model_average").ModelAverage(model, 0.9) if average else None
    if kept:
        for value in kept.state.values():
            value.fill_(0.25)
    checkpoint.save_checkpoint(path, model, optimizer, 1, 0, {"arch": arch}, average=kept)
    return path


def linear_options(output: Path) -> list[Any]:
    text = "--arch vit_digits --batch-size 8 --epochs 4 --lr 3 --device cpu --workers 0 --print-freq 2"
    return [*text.split(), "--output", output]


def test_linear_classification_learns_judges_and_predicts(
    twin, pictures: Path, pretrained: Path, tmp_path: Path, capsys
) -> None:
    output = tmp_path / "out"
    assert twin.run("lincls", pictures, "--pretrained", pretrained, *linear_options(output)) == 0
    lines = capsys.readouterr().out.splitlines()
    accuracies = [line for line in lines if "best top-1" in line]
    assert len(accuracies) == 4
    assert accuracies[-1].startswith("[epoch 3] top-1: 100.000 %, top-5: 100.000 %, loss: 0.")
    suffix = twin.module("files.checkpoint").SUFFIX
    best = output / f"model_best{suffix}"
    assert sorted(path.name for path in output.iterdir()) == [f"checkpoint{suffix}", best.name]
    assert twin.run("lincls", pictures, "--resume", best, "--evaluate", *linear_options(output)) == 0
    assert capsys.readouterr().out.startswith("top-1: 100.000 %, top-5: 100.000 %, loss: ")

    arguments = [pictures / "val", "--checkpoint", best, "--topk", 2, "--neighbours", pictures / "train", "-k", 3]
    shown, features = tmp_path / "shown.json", tmp_path / "features.npy"
    assert twin.run("predict", *arguments, "--json", shown, "--features", features, "--device", "cpu") == 0
    results = json.loads(shown.read_text())
    assert len(results) == 12
    assert np.load(features).shape == (12, 64)
    for result in results:
        truth = Path(result["picture"]).parent.name
        assert result["classes"][0]["class"] == truth
        assert 0.4 < sum(entry["probability"] for entry in result["classes"]) <= 1 + 1e-6
        assert {Path(entry["picture"]).parent.name for entry in result["neighbours"]} == {truth}
    assert capsys.readouterr().out.count("similar") == 36


def test_linear_classification_is_momentum_sgd_on_the_classifier(twin, pictures: Path) -> None:
    """Three steps against the formula in numpy; nothing else moves by a bit."""
    classifier = twin.module("training.classification")
    twin.seed(1)
    model = twin.to(classifier.build_classifier("vit_digits", 3), "float64")
    classifier.freeze_encoder(model)
    parameters = [parameter for parameter in model.parameters() if twin.is_trainable(parameter)]
    optimizer = twin.module("training.optimizer").build_optimizer("sgd", parameters, 0.5, 0.0)
    loader = twin.module("data").build_training_loader(pictures / "train", 8, 32, seed=2)
    before = {key: array.copy() for key, array in twin.state(model).items()}
    weight, bias = before["head.weight"].copy(), before["head.bias"].copy()
    velocity = np.zeros_like(weight), np.zeros_like(bias)
    model.eval()
    loader.set_epoch(0)
    losses = []
    for views, labels, _ in loader:
        features = twin.array(model.forward_features(twin.to_dtype(views, "float64")))
        logits = features @ weight.T + bias
        probabilities = np.exp(logits - logits.max(axis=1, keepdims=True))
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        truth = np.eye(3)[labels.numpy()]
        losses.append(-np.log((probabilities * truth).sum(axis=1)).mean())
        delta = (probabilities - truth) / len(truth)
        for moved, speed, gradient in zip(
            (weight, bias), velocity, (delta.T @ features, delta.sum(axis=0)), strict=True
        ):
            speed *= 0.9
            speed += gradient
            moved -= 0.5 * speed
    records = []
    args = Namespace(lr=0.5, epochs=1, warmup_epochs=0)
    classifier.train_classifier(model, loader, optimizer, args, on_step=records.append)
    assert len(losses) == 3
    assert [record.loss for record in records] == pytest.approx(losses, rel=1e-7)
    after = twin.state(model)
    # paddle's Momentum kernel holds its coefficient in float32.
    np.testing.assert_allclose(after["head.weight"], weight, rtol=0, atol=1e-7)
    np.testing.assert_allclose(after["head.bias"], bias, rtol=0, atol=1e-7)
    assert not np.array_equal(after["head.weight"], before["head.weight"])
    assert [key for key in before if not key.startswith("head.") and not np.array_equal(after[key], before[key])] == []


def test_an_encoder_that_moves_is_noticed(twin) -> None:
    classifier = twin.module("training.classification")
    model = classifier.build_classifier("resnet18", 2)
    before = classifier.encoder_state(model)
    classifier.check_encoder_unmoved(model, before)
    model.train()
    model(twin.tensor(np.random.RandomState(0).randn(2, 3, 32, 32).astype("float32")))
    with pytest.raises(RuntimeError, match=r"^bn1\.\w+ moved, and only the classifier should have$"):
        classifier.check_encoder_unmoved(model, before)


def test_fine_tuning_moves_the_encoder(twin, pictures: Path, pretrained: Path, tmp_path: Path, capsys) -> None:
    text = "--arch vit_digits -b 8 --epochs 3 --warmup-epochs 1 --optimizer adamw --lr 0.03 --device cpu --workers 0"
    assert twin.run("finetune", pictures, "--pretrained", pretrained, *text.split(), "--output", tmp_path) == 0
    assert "best top-1: 100.000 %" in capsys.readouterr().out
    model = twin.module("models.moco").build_encoder("vit_digits", 3)
    weights = twin.module("files.weights")
    values = weights.load_classifier(model, tmp_path / f"checkpoint{twin.module('files.checkpoint').SUFFIX}")
    assert values["classes"] == list(CLASSES)
    moved = twin.state(model)["blocks.0.mlp.fc1.weight"].copy()
    weights.load_encoder(model, pretrained)
    assert not np.array_equal(moved, twin.state(model)["blocks.0.mlp.fc1.weight"])


def test_knn_program_gives_what_the_function_gives(twin, pictures: Path, pretrained: Path, capsys) -> None:
    options = ["--arch", "vit_digits", "--device", "cpu", "--workers", 0]
    assert twin.run("knn", pictures, "--pretrained", pretrained, "-k", 3, *options) == 0
    assert capsys.readouterr().out == "kNN top-1: 100.000 % of 12 pictures, 3 neighbours\n"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("lincls DATA", "--pretrained: name what pre-training wrote (or a checkpoint of this program with --resume)"),
        ("lincls DATA --evaluate --pretrained FILE", "--evaluate: name the classifier's checkpoint with --resume"),
        ("lincls DATA --pretrained missing", "missing: no such file"),
        ("knn DATA -k 0", "--neighbours: must be 1 or more, got 0"),
        (
            "knn DATA --pretrained FILE --use-ema",
            "FILE: holds no average; leave --use-ema out, or train with --model-ema",
        ),
        ("predict missing --checkpoint FILE", "missing: no such file or folder"),
        ("finetune DATA --warmup-epochs 100", "--warmup-epochs: must be from 0 to below --epochs 100, got 100"),
    ],
)
def test_wrong_use_gets_one_line(twin, pictures: Path, pretrained: Path, capsys, command: str, message: str) -> None:
    places = {"DATA": str(pictures), "FILE": str(pretrained)}
    arguments = [places.get(word, word) for word in command.split()]
    arguments += [] if command.startswith("predict") else ["--arch", "vit_digits", "--workers", "0"]
    assert twin.run(*arguments, "--device", "cpu") == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", f"error: {message.replace('FILE', str(pretrained))}\n")


def test_another_architecture_is_refused(twin, pretrained: Path) -> None:
    weights = twin.module("files.weights")
    model = twin.module("models.moco").build_encoder("resnet18")
    with pytest.raises(weights.WeightsError) as caught:
        weights.load_encoder(model, pretrained)
    assert str(caught.value).startswith(
        f"{pretrained}: other weights than the model's, of vit_digits: no conv1.weight and "
    )


def test_an_unknown_command_gets_one_line(twin, capsys) -> None:
    assert twin.run("fly") == 2
    assert capsys.readouterr().err == (
        "error: no command is called 'fly'; there are train, lincls, finetune, knn, predict, export, summary\n"
    )
    assert twin.run("--help") == 0
    assert capsys.readouterr().out.startswith(f"usage: python -m {twin.package} COMMAND")


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["resnet18", "vit_digits"])
def test_exports_are_the_base_encoder_by_torchs_names(twin, tmp_path: Path, arch: str) -> None:
    pretrained = save_moco(twin, tmp_path, arch)
    target = tmp_path / "encoder.safetensors"
    assert twin.run("export", pretrained, target) == 0
    exported = safetensors.numpy.load_file(target)
    model = twin.module("models.moco").build_moco(arch, 8, 16)
    twin.module("files.checkpoint").load_checkpoint(
        pretrained,
        model,
        twin.module("training.optimizer").build_optimizer("sgd", model.parameters(), 0.1, 0.0),
        {"arch": arch},
    )
    expected = {
        key.removeprefix("base_encoder."): array
        for key, array in twin.state(model).items()
        if key.startswith("base_encoder.") and not key.startswith(("base_encoder.head.", "base_encoder.fc."))
    }
    assert exported.keys() == expected.keys()
    assert all(np.array_equal(exported[key], expected[key]) for key in expected)
    if arch == "resnet18":
        other = torchvision.models.resnet18()
        missing, unexpected = other.load_state_dict({k: torch.from_numpy(a) for k, a in exported.items()}, strict=False)
        tracked = [key for key in missing if key.endswith("num_batches_tracked")]
        assert sorted(set(missing) - set(tracked)) == ["fc.bias", "fc.weight"]
        assert unexpected == []


def test_an_average_is_exported_in_place_of_the_weights(twin, tmp_path: Path) -> None:
    pretrained, target = save_moco(twin, tmp_path, average=True), tmp_path / "encoder.safetensors"
    assert twin.run("export", pretrained, target, "--use-ema") == 0
    assert all((array == 0.25).all() for array in safetensors.numpy.load_file(target).values())


def test_a_prediction_takes_the_average(twin, pictures: Path, tmp_path: Path) -> None:
    pretrained = save_moco(twin, tmp_path, average=True)
    options = [pictures / "val", "--checkpoint", pretrained, "--device", "cpu", "--features", tmp_path / "features.npy"]
    found = []
    for more in ([], ["--use-ema"]):
        assert twin.run("predict", *options, *more) == 0
        found.append(np.load(tmp_path / "features.npy"))
    # Where all weights are equal, so are the features of a picture.
    assert np.ptp(found[0], axis=1).min() > 0.1
    assert np.ptp(found[1], axis=1).max() < 1e-4


def test_torchs_forms_load_where_deit_and_timm_load_them(twins, tmp_path: Path) -> None:
    pretrained = save_moco(twins[0], tmp_path)
    for form in ("deit", "timm"):
        assert twins[0].run("export", pretrained, tmp_path / f"{form}.pth", "--form", form) == 0
    deit, timm = (torch.load(tmp_path / f"{form}.pth", weights_only=True) for form in ("deit", "timm"))
    assert list(deit) == ["model"]
    assert deit["model"].keys() == timm.keys()
    model = twins[0].module("models.moco").build_encoder("vit_digits", 4)
    twins[0].module("files.weights").load_encoder(model, tmp_path / "deit.pth")
    assert all(torch.equal(timm[key], value) for key, value in model.state_dict().items() if "head" not in key)


def test_wrong_exports_leave_nothing(twin, pretrained: Path, tmp_path: Path, capsys) -> None:
    assert twin.run("export", pretrained, tmp_path / "encoder.bin") == 2
    assert capsys.readouterr().err.startswith(f"error: {tmp_path / 'encoder.bin'}: is written as ")
    assert [path.name for path in tmp_path.iterdir()] == [pretrained.name]


@pytest.mark.parametrize("arch", ["vit_digits", "resnet18", "vit_small", "vit_conv_small", "resnext50_32x4d"])
def test_flops_equal_torchs_own_counter(twins, arch: str) -> None:
    summaries = []
    for twin in twins:
        model = twin.module("models.moco").build_encoder(arch)
        summaries.append(twin.module("programs.summary").summarize(model, model.image_size))
    assert asdict(summaries[0]) == asdict(summaries[1])
    reference = twins[0].module("models.moco").build_encoder(arch).eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        reference(torch.zeros(1, 3, reference.image_size, reference.image_size))
    assert 2 * sum(summaries[0].flops.values()) == counter.get_total_flops()
    assert summaries[0].parameters == sum(parameter.numel() for parameter in reference.parameters())


def test_summary_shows_the_official_counts(twin, capsys) -> None:
    assert twin.run("summary", "-a", "resnet18", "--num-classes", 10, "--layers") == 0
    output = capsys.readouterr().out
    assert output.splitlines()[0].split() == ["conv1", "118,013,952", "FLOPs"]
    assert "MoCo v3 of it (256, 4096): 30,766,208 parameters, 16,435,776 trained" in output


def parser_of(command: str) -> Any:
    architectures = ["resnet50", "vit_small", "vit_base"]
    if command == "train":
        return train.build_parser("moco_ref", architectures, "cpu", ["lars", "adamw"])
    return classification.build_linear_parser("moco_ref", architectures, "cpu")


def test_recipes_are_the_published_ones() -> None:
    """The figures of the official release's reference setups, by its own option names."""
    training, linear = (
        parser_of("train"),
        parser_of("lincls"),
    )

    def options(parser: Any, kind: str, *argv: str) -> dict[str, Any]:
        return vars(parse_with_recipe(parser, getattr(recipes, kind), ["data", *argv]))

    resnet = {"arch": "resnet50", "optimizer": "lars", "batch_size": 4096, "moco_m_cos": True, "crop_min": 0.2}
    vit = {"optimizer": "adamw", "batch_size": 4096, "lr": 1.5e-4, "weight_decay": 0.1, "epochs": 300, "crop_min": 0.08}
    vit |= {"warmup_epochs": 40, "stop_grad_conv1": True, "moco_m": 0.99, "moco_m_cos": True, "moco_t": 0.2}
    published = {
        "r50-100ep": {**resnet, "lr": 0.6, "weight_decay": 1e-6, "epochs": 100, "moco_m": 0.99, "warmup_epochs": 10},
        "r50-300ep": {**resnet, "lr": 0.3, "weight_decay": 1e-6, "epochs": 300, "moco_m": 0.99, "warmup_epochs": 10},
        "r50-1000ep": {**resnet, "lr": 0.3, "weight_decay": 1.5e-6, "epochs": 1000, "moco_m": 0.996},
        "vit-s-300ep": {**vit, "arch": "vit_small"},
        "vit-b-300ep": {**vit, "arch": "vit_base"},
    }
    assert list(recipes.PRETRAINING) == list(published)
    for name, expected in published.items():
        found = options(parser_of("train"), "PRETRAINING", "--recipe", name)
        assert {key: found[key] for key in expected} == expected, name
    for name, arch, rate in (("r50", "resnet50", 0.1), ("vit-s", "vit_small", 3.0), ("vit-b", "vit_base", 3.0)):
        found = options(parser_of("lincls"), "LINEAR", "--recipe", f"{name}-linear")
        expected = {"arch": arch, "lr": rate, "epochs": 90, "batch_size": 1024, "weight_decay": 0.0, "momentum": 0.9}
        assert {key: found[key] for key in expected} == expected
    assert options(training, "PRETRAINING", "--lr", "7", "--recipe", "r50-300ep", "-b", "64")["lr"] == 7
    assert options(linear, "LINEAR")["lr"] == 0.1


def test_options_are_the_official_ones(golden_figures) -> None:
    """Names, types and defaults; those of launchers have no meaning here, --workers and --seed have better defaults."""
    launching = {"world_size", "rank", "dist_url", "dist_backend", "gpu", "multiprocessing_distributed"}
    figures = golden_figures("options.json")
    for program, command in (("main_moco", "train"), ("main_lincls", "lincls")):
        own = {action.dest: action for action in parser_of(command)._actions}
        for option in figures[program]:
            if option["dest"] in launching or (program, option["dest"]) == ("main_lincls", "start_epoch"):
                continue
            action = own[option["dest"]]
            assert set(option["flags"]) <= set(action.option_strings), option
            if option["dest"] not in ("workers", "seed", "moco_t"):  # moco_t: by architecture, as the recipes have it
                assert action.default == option["default"] or (action.default, option["default"]) == (None, ""), option


def test_model_average_ramps_and_survives_a_checkpoint(twin, tmp_path: Path) -> None:
    model = twin.module("models.moco").build_moco("vit_digits", 8, 16)
    average = twin.module("training.model_average").ModelAverage(model, 0.3)
    key = "base_encoder.blocks.0.mlp.fc1.bias"
    expected, weights = twin.state(model)[key].astype("float64"), []
    for step in range(1, 7):
        value = np.random.RandomState(step).randn(*expected.shape).astype("float32")
        twin.load(model, {key: value})
        average()
        decay = min(0.3, (1 + step) / (10 + step))
        weights.append(decay)
        expected = decay * expected + (1 - decay) * value
    assert weights[0] < weights[1] < weights[-1] == 0.3
    np.testing.assert_allclose(twin.array(average.state[key]), expected, rtol=1e-6, atol=1e-7)
    checkpoint = twin.module("files.checkpoint")
    optimizer = twin.module("training.optimizer").build_optimizer("sgd", model.parameters(), 0.1, 0.0)
    path = tmp_path / "saved"
    with open(path, "wb"):
        pass
    checkpoint.save_checkpoint(path, model, optimizer, 1, 2, {}, average=average)
    other = twin.module("training.model_average").ModelAverage(
        twin.module("models.moco").build_moco("vit_digits", 8, 16), 0.3
    )
    assert checkpoint.load_checkpoint(path, model, optimizer, {}, average=other) == (1, 2)
    assert other.updates == 6
    assert all(np.array_equal(twin.array(other.state[name]), twin.array(average.state[name])) for name in average.state)


def test_scalars_are_what_tensorboard_reads(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with Reporter(2, 2, 8, 10, tensorboard=tmp_path) as reporter:
        for place, loss in (((0, 0), 4.0), ((0, 1), 3.0), ((1, 0), 2.5)):
            reporter(StepRecord(*place, loss, 0.1, 0.99, 0.5, 2.0))
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("train/loss")] == [(0, 4.0), (1, 3.0), (2, 2.5)]
    assert events.Scalars("speed/images_per_second")[0].value == 4.0


def test_a_missing_tensorboard_gets_one_line(twin, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tensorboardX", None)
    with pytest.raises(ValueError, match=r"^--tensorboard: the package tensorboardX is missing; pip install "):
        Reporter(2, 2, 8, 10, tensorboard=tmp_path)
