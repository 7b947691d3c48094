"""The zoo's list, its exit codes and its tables, without the quarter of an hour that its runs take."""

from __future__ import annotations

from pathlib import Path

import pytest

from twinalign.errors import DivergedError, InputError, SideCrashError
from twinalign.model_zoo import align_architectures
from twinalign.model_zoo.align_architectures import Outcome, ZooResult
from twinalign.model_zoo.architectures import Pair, chosen, shared
from twinalign.recorder.recorder import RunSettings
from twinalign.reports.tables import zoo_markdown
from twinalign.terminal import show

TORCH = ["alexnet", "vit_b_16", "vgg11", "vgg11_bn", "inception_v3"]
PADDLE = ["vgg11", "alexnet", "inception_v3", "LeNet"]


def test_what_both_libraries_have() -> None:
    found = shared(TORCH, PADDLE)
    assert list(found) == ["alexnet", "inception_v3", "vgg11", "vgg11_bn"]
    assert found["vgg11_bn"] == Pair("vgg11_bn", "vgg11(batch_norm=True)")
    assert found["alexnet"].factories() == {
        "ref": "torchvision.models:alexnet",
        "paddle": "paddle.vision.models:alexnet",
    }


def test_a_name_that_not_both_have() -> None:
    every = shared(TORCH, PADDLE)
    assert list(chosen(["vgg11", "alexnet", "vgg11"], every)) == ["vgg11", "alexnet"]
    assert list(chosen([], every)) == list(every)
    with pytest.raises(InputError) as caught:
        chosen(["vgg12"], every)
    assert str(caught.value) == (
        "zoo vgg12: not an architecture that torchvision.models and paddle.vision.models share; "
        "choose from vgg11, vgg11_bn"
    )


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        (["aligned"], 0),
        (["aligned", "diverged", "inconclusive"], 1),
        (["inconclusive", "aligned"], 3),
        (["diverged", "crashed"], 4),
    ],
)
def test_the_exit_code_is_that_of_the_gravest(verdicts: list[str], code: int) -> None:
    assert ZooResult([Outcome("a", verdict) for verdict in verdicts]).exit_code == code


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (InputError("only the reference has conv1.bn"), "diverged"),
        (DivergedError("they differ in ceil_mode"), "diverged"),
        (SideCrashError("the ref side crashed"), "crashed"),
    ],
)
def test_what_one_architecture_does_not_end_the_others(
    error: Exception, verdict: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(asked: RunSettings, progress: object) -> None:
        weights = asked.out / "weights"
        weights.mkdir(parents=True)
        (weights / "net_ref.npz").write_bytes(b"large")
        (weights / "net_ledger.json").write_text("{}")
        raise error

    monkeypatch.setattr(align_architectures, "run", fails)
    monkeypatch.setattr(align_architectures, "installed", lambda pythons: shared(TORCH, PADDLE))
    result = align_architectures.run_zoo(["alexnet", "vgg11"], out=tmp_path)
    assert [outcome.verdict for outcome in result.outcomes] == [verdict, verdict]
    assert result.outcomes[0].explanation == str(error)
    assert [path.name for path in (tmp_path / "alexnet" / "weights").iterdir()] == ["net_ledger.json"]


def test_tables(capsys: pytest.CaptureFixture[str]) -> None:
    result = ZooResult(
        [
            Outcome("right", "aligned", {"name": 3, "trial": 2}, 1e-12, 1.5),
            Outcome("wrong", "diverged", explanation="eps"),
        ]
    )
    assert zoo_markdown(result.to_json()).splitlines()[2:] == [
        "| right | name (3), trial (2) | 1.0e-12 | 1.5 | aligned |",
        "| wrong | – | – | – | diverged |",
        "",
        "**wrong**: eps",
        "",
        "2 architectures: 1 aligned, 1 diverged",
    ]
    show(result)
    assert "wrong: eps" in capsys.readouterr().out
    assert "right" in result._repr_html_()
