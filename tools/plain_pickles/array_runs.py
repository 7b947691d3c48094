"""Reads the opcodes of one pickled numpy array in a single step.

A recording holds thousands of arrays, and Python writes each as the same forty opcodes around its name, shape and
bytes (`numpy.ndarray.__reduce__` under protocol 4, which `numpy.save` uses). `PickleMachine` would execute them one by
one. Here a regular expression matches them all, but only in their usual form: anything unusual is left to the machine,
which checks it opcode by opcode, so that nothing is allowed here that the machine refuses.
"""

import re
import struct
from collections.abc import Callable
from typing import Any

from plain_pickles.errors import BrokenFileError, RefusedError

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
_SHORT_TEXT, _MEMOIZE = 0x8C, 0x94
_SIGNED = struct.Struct("<i")


class ArrayRuns:
    """Reads the arrays of one pickle."""

    def __init__(self, buffer: memoryview, function: type[Callable[..., Any]], under_construction: type[Any]) -> None:
        """`function` is the type of allowed globals, `under_construction` that of objects that take a state."""
        self._buffer = buffer
        self._function, self._under_construction = function, under_construction
        self._shapes: dict[bytes, tuple[int, ...]] = {}

    def take(self, position: int, memo: dict[int, Any]) -> tuple[tuple[Any, ...], int] | None:
        """The values that an array at `position` leaves on the stack, and its end; None if there is no such array.

        The values are an array, or its short name and the array. The memo is changed as the machine would change it,
        and only if something is returned.
        """
        buffer, size = self._buffer, len(self._buffer)
        start = position + 2 if buffer[position] == _SHORT_TEXT and position + 1 < size else 0
        if start:
            position = start + buffer[start - 1]
            if position >= size or buffer[position] != _MEMOIZE:
                return None
            name_end, position = position, position + 1
        head = _HEAD.match(buffer, position)
        if head is None:
            return None
        function_at, kind_at, code_at, shape_code, dtype_at, short, medium, large = head.groups()
        begin = head.end()
        end = begin + int.from_bytes(short or medium or large, "little")
        tail = _TAIL.match(buffer, end) if end < size else None
        places = function_at[0], kind_at[0], code_at[0], int.from_bytes(dtype_at[1:], "little")
        if tail is None or max(places) >= len(memo):  # where the run itself may put something
            return None
        try:
            name = (str(buffer[start:name_end], "utf-8"),) if start else ()
            first = (0,)
            function, dtype = memo[places[0]], memo[places[3]]
            if type(function) is not self._function:
                return None
            arguments = (memo[places[1]], first, memo[places[2]])
            found = function(*arguments)
            if not isinstance(found, self._under_construction):
                return None
            data, shape = buffer[begin:end], self._shape(shape_code)
            state = (1, shape, dtype, False, data)
            found.set_state(state)
        except (RefusedError, BrokenFileError, LookupError, TypeError, ValueError, OverflowError):
            return None  # the machine comes to the same fault and says where
        # The empty tuple is not put into the memo.
        for value in (*name, first, arguments, found, *([shape] if shape else []), data, state):
            memo[len(memo)] = value
        return (*name, found), tail.end()

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
