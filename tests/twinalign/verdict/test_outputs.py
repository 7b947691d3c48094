"""Outputs of two models that name them differently, or return what holds no numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from twinalign.backends import backend_of_side
from twinalign.case.definition import Case
from twinalign.conversion.canonical_names import CanonicalNames
from twinalign.files.recordings import Recording
from twinalign.sides import FRAMEWORK_OF_SIDE
from twinalign.stages.context import StageContext
from twinalign.stages.forward import record_forward
from twinalign.verdict.compare import compare_stage
from twinalign.verdict.results import Comparison
from twinalign.verdict.stage_recordings import StageRecordings

HIDDEN, POOLED = (np.random.default_rng(0).standard_normal(shape) for shape in ((2, 3, 4), (2, 4)))


def compared(reference: dict[str, np.ndarray], port: dict[str, np.ndarray], stage: str = "forward") -> Comparison:
    by_key = {
        (side, dtype): Recording({name: array.astype(dtype) for name, array in arrays.items()}, {"stage": stage})
        for side, arrays in (("ref", reference), ("paddle", port))
        for dtype in ("float32", "float64")
    }
    return compare_stage(stage, StageRecordings(by_key), {})


def test_outputs_without_a_common_name_are_paired_by_their_order() -> None:
    found = compared({"last_hidden_state": HIDDEN, "pooler_output": POOLED}, {"0": HIDDEN, "1": POOLED})
    assert [(tensor.name, tensor.verdict) for tensor in found.tensors] == [
        ("last_hidden_state", "aligned"),
        ("pooler_output", "aligned"),
    ]
    assert found.notes == [
        "outputs are paired by their order, since they have no name in common: 0 with last_hidden_state, 1 with "
        "pooler_output"
    ]


def test_a_pair_by_order_is_judged_like_any_other() -> None:
    wrong = compared({"logits": HIDDEN}, {"output": HIDDEN * (1 + 1e-6)})
    assert [(tensor.name, tensor.verdict) for tensor in wrong.tensors] == [("logits", "diverged")]
    more = compared({"logits": HIDDEN}, {"0": HIDDEN, "1": POOLED})
    assert {tensor.name: tensor.verdict for tensor in more.tensors} == {"logits": "aligned", "1": "diverged"}


@pytest.mark.parametrize("stage", ["forward", "metric"])
def test_a_common_name_decides_and_other_stages_are_left_alone(stage: str) -> None:
    port = {"hidden": HIDDEN, "1": POOLED} if stage == "forward" else {"0": HIDDEN, "1": POOLED}
    found = compared({"hidden": HIDDEN, "pooled": POOLED}, port, stage)
    assert found.verdict == "diverged"
    assert {"pooled", "1"} <= {tensor.name for tensor in found.tensors}
    assert found.notes == []


class Cache:
    """What libraries return beside the outputs."""


class Cached(Case):
    """A model that returns a cache as well, or nothing else."""

    name = "cached"
    only_cache = False

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((2, 3), dtype="float32")}

    def forward(self, model: Any, inputs: Any, framework: str) -> Any:
        return Cache() if self.only_cache else {"hidden": inputs["x"], "past": [Cache()]}


def context_of(side: str, only_cache: bool = False) -> StageContext:
    import torch

    case = Cached()
    case.only_cache = only_cache
    return StageContext(
        case=case,
        framework=FRAMEWORK_OF_SIDE[side],
        backend=backend_of_side(side),
        dtype="float32",
        device="cpu",
        build_model=lambda: torch.nn.Identity(),
        canonical=CanonicalNames({}),
        progress=lambda text: None,
    )


def test_what_holds_no_numbers_is_left_out_by_name() -> None:
    context = context_of("ref")
    record_forward(context)
    recording = context.recording
    assert list(recording.arrays) == ["hidden"]
    assert recording.metadata["left_out"] == {"past.0": "Cache"}
    port = Recording(dict(recording.arrays), {})
    found = compare_stage("forward", StageRecordings({("ref", "float32"): recording, ("paddle", "float32"): port}), {})
    assert found.notes[0] == "the reference's output past.0 is left out: a Cache holds no numbers of its own"


def test_a_model_that_returns_no_tensor_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"^cached: the model returned nothing to record, only Cache$"):
        record_forward(context_of("ref", only_cache=True))
