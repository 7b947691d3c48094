"""Tensors of the port by the reference's names: transposed, packed on one side, apart on the other."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from twinalign.backends.state_layout import StateEntry
from twinalign.conversion.canonical_names import CanonicalNames, names_of_moves
from twinalign.conversion.plan import Move, Piece


def target(key: str, shape: tuple[int, ...]) -> StateEntry:
    return StateEntry(key, shape, "float32", "", key, ())


SHAPES = {"weight": (4, 3), "in": (6, 5), "q": (5, 2), "k": (5, 2), "v": (5, 2), "g": (4, 1, 1), "point": (4, 3, 1, 1)}


def names(moves: list[Move]) -> CanonicalNames:
    """As they come through the JSON that a recorder is given."""
    return CanonicalNames.of(json.loads(json.dumps({"canonical": names_of_moves(moves, SHAPES)})))


# torch's in_proj_weight [6, 5] holds q, k, v; the port keeps three matrices [5, 2].
APART = [
    Move(target(f"{r}.weight", (5, 2)), (Piece("in", False, (2 * i, 2 * i + 2), (2, 5)),), True)
    for i, r in enumerate("qkv")
]
PACKED_ARRAY = np.arange(30.0).reshape(6, 5)
# The other way round, the reference with a layout of its own ([5, 2]), the port with torch's.
TOGETHER = [Move(target("qkv", (6, 5)), tuple(Piece(r, True, None, (2, 5)) for r in "qkv"), False)]


def test_what_the_reference_packs_is_put_together_in_its_order() -> None:
    of_port = names(APART)
    own = {key: of_port.from_reference(key, {"in": PACKED_ARRAY}) for key in ("q.weight", "k.weight", "v.weight")}
    np.testing.assert_array_equal(own["k.weight"], PACKED_ARRAY[2:4].T)
    items = [("a.", key, own[key]) for key in ("v.weight", "q.weight", "k.weight")]
    ((label, name, made),) = of_port.to_reference(items)
    assert (label, name) == ("a.", "in")
    np.testing.assert_array_equal(made, PACKED_ARRAY)


def test_a_linear_that_stands_for_a_convolution_has_the_references_shape() -> None:
    of_port = names([Move(target("fc", (3, 4)), (Piece("point", False, None, (4, 3)),), True)])
    convolution = np.arange(12.0).reshape(4, 3, 1, 1)
    own = of_port.from_reference("fc", {"point": convolution})
    np.testing.assert_array_equal(own, convolution[:, :, 0, 0].T)
    ((_, name, made),) = of_port.to_reference([("", "fc", own)])
    assert name == "point"
    np.testing.assert_array_equal(made, convolution)


def test_what_the_other_side_lacks_is_left_out() -> None:
    of_reference = CanonicalNames.of({"left_out": ["table"]})
    items = [("", "table", np.ones(2)), ("", "weight", np.ones(2))]
    assert [name for _, name, _ in of_reference.to_reference(items)] == ["weight"]


def test_labels_are_put_together_apart_and_a_missing_part_is_zeros() -> None:
    of_port = names(APART)
    part = np.ones((5, 2))
    found = {
        label: made for label, _, made in of_port.to_reference([("a.", "q.weight", part), ("b.", "v.weight", part)])
    }
    np.testing.assert_array_equal(found["a."], np.repeat([1.0, 0.0, 0.0], 2)[:, None] * np.ones(5))
    np.testing.assert_array_equal(found["b."], np.repeat([0.0, 0.0, 1.0], 2)[:, None] * np.ones(5))


def test_what_the_port_packs_is_taken_apart() -> None:
    of_port = names(TOGETHER)
    found = {name: made for _, name, made in of_port.to_reference([("", "qkv", PACKED_ARRAY)])}
    assert list(found) == ["q", "k", "v"]
    np.testing.assert_array_equal(found["k"], PACKED_ARRAY[2:4].T)
    np.testing.assert_array_equal(of_port.from_reference("qkv", found), PACKED_ARRAY)
    assert of_port.from_reference("qkv", {"q": found["q"]}) is None


@pytest.mark.parametrize("transposed", [False, True])
def test_a_second_key_of_one_tensor_is_left_out(transposed: bool) -> None:
    piece = Piece("weight", False, None, (4, 3))
    shape = (3, 4) if transposed else (4, 3)
    of_port = names([Move(target(key, shape), (piece,), transposed) for key in ("cell.weight", "weight")])
    array = np.arange(12.0).reshape(shape)
    ((_, name, made),) = of_port.to_reference([("", "weight", array), ("", "cell.weight", array)])
    assert name == "weight"
    np.testing.assert_array_equal(made, array.T if transposed else array)


def test_what_the_reference_lacks_is_left_out_and_the_reference_is_itself() -> None:
    filled: list[Any] = [Move(target("extra", (3,)), (), False, fill=0.0)]
    assert list(names([*filled, *APART]).to_reference([("", "extra", np.ones(3))])) == []
    own = CanonicalNames()
    ((_, name, made),) = own.to_reference([("", "x.weight", PACKED_ARRAY), ("", "bn.num_batches_tracked", np.ones(()))])
    assert name == "x.weight"
    np.testing.assert_array_equal(made, PACKED_ARRAY)
    scalar = own.from_reference("scale", {"scale": np.array(2.0)})
    assert scalar is not None
    assert scalar.shape == ()


def test_what_the_port_keeps_in_another_shape_is_given_the_references() -> None:
    of_port = names([Move(target("port_g", (4,)), (Piece("g", False, None, (4,)),), False)])
    own, theirs = np.arange(4.0), np.arange(4.0).reshape(4, 1, 1)
    ((_, name, made),) = of_port.to_reference([("", "port_g", own)])
    assert name == "g"
    np.testing.assert_array_equal(made, theirs, strict=True)
    back = of_port.from_reference("port_g", {"g": theirs})
    assert back is not None
    np.testing.assert_array_equal(back, own, strict=True)
    # What is of neither shape is not made to fit: a number that an optimizer keeps, or a wrong port's tensor.
    ((_, _, number),) = of_port.to_reference([("", "port_g", np.zeros((2, 2)))])
    assert number.shape == (2, 2)
