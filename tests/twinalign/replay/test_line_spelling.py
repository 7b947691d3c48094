"""Lines of the port as the reference's process runs them."""

from __future__ import annotations

import ast

import pytest

from twinalign.replay.aligned_code import Code
from twinalign.replay.helpers import Helpers
from twinalign.replay.line_spelling import in_torch

CODE = Code(ast.parse("def backward(ctx, grad, other):\n    pass").body[0], "net.py", "backward")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ours", "theirs", "spelled"),
    [
        ("return grad", "return -grad, None", "return (grad, None)"),
        ("return grad, other", "return grad, None, other", "return (grad, None, other)"),
        ("return grad, other", "return grad, None", "return (grad, other)"),
        ("return grad", "return grad, other", "return grad"),
        ("return grad", "return grad", "return grad"),
    ],
)
def test_gradients_of_what_is_no_tensor_are_none_as_in_torch(ours: str, theirs: str, spelled: str) -> None:
    new, old = ast.parse(ours).body[0], ast.parse(theirs).body[0]
    before = ast.dump(new)
    made = in_torch(new, CODE, old, Helpers({}, ()))
    assert ast.unparse(ast.fix_missing_locations(made)) == spelled
    assert ast.dump(new) == before
