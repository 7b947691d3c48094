"""Tensors in the containers in which calls hand them on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from twinalign.replay.forced_call import is_stacked
from twinalign.replay.nested_tensors import take_apart, unstacked


def is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_stack_is_handed_on_as_the_list_that_the_reference_takes(axis: int) -> None:
    parts, context = [torch.randn(4, 6) for _ in range(3)], torch.randn(2)
    tensors, skeleton = take_apart((parts, context), is_tensor)
    shapes = [list(one.shape) for one in tensors]
    found = unstacked((torch.stack(parts, axis), context), skeleton, shapes, is_tensor)
    assert all(torch.equal(one, other) for one, other in zip(found[0], parts, strict=True))
    assert found[1] is context
    other = torch.randn(3, 4, 5)
    assert unstacked((other, context), skeleton, shapes, is_tensor)[0] is other


@pytest.mark.parametrize(
    ("ours", "theirs", "stacked"),
    [
        ([[4, 3, 6]], [[4, 6], [4, 6], [4, 6]], True),
        ([[4, 3, 6], [4, 6]], [[4, 6], [4, 6], [4, 6], [4, 6]], True),
        ([[4, 6]], [[4, 6], [4, 6], [4, 6]], False),  # one tensor as query, key and value
        ([[4, 6], [4]], [[4, 6], [4]], False),
        ([[4, 6], [1, 4]], [[4, 6]], False),  # a mask beside
        ([[2, 4, 6], [2, 1, 6]], [[2, 5, 6]], False),  # joined, so that layers inside may be given other sizes
        ([[4, 6], [4, 6]], [[2, 4, 6]], True),
    ],
)
def test_a_layer_is_given_a_stack_where_its_partner_is_given_a_list(
    ours: list[list[int]], theirs: list[list[int]], stacked: bool
) -> None:
    partner: Any = SimpleNamespace(inputs=[SimpleNamespace(shape=shape) for shape in theirs])
    assert is_stacked([torch.zeros(shape) for shape in ours], partner) == stacked
