"""The run of opcodes that a pickled numpy array always is, taken in one step.

A recording holds thousands of arrays, and Python writes each as the same forty opcodes around its name, shape and
bytes (`numpy.ndarray.__reduce__` under protocol 4, which `numpy.save` uses). `PickleMachine` would take them one by
one. Here a regular expression takes the run as a whole, and only where it comes out as it should: at anything odd the
run is left to the machine, which then judges it opcode by opcode, so that nothing is allowed here that it refuses.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any

from twinalign.files.errors import BrokenFileError, RefusedError

_NUMBER = rb"(?:K.|M..|J....)"
_SHAPE = rb"\)|%(n)b\x85\x94|%(n)b{2}\x86\x94|%(n)b{3}\x87\x94|\(%(n)b{4,32}t\x94" % {b"n": _NUMBER}
_HEAD = re.compile(
    # _reconstruct(ndarray, (0,), b"b"), all three by their places in the memo, ...
    rb"h(.)h(.)K\x00\x85\x94h(.)\x87\x94R\x94"
    # ... and its state: version 1, shape, dtype out of the memo, not in Fortran's order, the bytes.
    rb"\(K\x01(" + _SHAPE + rb")(h.|j....)\x89(?:C(.)|B(....)|\x8e(.{8}))",
    re.DOTALL,
)
_FRAME = rb"(?:\x95.{8})?"  # only a hint for buffered reading; Python puts one behind large bytes
_TAIL = re.compile(_FRAME + rb"\x94" + _FRAME + rb"t\x94" + _FRAME + rb"b", re.DOTALL)
_EACH_NUMBER = re.compile(rb"K(.)|M(..)|J(....)", re.DOTALL)
_SIGNED = struct.Struct("<i")


class ArrayRuns:
    """Takes the runs of one pickle.

    Args:
        buffer: The bytes that the pickle is in.
        function: The type of what may be called, which an allowed global is.
        under_construction: The type of what takes a state.
    """

    def __init__(self, buffer: memoryview, function: type[Callable[..., Any]], under_construction: type[Any]) -> None:
        self._buffer = buffer
        self._function, self._under_construction = function, under_construction
        self._shapes: dict[bytes, tuple[int, ...]] = {}

    def take(self, position: int, memo: dict[int, Any]) -> tuple[Any, int] | None:
        """The array whose run begins at `position`, and where the run ends; None where there is no such run.

        The memo is changed as the machine would change it, and only where an array is returned.
        """
        head = _HEAD.match(self._buffer, position)
        if head is None:
            return None
        function_at, kind_at, code_at, shape_code, dtype_at, *lengths = head.groups()
        begin = head.end()
        end = begin + int.from_bytes(lengths[0] or lengths[1] or lengths[2], "little")
        tail = _TAIL.match(self._buffer, end) if end < len(self._buffer) else None
        function = memo.get(function_at[0])
        if tail is None or type(function) is not self._function:
            return None
        try:
            first = (0,)
            arguments = (memo[kind_at[0]], first, memo[code_at[0]])
            found = function(*arguments)
            data, shape = self._buffer[begin:end], self._shape(shape_code)
            state = (1, shape, memo[int.from_bytes(dtype_at[1:], "little")], False, data)
            if not isinstance(found, self._under_construction):
                return None
            found.set_state(state)
        except (RefusedError, BrokenFileError, LookupError, TypeError, ValueError, OverflowError):
            return None  # the machine comes to the same fault and says where
        # The empty tuple is not put into the memo.
        for value in (first, arguments, found, *([shape] if shape else []), data, state):
            memo[len(memo)] = value
        return found, tail.end()

    def _shape(self, code: bytes) -> tuple[int, ...]:
        found = self._shapes.get(code)
        if found is None:
            numbers = [match.groups() for match in _EACH_NUMBER.finditer(code[code[:1] == b"(" :])]
            found = tuple(
                _SIGNED.unpack(signed)[0] if signed else int.from_bytes(byte or word, "little")
                for byte, word, signed in numbers
            )
            self._shapes[code] = found
        return found
