"""Metrics that agree on the samples of the case alone: other values show the difference, and the search names it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.twinalign.search.written_cases import edited
from twinalign.files.recordings import ELSEWHERE
from twinalign.recorder.recorder import RunSettings
from twinalign.runs.run_stages import run
from twinalign.verdict.metric_elsewhere import apart_elsewhere
from twinalign.verdict.results import ALIGNED, DIVERGED

CASE = """
import numpy as np

from twinalign import Case


def hits_ref(scores, labels):
    order = np.argsort(-scores, axis=1)[:, :3]
    return {"hit": float((order == labels[:, None]).any(1).mean())}


def hits_port(scores, labels):
    order = np.argsort(-scores, axis=1)[:, :3]
    return {"hit": float((order == labels[:, None]).any(1).mean())}


class Ranked(Case):
    name = "ranked"

    def reference(self):
        import torch

        return torch.nn.Linear(6, 6)

    def reproduced(self):
        import paddle

        return paddle.nn.Linear(6, 6)

    def inputs(self, rng):
        return {"x": rng.standard_normal((4, 6), dtype="float32")}

    def samples(self):
        # Each sample's own class comes first with the weights of the case, which are nearly the identity.
        labels = np.arange(8) % 6
        return 4 * np.eye(6, dtype="float32")[labels], labels

    METHODS
"""
METRIC = """
    def dataset(self, framework, split):
        return list(zip(*self.samples()))

    def metric(self, outputs, labels, framework):
        return (hits_ref if framework == "torch" else hits_port)(outputs.numpy(), labels)
"""
EVALUATE = """
    def evaluate(self, model, framework, dtype):
        images, labels = self.samples()
        if framework == "torch":
            import torch

            return hits_ref(model(torch.from_numpy(images.astype(dtype))).numpy(), labels)
        import paddle

        return hits_port(model(paddle.to_tensor(images.astype(dtype))).numpy(), labels)
"""
IDENTITY = """model = torch.nn.Linear(6, 6)
        others = torch.sin(torch.arange(36.0)).reshape(6, 6)
        model.load_state_dict({"weight": torch.eye(6) + 0.45 * others, "bias": torch.zeros(6)})
        return model"""


def case(folder: Path, methods: str, *edits: tuple[str, str]) -> str:
    text = CASE.replace("    METHODS\n", methods).replace("return torch.nn.Linear(6, 6)", IDENTITY)
    before, port = text.split("def hits_port", 1)
    path = folder / "case.py"
    path.write_text(f"{before}def hits_port{edited(port, edits)}", encoding="utf-8")
    return str(path)


@pytest.mark.slow
@pytest.mark.parametrize("methods", [METRIC, EVALUATE], ids=["metric", "evaluate"])
@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("[:, :3]", "[:, :2]", ("`(:, :2)` in place of `(:, :3)`", "2 for 3", "[:, :3]")),
        (".any(1).mean()", ".any(1).sum() / 8", ()),
    ],
    ids=["cut-off", "right"],
)
def test_a_cut_off_that_no_sample_meets_is_seen(
    methods: str, old: str, new: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    result = run(RunSettings(case(tmp_path, methods, (old, new)), tmp_path / "out", stages=("metric",)))
    verdict = result.stages["metric"].verdict
    assert verdict == (DIVERGED if words else ALIGNED)
    if not words:
        return
    name = "metric.hit" if methods == METRIC else "hit"
    tensor = result.stages["metric"].tensors[0]
    assert tensor.name == f"{name} on other values"
    assert "the metrics differ in what these samples do not show" in tensor.reason
    assert result.located is not None
    (fault,) = result.located.faults
    assert fault.paddle_layer == "metric"
    assert fault.explanation is not None
    assert any(word in fault.explanation.text for word in words)


def test_numbers_elsewhere_differ_by_more_than_a_quotient_in_float32_may() -> None:
    reference = {ELSEWHERE: [{"acc": 0.5, "loss": 2.0}, {"acc": 0.25, "loss": 1.0}]}
    port = {ELSEWHERE: [{"acc": 0.5, "loss": 2.0000001}, {"acc": 0.375, "loss": 1.0}]}
    assert [name for name, _ in apart_elsewhere(reference, port, {}, {})] == ["acc on other values"]
    assert list(apart_elsewhere(reference, {}, {}, {})) == []
    assert list(apart_elsewhere(reference, reference, {}, {})) == []


@pytest.mark.parametrize(("in_float32", "names"), [(2e-6, []), (4e-15, ["error on other values"])])
def test_a_number_that_is_only_rounding_may_differ_by_rounding(in_float32: float, names: list[str]) -> None:
    reference, port = ({ELSEWHERE: [{"error": error}]} for error in (3.7e-15, 3.1e-15))
    judged, exact = ({"error": np.array(error)} for error in (in_float32, 3.9e-15))
    assert [name for name, _ in apart_elsewhere(reference, port, judged, exact)] == names


@pytest.mark.parametrize(("f1", "names"), [(0.0, ["f1 on other values"]), (0.51, [])])
def test_where_batches_are_rounded_only_more_than_a_few_samples_tell(f1: float, names: list[str]) -> None:
    reference, port = ({ELSEWHERE: [{"f1": value}]} for value in (0.523, f1))
    assert [name for name, _ in apart_elsewhere(reference, port, {}, {}, rounded_batches=True)] == names
