"""The verdict on planted faults and on clean pairs: nothing missed, no false alarm; and that both can fail."""

from __future__ import annotations

import paddle
import pytest

from tests.twinalign.verdict import catalogue, clean_pairs
from twinalign.verdict import Comparison, compare_arrays


def judge(recordings: catalogue.Recordings | clean_pairs.Recorded, allowances: tuple[str, ...]) -> Comparison:
    return compare_arrays(
        recordings.reference,
        recordings.reproduced,
        reference64=recordings.reference64,
        reproduced64=recordings.reproduced64,
        allowances=allowances,
    )


@pytest.mark.parametrize("seed", range(4))
def test_the_port_without_a_fault_is_aligned(seed: int) -> None:
    found = judge(catalogue.record(catalogue.Fault(), seed), catalogue.ALLOWANCES)
    assert found.verdict == "aligned", [t.reason for t in found.tensors if t.verdict == "diverged"]


def test_what_paddle_keeps_in_float32_is_seen_where_it_is_not_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = paddle._C_ops.pool2d  # another test may have made it exact
    monkeypatch.setattr(paddle._C_ops, "pool2d", getattr(kernel, "__wrapped__", kernel))
    found = judge(catalogue.record(catalogue.Fault()), ())
    diverged = {tensor.name for tensor in found.tensors if tensor.verdict == "diverged"}
    assert "gradient.conv.weight" in diverged, "the average pool's backward pass multiplies by a float32 1/9"


@pytest.mark.parametrize("name", catalogue.FAULTS)
def test_a_planted_fault_is_caught(name: str) -> None:
    assert judge(catalogue.record(catalogue.FAULTS[name]), catalogue.ALLOWANCES).verdict == "diverged"


@pytest.fixture(scope="module")
def sound() -> catalogue.Recordings:
    return catalogue.record(catalogue.Fault())


@pytest.mark.parametrize("name", catalogue.SPOILED)
def test_a_spoiled_recording_is_caught(name: str, sound: catalogue.Recordings) -> None:
    spoiled = catalogue.Recordings(dict(sound.reference), dict(sound.reproduced), sound.reference64, sound.reproduced64)
    catalogue.SPOILED[name](spoiled)
    assert judge(spoiled, catalogue.ALLOWANCES).verdict == "diverged"


# vgg11_bn has all that these have, and each takes a minute; docs/verdict-table.md has them.
_LIKE_OTHERS = ("vgg11", "vgg13")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in clean_pairs.PAIRS if name not in _LIKE_OTHERS])
def test_a_clean_pair_is_no_alarm(name: str) -> None:
    found = judge(clean_pairs.record_pair(name), clean_pairs.allowances(name))
    assert found.verdict == "aligned", [t.name + ": " + t.reason for t in found.tensors if t.verdict == "diverged"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["shufflenet_v2_x0_5", "mobilenet_v2", "resnet18", "densenet121"])
def test_a_clean_pair_in_training_mode_is_no_alarm(name: str) -> None:
    found = judge(clean_pairs.record_pair(name, train=True), clean_pairs.allowances(name))
    assert found.verdict == "aligned", [t.name + ": " + t.reason for t in found.tensors if t.verdict == "diverged"]
