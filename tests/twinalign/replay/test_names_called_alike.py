"""Functions and arguments that are called much alike."""

from __future__ import annotations

import ast
import dataclasses
import math
from collections.abc import Callable
from typing import Any

import paddle

from twinalign.replay.aligned_code import Code
from twinalign.replay.arguments_of_layers import arguments_of_layers
from twinalign.replay.sibling_functions import sibling_functions

CODE = """
def forward(self, feat, seq_len, mask):
    out = self.encoder(feat)
    paddle.nn.utils.clip_grad_norm_(self.parameters(), 0.5)
    return self.head(out) * math.sqrt(2.0) * paddle.triu(mask)
"""


def code() -> Code:
    tree = ast.parse(CODE.strip()).body[0]
    assert isinstance(tree, ast.FunctionDef)
    run: Callable[..., Any] = lambda: None  # noqa: E731
    run.__globals__.update(paddle=paddle, math=math)
    return dataclasses.replace(Code(tree, "port.py", "forward"), functions=[run])


def test_a_function_has_siblings_in_its_module() -> None:
    found = [ast.unparse(new) for _, new in sibling_functions(code())]
    assert {"paddle.nn.utils.clip_grad_value_", "paddle.tril", "math.isqrt"} <= {*found}
    assert not any(one.startswith("self.") for one in found)


def test_a_layer_is_given_names_for_what_it_has_a_default_for() -> None:
    layers = [("encoder", paddle.nn.LSTM(3, 2)), ("head", paddle.nn.Linear(2, 2))]
    found = [ast.unparse(edit.new) for edit in arguments_of_layers([code()], layers)]
    assert found == ["self.encoder(feat, sequence_length=seq_len)"]
