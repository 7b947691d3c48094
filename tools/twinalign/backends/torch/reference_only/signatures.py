"""How torch functions are spelled and what their parameters are called: what causes speak of, without torch."""

import tomllib
from pathlib import Path

_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

ARGUMENTS: dict[str, tuple[str, ...]] = {name: tuple(names) for name, names in _TABLES["arguments"].items()}
"""Parameter names, in order, of the functions that causes speak of; methods have their tensor as `input`."""

RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")

PACKED: tuple[str, ...] = tuple(_TABLES["packed"])
"""Parameters of these for a packed sequence."""

SPREAD = {"view", "reshape", "expand", "repeat", "permute", "flip"}
"""Methods that take their last argument spread out as well: `x.permute(0, 2, 1)`."""

SAME: dict[str, str] = _TABLES["same"]
"""Other names of one function."""

REVERSED = {"__rsub__": "sub", "__rdiv__": "div", "__rtruediv__": "div", "__rpow__": "pow"}
"""Methods whose tensor is the second operand."""

NUMPY_KEYWORDS = {"axis": "dim", "keepdims": "keepdim"}
"""Keywords that torch takes for numpy's sake."""

NO_CALLS = {"__get__", "__set__", "backward", "grad", "requires_grad", "requires_grad_"}
"""Attributes of tensors, and what works on the graph after the unit has run."""
