"""What is noted of the functions that run."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import paddle
from torch import nn

from twinalign.replay.code_lines import Function, function_of


class Half(nn.Module):
    """Holds no tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = 0.5

    def forward(self, x: Any) -> FrameType:
        return sys._getframe()


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.half, self.linear, self.act = Half(), nn.Linear(2, 2), nn.ReLU()

    def forward(self, x: Any) -> FrameType:
        return sys._getframe()


class Asked:
    """Asks what it is around for all that it has not; in its constructor there is nothing yet."""

    def __init__(self, inner: Any) -> None:
        self.found = function_of(sys._getframe())
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["inner"], name)


def noted(frame: FrameType) -> Function:
    return function_of(frame)


class Warm(paddle.optimizer.lr.LRScheduler):
    def get_lr(self) -> Any:
        self.frame = sys._getframe()
        return 0.1


def test_layers_that_hold_no_tensor_are_noted_by_their_classes_and_settings() -> None:
    found = noted(Block().forward(1)).layers
    assert found.keys() == {"half"}
    assert found["half"][0] == "Half"
    assert found["half"][1]["factor"] == 0.5
    assert not noted(Block().forward(1)).is_plain
    assert noted(Half().forward(1)).is_plain


def test_what_a_class_extends_is_noted_where_torch_has_something_for_it() -> None:
    assert noted(Warm().frame).extends == "LRScheduler"
    assert noted(Block().forward(1)).extends == ""


def test_an_object_is_asked_for_nothing() -> None:
    assert Asked(Block()).found.layers == {}
