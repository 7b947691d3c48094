"""Language models in both frameworks are aligned, and what their ports get wrong is found and explained."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import ROOT, KeptRun
from twinalign.files.recordings import Recording


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def test_a_decoder_with_tied_embeddings_is_aligned_through_its_training_steps(
    tmp_path: Path, kept_run: KeptRun
) -> None:
    result = kept_run("tests.cases.language.cases:Qwen2", out=tmp_path)
    verdicts = {stage: comparison.verdict for stage, comparison in result.stages.items()}
    assert verdicts == dict.fromkeys(("forward", "loss", "backward"), "aligned")
    recorded = {side: Recording.load(tmp_path / f"losses_{side}.npy").arrays for side in ("ref", "paddle")}
    # The tied head is the embedding: torch's state dict names it twice, a step is recorded once.
    assert list(recorded["ref"]) == list(recorded["paddle"])
    assert "step0.parameter.embed_tokens.weight" in recorded["ref"]
    assert not [name for name in recorded["ref"] if "lm_head" in name]


@pytest.mark.parametrize("case", ["Bert", "Llama"])
def test_an_encoder_with_padding_and_a_decoder_without_biases_are_aligned(
    case: str, tmp_path: Path, kept_run: KeptRun
) -> None:
    result = kept_run(f"tests.cases.language.cases:{case}", out=tmp_path, stages=["forward"])
    assert result.verdict == "aligned"
    assert max(tensor.fp64_rel for tensor in result.stages["forward"].tensors if tensor.fp64_rel) < 1e-12


@pytest.mark.slow
def test_four_faults_at_once_are_each_found_and_explained(tmp_path: Path, kept_run: KeptRun) -> None:
    result = kept_run("tests.cases.language.cases:FourFaults", out=tmp_path, stages=["forward"])
    assert result.verdict == "diverged"
    assert result.located is not None
    causes = {fault.paddle_layer: fault.explanation and fault.explanation.id for fault in result.located.faults}
    assert causes == {
        "layers.0.attention": "attention_scale",
        "layers.0.post_norm": "norm_epsilon",
        "layers.1.attention.rotary": "rotary_layout",
        "layers.1.attention": "grouped_heads",
    }
