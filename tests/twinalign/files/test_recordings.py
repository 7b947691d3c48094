"""Recordings: what a sample keeps, that projections see every element, and that files are whole or not there."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twinalign.errors import InputError
from twinalign.files.recordings import (
    PROJECTIONS_SUFFIX,
    SAMPLE_SIZE,
    Recording,
    hash_arrays,
    random_projections,
    sample,
    sample_positions,
)


@given(st.integers(1, 3_000_000))
@settings(max_examples=50, deadline=None)
def test_positions_are_ascending_distinct_and_hold_both_ends(size: int) -> None:
    positions = sample_positions(size)
    assert positions[0] == 0
    assert positions[-1] == size - 1
    assert (np.diff(positions) > 0).all()
    assert len(positions) <= SAMPLE_SIZE
    if size > SAMPLE_SIZE:
        # Evenly spread: no gap of more than a few times the average.
        assert np.diff(positions).max() <= 4 * size / SAMPLE_SIZE + 1


def test_small_tensors_are_kept_whole() -> None:
    recording = Recording()
    array = np.arange(12.0).reshape(3, 4)
    recording.add_sampled("w", array)
    assert list(recording.arrays) == ["w"]
    np.testing.assert_array_equal(recording.arrays["w"], array)


def test_large_tensors_are_sampled_with_projections_and_their_shape() -> None:
    recording = Recording()
    array = np.random.default_rng(0).standard_normal((300, 70))
    recording.add_sampled("w", array)
    assert list(recording.arrays) == ["w", "w" + PROJECTIONS_SUFFIX]
    np.testing.assert_array_equal(recording.arrays["w"], array.reshape(-1)[sample_positions(array.size)])
    assert recording.metadata["sampled"] == {"w": {"shape": [300, 70]}}


@given(st.integers(0, 20_999), st.floats(1e-9, 1.0))
@settings(max_examples=50, deadline=None)
def test_projections_see_any_single_element(position: int, change: float) -> None:
    array = np.random.default_rng(1).standard_normal(21_000)
    moved = array.copy()
    moved[position] += change
    difference = np.abs(random_projections(moved) - random_projections(array)).max() * np.sqrt(array.size)
    assert difference > change * 1e-2


def test_projections_see_two_elements_that_change_places() -> None:
    array = np.random.default_rng(2).standard_normal(50_000)
    for distance in (1, 1024, 2048, 40_000):
        moved = array.copy()
        moved[[3, 3 + distance]] = moved[[3 + distance, 3]]
        assert np.abs(random_projections(moved) - random_projections(array)).max() > 1e-6


def test_projection_is_the_bilinear_form_that_it_says() -> None:
    import zlib

    array = np.random.default_rng(3).standard_normal((5, 900))
    rows = np.pad(array.reshape(-1), (0, 5 * 1024 - 4500)).reshape(5, 1024)
    right = np.random.RandomState(zlib.crc32(b"columns")).randn(1024, 8)
    left = np.random.RandomState(zlib.crc32(b"rows")).randn(5, 8)
    expected = np.array([left[:, j] @ rows @ right[:, j] for j in range(8)]) / np.sqrt(4500)
    np.testing.assert_allclose(random_projections(array), expected, rtol=1e-12)


def test_a_name_is_recorded_once() -> None:
    recording = Recording()
    recording.add("x", np.zeros(2))
    with pytest.raises(ValueError, match="'x' is recorded twice"):
        recording.add("x", np.zeros(2))


def test_a_recording_is_a_copy() -> None:
    recording = Recording()
    array = np.zeros(3)
    recording.add("x", array)
    array += 1
    assert recording.arrays["x"].sum() == 0


def test_round_trip(tmp_path: Path) -> None:
    recording = Recording({"a": np.float32([1, np.nan]), "b": np.array(3)}, {"stage": "forward"})
    recording.save(tmp_path / "forward_ref.npy")
    loaded = Recording.load(tmp_path / "forward_ref.npy")
    assert list(loaded.arrays) == ["a", "b"]
    np.testing.assert_array_equal(loaded.arrays["a"], recording.arrays["a"])
    assert loaded.metadata == {"stage": "forward"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["forward_ref.json", "forward_ref.npy"]


def test_failed_save_leaves_the_old_arrays_and_no_metadata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "forward_ref.npy"
    Recording({"a": np.zeros(2)}, {"stage": "forward"}).save(path)

    def no_space(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", no_space)
    with pytest.raises(InputError, match="the disk is full; nothing was written; free some space and repeat"):
        Recording({"a": np.ones(2)}, {"stage": "forward"}).save(path)
    monkeypatch.undo()
    np.testing.assert_array_equal(Recording.load(path).arrays["a"], np.zeros(2))
    assert Recording.load(path).metadata == {}
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["forward_ref.npy"]


def test_metadata_is_strict_json(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        Recording({"a": np.zeros(1)}, {"loss": float("nan")}).save(tmp_path / "x.npy")
    Recording({"a": np.zeros(1)}, {"text": "é"}).save(tmp_path / "x.npy")
    assert json.loads((tmp_path / "x.json").read_text(encoding="utf-8")) == {"text": "é"}


def test_hash_depends_on_name_shape_dtype_and_value() -> None:
    base = {"a": np.zeros(4, np.float32)}
    others = [
        {"b": np.zeros(4, np.float32)},
        {"a": np.zeros((2, 2), np.float32)},
        {"a": np.zeros(4, np.int32)},
        {"a": np.float32([0, 0, 0, 1])},
    ]
    assert hash_arrays(base) == hash_arrays({"a": np.zeros(4, np.float32)})
    assert len({hash_arrays(base), *map(hash_arrays, others)}) == 5


def test_an_imaginary_part_moves_every_projection() -> None:
    values = np.random.default_rng(0).standard_normal((3, 5000)).astype(np.complex64)
    wrong = values.copy()
    wrong[1, 700] += 0.5j
    assert (random_projections(values) != random_projections(wrong)).all()
    np.testing.assert_array_equal(random_projections(values.T), random_projections(values.T.copy()))


@pytest.mark.parametrize("axes", [(0, 1), (1, 0), (2, 0, 1), (2, 1, 0)])
def test_what_is_recorded_of_a_tensor_does_not_depend_on_how_it_lies_in_memory(axes) -> None:
    permuted = np.random.default_rng(0).standard_normal((130, 70, 3)[: len(axes)]).transpose(axes)
    copied = np.array(permuted, order="C")
    np.testing.assert_array_equal(sample(permuted), copied.reshape(-1)[sample_positions(copied.size)])
    np.testing.assert_array_equal(random_projections(permuted), random_projections(copied))
