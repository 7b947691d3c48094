"""Numbers in code, and a factor told by those of both sides that make it."""

from __future__ import annotations

import ast

import pytest

from twinalign.replay.constants import constants_in_sources, exchanged, factor_in_words


@pytest.mark.parametrize(
    ("source", "numbers"),
    [
        ("x = (a + b) * math.sqrt(0.25)", [0.5]),
        ("return 64 ** -0.5 * q + 1e-6", [0.125, 1e-6]),
        ("y = f(x, True, -2)", [-2.0]),
        ("z = np.exp(0) * k / (1 + 1)", [1.0, 2.0]),
        ("1 / 0, 10 ** 100000, math.sqrt(-1)", [1.0, 0.0, 10.0, 100000.0, -1.0]),
        ("def broken(", []),
    ],
)
def test_numbers_are_read_as_they_are_written_or_computed(source: str, numbers: list[float]) -> None:
    assert constants_in_sources([source]) == pytest.approx(numbers)


@pytest.mark.parametrize(
    ("factor", "port", "reference", "words"),
    [
        (0.5**0.5, [0.5], [0.5**0.5], "0.5 in place of 0.707107"),
        (8.0, [3.0], [0.5, 0.25], "the port lacks the factors 0.5 and 0.25"),
        (2.0, [3.0], [0.5, 0.25], "the port lacks the factor 0.5"),
        (2.0, [0.5], [0.5], ""),  # both have it
        (1.7, [3.0], [0.5], ""),
    ],
)
def test_a_factor_is_told_by_the_codes_own(
    factor: float, port: list[float], reference: list[float], words: str
) -> None:
    assert factor_in_words(factor, port, reference) == words


@pytest.mark.parametrize(
    ("port", "reference", "expected"),
    [("x * 0.5", "x * math.sqrt(0.5)", True), ("x", "x * 0.5", False), ("x / 2", "2 * x", False)],
)
def test_one_number_in_place_of_another(port: str, reference: str, expected: bool) -> None:
    assert exchanged([ast.parse(port)], [ast.parse(reference)]) is expected
