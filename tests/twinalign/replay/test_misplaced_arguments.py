"""Arguments in each other's place, by the names of the parameters that they are for."""

from __future__ import annotations

import pytest

from twinalign.replay.aligned_code import Code, parsed
from twinalign.replay.misplaced_arguments import misplaced_arguments

ATTENTION = "def forward(self, query, weights, total):\n    return query + 2 * weights + 3 * total\n"


def codes(*sources: str) -> list[Code]:
    made = [parsed(source, "ours.py", 1, f"Net.{number}", "paddle") for number, source in enumerate(sources)]
    return [one for one in made if one is not None]


@pytest.mark.parametrize(
    ("call", "meant"),
    [
        ("self.attention(query, total, weights)", ["self.attention(query, weights, total)"] * 2),
        ("self.attention(query, total, kept)", ["self.attention(query, kept, total)"]),
        ("self.attention(query, weights, total)", []),
        ("self.attention(query, kept, sum)", []),  # no name tells
        ("self.attention(query)", []),
        ("attention(query, total, weights)", []),  # another function
    ],
)
def test_names_tell_which_arguments_are_exchanged(call: str, meant: list[str]) -> None:
    caller = f"def decode(self, query, weights, total, kept):\n    return {call}\n"
    assert [edit.to_json()["after"] for edit in misplaced_arguments(codes(caller, ATTENTION))] == meant
