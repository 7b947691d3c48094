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
from torch.nn.functional import pad


class Kept:
    pass


def fill(out, chosen, value):
    out[chosen] = value


def routed(x, chosen, weight):
    out = torch.zeros_like(x)
    kept = Kept()
    kept.out = torch.zeros_like(x)
    for number in range(3):
        token, = torch.where(chosen == number)
        out[token] += weight[number] * (x[token] @ x.T @ x)
        out[chosen == 1] = (
            x[chosen == 1] * weight[0])
        kept.out[:, [0, 2], None] = (x[:, :2] * weight[0]).unsqueeze(-1)
        fill(out, chosen == 2, x[1] * number)
    kept.out[token, token] = x[token, token]  # kept
    out[0] = x[1]
    out[1:3, ::2] = x[:2, :3]
    out[token] = 2.0
    out[1][2] = weight[0]
    out[3][token] += x[0, token]
    return out * 2, kept.out
"""
PUT = """import torch
from torch.nn.functional import pad


class Kept:
    pass


def fill(out, chosen, value):
    out.__setitem__(chosen, value)


def routed(x, chosen, weight):
    out = torch.zeros_like(x)
    kept = Kept()
    kept.out = torch.zeros_like(x)
    for number in range(3):
        token, = torch.where(chosen == number)
        out.__setitem__(token, out[token] + (weight[number] * (x[token] @ x.T @ x)))
        out.__setitem__(chosen == 1, (
            x[chosen == 1] * weight[0]))
        kept.out.__setitem__((slice(None, None, None), [0, 2], None,), (x[:, :2] * weight[0]).unsqueeze(-1))
        fill(out, chosen == 2, x[1] * number)
    kept.out.__setitem__((token, token,), x[token, token])  # kept
    out[0] = x[1]
    out[1:3, ::2] = x[:2, :3]
    out[token] = 2.0
    part = out[1].clone(); part.__setitem__(2, weight[0]); out[1] = part
    part = out[3].clone(); part.__setitem__(token, part[token] + (x[0, token])); out[3] = part
    return out * 2, kept.out
"""


def _same_in_other_words(tmp_path: Path, source: str, expected: str, run) -> None:
    """That the casts make `expected` of the source, and that both give the same."""
    found = []
    with Promotions() as promotions:
        for name, text in (("given", source), ("made", expected)):
            found.append(run(_module(tmp_path / f"{name}.py", text)))
    places = promotions.found[str(tmp_path / "given.py")]
    assert with_casts(source, [(*place, *types) for place, types in places.items()]) == expected
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


def test_items_that_tensors_name_are_put_where_their_values_have_a_gradient(tmp_path: Path) -> None:
    torch.manual_seed(0)
    given = torch.randn(6, 6), torch.tensor([0, 1, 2, 0, 2, 2]), torch.randn(3)

    def run(module):
        x, weight = given[0].clone().requires_grad_(), given[2].clone().requires_grad_()
        made, kept = module.routed(x, given[1], weight)
        (made.sin().sum() + kept.cos().sum()).backward()
        return made, kept, x.grad, weight.grad

    _same_in_other_words(tmp_path, ITEMS, PUT, run)


SHARED = """import torch


def changed(x, layers):
    head = x[:, :2]
    head += 1
    whole = x.view(-1).clone()
    whole -= whole.mean()
    for layer in layers:
        layer *= (
            2 + layer)
    mine = layers[0]
    mine -= 1 if len(layers) else 0
    x += 3
    layers[0][0] += 1
    return x, head, whole, *layers
"""
COPIED = """import torch


def changed(x, layers):
    head = x[:, :2]
    head.copy_(head + (1))
    whole = x.view(-1).clone()
    whole -= whole.mean()
    for layer in layers:
        layer.copy_(layer * ((
            2 + layer)))
    mine = layers[0]
    mine.copy_(mine - (1 if len(layers) else 0))
    x += 3
    layers[0][0] += 1
    return x, head, whole, *layers
"""


def test_a_change_of_what_is_held_elsewhere_is_a_copy(tmp_path: Path) -> None:
    def run(module):
        return module.changed(torch.ones(2, 3), [torch.ones(3), torch.zeros(2)])

    _same_in_other_words(tmp_path, SHARED, COPIED, run)


TRUTHS = """import torch
import torch.nn.functional as F
from torch.nn.functional import pad


def masks(kept, places):
    longer = F.pad(kept, (1, 0), value=True), pad(kept | ~kept, (0, 1))
    chosen = torch.zeros(2, 3, dtype=torch.bool).scatter_(1, places, True)
    kept.scatter_(1, places[:, :1], True)
    gathered = kept.gather(1, places), torch.gather(kept, 1, places)
    return *longer, chosen, *gathered, kept.max(), places.max()
"""
NUMBERS = """import torch
import torch.nn.functional as F
from torch.nn.functional import pad


def masks(kept, places):
    longer = F.pad(kept.int(), (1, 0), value=True).bool(), pad((kept | ~kept).int(), (0, 1)).bool()
    chosen = torch.zeros(2, 3, dtype=torch.bool).int().scatter_(1, places, True).bool()
    kept.copy_(kept.int().scatter_(1, places[:, :1], True).bool())
    gathered = kept.int().gather(1, places).bool(), torch.gather(kept.int(), 1, places).bool()
    return *longer, chosen, *gathered, kept.int().max().bool(), places.max()
"""


def test_truth_values_are_numbers_for_what_paddle_has_for_numbers_alone(tmp_path: Path) -> None:
    def run(module):
        return module.masks(torch.tensor([[True, False, True], [False, False, True]]), torch.tensor([[2, 0], [1, 0]]))

    _same_in_other_words(tmp_path, TRUTHS, NUMBERS, run)


MEMBERS = """
def padded(ids, pad, rows):
    if pad in ids[:, [-1, 0]] or pad + 90 in ids.float():
        rows = rows + 1
    return rows, pad not in ids, ids[0, 1] in rows, pad in [0, 1]
"""
LISTS = """
def padded(ids, pad, rows):
    if pad in ids[:, [-1, 0]].flatten().tolist() or pad + 90 in ids.float().flatten().tolist():
        rows = rows + 1
    return rows, pad not in ids.flatten().tolist(), ids[0, 1] in rows.flatten().tolist(), pad in [0, 1]
"""


def test_what_is_in_a_tensor_is_looked_for_in_a_list(tmp_path: Path) -> None:
    def run(module):
        ids = torch.tensor([[5, 2, 0], [3, 4, 1]])
        rows, *truths = module.padded(ids, 7, torch.tensor([[1, 2]]))
        assert truths == [True, True, False]
        return rows, *map(torch.tensor, truths)

    _same_in_other_words(tmp_path, MEMBERS, LISTS, run)
