"""The value of each expression in the user's own functions, noted or exchanged while they run.

Functions run in a form in which each expression that computes something, or hands on a value, is given to a visitor,
and what the visitor returns takes its place.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import dataclasses
import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import CodeType, ModuleType
from typing import Any

import numpy as np

from twinalign.replay.aligned_code import Code
from twinalign.replay.code_lines import Function
from twinalign.replay.code_text import shortened
from twinalign.replay.noted_values import array_of, values_in
from twinalign.replay.rebuilt_code import compiled, running
from twinalign.replay.running_functions import codes_running

_VISIT = "_twinalign_visited"
"""Name of the visitor in the modules of the functions."""
_COMPUTED = (
    ast.BinOp,
    ast.UnaryOp,
    ast.BoolOp,
    ast.Call,
    ast.Compare,
    ast.IfExp,
    ast.Subscript,
    ast.List,
    ast.Tuple,
    ast.ListComp,
    ast.Name,
    ast.Attribute,
)
_MOST_ELEMENTS = 1 << 24
"""Of all values that are noted, each once: 128 MiB."""
_MOST_TIMES = 1 << 12
"""So often may one expression have a value."""
_LONGEST_LIST = 1 << 12
Visitor = Callable[[int, Any], Any]
"""Given the number of a place and its value, returns what takes its place."""


class TooManyError(Exception):
    """The values are more than are kept."""


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a function of the user's has a value: an expression, or a statement that changes what a name stands for."""

    code: Code
    node: ast.expr | ast.stmt

    @property
    def text(self) -> str:
        return shortened(self.node)


class Visited:
    """Functions in the form in which a visitor sees their values."""

    def __init__(self, codes: Sequence[Code]) -> None:
        self.places: list[Place] = []
        self._made: list[tuple[Code, Any]] = []
        for code in codes:
            tree = _Visiting(code, self.places).visit(copy.deepcopy(code.tree))
            with contextlib.suppress(SyntaxError, ValueError):
                self._made.append((code, compiled(dataclasses.replace(code, tree=tree), {})))

    @contextlib.contextmanager
    def by(self, visitor: Visitor) -> Iterator[None]:
        """Inside the block this visitor sees the values."""
        with contextlib.ExitStack() as stack:
            for code, made in self._made:
                for function in code.functions:
                    stack.enter_context(in_scope(function, _VISIT, visitor))
                    stack.enter_context(running(function, made))
            yield


@contextlib.contextmanager
def in_scope(function: Any, name: str, value: Any) -> Iterator[None]:
    """Inside the block the module of a function has a further name."""
    scope = function.__globals__
    before = {name: scope[name]} if name in scope else {}
    scope[name] = value
    try:
        yield
    finally:
        del scope[name]
        scope.update(before)


class _Visiting(ast.NodeTransformer):
    """Rewrites the copy of a function; `places` gets the parts of the function itself."""

    def __init__(self, code: Code, places: list[Place]) -> None:
        self._code, self._places = code, places
        self._own: dict[int, ast.AST] = {}

    def visit(self, node: ast.AST) -> Any:
        if not self._own:  # the copy's nodes come in the order of the function's
            self._own = {id(one): own for one, own in zip(ast.walk(node), ast.walk(self._code.tree), strict=True)}
        own = self._own.get(id(node))
        made = super().visit(node)
        if isinstance(own, _COMPUTED) and isinstance(getattr(own, "ctx", ast.Load()), ast.Load):
            return self._seen(own, made)
        return made

    def _seen(self, own: Any, made: ast.expr) -> ast.expr:
        self._places.append(Place(self._code, own))
        number = ast.Constant(len(self._places) - 1)
        return ast.copy_location(ast.Call(ast.Name(_VISIT, ast.Load()), [number, made], []), own)

    def visit_Call(self, node: ast.Call) -> Any:
        if isinstance(node.func, ast.Name) and node.func.id == "super":
            return node
        if isinstance(node.func, ast.Attribute):
            node.func.value = self.visit(node.func.value)
        elif not isinstance(node.func, ast.Name):
            node.func = self.visit(node.func)
        node.args = [self.visit(one) for one in node.args]
        node.keywords = [self.visit(one) for one in node.keywords]
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        node.body = [made for one in node.body for made in _listed(self.visit(one))]
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        node.value = self.visit(node.value) if node.value is not None else None
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> Any:
        return node

    def visit_Match(self, node: ast.Match) -> Any:
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        return self._changing(node, [node.target])

    def visit_Assign(self, node: ast.Assign) -> Any:
        return self._changing(node, [one for one in node.targets if isinstance(one, ast.Subscript)])

    def _changing(self, node: Any, targets: Iterable[ast.expr]) -> Any:
        """The statement, and the names behind it whose values it changes."""
        own = self._own[id(node)]
        found: list[ast.stmt] = [node]
        for target in targets:
            holder = target.value if isinstance(target, ast.Subscript) else target
            if isinstance(holder, ast.Name):
                read = ast.copy_location(ast.Name(holder.id, ast.Load()), node)
                written = ast.copy_location(ast.Name(holder.id, ast.Store()), node)
                found.append(ast.copy_location(ast.Assign([written], self._seen(own, read)), node))
        node.value = self.visit(node.value)
        return found


def _listed(made: Any) -> list[Any]:
    return made if isinstance(made, list) else [made]


@dataclasses.dataclass
class Table:
    """Arrays, each once."""

    arrays: list[np.ndarray] = dataclasses.field(default_factory=list)
    _known: dict[tuple[Any, ...], int] = dataclasses.field(default_factory=dict)
    _size: int = 0

    def number_of(self, array: np.ndarray) -> int:
        """Where the array stands; raises `TooManyError`."""
        digest = hashlib.blake2b(np.ascontiguousarray(array).tobytes(), digest_size=16).digest()
        key = array.dtype.str, array.shape, digest
        if key not in self._known:
            self._size += array.size
            if self._size > _MOST_ELEMENTS:
                raise TooManyError
            self._known[key] = len(self.arrays)
            self.arrays.append(np.array(array))
        return self._known[key]


@dataclasses.dataclass
class Noted:
    """What the places of some functions had as values.

    Attributes:
        table: the values.
        places: number of a place → where its values stand in the table, one after the other, none where it has other
            values than numbers; the places in the order in which they had their first value.
        times: number of a place → when it had each of these, as a number that grows.
        with_gradient: numbers of places whose values a gradient flows through.
    """

    table: Table = dataclasses.field(default_factory=Table)
    places: dict[int, list[int]] = dataclasses.field(default_factory=dict)
    times: dict[int, list[int]] = dataclasses.field(default_factory=dict)
    with_gradient: set[int] = dataclasses.field(default_factory=set)
    _now: int = 0

    def __call__(self, place: int, value: Any) -> Any:
        had, times = self.places.setdefault(place, []), self.times.setdefault(place, [])
        self._now += 1
        if (array := numbers_of(value)) is not None and len(had) < _MOST_TIMES:
            had.append(self.table.number_of(array))
            times.append(self._now)
            if getattr(value, "stop_gradient", True) is False:
                self.with_gradient.add(place)
        return value


def numbers_of(value: Any) -> np.ndarray | None:
    """What `array_of` makes an array of, and a list of numbers as one."""
    if isinstance(value, (list, tuple)) and 0 < len(value) <= _LONGEST_LIST:
        is_plain = all(isinstance(one, (int, float)) for one in value)
        return np.asarray(value) if is_plain else None
    return None if isinstance(value, ModuleType) else array_of(value)


def noted_in(visited: Visited, run: Callable[[], Any]) -> Noted:
    """The values of the functions while `run` runs; raises `TooManyError`."""
    found = Noted()
    with visited.by(found):
        run()
    return found


_KEPT: list[Callable[[], Any]] = []
_NOTHING: Mapping[str, Any] = {"functions": [], "expressions": None}


def keep_run(run: Callable[[], Any]) -> None:
    """Keep what runs a component, until `kept_values` is asked for its values."""
    _KEPT[:] = [run]


def kept_values(worker: Any, path: str) -> dict[str, Any]:
    """`values_of` what `keep_run` has been given last; nothing if nothing has."""
    return values_of(_KEPT[0], path) if _KEPT else dict(_NOTHING)


def values_of(run: Callable[[], Any], path: str, before: Callable[[], Any] = lambda: None) -> dict[str, Any]:
    """The values in the user's code while `run` runs, for the search in the port's code.

    `before`: runs before it, once; the names in it are known, the expressions are not.

    Returns:
        `functions`: each that ran, as `Function` in JSON, with the values of its names.
        `expressions`: the places that have a value, in the order of their first values: `file`, `line`, `text`, and
            where their values stand in `shapes` and, all in one array, in the file `path`. None if they are too many.
        What a run that raises would have shown is left out: a user's code may not run once more.
    """
    functions: dict[CodeType, Function] = {}
    try:
        named = values_in(lambda: (before(), run()), functions)
    except Exception:
        return dict(_NOTHING)
    visited = Visited(codes_running(functions, "torch"))
    found: dict[str, Any] = {
        "functions": [[dataclasses.asdict(functions[code]), values] for code, values in named.items()]
    }
    try:
        noted = noted_in(visited, run)
    except Exception:  # `TooManyError`, or the user's
        return dict(_NOTHING) | found
    np.save(path, np.concatenate([one.ravel().astype(np.float64) for one in noted.table.arrays] or [np.zeros(0)]))
    places = [
        {"file": place.code.file, "line": place.node.lineno, "text": place.text, "values": values}
        for place, values in ((visited.places[number], values) for number, values in noted.places.items() if values)
    ]
    shapes = [list(one.shape) for one in noted.table.arrays]
    return found | {"expressions": {"path": path, "shapes": shapes, "places": places}}


def read_values(written: Mapping[str, Any]) -> tuple[list[np.ndarray], list[dict[str, Any]]]:
    """The arrays of `expressions` of `values_of`, in float64, and its places."""
    flat, arrays, at = np.load(written["path"], allow_pickle=False), list[np.ndarray](), 0
    for shape in written["shapes"]:
        size = math.prod(shape)
        arrays.append(flat[at : at + size].reshape(shape))
        at += size
    return arrays, list(written["places"])
