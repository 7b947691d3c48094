"""Functions are replaced under every name that a module has for them, and get their names back."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Iterator

import pytest
import torch

from twinalign.patching import replaced_everywhere

CLIP = torch.nn.utils.clip_grad_norm_


@pytest.fixture
def trainer() -> Iterator[types.ModuleType]:
    """A module of one's own."""
    module = sys.modules["own_trainer"] = types.ModuleType("own_trainer")
    yield module
    del sys.modules["own_trainer"]


def test_names_that_a_module_was_given_between_two_blocks_are_replaced(trainer: types.ModuleType) -> None:
    with replaced_everywhere(CLIP, "first"):
        pass
    trainer.clip = CLIP  # type: ignore[attr-defined]
    with replaced_everywhere(CLIP, "second"):
        assert (torch.nn.utils.clip_grad_norm_, torch.nn.utils.clip_grad.clip_grad_norm_) == ("second", "second")
        assert trainer.clip == "second"
    assert torch.nn.utils.clip_grad_norm_ is CLIP
    assert trainer.clip is CLIP


def test_what_replaces_a_function_is_replaced_in_its_turn(trainer: types.ModuleType) -> None:
    trainer.clip = CLIP  # type: ignore[attr-defined]
    wrapper = functools.wraps(CLIP)(lambda *given: CLIP(*given))
    with replaced_everywhere(CLIP, wrapper):
        with replaced_everywhere(wrapper, "inner"):
            assert (torch.nn.utils.clip_grad_norm_, trainer.clip) == ("inner", "inner")
        assert torch.nn.utils.clip_grad_norm_ is wrapper
        assert trainer.clip is wrapper
    assert torch.nn.utils.clip_grad_norm_ is CLIP
    assert trainer.clip is CLIP


def test_a_name_that_holds_something_else_meanwhile_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    with replaced_everywhere(CLIP, "first"):
        pass
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", "other")
    with replaced_everywhere(CLIP, "second"):
        assert (torch.nn.utils.clip_grad_norm_, torch.nn.utils.clip_grad.clip_grad_norm_) == ("other", "second")
