"""Claims that the arrays contradict: each is refuted, and named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.twinalign.bundle.forging import WITNESS, Forgery
from tests.twinalign.bundle.tampering import GRADIENT, SUMMARY, in_summary, tensor, wrong_element
from twinalign.bundle.claims import check_stage
from twinalign.bundle.verifying import verify_bundle
from twinalign.verdict.results import Classic, Comparison


def claimed_aligned(forgery: Forgery) -> None:
    """The port is wrong, and the summary says what it would if only this verdict were different."""
    wrong_element(forgery)
    forgery.claim_what_is(Path("claim.zip"))

    def mend(summary: Any) -> None:
        summary["verdict"] = summary["stages"]["forward"]["verdict"] = "aligned"
        summary["stages"]["forward"]["counts"] = {"aligned": 17, "rounding": 4}
        tensor(summary, "forward", "q1")["verdict"] = "aligned"

    forgery.edit(SUMMARY, mend)
    forgery.edit("manifest.json", lambda manifest: manifest.update(verdict="aligned"))


def line_of_log(forgery: Forgery) -> None:
    name = "result/log/forward_diff.log"
    forgery.members[name] = forgery.members[name].replace(b"check passed: False", b"check passed: True", 1)


def drop_claim(summary: Any) -> None:
    summary["stages"]["forward"]["tensors"].pop(3)


def add_claim(summary: Any) -> None:
    summary["stages"]["forward"]["tensors"].append({**tensor(summary, "forward", "q1"), "name": "q3"})


CLAIMS: dict[str, tuple[Callable[[Forgery], None], str]] = {
    "one element of the port altered": (wrong_element, "forward q1: verdict is claimed as"),
    "a diverged tensor claimed aligned": (
        claimed_aligned,
        "forward q1: verdict is claimed as aligned, but is diverged",
    ),
    "a smaller error claimed": (
        in_summary(lambda s: tensor(s, "forward", "k1").update(max_abs=1e-9)),
        "forward k1: max_abs is claimed as 1e-09",
    ),
    "less noise claimed": (
        in_summary(lambda s: tensor(s, "backward", GRADIENT).update(noise_ratio=0.5)),
        "noise_ratio is claimed as 0.5",
    ),
    "another worst element claimed": (
        in_summary(lambda s: tensor(s, "forward", "q2").update(worst_index=[0, 0])),
        "worst_index is claimed as [0, 0]",
    ),
    "another reason claimed": (
        in_summary(lambda s: tensor(s, "forward", "q2").update(reason="identical")),
        "reason is claimed as identical",
    ),
    "an acceptance claimed": (
        in_summary(lambda s: tensor(s, "forward", "q2").update(accepted="bn_running_var_biased")),
        "accepted is claimed as bn_running_var_biased, but is None",
    ),
    "a tensor left out": (in_summary(drop_claim), "tensor is claimed as absent"),
    "a tensor invented": (in_summary(add_claim), "forward q3: tensor is claimed as rounding, but is absent"),
    "a stage's verdict": (
        in_summary(lambda s: s["stages"]["loss"].update(verdict="inconclusive")),
        "loss: verdict is claimed as inconclusive, but is aligned",
    ),
    "the whole verdict": (in_summary(lambda s: s.update(verdict="inconclusive")), "the whole run: verdict is claimed"),
    "counts": (in_summary(lambda s: s["stages"]["loss"].update(counts={"aligned": 4})), "loss: counts is claimed"),
    "reprod_log's verdict": (
        in_summary(lambda s: s["stages"]["forward"]["classic"].update(passed=True)),
        "reprod_log's passed is claimed as True, but is False",
    ),
    "a line of the log": (line_of_log, "forward: the log's line is claimed as"),
    "a reason of digits without end": (
        in_summary(lambda s: tensor(s, "forward", "q2").update(reason="1" * 5000 + "a")),
        "reason is claimed as 111",
    ),
    "a log without end": (
        lambda f: f.members.__setitem__("result/log/loss_diff.log", b"\n" * 1_000_000),
        "the log's length is claimed as 1000000",
    ),
    "a log cut short": (
        lambda f: f.members.__setitem__("result/log/loss_diff.log", b""),
        "the log's number of lines is claimed as 0",
    ),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_false_claim_is_refuted(name: str, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tamper, expected = CLAIMS[name]
    forgery = Forgery(bundle)
    tamper(forgery)
    result = verify_bundle(forgery.write(tmp_path / "tampered.zip"))
    assert result.verdict == "refuted"
    assert result.exit_code == 1
    assert any(expected in str(mismatch) for mismatch in result.mismatches), [*map(str, result.mismatches)]
    assert not Path(WITNESS).exists()


def test_facts_of_a_training_are_claims() -> None:
    claim = {"verdict": "aligned", "classic": {}, "tensors": [], "training": {"horizons": [{"step": 9}], "swaps": []}}
    found = Comparison("aligned", [], Classic(True, 1e-6, []), training={"horizons": [{"step": 3}], "weights": []})
    assert [mismatch.field for mismatch in check_stage("train", claim, found)] == ["training's horizons"]
