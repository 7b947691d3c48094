"""What ranks recorded becomes one recording, and is taken apart again; what does not fit is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from twinalign.errors import InputError
from twinalign.files.rank_recordings import common_ranks, join_ranks, rank_path, split_ranks
from twinalign.files.recordings import Recording
from twinalign.verdict.compare import compare_stage
from twinalign.verdict.rank_comparison import rounding_over_ranks
from twinalign.verdict.stage_recordings import StageRecordings

RNG = np.random.default_rng(0)


def part(rank: int) -> Recording:
    found = Recording(metadata={"dtype": "float32", "inputs_sha256": {"0": str(rank)}, "seconds": 1.0 + rank})
    found.add("loss", np.float32(rank))
    found.add_sampled("step0.gradient.weight", RNG.standard_normal((80, 70)).astype("float32"))
    return found


def test_recordings_of_ranks_are_joined_and_taken_apart(tmp_path: Path) -> None:
    path, parts = tmp_path / "losses_ref.npy", [part(0), part(1)]
    with join_ranks(path, 2):
        for rank, one in enumerate(parts):
            one.save(rank_path(path, rank))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["losses_ref.json", "losses_ref.npy"]
    whole = Recording.load(path)
    assert common_ranks([whole]) == 2
    assert whole.metadata["seconds"] == 2.0
    for rank, one in enumerate(parts):
        back = split_ranks(whole)[rank]
        assert back.arrays.keys() == one.arrays.keys()
        assert all(np.array_equal(back.arrays[name], array) for name, array in one.arrays.items())
        assert back.metadata["sampled"] == one.metadata["sampled"]
        assert back.metadata["inputs_sha256"] == {"0": str(rank)}


def test_nothing_stays_where_a_rank_fails(tmp_path: Path) -> None:
    path = tmp_path / "loss_ref.npy"

    def fail() -> None:
        with join_ranks(path, 2):
            part(0).save(rank_path(path, 0))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_what_belongs_to_no_rank_is_refused() -> None:
    ranked = Recording({"rank0.loss": np.ones(1), "rank1.loss": np.ones(1)}, {"ranks": [{}, {}]})
    stray = Recording({**ranked.arrays, "rank2.loss": np.ones(1)}, ranked.metadata)
    with pytest.raises(InputError, match=r"rank2\.loss belongs to no rank; 2 ranks recorded it"):
        common_ranks([ranked, stray])
    alone = Recording({"loss": np.ones(1)}, {})
    recordings = StageRecordings({("ref", "float32"): ranked, ("paddle", "float32"): alone})
    with pytest.raises(InputError, match="stage loss: recorded by 1 and by 2 ranks; record it anew"):
        compare_stage("loss", recordings, {})


def test_rounding_is_measured_over_all_ranks() -> None:
    """A scalar that one rank happens to round by nothing has the rounding that the other rank shows."""
    lucky, other = np.float64(1.5), np.float64(1.5) * (1 + 2e-6)
    of_ranks = [({"loss": np.float32(1.5)}, {"loss": truth}) for truth in (lucky, other)]
    assert rounding_over_ranks(of_ranks) == pytest.approx({"loss": 2e-6 / np.sqrt(2)}, rel=1e-4)
    assert rounding_over_ranks([({"loss": np.float32(1)}, None)]) == {}


def compared(distance: float, rounding: tuple[float, float]) -> str:
    """The verdict on two ranks whose port is `distance` off in float32, and right in float64."""
    sides = {}
    for side, off in (("ref", np.zeros(2)), ("paddle", np.full(2, distance))):
        low = {f"rank{r}.loss": np.float32(1 + rounding[r] + off[r]) for r in (0, 1)}
        high = {f"rank{r}.loss": np.float64(1) for r in (0, 1)}
        metadata = {"ranks": [{}, {}], "layer_classes": {}}
        sides[side, "float32"], sides[side, "float64"] = Recording(low, metadata), Recording(high, metadata)
    return compare_stage("loss", StageRecordings(sides), {}).verdict


def test_luck_of_one_rank_is_no_divergence_and_a_fault_is_one() -> None:
    assert compared(5e-6, (0.0, 3e-6)) == "aligned"
    assert compared(5e-3, (0.0, 3e-6)) == "diverged"
    assert compared(5e-6, (0.0, 0.0)) == "diverged"
