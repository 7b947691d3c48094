"""Trainers in both frameworks, recorded from inside, against values that the test computes for itself."""

import errno
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.checkpoint import checkpoint

import twinalign
from tests.cases.attached import torch_trainer
from tests.cases.attached.batches import micro_batches
from twinalign import InputError, compare
from twinalign.attached.untouched_script import _without_wrappers
from twinalign.backends import load_backend
from twinalign.conversion.rename_rules import wrapper_rules
from twinalign.files.attached_recordings import AttachedRecording, has_line
from twinalign.verdict.optimizer_formula import left_over, updated

ROOT = Path(__file__).parents[3]


def record(out: Path, fault: str = "", steps: int = 3, **options: object) -> AttachedRecording:
    torch_trainer.train(lambda m, o: twinalign.attach(m, o, out=out, **options), fault, steps=steps)
    return AttachedRecording.load(out)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("attached") / "ref").folder


def test_the_training_is_the_same_with_and_without(tmp_path: Path) -> None:
    plain = torch_trainer.train(steps=3).state_dict()
    seen = torch_trainer.train(lambda m, o: twinalign.attach(m, o, out=tmp_path), steps=3).state_dict()
    assert all(torch.equal(value, seen[name]) for name, value in plain.items())
    assert torch.autograd.backward.__module__ == "torch.autograd"  # every patch is taken off


def test_what_is_recorded(reference: Path) -> None:
    found = AttachedRecording.load(reference)
    assert found.steps == [0, 1, 2]
    arrays, (tokens, labels) = found.arrays(0), micro_batches(1, 2)[0][1]
    assert np.array_equal(arrays["call1.input.input_ids"], tokens)
    assert np.array_equal(arrays["call1.labels"], labels.reshape(-1))
    events = found.facts(0)["events"]
    assert events == ["call", "backward", "call", "backward", "clip by norm at 0.5", "update"]
    norm = np.sqrt(sum(np.square(a, dtype=np.float64).sum() for n, a in arrays.items() if n.startswith("gradient.")))
    assert norm == pytest.approx(found.numbers[0]["gradient_norm"], rel=1e-5)
    assert [line["rates"][0] for line in found.numbers] == pytest.approx([1e-2 / 3, 2e-2 / 3, 1e-2])


def test_the_formula_is_torchs_adamw() -> None:
    random = np.random.RandomState(0)
    weights, gradient = random.randn(2, 50)
    parameter = torch.nn.Parameter(torch.from_numpy(weights.copy()))
    parameter.grad = torch.from_numpy(gradient)
    optimizer = torch.optim.AdamW([parameter], lr=0.1, weight_decay=0.3, betas=(0.8, 0.9), eps=1e-3)
    optimizer.step()
    settings = {"kind": "adam", "lr": 0.1, "weight_decay": 0.3, "decoupled": True}
    settings |= {"beta1": 0.8, "beta2": 0.9, "epsilon": 1e-3}
    made = updated(weights, gradient, {}, settings, 0)
    assert made is not None
    assert np.allclose(made["updated"], parameter.detach().numpy(), rtol=1e-12)
    other = updated(weights, gradient, {}, {**settings, "epsilon": 2e-3}, 0)
    assert other is not None
    assert left_over(other["updated"], made["updated"], weights, 2.0**-52) > 2


def test_a_repeat_is_aligned_and_measures_rounding(reference: Path, tmp_path: Path) -> None:
    repeat = record(tmp_path / "repeat", repeat=True).folder
    again = record(tmp_path / "again").folder
    found = compare(reference, again, reference_repeat=repeat)
    assert found.verdict == "aligned"
    assert found.attached is not None
    assert found.attached["causes"] == []


@pytest.mark.parametrize(
    ("fault", "quantity", "cause"),
    [
        ("decay_everywhere", "setting", "decay_groups"),
        ("beta2", "setting", "optimizer_beta2"),
        ("coupled_decay", "setting", "decay_coupled"),
        ("sequence_average", "loss", "loss_average"),
        ("padding_counted", "labels", "padding_counted"),
        ("other_order", "input", "batch_order"),
        ("half_weights", "weights", "half_precision_weights"),
        ("gelu", "output", "model"),
    ],
)
def test_a_fault_is_found_and_named(reference: Path, tmp_path: Path, fault: str, quantity: str, cause: str) -> None:
    found = compare(reference, record(tmp_path, fault).folder)
    assert found.verdict == "diverged"
    assert found.attached is not None
    assert (found.attached["first"]["step"], found.attached["first"]["quantity"]) == (0, quantity)
    assert found.attached["causes"][0]["id"] == cause


def test_a_full_disk_ends_the_recording_and_not_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("twinalign.files.attached_recordings.ArrayStream.add", full)
    torch_trainer.train(lambda m, o: twinalign.attach(m, o, out=tmp_path), steps=2)
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1
    assert "the training goes on" in said[0]


def test_the_batches_of_the_reference_are_fed(reference: Path, tmp_path: Path) -> None:
    fed = record(tmp_path, "other_batches", feed=reference)
    ours, theirs = (one.arrays(0)["call0.input.input_ids"] for one in (fed, AttachedRecording.load(reference)))
    assert np.array_equal(ours, theirs)


def test_two_models_and_what_is_no_model(tmp_path: Path) -> None:
    models = {"first": torch.nn.Linear(3, 4), "second": torch.nn.Linear(4, 2)}
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models.values()]
    with twinalign.attach(models, optimizers, out=tmp_path, steps=[0]):
        models["second"](models["first"](torch.ones(2, 3))).sum().backward()
        for optimizer in optimizers:
            optimizer.step()
    found = AttachedRecording.load(tmp_path)
    assert found.steps == [0, 1]
    assert "updated.first:weight" in found.arrays(0)
    assert "updated.second:weight" in found.arrays(1)
    with pytest.raises(InputError, match="model is int"):
        twinalign.attach(3, out=tmp_path)  # type: ignore[arg-type]


def test_lines_are_bounded() -> None:
    assert sum(has_line(step) for step in range(10_000)) == 10_000
    assert sum(has_line(step) for step in range(100_000)) == 19_000


@pytest.mark.slow
def test_paddle_against_torch_by_command_line(tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "twinalign", *arguments]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    for framework, more in (("torch", []), ("paddle", ["--weights", str(tmp_path / "torch")])):
        script = [sys.executable, "-m", f"tests.cases.attached.{framework}_trainer", "{}"]
        done = run("attach", "--out", str(tmp_path / framework), *more, "--", *script)
        assert done.returncode == 0, done.stderr
    found = run("compare", str(tmp_path / "torch"), str(tmp_path / "paddle"), "--json", "-")
    assert found.returncode == 0, found.stdout + found.stderr
    assert json.loads(found.stdout)["attached"]["first"] is None


def test_fed_keywords_find_their_places_in_any_order(tmp_path: Path) -> None:
    class Sum(torch.nn.Linear):
        def forward(self, first: torch.Tensor, second: torch.Tensor, third: float = 0.0) -> torch.Tensor:
            return super().forward(first) + second

    def trained(out: Path, feed: Path | None, names: list[str], value: float) -> AttachedRecording:
        model = Sum(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with twinalign.attach(model, optimizer, out=out, steps=[0], feed=feed):
            given = {name: torch.full((1, 2), value + place) for place, name in enumerate(names)}
            model(**given).sum().backward()
            optimizer.step()
        return AttachedRecording.load(out)

    theirs = trained(tmp_path / "ref", None, ["first", "second"], 1.0).inputs(0, 0)
    ours = trained(tmp_path / "port", tmp_path / "ref", ["second", "first"], 5.0).inputs(0, 0)
    assert {name: array.tolist() for name, array in ours.items()} == {
        name: array.tolist() for name, array in theirs.items()
    }


def test_the_gradient_of_a_step_is_what_its_closure_computes(tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = torch.arange(6.0).reshape(2, 3)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = model(inputs).sum()
        loss.backward()
        return loss

    with twinalign.attach(model, optimizer, out=tmp_path, steps=[0, 1]):
        for _ in range(2):
            optimizer.step(closure)
            inputs = inputs * 2
    found = AttachedRecording.load(tmp_path)
    assert [found.arrays(step)["gradient.weight"].tolist() for step in (0, 1)] == [[[3, 5, 7]], [[6, 10, 14]]]
    assert found.numbers[0]["gradient_norm"] == pytest.approx((9 + 25 + 49 + 4) ** 0.5)


def test_parts_of_a_model_and_what_checkpointing_computes_again(tmp_path: Path) -> None:
    class Pair(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.decoder, self.loss = torch.nn.Linear(3, 2), torch.nn.Linear(2, 3), torch.nn.MSELoss()

    model = Pair()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = torch.ones(2, 3, requires_grad=True)
    with twinalign.attach(model, optimizer, out=tmp_path, steps=[0]):
        code = checkpoint(model.encoder, inputs, use_reentrant=True)  # whose backward begins one of its own
        model.loss(model.decoder(code), inputs.detach()).backward()
        optimizer.step()
    found = AttachedRecording.load(tmp_path)
    assert [call["part"] for call in found.facts(0)["calls"]] == ["encoder", "decoder"]
    assert found.facts(0)["events"] == ["call", "call", "backward", "update"]


def test_sparse_gradients_are_recorded_as_dense_ones(tmp_path: Path) -> None:
    model = torch.nn.Embedding(5, 2, sparse=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with twinalign.attach(model, optimizer, out=tmp_path, steps=[0]):
        model(torch.tensor([1, 3, 3])).sum().backward()
        optimizer.step()
    found = AttachedRecording.load(tmp_path)
    assert found.arrays(0)["gradient.weight"].tolist() == [[0, 0], [1, 1], [0, 0], [2, 2], [0, 0]]
    assert found.numbers[0]["gradient_norm"] == pytest.approx(10**0.5)


def test_labels_of_the_loss_are_fed(tmp_path: Path) -> None:
    def trained(out: Path, feed: Path | None, label: int) -> AttachedRecording:
        torch.manual_seed(0)
        model = torch.nn.Linear(2, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with twinalign.attach(model, optimizer, out=out, steps=[0], feed=feed):
            torch.nn.functional.cross_entropy(model(torch.ones(4, 2)), torch.full((4,), label)).backward()
            optimizer.step()
        return AttachedRecording.load(out)

    reference = trained(tmp_path / "ref", None, 1)
    port = trained(tmp_path / "port", tmp_path / "ref", 2)
    assert port.arrays(0)["call0.labels"].tolist() == [1, 1, 1, 1]
    assert reference.numbers[0]["losses"] != trained(tmp_path / "own", None, 2).numbers[0]["losses"]
    assert port.numbers[0]["losses"] == reference.numbers[0]["losses"]


def test_the_model_inside_of_a_librarys_wrapper(tmp_path: Path) -> None:
    class Task(torch.nn.Module):
        def __init__(self, model: torch.nn.Module) -> None:
            super().__init__()
            self.trained, self.loss = model, torch.nn.CrossEntropyLoss()

    class Head(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.flatten = torch.nn.Linear(2, 2), torch.nn.Flatten()

    inner = torch_trainer.Model()
    task, head = Task(inner), Head()
    backend = load_backend("torch")
    for model, wanted in ((task, inner), (head, head)):
        assert _without_wrappers(backend, model, {id(one) for one in model.parameters()}) is wanted


def test_rename_rules_of_wrappers_and_of_ports() -> None:
    def layout(*keys: str) -> list[dict[str, str]]:
        return [{"key": key} for key in keys]

    assert wrapper_rules(layout("net.a.weight", "net.b.weight"), layout("a.weight", "b.weight")) == {"net": ""}
    assert wrapper_rules(layout("a.weight", "b.weight"), layout("m.a.weight", "m.b.weight")) == {"": "m"}
    assert wrapper_rules(layout("a.weight", "b.weight"), layout("a.weight", "c.weight")) == {}
