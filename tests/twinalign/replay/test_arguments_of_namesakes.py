"""Plain arguments of the reference's calls that the port's calls of the same functions lack."""

from __future__ import annotations

import ast

import pytest

from twinalign.replay.arguments_of_namesakes import arguments_of_namesakes


def edits_of(ours: str, theirs: str) -> set[tuple[str, str]]:
    tree = ast.parse(f"def f(x, y):\n    return {ours}\n").body[0]
    assert isinstance(tree, ast.FunctionDef)
    found = arguments_of_namesakes(tree.body, list(ast.walk(ast.parse(theirs))))
    return {(ast.unparse(old), ast.unparse(new)) for old, new in found}


@pytest.mark.parametrize(
    ("ours", "theirs", "meant"),
    [
        ("paddle.triu(x)", "torch.triu(x, 1)", "paddle.triu(x, 1)"),
        ("paddle.triu(x)", "mask.triu_(1)", "paddle.triu(x, 1)"),
        ("x.argsort()", "torch.argsort(x, descending=True)", "x.argsort(descending=True)"),
        ("x.sum(keepdim=True)", "x.sum(dim=-1, keepdim=True)", "x.sum(keepdim=True, axis=-1)"),
        ("F.gelu(x)", "F.gelu(x, approximate='tanh')", "F.gelu(x, approximate='tanh')"),
    ],
)
def test_what_the_reference_is_given_as_well_is_offered(ours: str, theirs: str, meant: str) -> None:
    assert edits_of(ours, theirs) == {(ours, meant)}


@pytest.mark.parametrize("theirs", ["torch.tril(x, 1)", "torch.triu(x, diagonal=n)", "torch.triu(x)"])
def test_other_functions_and_what_is_no_plain_value_give_nothing(theirs: str) -> None:
    assert edits_of("paddle.triu(x)", theirs) == set()
