"""What has no partner, in words: with the shapes of both sides where they do not fit."""

from __future__ import annotations

from typing import Any

from twinalign.conversion.match_layers import unmatched_facts
from twinalign.conversion.unmatched import note_of, text_of

SHAPES: tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]] = (
    {"first.weight_g": (8, 1), "norm.weight_g": (6, 1), "scale": (), "first.bias": (8,)},
    {"first.weight_g": (6,), "norm.weight_g": (6,), "first.bias": (8,)},
)


def facts(*alone: list[str]) -> dict[str, Any]:
    return unmatched_facts((alone[0], alone[1]), None, SHAPES)


def test_one_name_with_two_shapes_is_told_with_both() -> None:
    note = note_of(facts(["first.weight_g", "scale"], ["first.weight_g"]), "rename.txt")
    assert note.startswith(
        "first.weight_g has the shape 8×1 in the reference, 6 in the port; the reference has tensors that the port "
        "lacks: scale; "
    )


def test_axes_of_one_entry_are_no_other_shape() -> None:
    note = note_of(facts(["norm.weight_g"], ["norm.weight_g"]), "rename.txt")
    assert note.startswith("the reference has tensors that the port lacks: norm.weight_g; the port has tensors")


def test_the_file_has_the_shapes_of_all() -> None:
    text = text_of(facts(["first.weight_g", "scale"], ["first.weight_g"]))
    assert "The reference alone has:\n    first.weight_g (8×1)\n    scale (scalar)\n" in text
    assert "The port alone has:\n    first.weight_g (6)\n" in text
