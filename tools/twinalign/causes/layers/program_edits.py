"""The closed vocabulary of edits: what one call of a program can be in its place; each edit is general."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from twinalign.backends.torch.reference_only.operations import HANDED, LAYER, Change, FunctionCall, Key
from twinalign.backends.torch.reference_only.signatures import ARGUMENTS
from twinalign.causes.layers.changed_calls import OPERATORS, as_change, changing, of_input
from twinalign.causes.layers.program import Operand, Operation, Path, Program, Value, put, taken

_MOST_VALUES = 12
"""So many values of the same shape take the place of an operand, the nearest first."""
_MOST_AXES = 4

_KINS = (
    ("relu", "sigmoid", "tanh", "silu", "gelu", "softplus", "elu", "selu", "leaky_relu", "relu6"),
    ("relu", "sigmoid", "silu", "hardswish", "hardsigmoid", "hardtanh"),
    ("exp", "expm1"), ("log", "log1p", "log2", "log10"), ("sqrt", "rsqrt", "square", "abs", "reciprocal"),
    ("sin", "cos", "tan"), ("floor", "ceil", "round", "trunc"), ("tril", "triu"), ("zeros_like", "ones_like"),
    ("any", "all"), ("argmax", "argmin"), ("softmax", "log_softmax", "cumsum"), ("cumsum", "cumprod"),
    ("sum", "mean", "amax", "amin", "logsumexp", "norm", "std", "var", "prod"),
    ("add", "sub", "mul", "div", "maximum", "minimum", "pow"), ("lt", "le", "gt", "ge", "eq", "ne"),
    ("and", "or", "xor"), ("avg_pool2d", "max_pool2d"), ("avg_pool1d", "max_pool1d"),
    ("adaptive_avg_pool2d", "adaptive_max_pool2d"), ("softmax", "sigmoid"),
    ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"),
)  # fmt: skip
"""Functions that take the same arguments, or the same first one."""
_WORDS = (
    ("bilinear", "nearest", "bicubic", "area", "nearest-exact"), ("constant", "reflect", "replicate", "circular"),
    ("zeros", "border", "reflection"), ("mean", "sum", "none", "batchmean"), ("none", "tanh"),
)  # fmt: skip
_OPTIONS: dict[str, Path] = {
    "align_corners": (True,), "ceil_mode": (True,), "count_include_pad": (False,), "unbiased": (False,),
    "correction": (0,), "approximate": ("tanh",), "alpha": (), "eps": (), "dim": (0, 1, -1, -2), "label_smoothing": (),
    "negative_slope": (), "p": (1, 2), "reduction": ("sum", "mean"), "largest": (False,), "descending": (True,),
    "is_causal": (True,), "log_target": (True,), "beta": (), "delta": (), "dilation": (2,), "exclusive": (),
}  # fmt: skip
_BINARY = (
    "sub",
    "div",
    "pow",
    "matmul",
    "where",
    "cat",
    "stack",
    "lt",
    "le",
    "gt",
    "ge",
    "bmm",
    "einsum",
    "masked_fill",
)
_ORDERED = ("permute", "transpose", "t", "mT", "T", "movedim")
NO_STEPS = ("clone", "detach", "requires_grad", "to", "contiguous", "dim", "size")
"""What changes no value, so that what it is given and what it gives are tried in other calls."""
_RESHAPES = ("reshape", "view", "flatten", "unflatten")


@dataclasses.dataclass(frozen=True)
class Edit:
    """Another way to make some calls, and the calls whose results it needs."""

    detail: str
    changes: dict[Key, Change]
    reads: frozenset[Key] = frozenset()


Edits = Iterator[Edit]


def _one(operation: Operation, detail: str, change: Change, *reads: Key) -> Edit:
    return Edit(detail, {operation.key: change}, frozenset(reads))


def name_of(operation: Operation) -> str:
    """A call in words, without its line."""
    if operation.name == HANDED:
        return f"layer {operation.arguments['path']}"
    return (
        f"layer {operation.arguments['path']}"
        if operation.name == LAYER
        else OPERATORS.get(operation.name, operation.name)
    )


def _argument(path: Path) -> str:
    return ".".join(map(str, path))


@as_change
def _with(call: FunctionCall, path: Path, value: Any) -> Any:
    return call.run(**put(call.arguments, path, value))


@as_change
def _operand(call: FunctionCall, path: Path) -> Any:
    return taken(call.arguments, path)


@as_change
def _on_operand(call: FunctionCall, path: Path, change: Callable[[Any], Any]) -> Any:
    return call.run(**put(call.arguments, path, change(taken(call.arguments, path))))


@as_change
def _on_result(call: FunctionCall, method: str, *arguments: Any) -> Any:
    return getattr(call.result, method)(*arguments)


@as_change
def _twice(call: FunctionCall, path: Path) -> Any:
    return call.run(**put(call.arguments, path, call.result))


@as_change
def _added(call: FunctionCall, path: Path) -> Any:
    return call.result + taken(call.arguments, path)


@as_change
def _through(call: FunctionCall, name: str) -> Any:
    return call.result.to(getattr(call.torch, name)).to(call.result.dtype)


@as_change
def _into_operand(call: FunctionCall, path: Path) -> Any:
    return taken(call.arguments, path).copy_(call.run())


@as_change
def _another(call: FunctionCall, path: Path, value: Value) -> Any:
    return call.run(**put(call.arguments, path, _read(call, value)))


def _read(call: FunctionCall, value: Value) -> Any:
    return call.earlier[value.key][value.index]


def exchanged(program: Program, operation: Operation) -> Edits:
    """Two operands change places."""
    atoms = operation.atoms()
    if operation.name in _BINARY or operation.name.endswith("_loss"):
        for (one, _), (two, _) in itertools.combinations(atoms, 2):
            if isinstance(taken(operation.arguments, one), Operand) or isinstance(
                taken(operation.arguments, two), Operand
            ):
                yield _one(operation, f"`{_argument(one)}` and `{_argument(two)}` are exchanged", _exchange(one, two))
    for first, second in itertools.combinations(range(len(operation.results)), 2):
        text = f"parts {first} and {second} of what it returns are exchanged"
        yield _one(operation, text, _parts(first, second))


def _exchange(one: Path, two: Path) -> Change:
    def change(call: FunctionCall) -> Any:
        first, second = taken(call.arguments, one), taken(call.arguments, two)
        return call.run(**put(put(call.arguments, one, second), two, first))

    return change


def _parts(one: int, two: int) -> Change:
    def change(call: FunctionCall) -> Any:
        parts = list(call.result)
        parts[one], parts[two] = parts[two], parts[one]
        return tuple(parts)

    return change


def left_out(program: Program, operation: Operation) -> Edits:
    """The operation is left out, done twice, or its result has another sign or is taken from one."""
    for path, operand in operation.operands():
        if operand.kind == "f" and operation.name not in (HANDED, LAYER):
            yield _one(
                operation,
                f"left out, `{_argument(path)}` is what remains",
                _operand(path),
            )
    if not operation.results or operation.results[0].kind not in "fb" or operation.name == LAYER:
        return
    first = operation.operands()[0] if operation.operands() else None
    if first is not None and first[1].shape == operation.results[0].shape:
        yield _one(operation, "done twice", _twice(first[0]))
        yield _one(
            operation,
            "what it is given is added once more",
            _added(first[0]),
        )
    if operation.results[0].kind == "b":
        yield _one(operation, "its result is inverted", lambda call: call.result.logical_not())
    elif len(operation.results) == 1:
        yield _one(operation, "its result has the other sign", lambda call: -call.result)
        yield _one(operation, "one minus its result", lambda call: 1.0 - call.result)


def other_values(program: Program, operation: Operation) -> Edits:
    """An argument has another value."""
    for path, value in operation.atoms():
        if path == ("path",) or isinstance(value, Operand) or operation.name in _RESHAPES:
            continue
        for other in _values(program, operation, path, value):
            yield _one(
                operation, f"`{_argument(path)}` is {_shown(other)} in place of {_shown(value)}", _with(path, other)
            )
    known = ARGUMENTS.get(operation.name, ())
    for name, usual in _OPTIONS.items():
        if name in known and name not in operation.arguments:
            for other in (*usual, *(program.literals if not usual else ())):
                yield _one(operation, f"`{name}` is {_shown(other)}", changing(**{name: other}))


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else repr(value)


def _values(program: Program, operation: Operation, path: Path, value: Any) -> Iterable[Any]:
    found: list[Any] = []
    if isinstance(value, bool):
        found = [not value]
    elif isinstance(value, str):
        found = [word for words in _WORDS if value in words for word in words]
        if operation.name == "einsum":
            found += [_letters(value, at, to) for at in range(len(value)) for to in range(at) if value[at] != value[to]]
    elif isinstance(value, int):
        found = [value + 1, value - 1, -value, 0, 1, -1, 2 * value, value // 2, 2, 3, *program.sizes]
        found += [int(number) for number in program.literals if number == int(number) and abs(number) < 4096]
    elif isinstance(value, float):
        powers = [f for size in program.sizes for f in (size**-0.5, size**0.5, 1.0 / size, float(size))]
        near = [value * 2, value / 2, value * 10, value / 10, -value, value**2, 0.0, 1.0, 1.0 - value]
        near += [1.0 / value, abs(value) ** 0.5] if value else []
        found = [*program.literals, *(1.0 / number for number in program.literals if number), *near, *powers]
        found += [-number for number in program.literals]
    elif value is None and path[-1] in ("start", "stop", "step"):
        found = {"start": [1, 2], "stop": [-1, -2], "step": [2]}[path[-1]]
    if path[-1] in ("start", "stop"):
        found = [None, *found, -1]
    return [
        other for other in dict.fromkeys(found) if other is not None or path[-1] in ("start", "stop") if other != value
    ]


def _letters(text: str, at: int, to: int) -> str:
    letters = list(text)
    letters[at], letters[to] = letters[to], letters[at]
    return "".join(letters) if letters[at].isalpha() and letters[to].isalpha() else text


def slices(program: Program, operation: Operation) -> Edits:
    """Another part of the same length is taken."""
    if operation.name not in ("getitem", "setitem"):
        return
    index = operation.arguments.get("index", operation.arguments.get("1"))
    key = "index" if "index" in operation.arguments else "1"
    places = [((key,), index)] if not isinstance(index, tuple) else [((key, at), part) for at, part in enumerate(index)]
    for path, part in places:
        if isinstance(part, slice) and all(not isinstance(x, Operand) for x in (part.start, part.stop, part.step)):
            yield from (
                _one(operation, f"{_slice(other)} in place of {_slice(part)}", _with(path, other))
                for other in _slices(part)
            )


def _slices(part: slice) -> list[slice]:
    start, stop, step = part.start, part.stop, part.step
    found = []
    if stop is None and isinstance(start, int) and start > 0:
        found += [slice(None, -start), slice(None, start)]
    if start in (None, 0) and isinstance(stop, int):
        found += [slice(-stop, None), slice(stop, None)]
    if isinstance(start, int) and isinstance(stop, int):
        found += [slice(start + d, stop + d, step) for d in (1, -1)]
    if isinstance(step, int):
        found += [slice(0, None, step), slice(1, None, step)]
    return found


def _slice(part: slice) -> str:
    return ":".join("" if x is None else str(x) for x in (part.start, part.stop, *((part.step,) if part.step else ())))


def kin(program: Program, operation: Operation) -> Edits:
    """A function of the same kind is used."""
    for names in _KINS:
        if operation.name in names and operation.results:
            for name in names:
                if name != operation.name:
                    text = f"`{OPERATORS.get(name, name)}` in place of `{name_of(operation)}`"
                    yield _one(operation, text, _called(name))


@as_change
def _called(call: FunctionCall, name: str) -> Any:
    functional = call.torch.nn.functional
    names = {"and": "logical_and", "or": "logical_or", "xor": "logical_xor", "norm": "linalg.vector_norm"}
    function: Any = getattr(functional, name, None) or call.torch
    if function is call.torch:
        for part in names.get(name, name).split("."):
            function = getattr(function, part)
    given = {
        key: value for key, value in call.arguments.items() if key not in ("input", "other", "_stacklevel", "dtype")
    }
    first = [call[key] for key in ("input", "other") if key in call.arguments]
    if name in ("amax", "amin", "logsumexp", "prod") and given.get("dim") is None:
        given["dim"] = tuple(range(call["input"].dim()))
    if name in ("sigmoid", "relu", "tanh", "silu"):
        given = {}
    if "pool" in name:
        given = {
            key: given[key] for key in ("kernel_size", "stride", "padding", "ceil_mode", "output_size") if key in given
        }
    if name in ("std", "var"):
        given.pop("unbiased", None)
    return function(*first, **given)


def elsewhere(program: Program, operation: Operation) -> Edits:
    """An operand is another tensor of the same shape."""
    for path, operand in operation.operands():
        others: list[tuple[int, Value, str]] = []
        for other in program.operations[: operation.position]:
            for at, result in enumerate(other.results):
                value = Value(other.key, at)
                if result.kind == operand.kind and value != operand.value and result.shape == operand.shape:
                    part = f"part {at} of " if len(other.results) > 1 else ""
                    others.append((operation.position - other.position, value, f"{part}{place(other)}"))
        for _, value, text in sorted(others, key=lambda item: item[0])[:_MOST_VALUES]:
            yield _one(operation, f"`{_argument(path)}` is what comes from {text}", _another(path, value), value.key)
        for name, tensor in program.parameters.items():
            if operand.name not in (None, name) and tuple(tensor.shape) == operand.shape:
                yield _one(operation, f"{name} in place of {operand.name}", _with(path, tensor))


def readers_exchanged(program: Program, operation: Operation) -> Edits:
    """What reads one value reads the other, and the other way round."""
    for at, result in enumerate(operation.results):
        mine = Value(operation.key, at)
        for other in program.operations[max(0, operation.position - 16) : operation.position]:
            for to, theirs in enumerate(other.results):
                value = Value(other.key, to)
                pairs = [(mine, value), (value, mine)]
                if theirs.shape != result.shape or theirs.kind != result.kind:
                    continue
                changes: dict[Key, list[tuple[Any, Value]]] = {}
                for read, instead in pairs:
                    for reader, path in program.readers.get(read, ()):
                        if reader.position > operation.position:
                            changes.setdefault(reader.key, []).append((path, instead))
                if changes:
                    text = f"what it gives and what comes from {place(other)} are exchanged where they are used"
                    made = {key: _reading(places) for key, places in changes.items()}
                    yield Edit(text, made, frozenset((mine.key, value.key)))


def _reading(places: list[tuple[Any, Value]]) -> Change:
    def change(call: FunctionCall) -> Any:
        arguments: Any = call.arguments
        for path, value in places:
            arguments = put(arguments, path, _read(call, value))
        return call.run(**arguments)

    return change


def moved(program: Program, operation: Operation) -> Edits:
    """The operation comes after the one that takes its result: f(g(x)) → g(f(x)), x + f(y) → f(x + y)."""
    readers = program.readers.get(Value(operation.key), [])
    mine = [path for path, operand in operation.operands() if operand.kind == "f"]
    if operation.name in (HANDED, LAYER) or len(operation.results) != 1:
        return
    for reader, _ in readers:
        if reader.name in (HANDED, LAYER, "unit"):
            continue
        for own in mine:
            kept: dict[str, FunctionCall] = {}
            text = f"done behind {place(reader)}, not before, with `{_argument(own)}`"
            yield Edit(text, {operation.key: _held(kept, own), reader.key: _after(kept, own)})


def before_layer(program: Program, operation: Operation) -> Edits:
    """The operation is done to what a child layer is given, not to what that returns."""
    for path, operand in operation.operands():
        layer = program.by_key.get(operand.value.key) if operand.value is not None else None
        if layer is None or layer.name != LAYER or operation.name in (HANDED, LAYER, "unit"):
            continue
        entered = [one for one in program.operations[: layer.position] if one.name == HANDED]
        given = next((one for one in reversed(entered) if one.arguments["path"] == layer.arguments["path"]), None)
        others = [(p, o.value) for p, o in operation.operands() if p != path]
        if given is not None and all(value is not None for _, value in others):
            known = [(p, value) for p, value in others if value is not None]
            changes = {given.key: _done_to_input(operation, path, known), operation.key: _operand(path)}
            text = f"done to what {name_of(layer)} is given, not to what it returns"
            yield Edit(text, changes, frozenset(value.key for _, value in known))


@as_change
def _done_to_input(call: FunctionCall, operation: Operation, path: Path, others: list[tuple[Path, Value]]) -> Any:
    arguments = put(dict(operation.arguments), path, call["input"][0])
    for other, value in others:
        arguments = put(arguments, other, _read(call, value))
    done = _called(operation.name)(dataclasses.replace(call, arguments=arguments))
    return call.run(input=(done, *call["input"][1:]))


def _held(kept: dict[str, FunctionCall], path: Path) -> Change:
    def change(call: FunctionCall) -> Any:
        kept["call"] = call
        return taken(call.arguments, path)

    return change


def _after(kept: dict[str, FunctionCall], path: Path) -> Change:
    def change(call: FunctionCall) -> Any:
        first = kept.pop("call")
        return first.run(**put(first.arguments, path, call.run()))

    return change


def arranged(program: Program, operation: Operation) -> Edits:
    """Axes, halves, neighbours, rows or channels of the result are arranged otherwise."""
    if len(operation.results) != 1 or operation.results[0].kind not in "fb" or operation.name == LAYER:
        return
    shape, axes = operation.results[0].shape, len(operation.results[0].shape)
    if operation.name in _ORDERED and axes <= _MOST_AXES:
        yield _one(operation, "its values are reshaped, not permuted", of_input("reshape", shape))
        for order in itertools.permutations(range(axes)):
            yield _one(operation, f"the axes in the order {list(order)}", of_input("permute", order))
    if operation.name in _RESHAPES:
        given = operation.operands()[0][1].shape
        for one, two in itertools.combinations(range(len(given)), 2):
            text = f"of its input with axes {one} and {two} exchanged"
            yield _one(operation, text, _crossed(shape, one, two))
        for one, two in itertools.combinations(range(axes), 2):
            text = f"axes {one} and {two} are divided in the other order"
            yield _one(operation, text, _divided(shape, one, two))
    for one, two in itertools.combinations(range(axes), 2):
        if shape[one] == shape[two] > 1:
            yield _one(
                operation,
                f"axes {one} and {two} of its result are exchanged",
                _on_result("transpose", one, two),
            )
    for axis in range(axes):
        size = shape[axis]
        if size < 2 or size > 4096:
            continue
        yield _one(operation, f"its result is flipped along axis {axis}", _on_result("flip", axis))
        for by in (1, -1):
            yield _one(
                operation,
                f"its result is rolled by {by} along axis {axis}",
                _on_result("roll", by, axis),
            )
        for parts in [number for number in (*program.sizes, 2) if number < size and size % number == 0]:
            text = f"the {parts} parts of axis {axis} of its result are interleaved"
            yield _one(operation, text, _interleaved(axis, parts))
        if size % 2 == 0 and size > 2:
            yield _one(
                operation,
                f"the halves of axis {axis} of its result are exchanged",
                _on_result("roll", size // 2, axis),
            )


@as_change
def _crossed(call: FunctionCall, shape: tuple[int, ...], one: int, two: int) -> Any:
    return call["input"].transpose(one, two).reshape(shape)


@as_change
def _divided(call: FunctionCall, shape: tuple[int, ...], one: int, two: int) -> Any:
    sizes = list(shape)
    sizes[one], sizes[two] = sizes[two], sizes[one]
    return call["input"].reshape(sizes).transpose(one, two)


@as_change
def _interleaved(call: FunctionCall, axis: int, parts: int) -> Any:
    parted = call.result.unflatten(axis, (parts, call.result.shape[axis] // parts))
    return parted.transpose(axis, axis + 1).flatten(axis, axis + 1)


def cast(program: Program, operation: Operation) -> Edits:
    """The result goes through another type."""
    if len(operation.results) == 1 and operation.results[0].kind == "f" and operation.name != LAYER:
        for name in ("float16", "bfloat16", "float32", "int64"):
            yield _one(
                operation,
                f"its result goes through {name}",
                _through(name),
            )


def gradients(program: Program, operation: Operation) -> Edits:
    """The gradient stops, goes on, or is counted twice."""
    if operation.name == "detach":
        yield _one(operation, "left out, so that the gradient goes on", lambda call: call["input"])
    for path, operand in operation.operands():
        if operand.kind == "f":
            for text, change in (("stops at", lambda t: t.detach()), ("is doubled at", lambda t: 2.0 * t - t.detach())):
                yield _one(operation, f"the gradient {text} `{_argument(path)}`", _on_operand(path, change))


def in_place(program: Program, operation: Operation) -> Edits:
    """The result is written into what the call was given, or is not."""
    if operation.in_place:
        yield _one(operation, "not in place", lambda call: call.apart())
    elif operation.operands() and operation.results and operation.name not in (LAYER, HANDED):
        path, operand = operation.operands()[0]
        if operand.value and operand.shape == operation.results[0].shape:
            yield _one(
                operation,
                "in place, which its other readers see",
                _into_operand(path),
            )


def place(operation: Operation) -> str:
    """Words for a call: its name and line."""
    return f"{name_of(operation)}{' in ' if operation.line else ''}{operation.line.partition(': ')[0]}"


VOCABULARY: tuple[Callable[[Program, Operation], Edits], ...] = (
    exchanged, kin, left_out, slices, other_values, moved, before_layer, arranged, elsewhere,
    readers_exchanged, in_place, cast,
)  # fmt: skip
