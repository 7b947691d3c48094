"""Lines of the port's own code, run in the reference in place of their partners.

The functions that the unit runs are aligned statement by statement (`aligned_code`). Where they differ, in spelling or
in meaning, the port's statement takes the place of the reference's, and torch computes its calls of paddle
(`paddle_spelling`). If the reference then gives the port's values, that line is why.
"""

import ast
import contextlib
import dataclasses
import functools
import importlib
import itertools
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from twinalign.patching import replaced
from twinalign.replay.aligned_code import (
    Code,
    Difference,
    Place,
    differences,
    last_part,
    line_of,
    parsed,
)
from twinalign.replay.constants import exchanged, has_number
from twinalign.replay.helpers import Helpers
from twinalign.replay.line_spelling import ATTRIBUTE, IMPORTED, PADDLE, in_torch
from twinalign.replay.opened_calls import calls_opened
from twinalign.replay.own_definitions import definitions
from twinalign.replay.partner_functions import partners
from twinalign.replay.ran_branches import as_it_ran, with_branches_of
from twinalign.replay.rebuilt_code import compiled, running
from twinalign.replay.running_functions import functions_of
from twinalign.replay.wrong_unit import paddle_spelling
from twinalign.verdict.array_difference import difference

_LINE = re.compile(r"line (\d+) of (.*?): ")
_SAME = 1e-9
"""Two forms of one formula differ by less, relative to the values."""
Names = Mapping[str, Any]
_TENSOR, _ARRAYS = "_twinalign_tensor", {"np", "numpy"}


@dataclasses.dataclass(frozen=True)
class LinesVariant:
    """The reference with lines of the port in its functions, or with the port's value of an attribute of its layer."""

    detail: str
    lines: tuple[Difference, ...]
    module: Any
    names: Names
    helpers: Helpers
    attributes: tuple[tuple[str, Any], ...] = ()
    spelled: tuple[Difference, ...] = ()
    """Further lines that only compute with numbers that paddle holds in float32."""
    makers: tuple[tuple[str, int, int], ...] = ()
    """Lines of the port's constructor that make what `attributes` has."""
    edit: Any = None
    """The edit inside of a function of the port with which it does what the reference's does, once known."""

    @property
    def lines_of_port(self) -> list[tuple[str, int, int]]:
        """File, first and last line of what the port has; of a function as a whole, once it is known, of its edit."""
        if self.is_whole and self.edit is not None:
            return list(self.edit.lines_of_port)
        return [*self.makers, *(place for one in self.lines for place in one.lines_of_port)]

    @property
    def is_whole(self) -> bool:
        """Whether a function of the port stands in place of one of the reference's, however both are written."""
        return any(isinstance(one.old, ast.FunctionDef) for one in self.lines)

    @property
    def spans(self) -> list[tuple[str, int, int]]:
        """File, first and last line of what takes another form in the reference; none where lines are only added."""
        nodes = [(one.theirs.file, one.old) for one in self.lines]
        return [
            (file, node.lineno, node.end_lineno or node.lineno)
            for file, node in nodes
            if isinstance(node, (ast.expr, ast.stmt))
        ]

    def stands_in(self, lines: Iterable[str]) -> bool:
        """Whether one of the reference's lines, as calls name them, is one that takes another form."""
        places = [found for line in lines if (found := _LINE.match(line))]
        return any(
            file == found[2] and first <= int(found[1]) <= last for found in places for file, first, last in self.spans
        )

    @property
    def drops_calls(self) -> bool:
        """Whether the port's lines call fewer functions than those that they replace."""
        old, new = (
            sum(isinstance(node, ast.Call) for one in sides if one is not None for node in ast.walk(one))
            for sides in ([line.old for line in self.lines], [line.new for line in self.lines])
        )
        return new < old and not self.is_whole

    @property
    def keeps_operations(self) -> bool:
        """Whether each of the port's lines makes as many operations as the one in other words that it replaces."""
        if not self.lines or any(line.has_same_words for line in self.lines):
            return False
        return all(_operations(line.old) == _operations(line.new) is not None for line in self.lines)

    @property
    def exchanges_numbers(self) -> bool:
        """Whether the port's lines have a number that the reference's have not, and the other way round."""
        return exchanged(*self._sides)

    def has_number(self, number: float) -> bool:
        """Whether either side's code has a number, or one over it."""
        return has_number([*itertools.chain(*self._sides)], number)

    @property
    def _sides(self) -> tuple[list[Any], list[Any]]:
        """What the port has, and what should be there; of a function as a whole that is its edit."""
        if self.is_whole and self.edit is not None:
            return [getattr(self.edit, "old", None)], [getattr(self.edit, "new", None)]
        return [one.new for one in self.lines], [one.old for one in self.lines]

    @property
    def reads_other_values(self) -> bool:
        """Whether a line has other names alone, one of them assigned anew by then in the port alone.

        In the reference it is what the function was given: that it gives the port's values there says nothing.
        """
        made = {name for one in self.lines for name in _stored(one.new)}
        return any(
            _without_names(one.old) == _without_names(one.new) and (_overwritten(one) - made)
            for one in self.lines
            if one.old is not None and one.new is not None
        )

    @property
    def exchanges_blocks(self) -> bool:
        """Whether one side's conditional block as a whole is among what differs."""
        parts = [part for one in self.lines for part in (one.old, one.new)]
        every = [one for part in parts for one in (part.body if isinstance(part, ast.Module) else [part])]
        return any(isinstance(one, ast.If) for one in every)

    def merged(self, other: "LinesVariant") -> "LinesVariant":
        """Both at once."""
        detail = f"{self.detail}; {other.detail}"
        return dataclasses.replace(
            self,
            detail=detail,
            lines=self.lines + other.lines,
            attributes=self.attributes + other.attributes,
            makers=self.makers + other.makers,
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


def _operations(node: ast.AST | None) -> int | None:
    """How many operations and calls a piece of code makes; None for no code."""
    return None if node is None else sum(isinstance(one, (ast.BinOp, ast.Call)) for one in ast.walk(node))


def _stored(node: ast.AST | None, before: float = math.inf) -> set[str]:
    """Names that code assigns, above a line."""
    names = (one for one in ast.walk(node) if isinstance(one, ast.Name)) if node is not None else ()
    return {one.id for one in names if isinstance(one.ctx, ast.Store) and one.lineno < before}


def _without_names(node: ast.AST) -> str:
    return re.sub(r"\bid='\w*'", "", ast.dump(node))


def _overwritten(one: Difference) -> set[str]:
    """Names that the port's line reads, and that the port alone has assigned above it."""
    assert one.new is not None
    read = {node.id for node in ast.walk(one.new) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    return (read & _stored(one.ours.tree, getattr(one.new, "lineno", 0))) - _stored(one.theirs.tree)


def _makes_array_of_tensor(one: Difference) -> bool:
    """Whether the port's line is numpy's where the reference's is torch's, whose methods have other defaults.

    What follows in the reference would do something else with an array, which says nothing of this line.
    """
    sides = [list(ast.walk(side or ast.Pass())) for side in (one.new, one.old)]
    ours, theirs = ({node.id for node in side if isinstance(node, ast.Name)} for side in sides)
    ends = any(isinstance(node, ast.Attribute) and node.attr == "numpy" for node in sides[1])
    return bool(ours & _ARRAYS) and "torch" in theirs and not theirs & _ARRAYS and not ends


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
        stack.enter_context(_kept_out("paddle"))
        for name, value in variant.attributes:
            stack.enter_context(replaced(variant.module, name, value))
        changed: dict[int, tuple[Code, dict[Place, ast.AST | None]]] = {}
        for one in (*variant.lines, *variant.spelled):
            new = in_torch(one.new, one.ours, one.old, variant.helpers) if one.new is not None else None
            if isinstance(new, ast.Assign) and _makes_array_of_tensor(one):
                new.value = ast.copy_location(ast.Call(ast.Name(_TENSOR, ast.Load()), [new.value], []), new.value)
            changed.setdefault(id(one.theirs), (one.theirs, {}))[1][one.place] = new
        for code, changes in changed.values():
            made = compiled(code, changes)
            for function in code.functions:
                stack.enter_context(running(function, made))
            self._define(code.functions[0].__globals__, [new for new in changes.values() if new is not None])

    def _define(self, scope: dict[str, Any], lines: Sequence[ast.AST]) -> None:
        """Put what lines of the port refer to into the module of the function that runs them."""
        variant, spelling = self._variant, paddle_spelling()
        known = {0 if variant.module is None else id(variant.module): variant.names}
        scope[PADDLE] = spelling.PADDLE
        scope[_TENSOR] = spelling.as_tensors
        scope[ATTRIBUTE] = functools.partial(spelling.attribute, known)
        scope[IMPORTED] = importlib.import_module
        for made in definitions(variant.helpers, lines):
            exec(made, scope)


@contextlib.contextmanager
def _kept_out(module: str) -> Iterator[None]:
    """Inside the block a module that nobody has imported cannot be: paddle, given torch's tensors, can abort."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        sys.modules.pop(module, None)


def values_under(run: Callable[..., Mapping[str, Any]], variant: Any, moved: float = 0.0) -> Mapping[str, Any]:
    """What runs under a variant (None: as it is); a component's inputs are not `moved`."""
    with variant.apply() if variant is not None else contextlib.nullcontext():
        return run()


def codes_of(functions: Sequence[Mapping[str, Any]]) -> list[Code]:
    """The port's own functions, from `code_lines.Function` in JSON."""
    more = ("globals", "arguments", "is_plain", "extends", "attributes", "layers", "of_arrays", "has_run")
    found = (
        parsed(f["source"], f["file"], f["line"], f["name"], "paddle", **{key: f[key] for key in more if key in f})
        for f in functions
    )
    return [code for code in found if code is not None]


def lines_of(
    functions: Sequence[Mapping[str, Any]],
    run: Callable[[], Any],
    module: Any = None,
    names: Names | None = None,
    theirs: Sequence[Code] | None = None,
    steps: Sequence[Mapping[str, Any]] = (),
) -> list[LinesVariant]:
    """The reference with one line of the port's functions each.

    Args:
        functions: the port's own, as `code_lines.Function` in JSON.
        run: runs the reference once.
        module: the reference's layer, None for a function.
        names: what the port's layer has under names that the reference's has not.
        theirs: the reference's own functions, if they are known; `run` may then stop before its end.
        steps: of the port's code, as `code_lines.Step` in JSON: branches without any have not run, and are left out;
            nothing is returned where there are none.
    """
    ran: dict[str, set[int]] = {}
    for step in steps:
        ran.setdefault(step.get("file", ""), set()).add(step.get("line", 0))
    every = codes_of(functions)
    written = [code for code in every if code.has_run]
    known = [as_it_ran(code, ran.get(code.file, ())) for code in written]
    if steps and all(one is other for one, other in zip(written, known, strict=True)):
        return []
    usual: list[Any] = []
    if theirs is None:
        theirs = functions_of(lambda: usual.append(run())) if known else []
    left, right = _with_calls_opened(theirs, known, run, usual)
    order = {id(code): number for number, code in enumerate(left)}
    pairs = sorted(partners(left, right), key=lambda pair: order[id(pair[0])])
    pairs = list(zip(_written_out(pairs, run, usual), (ours for _, ours in pairs), strict=True))
    helpers = Helpers({last_part(other.name): last_part(one.name) for one, other in pairs}, right)
    found = [one for pair in pairs for one in differences(*pair) if not _calls_as_often(one)]
    return [LinesVariant(one.text, (one,), module, names or {}, helpers) for one in found]


def _calls_as_often(one: Difference) -> bool:
    """Whether the port seems to lack a call alone that its function makes as often, in a line without a partner."""
    call = one.old.value if isinstance(one.old, ast.Expr) and one.new is None else None
    if not isinstance(call, ast.Call):
        return False
    names = [[ast.unparse(each.func).rpartition(".")[2] for each in code.calls] for code in (one.theirs, one.ours)]
    name = ast.unparse(call.func).rpartition(".")[2]
    return names[0].count(name) <= names[1].count(name)


def _with_calls_opened(
    theirs: Sequence[Code], ours: Sequence[Code], run: Callable[[], Any], usual: list[Any]
) -> tuple[list[Code], list[Code]]:
    """Both sides' functions, with those that have no partner in place of the calls of them."""
    pairs = partners(theirs, ours)
    opened = calls_opened(theirs, ours, pairs)
    if changed := [one for one in opened if all(one is not other for other in theirs)]:
        usual += [] if usual else [run()]
        opened = opened if _is_same(changed, run, usual[0]) else list(theirs)
    return opened, calls_opened(ours, theirs, [(two, one) for one, two in pairs])


def _written_out(pairs: Sequence[tuple[Code, Code]], run: Callable[[], Any], usual: Sequence[Any]) -> list[Code]:
    """The reference's functions, in the form of two that the port has: a formula, where the reference asks a kernel.

    `usual` holds what `run` returns, if it is known. All forms run at once: hardly ever does one give something else.
    """
    others = {id(theirs): other for theirs, ours in pairs if (other := with_branches_of(theirs, ours)) is not None}
    if others:
        known = usual[0] if usual else run()
        if not _is_same(list(others.values()), run, known):
            alone = len(others) == 1
            others = {} if alone else {key: one for key, one in others.items() if _is_same([one], run, known)}
    return [others.get(id(theirs), theirs) for theirs, _ in pairs]


def _is_same(forms: Sequence[Code], run: Callable[[], Any], usual: Any) -> bool:
    try:
        with contextlib.ExitStack() as stack:
            for form in forms:
                made = compiled(form, {})
                for function in form.functions:
                    stack.enter_context(running(function, made))
            found = run()
        return all(difference(found[name], usual[name]).relative <= _SAME for name in usual)
    except Exception:  # the other branch may be for other inputs
        return False


def together(lines: Sequence[LinesVariant]) -> LinesVariant:
    """Lines at once; in words those first that say something else, and then what only they read or leave out.

    What one side alone has changes nothing where nothing reads it: it comes behind the others.
    """
    alone = [one for one in lines if any(line.old is None or line.new is None for line in one.lines)]
    others = [one for one in lines if one not in alone]
    all_of_them = functools.reduce(LinesVariant.merged, [*others, *alone])
    if not others or not alone:
        return all_of_them
    words, beside = ("; ".join(one.detail for one in some) for some in (others, alone))
    return dataclasses.replace(all_of_them, detail=f"{words}; what one side alone has: {beside}")


def whole_functions(lines: Sequence[LinesVariant]) -> Iterator[LinesVariant]:
    """All lines of each function at once, but for the one that is called first: that one is the whole."""
    functions: dict[int, list[LinesVariant]] = {}
    for one in lines:
        functions.setdefault(id(one.lines[0].theirs), []).append(one)
    for found in list(functions.values())[1:]:
        theirs, ours = found[0].lines[0].theirs, found[0].lines[0].ours
        text = f"`{ours.name}`, {line_of(ours)}, as a whole in place of `{theirs.name}`, {line_of(theirs)}"
        if len(found) > 2:
            yield dataclasses.replace(found[0], detail=text, lines=tuple(one.lines[0] for one in found))
