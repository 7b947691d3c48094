"""Words for layers and functions that lines of the port apply at another place than the reference does."""

import ast
import dataclasses
import difflib
from collections import Counter
from collections.abc import Iterable, Sequence

from twinalign.replay.aligned_code import Code, line_of
from twinalign.replay.code_text import shortened
from twinalign.replay.likeness import words_of
from twinalign.replay.opened_blocks import inner
from twinalign.replay.port_lines import LinesVariant

_MOST_TOLD = 3
_BRACKETS = ("[", "]", "(", ")", ",")
"""Several numbers are one list in paddle."""
_OF_TENSORS = 2
"""Rank of methods."""


@dataclasses.dataclass(frozen=True)
class _Applied:
    """A call of a layer or function; `order` counts the calls of its function as they run."""

    name: str
    node: ast.Call
    code: Code
    order: int

    @property
    def rank(self) -> int:
        """Layers of the model first, then functions, then methods of tensors, which mostly are about the layout."""
        if not isinstance(self.node.func, ast.Attribute):
            return 1
        return _OF_TENSORS if not _is_of_module(self.node) else ast.unparse(self.node.func.value) != "self"


def told(variant: LinesVariant) -> LinesVariant:
    """Lines with words for what they apply elsewhere, where that is all that they do.

    One line beside the one that it stands for says it best itself.
    """
    if len(variant.lines) < 2 and all(None not in (line.new, line.old) for line in variant.lines):
        return variant
    pairs = list({(id(one.theirs), id(one.ours)): (one.theirs, one.ours) for one in variant.lines}.values())
    theirs, ours = ([_calls(code) for code in side] for side in zip(*pairs, strict=True)) if pairs else ([], [])
    moves = [
        (old, new)
        for old, new in _moves(theirs, ours)
        if _stands_in(new, [(line.ours, line.new) for line in variant.lines])
        and _stands_in(old, [(line.theirs, line.old) for line in variant.lines])
    ]
    said = [_said(old, new, theirs, ours) for old, new in moves] if len(moves) <= _MOST_TOLD else []
    if not said or not all(said) or not _is_all(variant):
        return variant
    return dataclasses.replace(variant, detail="; ".join(said))


def _calls(code: Code) -> list[_Applied]:
    """The calls of a function in the order in which they run, as far as no branch decides it."""

    def inside(node: ast.AST) -> Iterable[ast.Call]:
        for child in ast.iter_child_nodes(node):
            yield from inside(child)
        if isinstance(node, ast.Call):
            yield node

    made = (node for statement in code.tree.body for node in inside(statement))
    return [_Applied(_name(node), node, code, at) for at, node in enumerate(made)]


def _name(call: ast.Call) -> str:
    last = call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)
    return "".join(words_of(ast.Name(last)))


def _moves(theirs: Sequence[Sequence[_Applied]], ours: Sequence[Sequence[_Applied]]) -> list[tuple[_Applied, _Applied]]:
    """Calls of the reference with those of the port that are like them and stand elsewhere; as few as tell it all."""
    every = sorted((call for calls in theirs for call in calls if call.rank < _OF_TENSORS), key=lambda call: call.rank)
    for name in dict.fromkeys(call.name for call in every):
        sides = [[[call.name for call in calls if call.name != name] for calls in side] for side in (theirs, ours)]
        counts = [Counter(call.name for calls in side for call in calls)[name] for side in (theirs, ours)]
        if sides[0] == sides[1] and counts == [1, 1]:
            old, new = (next(one for calls in side for one in calls if one.name == name) for side in (theirs, ours))
            return [(old, new)]
    gone: list[_Applied] = []
    come: list[_Applied] = []
    for old_calls, new_calls in zip(theirs, ours, strict=True):
        names = [[call.name for call in calls] for calls in (old_calls, new_calls)]
        for what, first, last, start, end in difflib.SequenceMatcher(
            None, names[0], names[1], autojunk=False
        ).get_opcodes():
            if what != "equal":
                gone += old_calls[first:last]
                come += new_calls[start:end]
    found = []
    for new in sorted(come, key=lambda call: call.rank):
        was = next((one for one in gone if one.name == new.name), None)
        if was is not None and new.rank < _OF_TENSORS:
            gone.remove(was)
            found.append((was, new))
    return found


def _stands_in(call: _Applied, parts: Iterable[tuple[Code, ast.AST | None]]) -> bool:
    position = getattr(call.node, "lineno", None), getattr(call.node, "col_offset", None)
    return any(
        code is call.code and (getattr(one, "lineno", None), getattr(one, "col_offset", None)) == position
        for code, part in parts
        if part is not None
        for one in ast.walk(part)
        if isinstance(one, ast.Call)
    )


def _said(
    old: _Applied, new: _Applied, theirs: Sequence[Sequence[_Applied]], ours: Sequence[Sequence[_Applied]]
) -> str:
    """Words for one move; none where it crosses nothing that both sides call."""
    at = next(number for number, calls in enumerate(ours) if new in calls)
    lines = f"{line_of(new.code, new.node)} and {line_of(old.code, old.node)}"
    if old not in theirs[at]:
        functions = [code.name.rpartition(".")[2] for code in (new.code, old.code)]
        return f"`{shortened(new.node.func)}` stands in `{functions[0]}`, in the reference in `{functions[1]}`, {lines}"
    before = {call.name for call in theirs[at] if call.order < old.order}
    crossed = [call for call in ours[at] if (call.name in before) == (call.order > new.order) and call is not new]
    crossed = [call for call in crossed if any(other.name == call.name for other in theirs[at])]
    if not crossed:
        return ""
    nearest = min(crossed, key=lambda call: (call.rank, abs(call.order - new.order)))
    sides = ("before", "behind") if nearest.order > new.order else ("behind", "before")
    across = shortened(nearest.node.func)
    return f"`{shortened(new.node.func)}` stands {sides[0]} `{across}`, in the reference {sides[1]} it, {lines}"


def _is_all(variant: LinesVariant) -> bool:
    """Whether both sides' lines make the same calls, and nothing but what they are made of is left without them."""
    counts: list[Counter[str]] = [Counter(), Counter()]
    left: list[Counter[str]] = [Counter(), Counter()]
    for line in variant.lines:
        for side, node in enumerate((line.old, line.new)):
            for one in node.body if isinstance(node, ast.Module) else [node] if node is not None else []:
                made = [inside for inside in ast.walk(one) if isinstance(inside, ast.Call)]
                counts[side].update(map(_name, made))
                counts[side].update(word for call in made for word in _arguments(call))
                rest = _without_calls(inner(one) or one)
                left[side].update([] if rest is None else [rest])
    return counts[0] == counts[1] and left[0] == left[1]


def _arguments(call: ast.Call) -> list[str]:
    """What a call is given besides the value that it is about."""
    given = call.args[1:] if not isinstance(call.func, ast.Attribute) or _is_of_module(call) else call.args
    values = (*given, *(keyword.value for keyword in call.keywords))
    return [word for one in values for word in words_of(one) if word not in _BRACKETS]


def _is_of_module(call: ast.Call) -> bool:
    """Whether it calls a layer or a function, and no method of what another call returns or of a tensor."""
    base = call.func.value if isinstance(call.func, ast.Attribute) else None
    return isinstance(base, ast.Name) and base.id in ("self", "F", "nn", "torch", "paddle", "functional", "math")


class _Unwrapped(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:
        base = node.func.value if isinstance(node.func, ast.Attribute) and not _is_of_module(node) else None
        about = base if base is not None else next(iter(node.args), None)
        return ast.Constant(None) if about is None else self.visit(about)


def _without_calls(node: ast.AST) -> str | None:
    """A statement or expression with the values in place of what is called with them; None where nothing is left."""
    made = _Unwrapped().visit(ast.parse(ast.unparse(node)))
    text = ast.unparse(made)
    sides = [side.strip() for side in text.split("=")]
    return None if len(sides) == 2 and sides[0] == sides[1] else text.removeprefix("return ")
