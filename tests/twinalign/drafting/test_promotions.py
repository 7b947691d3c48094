"""Casts stand where a model's source combines tensors of two types, and change nothing in torch."""

import importlib.util
import math
from pathlib import Path

import pytest
import torch

from twinalign.backends.torch.reference_only.promotion import Promotions
from twinalign.drafting.promotions import with_casts

SOURCE = """import math

import torch


def encoding(length, width):
    place = torch.arange(length).unsqueeze(1)
    rate = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
    table = torch.zeros(length, width)
    table[:, 0::2] = torch.sin(place * rate)
    table[:, 1::2] = torch.cos((place + 1) * rate)
    return table


def masked(x, kept):
    x = x * kept + (kept.int() * kept.long()) - (x >
                                                 torch.arange(3)) * x
    x += kept.sum()
    return x * 2 + x.double()
"""
CAST = """import math

import torch


def encoding(length, width):
    place = torch.arange(length).unsqueeze(1)
    rate = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
    table = torch.zeros(length, width)
    table[:, 0::2] = torch.sin(place.type_as(rate) * rate)
    table[:, 1::2] = torch.cos(((place + 1).type_as(rate)) * rate)
    return table


def masked(x, kept):
    x = x * kept.type_as(x) + ((kept.int().long() * kept.long()).float()) - ((x >
                                                 torch.arange(3).type_as(x)).type_as(x)) * x
    x += kept.sum().type_as(x)
    return x * 2 + x.double()
"""


def _module(path: Path, source: str):
    path.write_text(source, encoding="utf-8")
    specification = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def _run(module):
    torch.manual_seed(0)
    return module.encoding(5, 4), module.masked(torch.randn(3), torch.tensor([True, False, True]))


def test_each_side_that_is_promoted_is_cast(tmp_path: Path) -> None:
    with Promotions() as promotions:
        expected = _run(_module(tmp_path / "given.py", SOURCE))
    (found,) = promotions.found.values()
    assert with_casts(SOURCE, [(*place, *types) for place, types in found.items()]) == CAST
    with Promotions() as promotions:
        again = _run(_module(tmp_path / "cast.py", CAST))
    (left,) = promotions.found.values()  # the casts themselves
    assert with_casts(CAST, [(*place, *types) for place, types in left.items()]) == CAST
    for one, other in zip(expected, again, strict=True):
        assert torch.equal(one, other)
    assert math.isclose(float(expected[0][1, 2]), math.sin(0.01), rel_tol=1e-6)


@pytest.mark.parametrize("source", ["y = 1\n", ""])
def test_a_source_without_any_stays(source: str) -> None:
    assert with_casts(source, ()) == source


ITEMS = """import torch


def routed(x, chosen, weight):
    out = torch.zeros_like(x)
    for number in range(3):
        token, = torch.where(chosen == number)
        out[token] += weight[number] * (x[token] @ x.T @ x)
        out[chosen == 1] = (
            x[chosen == 1] * weight[0])
        out[chosen == 2] = (x[chosen == 2] * weight[0])
    out[token, token] = x[token, token]  # kept
    out[0] = x[1]
    out[token] = 2.0
    return out
"""
PUT = """import torch


def routed(x, chosen, weight):
    out = torch.zeros_like(x)
    for number in range(3):
        token, = torch.where(chosen == number)
        out = out.index_put((token,), out[token] + ( weight[number] * (x[token] @ x.T @ x)))
        out[chosen == 1] = (
            x[chosen == 1] * weight[0])
        out = out.index_put((chosen == 2,), (x[chosen == 2] * weight[0]))
    out = out.index_put((token, token), x[token, token])  # kept
    out[0] = x[1]
    out[token] = 2.0
    return out
"""


def test_items_that_tensors_name_are_put_where_their_values_have_a_gradient(tmp_path: Path) -> None:
    torch.manual_seed(0)
    given = torch.randn(6, 6), torch.tensor([0, 1, 2, 0, 2, 2]), torch.randn(3)
    found = []
    with Promotions() as promotions:
        for name, source in (("given_items", ITEMS), ("put_items", PUT)):
            x, weight = given[0].clone().requires_grad_(), given[2].clone().requires_grad_()
            made = _module(tmp_path / f"{name}.py", source).routed(x, given[1], weight)
            made.sin().sum().backward()
            found.append([made.detach(), x.grad, weight.grad])
    places = promotions.found[str(tmp_path / "given_items.py")]
    assert with_casts(ITEMS, [(*place, *types) for place, types in places.items()]) == PUT
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)
