"""Where the weights are in a file, and what the file is, by content."""

from __future__ import annotations

import shutil

import numpy as np
import paddle
import pytest
import torch

from twinalign.conversion import writers
from twinalign.conversion.checkpoint import read_checkpoint, sniff

STATE = {"a.weight": torch.arange(6.0).reshape(2, 3), "a.bias": torch.ones(2)}


def found(path, entry=None):
    checkpoint = read_checkpoint(path, entry)
    assert list(checkpoint.weights) == list(STATE)
    assert all(np.array_equal(checkpoint.weights[key], value.numpy()) for key, value in STATE.items())
    return checkpoint


@pytest.mark.parametrize("name", ["state_dict", "model", "model_state_dict", "net", "anything"])
def test_nested_under_usual_names_or_the_only_state_dict(tmp_path, name):
    torch.save({"epoch": 2, name: STATE}, tmp_path / "a.pth")
    checkpoint = found(tmp_path / "a.pth")
    assert (checkpoint.entry, checkpoint.rest, checkpoint.framework) == (name, {"epoch": 2}, "torch")


def test_a_deeper_entry_by_name(tmp_path):
    torch.save({"ema": {"state": STATE}, "state_dict": {"x": torch.zeros(1)}}, tmp_path / "a.pth")
    assert set(found(tmp_path / "a.pth", "ema.state").rest) == {"state_dict"}


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod."])
def test_wrapper_prefixes_are_taken_off(tmp_path, prefix):
    torch.save({f"{prefix}{key}": value for key, value in STATE.items()}, tmp_path / "a.pth")
    assert found(tmp_path / "a.pth").prefix == prefix


def test_a_prefix_that_only_some_keys_have_stays(tmp_path):
    torch.save({"module.weight": torch.zeros(1), "weight": torch.zeros(1)}, tmp_path / "a.pth")
    assert list(read_checkpoint(tmp_path / "a.pth").weights) == ["module.weight", "weight"]


def test_formats_are_known_by_content_whatever_the_suffix(tmp_path):
    arrays = {key: value.numpy() for key, value in STATE.items()}
    torch.save(STATE, tmp_path / "zip")
    torch.save(STATE, tmp_path / "legacy", _use_new_zipfile_serialization=False)
    paddle.save({key: paddle.to_tensor(value) for key, value in arrays.items()}, str(tmp_path / "pickle"))
    writers.write_safetensors(tmp_path / "safetensors", arrays, {})
    np.savez(tmp_path / "a.npz", **arrays)
    expected = {
        "zip": ("torch", "torch"),
        "legacy": ("torch", "torch"),
        "pickle": ("paddle", "paddle"),
        "safetensors": ("safetensors", None),
        "a.npz": ("npz", None),
    }
    for name, kind in expected.items():
        wrong = tmp_path / f"{name}.bin"
        shutil.copy(tmp_path / name, wrong)
        assert sniff(wrong) == kind
        found(wrong)


def test_what_is_no_array_in_a_state_dict_is_named(tmp_path):
    torch.save({**STATE, "version": 3}, tmp_path / "a.pth")
    assert found(tmp_path / "a.pth").dropped == {"version": "int"}
