"""A reader of pickles that runs nothing.

Python's own unpickler calls what the file names, and even a guard (`find_class`) leaves `BUILD`, attribute access and
memory to the file's author. This machine knows only the opcodes (CPython's `Lib/pickletools.py` documents them): a
global becomes a `Symbol` from an allow-list, or the file is refused by name; calling a symbol calls one of our
functions, which builds arrays and plain containers from checked arguments. Byte strings are slices of the file's
memory map, so a pickle of arrays is read without copying it.
"""

import struct
from collections.abc import Callable, Mapping, Sized
from typing import Any

from plain_pickles.array_runs import ArrayRuns
from plain_pickles.errors import BrokenFileError, RefusedError


class Symbol:
    """An allowed global; calling it calls `build`, without which it is only a name."""

    def __init__(self, name: str, build: Callable[..., Any] | None = None, value: Any = None) -> None:
        self.name = name
        self.build = build
        self.value = value

    def __call__(self, *arguments: Any) -> Any:
        if self.build is None:
            raise RefusedError(f"its pickle calls {self.name}, which data does not need; nothing was run")
        return self.build(*arguments)


class Stateful:
    """An object under construction that the opcode BUILD gives its state."""

    # No abstract base class: asking whether an object is of one takes longer than to make it, and files have thousands.
    def set_state(self, state: Any) -> None:
        raise NotImplementedError

    def finished(self) -> Any:
        """The value that replaces this object once everything is read."""
        raise NotImplementedError


class StatefulDict(dict):
    """A dictionary whose attributes (torch's `_metadata` of a state_dict) are dropped."""

    __slots__ = ()

    def put(self, key: Any, value: Any) -> None:
        """Add an item; raises RefusedError for a key that is not text or a whole number, or is there already."""
        # A tuple as a key could take for ever to hash.
        if type(key) not in (str, int):
            kind = "bytes" if isinstance(key, memoryview | bytes) else f"a {type(key).__name__}"
            raise RefusedError(f"its pickle has a key that is {kind}; keys are text")
        if key in self:
            raise RefusedError(f"its pickle has the key {str(key)[:80]!r} twice")
        self[key] = value


_MARK = object()
_TEXTS = (str, bytes, bytearray, memoryview)
_COPIED_BY_CALLS: tuple[type[Sized], ...] = (*_TEXTS, list, tuple, dict)
_BYTES_AN_ITEM = 8
_LONGEST_INTEGER = 32
"""Bytes of a whole number; the state of a random generator takes 17."""
MOST_STEPS = 2_000_000
"""Opcodes of one pickle: each is one byte of a file and can take a hundred bytes of memory. An array takes forty."""
_COPIED_AT_LEAST = 1 << 20
_BYTE, _WORD = struct.Struct("<B"), struct.Struct("<I")

# Opcodes whose value is read by one struct: opcode -> struct.
_STRUCTS = {
    ord("J"): struct.Struct("<i"),
    ord("K"): struct.Struct("<B"),
    ord("M"): struct.Struct("<H"),
    ord("G"): struct.Struct(">d"),
}
# Opcodes followed by a length and that many bytes: opcode -> (struct of the length, decoder).
_COUNTED: dict[int, tuple[struct.Struct, str]] = {
    ord("X"): (struct.Struct("<I"), "utf8"),
    0x8C: (struct.Struct("<B"), "utf8"),
    0x8D: (struct.Struct("<Q"), "utf8"),
    ord("T"): (struct.Struct("<i"), "latin1"),
    ord("U"): (struct.Struct("<B"), "latin1"),
    ord("B"): (struct.Struct("<I"), "bytes"),
    ord("C"): (struct.Struct("<B"), "bytes"),
    0x8E: (struct.Struct("<Q"), "bytes"),
    0x96: (struct.Struct("<Q"), "bytes"),
    0x8A: (struct.Struct("<B"), "integer"),
    0x8B: (struct.Struct("<i"), "integer"),
}
_BEGIN_RUNS = (0x8C, 0x68)
_CONSTANTS = {ord("N"): None, 0x88: True, 0x89: False}
_FIXED_TUPLES = {ord(")"): 0, 0x85: 1, 0x86: 2, 0x87: 3}
# What no file of arrays uses, the text opcodes of protocol 0 among it; each is refused by its name in pickletools.
_REFUSED = {
    ord("F"): "FLOAT",
    ord("I"): "INT",
    ord("L"): "LONG",
    ord("S"): "STRING",
    ord("V"): "UNICODE",
    ord("g"): "GET",
    ord("p"): "PUT",
    ord("i"): "INST",
    ord("o"): "OBJ",
    0x82: "EXT1",
    0x83: "EXT2",
    0x84: "EXT4",
    0x8F: "EMPTY_SET",
    0x90: "ADDITEMS",
    0x91: "FROZENSET",
    0x92: "NEWOBJ_EX",
    0x97: "NEXT_BUFFER",
    0x98: "READONLY_BUFFER",
    ord("P"): "PERSID",
}


class PickleMachine:
    """Reads one pickle after another from a buffer.

    Args:
        buffer: The bytes, memory-mapped or not.
        symbols: Allowed globals by `module.name`.
        position: Start of the first pickle.
        load_persistent: Resolves the references of BINPERSID; without it such pickles are refused.
        most_steps: Greatest number of opcodes.
    """

    def __init__(
        self,
        buffer: memoryview,
        symbols: Mapping[str, Symbol],
        position: int = 0,
        load_persistent: Callable[[Any], Any] | None = None,
        most_steps: int = MOST_STEPS,
    ) -> None:
        self._buffer = buffer
        self._symbols = symbols
        self._load_persistent = load_persistent
        self.position = position
        self._most_steps = most_steps
        self._handed_over = 0

    def load(self) -> Any:
        """Read one pickle and move behind it.

        Raises:
            RefusedError: a global, an opcode or a call that is not on the allow-list.
            BrokenFileError: the bytes are not a pickle, or end too early.
        """
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        start = self.position
        runs = ArrayRuns(self._buffer, Symbol, Stateful)
        buffer, size, actions = self._buffer, len(self._buffer), _ACTIONS
        steps, most_steps = 0, self._most_steps
        try:
            while True:
                steps += 1
                if steps > most_steps:
                    raise RefusedError(f"its pickle takes more than {most_steps} steps, more than arrays need")
                if self.position >= size:
                    self._take(1)  # says how short it is
                opcode = buffer[self.position]
                if opcode in _BEGIN_RUNS and (run := runs.take(self.position, self._memo)) is not None:
                    values, self.position = run
                    self._stack += values
                    continue
                self.position += 1
                if opcode == 0x2E:  # STOP
                    return self._pop()
                action = actions.get(opcode)
                if action is not None:
                    action(self)
                else:
                    self._refuse(opcode)
        except (LookupError, struct.error, TypeError, OverflowError, RecursionError, UnicodeError) as error:
            raise BrokenFileError(f"its pickle is malformed near byte {self.position} (read from {start})") from error

    def require_end(self) -> None:
        """Raise RefusedError if anything follows the last pickle: readers disagree on what counts."""
        if self.position != len(self._buffer):
            raise RefusedError(f"{len(self._buffer) - self.position} bytes at its end belong to nothing")

    def _take(self, count: int) -> memoryview:
        end = self.position + count
        if count < 0 or end > len(self._buffer):
            raise BrokenFileError(f"it is cut short: {end} bytes are announced and {len(self._buffer)} are there")
        piece = self._buffer[self.position : end]
        self.position = end
        return piece

    def _line(self) -> str:
        # The two parts of GLOBAL end at a newline; a kilobyte is more than any name needs.
        head = bytes(self._buffer[self.position : self.position + 1024])
        length = head.find(b"\n")
        if length < 0:
            raise BrokenFileError(f"its pickle has an endless line at byte {self.position}")
        self.position += length + 1
        return head[:length].decode("utf-8")

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _pop(self) -> Any:
        value = self._stack.pop()
        if value is _MARK:
            raise BrokenFileError("its pickle is malformed: a mark stands where a value should")
        return value

    def _pop_to_mark(self) -> list[Any]:
        stack = self._stack
        at = len(stack) - 1
        while stack[at] is not _MARK:
            at -= 1
            if at < 0:
                raise IndexError("no mark")
        items = stack[at + 1 :]
        del stack[at:]
        return items

    def _refuse(self, opcode: int) -> None:
        if opcode in _REFUSED:
            raise RefusedError(f"its pickle uses the opcode {_REFUSED[opcode]}, which data does not need")
        raise BrokenFileError(f"its pickle has no opcode 0x{opcode:02x} (byte {self.position - 1})")

    def _fixed_tuple(self, count: int) -> None:
        self._push(tuple([self._pop() for _ in range(count)][::-1]))

    def _counted(self, opcode: int) -> Any:
        layout, kind = _COUNTED[opcode]
        piece = self._take(layout.unpack(self._take(layout.size))[0])
        if kind == "bytes":
            return piece
        if kind == "utf8":
            return str(piece, "utf-8")
        if kind == "latin1":  # a Python 2 str: text or bytes, and latin-1 keeps both
            return str(piece, "latin-1")
        if len(piece) > _LONGEST_INTEGER:
            raise RefusedError(f"its pickle holds a whole number of {len(piece)} bytes")
        return int.from_bytes(piece, "little", signed=True)

    def _protocol(self) -> None:
        version = self._take(1)[0]
        if version > 5:
            raise BrokenFileError(f"its pickle is of protocol {version}; protocols up to 5 are known")

    def _global(self, name: str) -> None:
        symbol = self._symbols.get(name)
        if symbol is None:
            asked = name[:160] if name.isprintable() else ascii(name[:160])
            raise RefusedError(
                f"its pickle asks for {asked}, which files of arrays do not use; nothing was run. "
                "Save plain arrays or a state_dict instead"
            )
        self._push(symbol)

    def _stack_global(self) -> None:
        name, module = self._pop(), self._pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise BrokenFileError("its pickle names a global with something that is not text")
        self._global(f"{module}.{name}")

    def _reduce(self) -> None:
        arguments, function = self._pop(), self._pop()
        if not isinstance(function, Symbol) or not isinstance(arguments, tuple):
            raise RefusedError(f"its pickle calls a {type(function).__name__}; only allowed names can be called")
        self._count_copied(arguments, _COPIED_BY_CALLS)
        self._push(function(*arguments))

    def _count_copied(self, values: Any, kinds: tuple[type[Sized], ...]) -> None:
        """Refuse to copy the same values again and again: a few bytes of a file can request many large copies."""
        for value in values if isinstance(values, tuple) else ():
            if isinstance(value, kinds):
                self._handed_over += len(value) * (1 if isinstance(value, _TEXTS) else _BYTES_AN_ITEM)
        if self._handed_over > 2 * len(self._buffer) + _COPIED_AT_LEAST:
            raise RefusedError("its pickle copies what it has again and again, which data does not need")

    def _build(self) -> None:
        state, target = self._pop(), self._stack[-1]
        if isinstance(target, Stateful):
            self._count_copied(state, (str,))
            target.set_state(state)
        elif not isinstance(target, StatefulDict):
            raise RefusedError(f"its pickle sets attributes of a {type(target).__name__}, which data does not need")

    def _persistent(self) -> None:
        if self._load_persistent is None:
            raise RefusedError("its pickle refers to storages outside of it, which only a torch file has")
        self._push(self._load_persistent(self._pop()))

    def _set_items(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if not isinstance(target, StatefulDict) or len(items) % 2:
            raise BrokenFileError("its pickle is malformed: items for something that is not a dictionary")
        for key, value in zip(items[::2], items[1::2], strict=True):
            target.put(key, value)

    def _append(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if not isinstance(target, list):
            raise BrokenFileError("its pickle is malformed: elements for something that is not a list")
        target.extend(items)

    def _marked_dict(self) -> None:
        items = self._pop_to_mark()
        self._push(StatefulDict())
        self._set_items(items)


def _uniform_actions() -> dict[int, Callable[[PickleMachine], Any]]:
    found: dict[int, Callable[[PickleMachine], Any]] = {}
    for opcode in _COUNTED:
        found[opcode] = lambda m, opcode=opcode: m._push(m._counted(opcode))  # type: ignore[misc]
    for opcode, layout in _STRUCTS.items():
        found[opcode] = lambda m, layout=layout: m._push(_decoded(m, layout))  # type: ignore[misc]
    for opcode, value in _CONSTANTS.items():
        found[opcode] = lambda m, value=value: m._push(value)  # type: ignore[misc]
    for opcode, count in _FIXED_TUPLES.items():
        found[opcode] = lambda m, count=count: m._fixed_tuple(count)  # type: ignore[misc]
    return found


def _decoded(machine: PickleMachine, layout: struct.Struct) -> Any:
    return layout.unpack(machine._take(layout.size))[0]


_ACTIONS: dict[int, Callable[[PickleMachine], Any]] = {
    **_uniform_actions(),
    0x80: PickleMachine._protocol,
    0x95: lambda m: m._take(8),  # FRAME: a hint for buffered reading
    ord("("): lambda m: m._push(_MARK),
    ord("0"): lambda m: m._stack.pop(),
    ord("1"): lambda m: m._pop_to_mark(),
    ord("2"): lambda m: m._push(m._stack[-1]),
    ord("]"): lambda m: m._push([]),
    ord("l"): lambda m: m._push(m._pop_to_mark()),
    ord("t"): lambda m: m._push(tuple(m._pop_to_mark())),
    ord("}"): lambda m: m._push(StatefulDict()),
    ord("d"): PickleMachine._marked_dict,
    ord("s"): lambda m: m._set_items([m._pop(), m._pop()][::-1]),
    ord("u"): lambda m: m._set_items(m._pop_to_mark()),
    ord("a"): lambda m: m._append([m._pop()]),
    ord("e"): lambda m: m._append(m._pop_to_mark()),
    ord("c"): lambda m: m._global(f"{m._line()}.{m._line()}"),
    0x93: PickleMachine._stack_global,
    ord("R"): PickleMachine._reduce,
    0x81: PickleMachine._reduce,  # NEWOBJ: cls.__new__(cls, *args); builders make no difference
    ord("b"): PickleMachine._build,
    ord("Q"): PickleMachine._persistent,
    ord("q"): lambda m: m._memo.__setitem__(_decoded(m, _BYTE), m._stack[-1]),
    ord("r"): lambda m: m._memo.__setitem__(_decoded(m, _WORD), m._stack[-1]),
    0x94: lambda m: m._memo.__setitem__(len(m._memo), m._stack[-1]),
    ord("h"): lambda m: m._push(m._memo[_decoded(m, _BYTE)]),
    ord("j"): lambda m: m._push(m._memo[_decoded(m, _WORD)]),
}
