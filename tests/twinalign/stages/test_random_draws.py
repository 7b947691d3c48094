"""Models that draw at random: what depends on the draws is inconclusive, the rest is judged as ever."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from twinalign.backends import backend_of_side
from twinalign.case.definition import Case
from twinalign.conversion.canonical_names import CanonicalNames
from twinalign.files.rank_recordings import split_ranks
from twinalign.files.recordings import Recording
from twinalign.replay.layer_calls import Call, is_random
from twinalign.search.layer_faults import LayerFaults
from twinalign.search.locator import LocateResult
from twinalign.search.matching import Matching
from twinalign.sides import FRAMEWORK_OF_SIDE
from twinalign.stages.context import StageContext
from twinalign.stages.forward import record_forward
from twinalign.stages.loss import record_loss
from twinalign.stages.random_draws import measure_draws
from twinalign.terminal import show
from twinalign.verdict import compare_arrays, compare_files
from twinalign.verdict.compare import compare_stage
from twinalign.verdict.stage_recordings import StageRecordings

WEIGHTS = np.random.default_rng(0).standard_normal((6, 6)).astype(np.float32)
INPUTS = np.random.default_rng(1).standard_normal((16, 6)).astype(np.float32)


class Drops(Case):
    """Two outputs: before dropout and after it."""

    name = "drops"
    train_mode = True

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": INPUTS}

    def observe(self, model: Any, inputs: Any, framework: str) -> Any:
        hidden = model[0](inputs["x"])
        return {"hidden": hidden, "dropped": model[1](hidden)}

    def forward(self, model: Any, inputs: Any, framework: str) -> Any:
        return self.observe(model, inputs, framework)

    def loss(self, outputs: Any, inputs: Any, framework: str) -> Any:
        return outputs["dropped"].mean()


def model_of(framework: str, rate: float, error: float) -> Any:
    if framework == "torch":
        import torch

        layers = torch.nn.Sequential(torch.nn.Linear(6, 6, bias=False), torch.nn.Dropout(rate))
        layers[0].weight.data = torch.from_numpy(WEIGHTS.T.copy())
        return layers
    import paddle

    layers = paddle.nn.Sequential(paddle.nn.Linear(6, 6, bias_attr=False), paddle.nn.Dropout(rate))
    layers[0].weight.set_value(paddle.to_tensor(WEIGHTS * np.float32(1 + error)))
    return layers


def context_of(side: str, rate: float = 0.5, error: float = 0.0) -> StageContext:
    framework = FRAMEWORK_OF_SIDE[side]
    return StageContext(
        case=Drops(),
        framework=framework,
        backend=backend_of_side(side),
        dtype="float32",
        device="cpu",
        build_model=lambda: model_of(framework, rate, error),
        canonical=CanonicalNames({}),
        progress=lambda text: None,
    )


def recorded(side: str, rate: float = 0.5, error: float = 0.0, record: Any = record_forward) -> Recording:
    context = context_of(side, rate, error)
    record(context)
    measure_draws(context, record)
    return context.recording


def verdicts(reference: Recording, port: Recording) -> dict[str, str]:
    found = compare_stage("forward", StageRecordings({("ref", "float32"): reference, ("paddle", "float32"): port}), {})
    return {tensor.name: tensor.verdict for tensor in found.tensors}


def test_what_depends_on_draws_is_inconclusive_and_nothing_else() -> None:
    reference, port = recorded("ref"), recorded("paddle")
    assert reference.metadata["draws"] is True
    assert port.metadata["draws"] is True
    assert list(reference.metadata["changed_by_draws"]) == ["dropped"]
    assert verdicts(reference, port) == {"hidden": "aligned", "dropped": "inconclusive"}
    # A fault before the draws is still one.
    assert verdicts(reference, recorded("paddle", error=1e-3))["hidden"] == "diverged"


def test_the_verdict_says_why_and_what_to_do() -> None:
    found = compare_stage(
        "forward", StageRecordings({("ref", "float32"): recorded("ref"), ("paddle", "float32"): recorded("paddle")}), {}
    )
    assert found.verdict == "inconclusive"
    assert found.notes[-1] == (
        "1 of 2 tensors depend on random numbers (dropout in training mode?), which each framework draws for itself, "
        "and cannot be compared; set the rates to 0 in both models, or train_mode = False"
    )


def test_a_port_that_draws_nothing_is_diverged() -> None:
    port = recorded("paddle", rate=0.0)
    # Dropout of nothing may consume random numbers: what counts is whether it does.
    port.metadata["draws"] = False
    found = compare_stage(
        "forward", StageRecordings({("ref", "float32"): recorded("ref"), ("paddle", "float32"): port}), {}
    )
    assert found.verdict == "diverged"
    assert found.notes[-1] == (
        "the reference draws random numbers here (dropout in training mode?), and the port draws none"
    )


@pytest.mark.parametrize("side", ["ref", "paddle"])
def test_who_draws_nothing_is_not_said_to_draw(side: str) -> None:
    backend = backend_of_side(side)
    layer = model_of(FRAMEWORK_OF_SIDE[side], 0.5, 0.0)[1]
    before = backend.random_state()
    layer.eval()
    x = backend.to_tensor(INPUTS, "float32", "cpu")
    layer(x)
    assert backend.random_state() == before
    layer.train()
    layer(x)
    assert backend.random_state() != before


def test_repeats_of_a_loss_have_the_same_draws() -> None:
    """They measure rounding: with other draws they would widen the floor by what dropout changes."""
    found = recorded("ref", record=record_loss)
    (value,) = found.arrays.values()
    for repeat in found.metadata["repeats"]["loss"]:
        assert repeat == pytest.approx([float(value)], rel=1e-5)
    assert found.metadata["changed_by_draws"]["loss"] > 1e-3


ONES, APART = np.ones(100, np.float32), np.linspace(0.5, 1.5, 100, dtype=np.float32)


@pytest.mark.parametrize(
    ("port", "change", "verdict"),
    [
        (ONES + APART, 1.0, "inconclusive"),
        (ONES + APART, 1e-4, "diverged"),  # draws explain no more than MOST times what they change
        (ONES + APART, 0.0, "diverged"),
        (np.where(APART > 1, np.nan, ONES), 1.0, "diverged"),
        (ONES[:50], 1.0, "diverged"),
        (ONES, 1.0, "aligned"),
    ],
)
def test_draws_explain_differences_of_their_size(port: np.ndarray, change: float, verdict: str) -> None:
    assert compare_arrays({"a": ONES}, {"a": port}, changed_by_draws={"a": change}).verdict == verdict


def test_given_tolerances_decide_alone() -> None:
    found = compare_arrays({"a": ONES}, {"a": ONES + APART}, changed_by_draws={"a": 1.0}, rtol=0.0, atol=1e-3)
    assert found.verdict == "diverged"


def test_files_are_compared_with_the_metadata_beside_them(tmp_path: Path) -> None:
    for side, array in (("ref", ONES), ("paddle", ONES + APART)):
        Recording({"a": array}, {"draws": True, "changed_by_draws": {"a": 1.0}}).save(tmp_path / f"{side}.npy")
    assert compare_files(tmp_path / "ref.npy", tmp_path / "paddle.npy").verdict == "inconclusive"
    (tmp_path / "ref.json").write_text('{"changed_by_draws": {"a": "much"}}')
    assert compare_files(tmp_path / "ref.npy", tmp_path / "paddle.npy").verdict == "diverged"


def test_seeds_are_tried_until_what_is_drawn_differs_in_every_step() -> None:
    # Stochastic depth of a small batch: of the first seeds most keep all samples, of the second step as of the first.
    drawn = {"step0.loss": [1, 1, 1, 1, 0], "step1.loss": [1, 0, 1, 1, 1], "step0.learning_rate": [1] * 5}

    def record(context: StageContext) -> None:
        for name, values in drawn.items():
            context.recording.add(name, np.array(float(values[context.further_seeds % 5])))

    context = context_of("ref")
    context.random_state = "before"
    record(context)
    measure_draws(context, record)
    assert context.recording.metadata["changed_by_draws"] == {"step0.loss": 1.0, "step1.loss": 1.0}


def test_each_rank_has_its_own_draws() -> None:
    ranks = [{"draws": True, "changed_by_draws": {"a": 1.0}}, {"draws": False}]
    arrays = {f"rank{rank}.a": ONES for rank in range(2)}
    recording = Recording(arrays, {"ranks": ranks})
    first, second = split_ranks(recording)
    assert first.metadata["changed_by_draws"] == {"a": 1.0}
    assert "changed_by_draws" not in second.metadata


def test_layers_that_draw_are_told_by_their_names() -> None:
    import torch
    import torchvision

    class DropPath(torch.nn.Module):
        drop_prob = 0.1

    named = [torch.nn.Dropout2d(0.1), torch.nn.AlphaDropout(), DropPath(), torchvision.ops.StochasticDepth(0.2, "row")]
    assert [is_random(layer) for layer in named] == [True] * 4
    assert not is_random(torch.nn.Dropout(0.0))
    assert not is_random(torch.nn.Dropout(0.5).eval())
    assert not is_random(torch.nn.Linear(2, 2))
    assert not is_random(None)


def test_layers_that_are_not_judged_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    def pair(number: int, path: str, *random: bool) -> tuple[Call, Call]:
        one, other = (Call(number, path, "nn.Dropout", 0, 0, random=draws) for draws in random)
        return one, other

    pairs = [pair(1, "first", True, True), pair(2, "second", True, False), pair(3, "third", False, False)]
    found = LayerFaults(
        [], Matching(pairs, dict.fromkeys(range(4), "name")), {}, {"first", "second", "third"}, {}, {}, 0, 0
    )
    assert [layer["draws"] for layer in found.to_json()["layers"]] == [["ref", "paddle"], ["ref"], []]
    show(LocateResult("case", [], {"case": found}))
    assert capsys.readouterr().out.splitlines() == [
        "1 layer not judged (random draws): first",
        "1 layer with random draws in the reference alone: second",
        "case: no fault located; 3 layers judged alone",
    ]
