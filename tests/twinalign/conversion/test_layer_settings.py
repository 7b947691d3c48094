"""What two layers in the same place differ in, by the descriptions that the frameworks themselves give."""

from __future__ import annotations

import paddle
import pytest
import torch

from twinalign.conversion.trial_model import described
from twinalign.conversion.where_models_differ import differing_settings


def calls(*layers):
    return [{"path": f"l{i}", "layer": f"{type(x).__name__}({described(x)})"} for i, x in enumerate(layers)]


@pytest.mark.parametrize(
    ("reference", "port", "expected"),
    [
        (torch.nn.Conv2d(3, 4, 3), paddle.nn.Conv2D(3, 4, 3, padding=1), ["padding (default in l0, 1 in l0)"]),
        (torch.nn.Conv2d(3, 4, 3, padding=1), paddle.nn.Conv2D(3, 4, 3, padding=1), []),
        (torch.nn.Conv2d(4, 4, 3, 2, groups=2), paddle.nn.Conv2D(4, 4, 3, 2, groups=2), []),
        (torch.nn.BatchNorm2d(3, 1e-3), paddle.nn.BatchNorm2D(3), ["eps (0.001 in l0, 1e-05 in l0)"]),
        (torch.nn.BatchNorm2d(3), paddle.nn.BatchNorm2D(3), []),
        (torch.nn.LayerNorm(3, 1e-6), paddle.nn.LayerNorm(3), ["eps (1e-06 in l0, 1e-05 in l0)"]),
        (
            torch.nn.MaxPool2d(3, 2, ceil_mode=True),
            paddle.nn.MaxPool2D(3, 2),
            ["ceil_mode (True in l0, default in l0)"],
        ),
        (torch.nn.MaxPool2d(3, 2), paddle.nn.MaxPool2D(3, 2), []),
        (torch.nn.MaxPool2d(3, 2, ceil_mode=True), paddle.nn.MaxPool2D(3, 2, ceil_mode=True), []),
        (
            torch.nn.Dropout(0.5),
            paddle.nn.Dropout(0.5, mode="downscale_in_infer"),
            ["mode (default in l0, downscale_in_infer in l0)"],
        ),
        (torch.nn.Dropout(0.5), paddle.nn.Dropout(0.5), []),
        (torch.nn.ReLU(inplace=True), paddle.nn.ReLU(), []),
        (torch.nn.Linear(3, 4), paddle.nn.Linear(3, 4), []),
    ],
)
def test_one_layer_against_another(reference, port, expected):
    assert differing_settings(calls(reference), calls(port)) == expected


def test_layers_are_held_against_the_next_of_their_kind():
    mine = calls(torch.nn.ReLU(), torch.nn.Conv2d(3, 4, 3), torch.nn.Conv2d(3, 4, 3, stride=2))
    theirs = calls(paddle.nn.Conv2D(3, 4, 3), paddle.nn.Dropout(), paddle.nn.Conv2D(3, 4, 3))
    assert differing_settings(mine, theirs) == ["stride (2 in l2, default in l2)"]
