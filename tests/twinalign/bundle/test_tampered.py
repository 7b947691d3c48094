"""Bundles that were tampered with: each sign of it is named."""

from __future__ import annotations

import datetime
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.twinalign.bundle.forging import WITNESS, Forgery
from tests.twinalign.bundle.tampering import (
    BACKWARD,
    BACKWARD64,
    FORWARD,
    FORWARD64,
    GRADIENT,
    SUMMARY,
    in_metadata,
    metadata_of,
    reference_of,
    tensor,
    wrong_element,
)
from twinalign.bundle.fabrication_in_metadata import _time_signs
from twinalign.bundle.verifying import verify_bundle


def copied(*names: str) -> Callable[[Forgery], None]:
    def copy(forgery: Forgery) -> None:
        for name in names:
            forgery.members[name] = forgery.members[reference_of(name)]

    return copy


def copied_with_decoys(forgery: Forgery) -> None:
    copied(FORWARD, FORWARD64)(forgery)
    forgery.change_arrays(FORWARD, lambda arrays: arrays["q1"].__setitem__((0, 0), arrays["q1"][0, 0] * (1 + 1e-6)))


def copied_gradient(forgery: Forgery) -> None:
    for name in (BACKWARD, BACKWARD64):
        honest = forgery.arrays(reference_of(name))
        forgery.change_arrays(name, lambda arrays, honest=honest: arrays.update({GRADIENT: honest[GRADIENT]}))


def cast(*names: str) -> Callable[[Forgery], None]:
    def store(forgery: Forgery) -> None:
        for name in names:
            low = forgery.arrays(name.replace("float64/", ""))
            forgery.store(name, {key: a.astype("float64") if a.dtype == "float32" else a for key, a in low.items()})

    return store


def both_in_torch(forgery: Forgery) -> None:
    environment = forgery.json(metadata_of(reference_of(FORWARD)))["environment"]
    for name in [n for n in forgery.members if n.endswith("_paddle.json")]:
        forgery.edit(name, lambda metadata: metadata.update(environment=environment))
    forgery.edit(SUMMARY, lambda summary: summary["environment"].update(paddle=environment))
    forgery.edit("manifest.json", lambda manifest: manifest["environment"].update(paddle=environment))


def torch_layers(metadata: Any) -> None:
    metadata["layer_classes"] = {"my.Model": {"count": 1, "bases": ["torch.nn.modules.module.Module"]}}


def many_normalisations(metadata: Any) -> None:
    metadata["layer_classes"]["paddle.nn.layer.norm.LayerNorm"]["count"] = 1_000_000_000


def later_by(hours: int) -> Callable[[Any], None]:
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=hours)
    return lambda metadata: metadata.update(recorded_at=later.isoformat(timespec="seconds"))


def stamped(stamp: bytes) -> Callable[[Forgery], None]:
    def stamp_log(forgery: Forgery) -> None:
        name = "result/log/loss_diff.log"
        lines = forgery.members[name].splitlines(keepends=True)
        forgery.members[name] = b"".join(b"[" + stamp + line[20:] for line in lines)

    return stamp_log


def other_source(forgery: Forgery) -> None:
    forgery.members["source/tests/cases/tiny.py"] += b"\n# kinder\n"


def other_code(metadata: Any) -> None:
    path = next(path for path in metadata["code_sha256"] if path.endswith("moco.py"))
    metadata["code_sha256"][path] = "0" * 64


def without_source(forgery: Forgery) -> None:
    for name in [name for name in forgery.members if name.startswith("source/")]:
        del forgery.members[name]
    for name in [n for n in forgery.members if n.endswith(("_ref.json", "_paddle.json"))]:
        forgery.edit(name, lambda metadata: metadata.update(code_sha256={}))
    forgery.edit("manifest.json", lambda manifest: manifest.update(source={}))


def other_file(metadata: Any) -> None:
    metadata["code_sha256"]["/home/me/really.py"] = "0" * 64


def without_float64(forgery: Forgery) -> None:
    for name in (FORWARD64, reference_of(FORWARD64)):
        del forgery.members[name], forgery.members[metadata_of(name)]


def rounded_once(forgery: Forgery) -> None:
    """The port is the reference's float64, rounded; what it says of its own float64 is the same with noise."""
    high, low = (forgery.arrays(reference_of(name)) for name in (BACKWARD64, BACKWARD))
    forgery.store(BACKWARD, {k: high[k].astype(a.dtype) if a.dtype == "float32" else a for k, a in low.items()})
    moved = {k: np.nextafter(a, np.inf) if a.dtype == "float64" else a for k, a in high.items()}
    forgery.store(BACKWARD64, moved)


def copied_without_layers(forgery: Forgery) -> None:
    copied(FORWARD, FORWARD64)(forgery)
    for name, base in (
        (FORWARD, "paddle.nn.layer.layers.Layer"),
        (reference_of(FORWARD), "torch.nn.modules.module.Module"),
    ):
        for folder in ("", "float64/"):
            member = metadata_of(name).replace("result/", f"result/{folder}")
            classes = {"my.Net": {"count": 1, "bases": [base]}}
            forgery.edit(member, lambda metadata, classes=classes: metadata.update(layer_classes=classes))


def smaller_sample(metadata: Any) -> None:
    next(iter(metadata["sampled"].values()))["shape"] = [64, 65]


SIGNS: dict[str, tuple[Callable[[Forgery], None], str, str]] = {
    "the port is a copy": (copied(FORWARD, FORWARD64), "bit_equal", "bit-equal to the reference in"),
    "the port is a copy in float32": (copied(FORWARD), "bit_equal", "bit-equal to the reference in"),
    "the port is a copy in float64": (copied(FORWARD64), "bit_equal", "bit-equal to the reference in"),
    "the gradients are a copy": (copied(BACKWARD, BACKWARD64), "bit_equal", "bit-equal to the reference in"),
    "a copy with a decoy": (copied_with_decoys, "bit_equal", "bit-equal to the reference in"),
    "one gradient is a copy": (copied_gradient, "bit_equal", "unlike the other gradients"),
    "a copy whose stage names no layers": (copied_without_layers, "bit_equal", "bit-equal to the reference in"),
    "float32 runs that are rounded float64": (rounded_once, "cast_float64", "recording rounded once"),
    "a tensor without its float64": (
        lambda f: f.change_arrays(FORWARD64, lambda arrays: arrays.pop("q1")),
        "contradiction",
        "q1 and 0 more are in one precision but not in the other",
    ),
    "a stage without its float64": (
        without_float64,
        "contradiction",
        "forward is recorded in float32, but a run in this precision records float32, float64",
    ),
    "no source": (without_source, "contradiction", "it holds no source of the case"),
    "code that is not shown": (
        in_metadata(other_file),
        "contradiction",
        "not in the bundle (/home/me/really.py)",
    ),
    "a float64 run is cast": (cast(FORWARD64), "cast_float64", "is the float32 recording cast to float64"),
    "both float64 runs are cast": (
        cast(FORWARD64, reference_of(FORWARD64)),
        "cast_float64",
        "every tensor is the float32 recording cast to float64",
    ),
    "a float64 run in float32": (
        lambda f: f.members.__setitem__(FORWARD64, f.members[FORWARD]),
        "contradiction",
        "its metadata says float64, but its arrays are float32",
    ),
    "both sides are torch's": (
        both_in_torch,
        "same_framework",
        "this side is paddle's, but its environment names torch",
    ),
    "torch beside paddle": (
        in_metadata(lambda m: m["environment"]["versions"].update(torch="2.15.0")),
        "same_framework",
        "names torch as well",
    ),
    "layers of torch": (in_metadata(torch_layers), "same_framework", "a layer of paddle's side, my.Model"),
    "a negative duration": (in_metadata(lambda m: m.update(seconds=-1)), "impossible_time", "in -1 seconds"),
    "no duration at all": (
        in_metadata(lambda m: m.update(seconds=0.0), BACKWARD),
        "impossible_time",
        "tensors recorded in 0 seconds",
    ),
    "a recording from the future": (in_metadata(later_by(48)), "impossible_time", "it is "),
    "a date that is none": (
        in_metadata(lambda m: m.update(recorded_at="2026-02-30T00:00:00+00:00")),
        "impossible_time",
        "recorded at 2026-02-30",
    ),
    "a recording from before paddle": (
        in_metadata(lambda m: m.update(recorded_at="2009-02-28T00:00:00+00:00")),
        "impossible_time",
        "recorded at 2009-02-28",
    ),
    "two at the same time": (
        in_metadata(lambda m: m.update(seconds=3600.0), BACKWARD64),
        "impossible_time",
        "while the same process recorded something else",
    ),
    "a log from the future": (stamped(b"2999/01/01 00:00:00"), "impossible_time", "in the future"),
    "a log from before": (stamped(b"2020/01/01 00:00:00"), "impossible_time", "before its recordings were made"),
    "metadata of the other side": (
        in_metadata(lambda m: m.update(side="ref")),
        "contradiction",
        "its metadata says side ref",
    ),
    "metadata of another stage": (in_metadata(lambda m: m.update(stage="loss")), "contradiction", "says stage loss"),
    "metadata of another precision": (
        in_metadata(lambda m: m.update(dtype="float64")),
        "contradiction",
        "its metadata says dtype float64",
    ),
    "other weights in one stage": (
        in_metadata(lambda m: m.update(weights_sha256="0" * 64), BACKWARD),
        "contradiction",
        "recorded with other weights of tiny_moco",
    ),
    "no weights": (in_metadata(lambda m: m.update(weights_sha256=None)), "contradiction", "with other weights"),
    "other inputs in float64": (
        in_metadata(lambda m: m["inputs_sha256"].update({"0": "0" * 64}), FORWARD64),
        "contradiction",
        "recorded with other inputs of step 0",
    ),
    "another seed": (in_metadata(lambda m: m.update(seed=1)), "contradiction", "recorded with another seed"),
    "another case": (in_metadata(lambda m: m.update(case="other")), "contradiction", "recorded from the case other"),
    "other options": (
        in_metadata(lambda m: m["identity"]["options"].update(steps="9")),
        "contradiction",
        "recorded under another identity",
    ),
    "other versions in one stage": (
        in_metadata(lambda m: m["environment"]["versions"].update(paddle="2.6.2")),
        "contradiction",
        "its versions is not that of the side's other recordings",
    ),
    "other code in one stage": (in_metadata(other_code), "contradiction", "moco.py than the others"),
    "source that was not run": (other_source, "contradiction", "not the code that the recordings were made with"),
    "a sample of something smaller": (
        in_metadata(smaller_sample, BACKWARD),
        "contradiction",
        "is said to be a sample of 4160 elements",
    ),
    "allowances without end": (
        in_metadata(many_normalisations),
        "contradiction",
        "normalisation layers in a model of",
    ),
    "no layers": (in_metadata(lambda m: m.update(layer_classes={})), "contradiction", "its model has no layers"),
    "another verdict in the manifest": (
        lambda f: f.edit("manifest.json", lambda m: m.update(verdict="diverged")),
        "contradiction",
        "verdict: not what the bundle's other files",
    ),
    "missing stages kept quiet": (
        lambda f: f.edit("manifest.json", lambda m: m.update(missing_stages=[])),
        "contradiction",
        "missing stages: not what the bundle's other files",
    ),
    "hashes of other weights in the manifest": (
        lambda f: f.edit("manifest.json", lambda m: m["hashes"]["weights"].update(tiny_moco="0" * 64)),
        "contradiction",
        "hashes: not what the bundle's other files",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SIGNS)
def test_fabrication_is_named(name: str, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tamper, identifier, expected = SIGNS[name]
    forgery = Forgery(bundle)
    tamper(forgery)
    result = verify_bundle(forgery.write(tmp_path / "tampered.zip"))
    assert result.exit_code == (1 if result.verdict == "refuted" else 3)
    assert any(sign.id == identifier and expected in str(sign) for sign in result.signs), [*map(str, result.signs)]
    assert not Path(WITNESS).exists()


def test_forger_who_recomputes_every_claim_is_suspect(bundle: Path, tmp_path: Path) -> None:
    forgery = Forgery(bundle)
    for name in [n for n in forgery.members if n.endswith("_paddle.npy")]:
        copied(name)(forgery)
    forgery.claim_what_is(tmp_path / "claim.zip")
    result = verify_bundle(forgery.write(tmp_path / "forged.zip"))
    assert result.mismatches == []
    assert result.recomputed == "aligned"
    assert result.verdict == "suspect"


def test_honest_bundle_has_no_signs(bundle: Path) -> None:
    result = verify_bundle(bundle)
    assert (result.verdict, result.exit_code) == ("confirmed", 0)
    assert (result.mismatches, result.signs, result.notes) == ([], [], [])


def test_numbers_of_another_processor_are_no_false_claim(bundle: Path, tmp_path: Path) -> None:
    forgery = Forgery(bundle)

    def nudge(summary: Any) -> None:
        entry = tensor(summary, "forward", "q1")
        entry["rms_abs"] *= 1 + 1e-6
        entry["noise_ratio"] *= 1 - 1e-6

    forgery.edit(SUMMARY, nudge)
    assert verify_bundle(forgery.write(tmp_path / "elsewhere.zip")).verdict == "confirmed"


def test_diverged_and_claimed_so(bundle: Path, tmp_path: Path) -> None:
    forgery = Forgery(bundle)
    wrong_element(forgery)
    forgery.claim_what_is(tmp_path / "claim.zip")
    result = verify_bundle(forgery.write(tmp_path / "diverged.zip"))
    assert (result.verdict, result.exit_code) == ("diverged", 1)
    assert result.mismatches == []


def test_inconclusive_and_claimed_so(bundle: Path, tmp_path: Path) -> None:
    forgery = Forgery(bundle)
    for name in ("result/loss_ref.npy", "result/loss_paddle.npy"):
        forgery.change_arrays(name, lambda arrays: arrays.update(loss=np.float32([np.nan])[0] + arrays["loss"]))
    forgery.claim_what_is(tmp_path / "claim.zip")
    result = verify_bundle(forgery.write(tmp_path / "inconclusive.zip"))
    assert (result.verdict, result.exit_code) == ("inconclusive", 3)


def test_what_a_case_allows_itself_is_said(bundle: Path, tmp_path: Path) -> None:
    forgery = Forgery(bundle)
    allowed = {"accept": ["bn_running_var_biased"], "allowances": ["paddle_hard_activation"]}
    forgery.edit("result/case.json", lambda case: case["description"].update(allowed))
    result = verify_bundle(forgery.write(tmp_path / "lenient.zip"))
    assert result.notes == [
        "the case accepts conventions: bn_running_var_biased",
        "the case has allowances of its own: paddle_hard_activation",
    ]
    assert [*map(str, result.signs)] == [
        "result/case.json: it says that the case has accept bn_running_var_biased, which no source in the bundle "
        "assigns",
        "result/case.json: it says that the case has allowances paddle_hard_activation, which no source in the bundle "
        "assigns",
    ]
    assert (result.verdict, result.exit_code) == ("suspect", 3)


def test_a_short_recording_in_the_second_in_which_a_long_one_ends_is_no_sign() -> None:
    now = datetime.datetime(2026, 11, 21, tzinfo=datetime.UTC)

    def recorded(seconds: float, at: str) -> dict[str, Any]:
        return {"seconds": seconds, "recorded_at": f"2026-11-20T19:49:{at}+00:00"}

    metadata = {
        ("paddle", "metric", "float32"): recorded(0.6, "34"),
        ("paddle", "train", "float64"): recorded(12.3, "34"),
        ("paddle", "train", "float32"): recorded(10.0, "21"),
    }
    assert list(_time_signs(types.SimpleNamespace(metadata=metadata, stages=()), now)) == []
    metadata["paddle", "train", "float32"] = recorded(30.0, "35")
    found = _time_signs(types.SimpleNamespace(metadata=metadata, stages=()), now)
    assert [sign.id for sign in found] == ["impossible_time"]


def test_repeats_that_widen_the_floor_are_noted(bundle: Path, tmp_path: Path) -> None:
    forgery = Forgery(bundle)
    name = "result/loss_ref.json"
    forgery.edit(name, lambda metadata: metadata.update(repeats={"loss": [[1e3], [-1e3]]}))
    notes = verify_bundle(forgery.write(tmp_path / "tampered.zip")).notes
    assert (
        "loss float32: the ref side's repeats of loss differ from it more than rounding moves most losses, "
        "and allow a larger error"
    ) in notes


def test_a_sample_of_a_tensor_of_another_shape_diverges(bundle: Path, tmp_path: Path) -> None:
    forgery = Forgery(bundle)

    def flatten(metadata: Any) -> None:  # with all that belongs to the parameter, or they contradict each other
        step, _, key = GRADIENT.split(".", 2)
        for name in [n for n in metadata["sampled"] if n.startswith(f"{step}.") and n.endswith(f".{key}")]:
            metadata["sampled"][name]["shape"] = [256 * 64]

    forgery.edit(metadata_of(BACKWARD), flatten)
    forgery.claim_what_is(tmp_path / "claim.zip")
    result = verify_bundle(forgery.write(tmp_path / "reshaped.zip"))
    assert (result.verdict, result.stages["backward"].found) == ("diverged", "diverged")


def test_what_is_no_number_is_noted(bundle: Path, tmp_path: Path) -> None:
    forgery = Forgery(bundle)
    for name in (FORWARD, FORWARD64, reference_of(FORWARD), reference_of(FORWARD64)):
        forgery.change_arrays(name, lambda arrays: arrays["q1"].__setitem__(slice(1, None), np.nan))
    forgery.claim_what_is(tmp_path / "claim.zip")
    notes = verify_bundle(forgery.write(tmp_path / "nan.zip")).notes
    assert "forward: 112 of 128 elements of q1 are NaN in the reference, which proves nothing" in notes
