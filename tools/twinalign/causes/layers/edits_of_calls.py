"""Edits of a single call: other arguments, its kin, left out or done twice, another arrangement of what it returns."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from twinalign.backends.torch.reference_only.operations import (
    HANDED,
    LAYER,
    Change,
    FunctionCall,
    Key,
    Path,
    Site,
    TensorFacts,
    put,
    taken,
)
from twinalign.backends.torch.reference_only.signatures import ARGUMENTS
from twinalign.causes.layers.changed_calls import OPERATORS, as_change, called, changing, of_input
from twinalign.causes.layers.subject import CallVariant
from twinalign.replay.unit_program import Program

_MOST_AXES = 4
_BINARY = (
    "sub", "div", "pow", "matmul", "where", "cat", "stack", "lt", "le", "gt", "ge", "bmm", "einsum", "masked_fill",
)  # fmt: skip
_KINS = (
    ("relu", "sigmoid", "tanh", "silu", "gelu", "softplus", "elu", "celu", "selu", "leaky_relu", "relu6"),
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
_OPTIONS: dict[str, tuple[Any, ...]] = {
    "align_corners": (True,), "ceil_mode": (True,), "count_include_pad": (False,), "unbiased": (False,),
    "correction": (0,), "approximate": ("tanh",), "alpha": (), "eps": (), "dim": (0, 1, -1, -2), "label_smoothing": (),
    "negative_slope": (), "p": (1, 2), "reduction": ("sum", "mean"), "largest": (False,), "descending": (True,),
    "is_causal": (True,), "log_target": (True,), "beta": (), "delta": (), "dilation": (2,), "exclusive": (),
}  # fmt: skip
_ORDERED = ("permute", "transpose", "t", "mT", "T", "movedim")
_RESHAPES = ("reshape", "view", "flatten", "unflatten")


Edits = Iterator[CallVariant]


def one_edit(operation: Site, detail: str, change: Change, *reads: Key) -> CallVariant:
    """An edit of this call alone; `reads` are the calls whose results its change reads again."""
    return CallVariant(detail, {operation.key: change}, reads=frozenset(reads))


def name_of(operation: Site) -> str:
    """A call in words, without its line."""
    if operation.name in (LAYER, HANDED):
        return f"layer {operation.arguments['path']}"
    return OPERATORS.get(operation.name, operation.name)


def argument_name(path: Path) -> str:
    """The place of an argument in words."""
    return ".".join(map(str, path))


@as_change
def with_argument(call: FunctionCall, path: Path, value: Any) -> Any:
    """The change that makes the call with something else in one place of its arguments."""
    return call.run(**put(call.arguments, path, value))


@as_change
def operand_of(call: FunctionCall, path: Path) -> Any:
    """The change that returns an operand in place of the result."""
    return taken(call.arguments, path)


@as_change
def on_operand(call: FunctionCall, path: Path, change: Callable[[Any], Any]) -> Any:
    """The change that does something to an operand first."""
    return call.run(**put(call.arguments, path, change(taken(call.arguments, path))))


@as_change
def on_result(call: FunctionCall, method: str, *arguments: Any) -> Any:
    """The change that calls a method of the result."""
    return getattr(call.result, method)(*arguments)


def other_values(program: Program, operation: Site) -> Edits:
    """An argument has another value."""
    for path, value in operation.atoms():
        if isinstance(value, TensorFacts) or operation.name in _RESHAPES:
            continue
        for other in _values(program, operation, path, value):
            text = f"`{argument_name(path)}` is {_shown(other)} in place of {_shown(value)}"
            yield one_edit(operation, text, with_argument(path, other))
    known = ARGUMENTS.get(operation.name, ())
    for name, usual in _OPTIONS.items():
        if name in known and name not in operation.arguments:
            for other in (*usual, *(program.literals if not usual else ())):
                yield one_edit(operation, f"`{name}` is {_shown(other)}", changing(**{name: other}))


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else repr(value)


def _values(program: Program, operation: Site, path: Path, value: Any) -> Iterable[Any]:
    found: list[Any] = []
    if isinstance(value, bool):
        found = [not value]
    elif isinstance(value, str):
        found = [word for words in _WORDS if value in words for word in words]
        if operation.name == "einsum":
            letters = [at for at, letter in enumerate(value) if letter.isalpha()]
            found += ["".join(_swapped(value, at, to)) for to, at in itertools.combinations(letters, 2)]
    elif isinstance(value, int):
        found = [value + 1, value - 1, -value, 0, 1, -1, 2 * value, value // 2, 2, 3, *program.sizes]
        found += [int(number) for number in program.literals if number == int(number) and abs(number) < 4096]
    elif isinstance(value, float):
        found = [*program.literals, *(1.0 / number for number in program.literals if number)]
        if not program.mended:  # beside another edit numbers that nobody wrote say nothing
            found += [value * 2, value / 2, value * 10, value / 10, -value, value * value, 0.0, 1.0, 1.0 - value]
            found += [1.0 / value, abs(value) ** 0.5] if value else []
            found += [f for size in program.sizes for f in (size**-0.5, size**0.5, 1.0 / size, float(size))]
        found += [-number for number in program.literals]
    elif value is None and path[-1] in ("start", "stop", "step"):
        found = {"start": [1, 2], "stop": [-1, -2], "step": [2]}[path[-1]]
    if operation.name in ("div", "mul") and type(value) in (int, float) and value:
        # `x / 2 * n` for `x / (2 * n)`: divided by 2 / n, and not by their product
        found += [ratio for number in program.literals if number for ratio in (number**2 / value, value / number**2)]
    ends = path[-1] in ("start", "stop", "padding_idx")
    found = [None, *found, -1] if ends else found
    return [other for other in dict.fromkeys(found) if (ends or other is not None) and other != value]


def _swapped(items: Iterable[Any], one: int, two: int) -> list[Any]:
    found = list(items)
    found[one], found[two] = found[two], found[one]
    return found


def slices(program: Program, operation: Site) -> Edits:
    """Another part of the same length is taken."""
    if operation.name not in ("getitem", "setitem"):
        return
    index = operation.arguments["index"]
    parts = enumerate(index) if isinstance(index, tuple) else [(None, index)]
    for at, part in parts:
        path: Path = ("index",) if at is None else ("index", at)
        if isinstance(part, slice) and all(not isinstance(x, TensorFacts) for x in (part.start, part.stop, part.step)):
            for other in _slices(part):
                yield one_edit(operation, f"{_slice(other)} in place of {_slice(part)}", with_argument(path, other))


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


def kin(program: Program, operation: Site) -> Edits:
    """A function of the same kind is used."""
    for name in itertools.chain(*(names for names in _KINS if operation.name in names and operation.results)):
        if name != operation.name:
            text = f"`{OPERATORS.get(name, name)}` in place of `{name_of(operation)}`"
            yield one_edit(operation, text, called(name))


def arranged(program: Program, operation: Site) -> Edits:
    """Axes, halves, neighbours, rows or channels of the result are arranged otherwise."""
    if len(operation.results) != 1 or operation.results[0].kind not in "fb" or operation.name == LAYER:
        return
    shape, axes = operation.results[0].shape, len(operation.results[0].shape)
    if operation.name in _ORDERED and axes <= _MOST_AXES:
        yield one_edit(operation, "its values are reshaped, not permuted", of_input("reshape", shape))
        for order in itertools.permutations(range(axes)):
            yield one_edit(operation, f"the axes in the order {list(order)}", of_input("permute", order))
    if operation.name in _RESHAPES:
        given = operation.operands()[0][1].shape
        for i, j in itertools.combinations(range(len(given)), 2):
            yield one_edit(operation, f"of its input with axes {i} and {j} exchanged", _crossed(shape, i, j))
        for i, j in itertools.combinations(range(axes), 2):
            yield one_edit(operation, f"axes {i} and {j} are divided in the other order", _divided(shape, i, j))
    for one, two in itertools.combinations(range(axes), 2):
        if shape[one] == shape[two] > 1:
            text = f"axes {one} and {two} of its result are exchanged"
            yield one_edit(operation, text, on_result("transpose", one, two))
    for axis in range(axes):
        size = shape[axis]
        if size < 2 or size > 4096:
            continue
        yield one_edit(operation, f"its result is flipped along axis {axis}", on_result("flip", axis))
        for by in (1, -1):
            yield one_edit(operation, f"its result is rolled by {by} along axis {axis}", on_result("roll", by, axis))
        for parts in [number for number in (*program.sizes, 2) if number < size and size % number == 0]:
            text = f"the {parts} parts of axis {axis} of its result are interleaved"
            yield one_edit(operation, text, _interleaved(axis, parts))
        if size % 2 == 0 and size > 2:
            text = f"the halves of axis {axis} of its result are exchanged"
            yield one_edit(operation, text, on_result("roll", size // 2, axis))


_crossed = as_change(lambda call, shape, one, two: call["input"].transpose(one, two).reshape(shape))
_divided = as_change(lambda call, shape, i, j: call["input"].reshape(_swapped(shape, i, j)).transpose(i, j))
_parts = as_change(lambda call, one, two: tuple(_swapped(call.result, one, two)))


@as_change
def _interleaved(call: FunctionCall, axis: int, parts: int) -> Any:
    parted = call.result.unflatten(axis, (parts, call.result.shape[axis] // parts))
    return parted.transpose(axis, axis + 1).flatten(axis, axis + 1)


def turned(program: Program, operation: Site) -> Edits:
    """A tensor that a layer or no call at all has made, such as a parameter, is transposed."""
    for path, operand in operation.operands():
        shape, maker = operand.shape, program.by_key.get(operand.value.key) if operand.value else None
        if (
            (maker is None or maker.name == LAYER)
            and operand.kind == "f"
            and len(shape) > 1
            and shape[-1] == shape[-2] > 1
        ):
            text = f"`{operand.name or argument_name(path)}` is transposed"
            yield one_edit(operation, text, on_operand(path, lambda tensor: tensor.transpose(-1, -2)))


def exchanged(program: Program, operation: Site) -> Edits:
    """Two operands change places."""
    if operation.name in (*_BINARY, HANDED) or operation.name.endswith("_loss"):
        for (one, first), (two, second) in itertools.combinations(operation.atoms(), 2):
            if isinstance(first, TensorFacts) or isinstance(second, TensorFacts):
                text = f"`{argument_name(one)}` and `{argument_name(two)}` are exchanged"
                yield one_edit(operation, text, _exchange(one, two))
    for at, to in itertools.combinations(range(len(operation.results)), 2):
        text = f"parts {at} and {to} of what it returns are exchanged"
        yield one_edit(operation, text, _parts(at, to))


@as_change
def _exchange(call: FunctionCall, one: Path, two: Path) -> Any:
    first, second = taken(call.arguments, one), taken(call.arguments, two)
    return call.run(**put(put(call.arguments, one, second), two, first))


def left_out(program: Program, operation: Site) -> Edits:
    """The operation is left out, done twice, or its result has another sign or is taken from one."""
    for path, operand in operation.operands():
        if operand.kind in "fi" and operation.name not in (HANDED, LAYER):
            yield one_edit(operation, f"left out, `{argument_name(path)}` is what remains", operand_of(path))
    if not operation.results or operation.results[0].kind not in "fb" or operation.name == LAYER:
        return
    first = operation.operands()[0] if operation.operands() else None
    if first is not None and first[1].shape == operation.results[0].shape:
        path = first[0]
        yield one_edit(operation, "done twice", lambda call: call.run(**put(call.arguments, path, call.result)))
        added = "what it is given is added once more"
        yield one_edit(operation, added, lambda call: call.result + taken(call.arguments, path))
    if operation.results[0].kind == "b":
        yield one_edit(operation, "its result is inverted", lambda call: call.result.logical_not())
    elif len(operation.results) == 1:
        yield one_edit(operation, "its result has the other sign", lambda call: -call.result)
        yield one_edit(operation, "one minus its result", lambda call: 1.0 - call.result)


def in_place(program: Program, operation: Site) -> Edits:
    """The result is written into what the call was given."""
    if not operation.in_place and operation.operands() and operation.results and operation.name not in (LAYER, HANDED):
        path, operand = operation.operands()[0]
        if operand.value and operand.shape == operation.results[0].shape:
            written = "in place, which its other readers see"
            yield one_edit(operation, written, lambda call: taken(call.arguments, path).copy_(call.run()))


def hooks(program: Program, operation: Site) -> Edits:
    """What a tensor's gradient was to go through is left out."""
    if operation.name == "register_hook":
        yield one_edit(operation, "left out, so that the gradient goes on as it is", lambda call: None)


def gradients(program: Program, operation: Site) -> Edits:
    """The gradient stops, or is counted twice."""
    for path, operand in operation.operands():
        if operand.kind == "f":
            for text, change in (("stops at", lambda t: t.detach()), ("is doubled at", lambda t: 2.0 * t - t.detach())):
                yield one_edit(operation, f"the gradient {text} `{argument_name(path)}`", on_operand(path, change))
