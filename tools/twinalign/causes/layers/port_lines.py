"""Lines of the port's own code, run in the reference in place of their partners.

The functions that the unit runs are aligned statement by statement (`aligned_code`). Where they differ, in spelling or
in meaning, the port's statement takes the place of the reference's, and torch computes its calls of paddle
(`paddle_spelling`). If the reference then gives the port's values, that line is why.
"""

import ast
import contextlib
import copy
import dataclasses
import functools
import gc
import itertools
import math
import sys
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any

from twinalign.causes.layers.aligned_code import Code, Difference, Place, differences, parsed, partners
from twinalign.causes.layers.changed_calls import forward, state
from twinalign.causes.layers.subject import LayerSubject
from twinalign.patching import replaced
from twinalign.replay.code_lines import function_of, is_own_code, tracing
from twinalign.replay.wrong_unit import paddle_spelling, rewriting
from twinalign.verdict.array_difference import difference

_PADDLE, _ATTRIBUTE = "_twinalign_paddle", "_twinalign_attribute"
_ROUNDING = 1e-6
"""A line that changes less than this share only computes with numbers that paddle holds in float32."""
_MOST_TOGETHER = 12
"""Of more lines than these no two are tried together."""


@dataclasses.dataclass(frozen=True)
class LinesVariant:
    """The reference with lines of the port in its functions, or with the port's value of an attribute of its layer."""

    detail: str
    lines: tuple[Difference, ...]
    module: Any
    facts: Mapping[str, Any]
    attributes: tuple[tuple[str, Any], ...] = ()
    spelled: tuple[Difference, ...] = ()
    """Further lines that only compute with numbers that paddle holds in float32."""

    @property
    def spans(self) -> list[tuple[str, int, int]]:
        """File, first and last line of what takes another form in the reference; none where lines are only added."""
        nodes = [(one.theirs.file, one.old) for one in self.lines]
        return [
            (file, node.lineno, node.end_lineno or node.lineno)
            for file, node in nodes
            if isinstance(node, (ast.expr, ast.stmt))
        ]

    def merged(self, other: "LinesVariant") -> "LinesVariant":
        """Both at once."""
        detail = f"{self.detail}; {other.detail}"
        return dataclasses.replace(
            self, detail=detail, lines=self.lines + other.lines, attributes=self.attributes + other.attributes
        )

    @contextlib.contextmanager
    def apply(self, each: bool = False) -> Iterator["Exchange"]:
        """In the context the unit runs in this way."""
        made = Exchange(self)
        with contextlib.ExitStack() as stack:
            stack.callback(setattr, made, "paused", True)
            made.paused = False
            if each and self.module is not None:
                stack.callback(self.module.register_forward_pre_hook(made.begun).remove)
                stack.callback(self.module.register_forward_hook(made.ended).remove)
            yield made


class Exchange:
    """What `LinesVariant.apply` yields; while it is `paused`, the reference's own code runs."""

    def __init__(self, variant: LinesVariant) -> None:
        self._variant = variant
        self._stack: contextlib.ExitStack | None = None

    @property
    def paused(self) -> bool:
        return self._stack is None

    @paused.setter
    def paused(self, paused: bool) -> None:
        if self._stack is not None and paused:
            self._stack.close()
            self._stack = None
        elif self._stack is None and not paused:
            with contextlib.ExitStack() as stack:
                self._exchange(stack)
                self._stack = stack.pop_all()

    def begun(self, *given: Any) -> None:
        self.paused = False

    def ended(self, *given: Any) -> None:
        self.paused = True

    def _exchange(self, stack: contextlib.ExitStack) -> None:
        variant = self._variant
        for name, value in variant.attributes:
            stack.enter_context(replaced(variant.module, name, value))
        changed: dict[int, tuple[Code, dict[Place, ast.AST | None]]] = {}
        for one in (*variant.lines, *variant.spelled):
            new = in_torch(one.new, one.ours, one.old) if one.new is not None else None
            changed.setdefault(id(one.theirs), (one.theirs, {}))[1][one.place] = new
        for code, changes in changed.values():
            function, made = code.function, _compiled(code, changes)
            for name in ("__code__", "__defaults__"):
                stack.callback(setattr, function, name, getattr(function, name))
                setattr(function, name, getattr(made, name))
            known = {} if variant.module is None else {id(variant.module): variant.facts}
            spelling = paddle_spelling()
            names = {_PADDLE: spelling.PADDLE, _ATTRIBUTE: functools.partial(spelling.attribute, known)}
            function.__globals__.update(names)


def _compiled(code: Code, changes: Mapping[Place, ast.AST | None]) -> FunctionType:
    """The reference's function with something else in some places, closed over the same names."""
    tree = _rebuilt(code.tree, changes)
    tree.name = "changed"
    free = code.function.__code__.co_freevars
    outer = ast.parse("def outer():\n    pass").body[0]
    assert isinstance(outer, ast.FunctionDef)
    closed = [ast.parse(f"{name} = None").body[0] for name in free]
    outer.body = [*closed, tree, ast.Return(ast.Name("changed", ast.Load()))]
    module = ast.fix_missing_locations(ast.Module([outer], []))
    found: dict[str, Any] = {}
    # What runs here is the user's own code: the reference's, with lines of the port.
    exec(compile(module, code.function.__code__.co_filename, "exec"), code.function.__globals__, found)
    made: FunctionType = found["outer"]()
    return made


def _rebuilt(node: Any, changes: Mapping[Place, ast.AST | None]) -> Any:
    """A tree with something else in some places; the given one stays as it is."""
    made = copy.copy(node)
    for field, value in ast.iter_fields(node):
        if isinstance(value, ast.AST):
            setattr(made, field, _exchanged(value, changes))
        elif isinstance(value, list):
            items: list[Any] = []
            for item in value:
                if not isinstance(item, ast.AST):
                    items.append(item)
                    continue
                items += _statements(changes.get((id(item), "before")))
                if (id(item), "instead") in changes and isinstance(item, ast.stmt):
                    items += _statements(changes[id(item), "instead"])
                else:
                    items.append(_exchanged(item, changes))
            if field == "body":
                items += _statements(changes.get((id(node), "behind")))
            setattr(made, field, items or ([ast.Pass()] if field == "body" else []))
    return made


def _exchanged(node: ast.AST, changes: Mapping[Place, ast.AST | None]) -> Any:
    return changes[id(node), "instead"] if (id(node), "instead") in changes else _rebuilt(node, changes)


def _statements(new: ast.AST | None) -> list[ast.AST]:
    return [] if new is None else list(new.body) if isinstance(new, ast.Module) else [new]


def in_torch(node: ast.AST, code: Code, old: ast.AST | None) -> Any:
    """A piece of the port's code whose names of paddle, and attributes, are looked up in `paddle_spelling`."""
    made = _Spelling(code).visit(copy.deepcopy(node))
    line = getattr(old, "lineno", None)
    for inner in ast.walk(made):
        if line is not None and isinstance(inner, (ast.expr, ast.stmt)):
            inner.lineno = inner.end_lineno = line
    return made


class _Spelling(ast.NodeTransformer):
    def __init__(self, code: Code) -> None:
        local = {node.id for node in ast.walk(code.tree) if isinstance(node, ast.Name) and not _is_read(node)}
        local |= {node.arg for node in ast.walk(code.tree) if isinstance(node, ast.arg)}
        self._names = {name: found for name, found in code.globals.items() if name not in local}
        for node in ast.walk(code.tree):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                self._names |= _imported(node)

    def visit_Import(self, node: ast.Import) -> Any:
        return ast.Pass()

    def visit_ImportFrom(self, node: ast.ImportFrom) -> Any:
        return ast.Pass()

    def visit_Name(self, node: ast.Name) -> Any:
        kind, value = self._names.get(node.id, ("", None))
        if not _is_read(node) or not kind:
            return node
        if kind == "value":
            return ast.Constant(value)
        if str(value).partition(".")[0] != "paddle":
            return node
        found: ast.expr = ast.Name(_PADDLE, ast.Load())
        for part in str(value).split(".")[-1:]:
            is_module = part in ("paddle", "functional", "nn", "tensor", "linalg")
            found = found if is_module else ast.Attribute(found, part, ast.Load())
        return found

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        value = self.visit(node.value)
        if not isinstance(node.ctx, ast.Load) or _is_paddle(value):
            return ast.Attribute(value, node.attr, node.ctx)
        return ast.Call(ast.Name(_ATTRIBUTE, ast.Load()), [value, ast.Constant(node.attr)], [])

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        left, right = self.visit(node.left), self.visit(node.right)
        if isinstance(node.op, ast.Pow):
            power = ast.Attribute(ast.Name(_PADDLE, ast.Load()), "pow", ast.Load())
            return ast.Call(power, [left, right], [])
        return ast.BinOp(left, node.op, right)


def _is_read(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Load)


def _is_paddle(node: ast.AST) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id == _PADDLE


def _imported(node: ast.Import | ast.ImportFrom) -> dict[str, tuple[str, str]]:
    prefix = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
    found = {}
    for one in node.names:
        name = one.asname or one.name.partition(".")[0]
        place = f"{prefix}{one.name}" if prefix or one.asname else name
        found[name] = ("name", place)
    return found


def _functions_of(subject: LayerSubject) -> list[Code]:
    """The reference's own functions that the unit runs."""
    if sys.gettrace() is not None:  # a debugger or a coverage tool looks on
        return []
    found: dict[CodeType, Any] = {}

    def enter(frame: Any, event: str, argument: Any) -> None:
        if is_own_code(frame) and frame.f_code not in found:
            found[frame.f_code] = function_of(frame)

    with rewriting().unchanged(subject.module), tracing(enter):
        subject.unit.run()
    made = []
    for code, text in found.items():
        functions = [one for one in gc.get_referrers(code) if isinstance(one, FunctionType) and one.__code__ is code]
        if "<locals>" in text.name or not functions:
            continue
        one = parsed(text.source, text.file, text.line, text.name, "torch", function=functions[0])
        made += [one] if one is not None else []
    return made


def _variants(subject: LayerSubject) -> Iterator[LinesVariant]:
    facts = subject.unit.facts
    described = getattr(subject.unit, "functions", ())
    ours = [parsed(f["source"], f["file"], f["line"], f["name"], "paddle", globals=f["globals"]) for f in described]
    theirs = _functions_of(subject) if described else []
    found: list[Difference] = []
    for one, other in partners(theirs, [code for code in ours if code is not None]):
        found += differences(one, other)
    lines = [LinesVariant(one.text, (one,), subject.module, facts) for one in found]
    changes = {id(one): _change(subject, one) for one in lines}
    spelled = tuple(one.lines[0] for one in lines if 0.0 < changes[id(one)] <= _ROUNDING)
    single = [one for one in lines if changes[id(one)] > _ROUNDING]
    single = [dataclasses.replace(one, spelled=spelled) for one in (*single, *_attributes(subject))]
    yield from single
    if len(single) <= _MOST_TOGETHER:
        yield from (one.merged(two) for one, two in itertools.combinations(single, 2))


def _change(subject: LayerSubject, variant: LinesVariant) -> float:
    """The greatest relative change of the unit's values that a line makes; infinite where it does not run."""
    try:
        found = subject.run(variant)
    except Exception:  # a line may need names that the reference's function does not have, or another line
        return math.inf
    usual = subject.traced[0]
    if any(name not in found or found[name].shape != usual[name].shape for name in usual):
        return math.inf
    return max((difference(found[name], usual[name]).relative for name in usual), default=0.0)


def _attributes(subject: LayerSubject) -> Iterator[LinesVariant]:
    """The reference's layer with the port's value of one of its own attributes."""
    module = subject.module
    if module is None or type(module).__module__.startswith("torch."):
        return
    own = {name.lstrip("_"): name for name in vars(module)}
    for name, value in subject.unit.facts.items():
        mine = vars(module).get(own.get(name, ""))
        if name in own and isinstance(mine, (bool, int, float, str, tuple, list)):
            value = tuple(value) if isinstance(mine, tuple) and isinstance(value, list) else value
            if value != mine:
                detail = f"`{name}` is {value!r} in place of {mine!r}"
                yield LinesVariant(detail, (), module, subject.unit.facts, ((own[name], value),))


@forward(alone=True, own_code=True)
def line_of_port(subject: LayerSubject) -> Iterator[LinesVariant]:
    """A line of the port computes something else."""
    return _variants(subject)


@state(alone=True, own_code=True)
def line_of_port_for_buffers(subject: LayerSubject) -> Iterator[LinesVariant]:
    """A line of the port moves buffers otherwise."""
    return _variants(subject)
