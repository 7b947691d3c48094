"""Clippings of gradients are seen however their arguments are given."""

from __future__ import annotations

import paddle
import pytest
import torch

from twinalign.backends import load_backend

PARAMETERS = {
    "torch": lambda: torch.nn.Parameter(torch.ones(4)),
    "paddle": lambda: paddle.create_parameter([4], "float32", default_initializer=paddle.nn.initializer.Constant(1.0)),
}


@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_limits_by_position_and_by_name(framework: str) -> None:
    parameter = PARAMETERS[framework]()
    seen: list[tuple[str, float]] = []
    with load_backend(framework).watching_clipping(
        lambda kind, limit: seen.append((kind, limit)), lambda norm, pairs: seen.append(("norm was", float(norm or 0)))
    ):
        utils = {"torch": torch, "paddle": paddle}[framework].nn.utils
        for clip, name in ((utils.clip_grad_norm_, "max_norm"), (utils.clip_grad_value_, "clip_value")):
            for given in (((parameter, 0.5), {}), ((), {name: 0.5, "parameters": [parameter]})):
                parameter.clear_gradient() if framework == "paddle" else setattr(parameter, "grad", None)
                (3.0 * parameter).sum().backward()
                clip(*given[0], **given[1])
                assert float(parameter.grad.max()) < 0.6
    assert seen == [("norm", 0.5), ("norm was", 6.0)] * 2 + [("value", 0.5), ("norm was", 0.0)] * 2
