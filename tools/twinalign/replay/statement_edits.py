"""Statements of a function moved to another place of it, left out, or added as others have them: the nearest first."""

import ast
import copy
import dataclasses
import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from typing import Any

from twinalign.replay.aligned_code import Code, line_of
from twinalign.replay.code_text import shortened

_BLOCKS = ("body", "orelse")
_LOOPS = (ast.For, ast.While)
ENDS = (ast.Break, ast.Continue, ast.Return, ast.Raise)
_MOST = 400
_OF_PADDLE = {"zero_grad": "clear_grad"}
_RIGHT = "the port does what the reference does"


@dataclasses.dataclass(frozen=True)
class StatementEdit:
    """A function with one statement at another place, without it, or with one more; it is made when it is asked for.

    Attributes:
        code: the function as it is.
        node: the statement, or the one beside which another is added.
        changed: the blocks that it changes, with the statements that they then have.
        say: says what is wrong, and what is to be done.
        crossed: how many statements lie between both places.
        is_as_theirs: whether the reference has the statement that is added; there are few such edits.
    """

    code: Code
    node: ast.stmt
    changed: Sequence[tuple["Block", Sequence[ast.stmt]]]
    say: Callable[[], tuple[str, str]]
    crossed: int = 1
    is_as_theirs: bool = False

    @functools.cached_property
    def edited(self) -> Code:
        """The function with the edit."""
        made = copy.deepcopy(self.code.tree)
        known = dict(zip(map(id, ast.walk(self.code.tree)), ast.walk(made), strict=True))
        for block, statements in self.changed:
            setattr(known[id(block.owner)], block.field, [known.get(id(one), one) for one in statements])
        return dataclasses.replace(self.code, tree=made)

    @functools.cached_property
    def text(self) -> str:
        return self.say()[0]

    @functools.cached_property
    def to_do(self) -> str:
        return self.say()[1]

    @property
    def lines_of_port(self) -> list[tuple[str, int, int]]:
        return [(self.code.file, self.node.lineno, self.node.end_lineno or self.node.lineno)]

    def to_json(self) -> dict[str, str]:
        return {"to_do": self.to_do}


@dataclasses.dataclass(frozen=True)
class Block:
    """Statements one after the other.

    Attributes:
        owner, field: what holds them, and where.
        around: what they are in, from the function on.
    """

    owner: ast.AST
    field: str
    around: tuple[ast.AST, ...]

    @property
    def statements(self) -> list[ast.stmt]:
        found: list[ast.stmt] = getattr(self.owner, self.field)
        return found

    @property
    def head(self) -> str:
        if self.field == "orelse" and isinstance(self.owner, ast.If):
            return f"the `else` of `if {shortened(self.owner.test)}`"
        words = {ast.For: "for", ast.While: "while", ast.If: "if", ast.With: "with"}
        said = getattr(self.owner, "test", None) or getattr(self.owner, "target", None)
        return f"`{words.get(type(self.owner), 'block')} {shortened(said) if said is not None else '…'}`"


def statement_edits(
    code: Code, chosen: Callable[[ast.stmt], bool] = lambda node: True, theirs: Sequence[ast.AST] = ()
) -> Iterator[StatementEdit]:
    """Edits of a function's `chosen` statements, each that makes another function once; see `_edits`.

    `theirs`: the reference's code that does the same.
    """
    written = functools.cache(ast.dump)
    known = set[frozenset[Any]]()
    for edit in _edits(code, chosen, theirs):
        made = [(block, tuple(map(written, statements))) for block, statements in edit.changed]
        if all(tuple(map(written, block.statements)) == statements for block, statements in made):
            continue
        key = frozenset((id(block.owner), block.field, statements) for block, statements in made)
        if key not in known:
            known.add(key)
            yield edit


def _edits(code: Code, chosen: Callable[[ast.stmt], bool], theirs: Sequence[ast.AST]) -> Iterator[StatementEdit]:
    """Each call and assignment of a loop elsewhere in its blocks, or in those around or inside of them; calls left out;
    calls of one object that another has, on either side: `b.clear()` beside `a.clear()`, `a.step()` and `b.step()`.

    Left out are places at which a statement would read what is not made yet, and calls of functions that are handed in,
    which record. Calls come first, and before them those left out that the function makes twice.
    """
    tree = code.tree
    blocks = list(_blocks(tree, ()))
    given = {one.arg for one in tree.args.args}
    stored = Counter(one.id for one in ast.walk(tree) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store))
    known = {name for name, times in stored.items() if times > 1 or name in given}
    has_loop = any(isinstance(one, _LOOPS) for one in ast.walk(tree))
    inside = [block for block in blocks if not has_loop or _in_loop(block)]
    cut_off = _CutOff(known)
    found, calls = [], list[tuple[Block, int]]()
    for block in inside:
        for at, statement in enumerate(block.statements):
            is_call = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
            is_block = isinstance(statement, ast.If) and not statement.orelse
            if not (is_call or is_block) and not isinstance(statement, (ast.Assign, ast.AugAssign)):
                continue
            if (is_call and _function(statement) in given) or not chosen(statement):
                continue
            calls += [(block, at)] if is_call else []
            for other in inside:
                for to in range(len(other.statements) + (not isinstance(other.statements[-1], ENDS))):
                    crossed = _crossed(block, at, other, to)
                    if crossed and not cut_off(statement, crossed):
                        found.append((not (is_call or is_block), len(crossed), statement.lineno, block, at, other, to))
    found.sort(key=lambda one: one[:3])
    moved = (
        dataclasses.replace(_moved(code, block, at, other, to), crossed=crossed)
        for _, crossed, _, block, at, other, to in found[:_MOST]
    )
    others = (*(_left_out(code, block, at) for block, at in calls), *_lacking(code, calls, _methods_of_objects(theirs)))
    written = Counter(ast.dump(block.statements[at]) for block, at in calls)
    yield from (_left_out(code, b, at) for b, at in calls if written[ast.dump(b.statements[at])] > 1)
    yield from itertools.islice(moved, len(calls) * 2)
    yield from others
    yield from moved


def _blocks(node: ast.AST, around: tuple[ast.AST, ...]) -> Iterator[Block]:
    for field in _BLOCKS:
        statements = getattr(node, field, None)
        if isinstance(statements, list) and statements and isinstance(statements[0], ast.stmt):
            yield Block(node, field, (*around, node))
            for one in statements:
                if not isinstance(one, (ast.FunctionDef, ast.ClassDef)):
                    yield from _blocks(one, (*around, node))


def _in_loop(block: Block) -> bool:
    return any(isinstance(one, _LOOPS) for one in block.around)


def _function(statement: ast.stmt) -> str:
    called = statement.value.func if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) else None
    return called.id if isinstance(called, ast.Name) else ""


class _CutOff:
    """Whether one of a statement and those that it crosses reads what the other makes, but for names that are `known`
    before, with another value."""

    def __init__(self, known: Set[str]) -> None:
        self._known = known
        self._seen: dict[ast.stmt, tuple[Set[str], Set[str]]] = {}

    def __call__(self, statement: ast.stmt, crossed: Sequence[ast.stmt]) -> bool:
        made, used = self._names(statement)
        others = map(self._names, crossed)
        return any((made_there & used | made & used_there) - self._known for made_there, used_there in others)

    def _names(self, node: ast.stmt) -> tuple[Set[str], Set[str]]:
        """The names that a statement makes, and all that it has."""
        if node not in self._seen:
            names = [one for one in ast.walk(node) if isinstance(one, ast.Name)]
            made = {one.id for one in names if isinstance(one.ctx, ast.Store)}
            self._seen[node] = made, {one.id for one in names}
        return self._seen[node]


def _crossed(block: Block, at: int, other: Block, to: int) -> list[ast.stmt] | None:
    """The statements between both places; None where one is inside of what is moved, or in no block beside its own."""
    if other.owner is block.owner and other.field == block.field:
        if to in (at, at + 1):
            return None
        return block.statements[min(at + 1, to) if to > at else to : to if to > at else at]
    if block.owner in other.around:  # into a block beside it
        inner = next((one for one in block.statements if one in other.around), None)
        if inner in (None, block.statements[at]) or other.around[-2:] != (block.owner, other.owner):
            return None
        place = block.statements.index(inner)
        between = block.statements[at + 1 : place] if at < place else block.statements[place + 1 : at]
        inside = other.statements[:to] if at < place else other.statements[to:]
        return [*between, *inside, ast.Pass()]
    if other.owner in block.around and block.around[-2:] == (other.owner, block.owner):  # out of its block
        place = next((n for n, one in enumerate(other.statements) if one is block.owner), -1)
        if place < 0:  # its block is in the other branch of a condition
            return None
        if to > place:
            return [*block.statements[at + 1 :], ast.Pass(), *other.statements[place + 1 : to]]
        return [*block.statements[:at], ast.Pass(), *other.statements[to:place]]
    return None


def _moved(code: Code, block: Block, at: int, other: Block, to: int) -> StatementEdit:
    node, source = block.statements[at], [*block.statements]
    target = source if other.owner is block.owner and other.field == block.field else [*other.statements]
    target.insert(to, node)
    source.pop(at + (1 if source is target and to <= at else 0))
    if not source:
        source.append(ast.copy_location(ast.Pass(), node))
    changed = [(block, source)] if source is target else [(block, source), (other, target)]

    def say() -> tuple[str, str]:
        now, then = _words(block, at, other, to)
        text = f"`{shortened(node)}`, {line_of(code, node)}, stands {now} {_RIGHT}"
        return text, f"write `{shortened(node)}` {then}"

    return StatementEdit(code, node, changed, say)


def _left_out(code: Code, block: Block, at: int) -> StatementEdit:
    node = block.statements[at]
    left = [*block.statements[:at], ast.copy_location(ast.Pass(), node), *block.statements[at + 1 :]]

    def say() -> tuple[str, str]:
        text = f"`{shortened(node)}`, {line_of(code, node)}, is too much: without it {_RIGHT}"
        return text, f"leave `{shortened(node)}` out"

    return StatementEdit(code, node, [(block, left)], say)


def _methods_of_objects(theirs: Sequence[ast.AST]) -> list[frozenset[str]]:
    """The methods that statements of the reference's call of each object without arguments, as paddle calls them."""
    found: dict[tuple[int, str], set[str]] = {}
    for number, tree in enumerate(theirs):
        for node in ast.walk(tree):
            called = _method_called(node)
            if called is not None and not called.args and not called.keywords:
                name = _OF_PADDLE.get(called.func.attr, called.func.attr)
                found.setdefault((number, ast.unparse(called.func.value)), set()).add(name)
    return list(dict.fromkeys(map(frozenset, found.values())))


def _method_called(node: ast.AST) -> Any:
    """The call of a statement that is nothing but the call of a method."""
    called = node.value if isinstance(node, ast.Expr) else None
    return called if isinstance(called, ast.Call) and isinstance(called.func, ast.Attribute) else None


def _lacking(code: Code, calls: Sequence[tuple[Block, int]], theirs: Sequence[Set[str]]) -> Iterator[StatementEdit]:
    """A call of no arguments that one object lacks and another has, beside each statement of its own blocks.

    `theirs`: methods of each of the reference's objects.
    """
    known: dict[str, dict[str, Block]] = {}
    for block, at in calls:
        if (called := _method_called(block.statements[at])) is not None:
            known.setdefault(ast.unparse(called.func.value), {}).setdefault(called.func.attr, block)
    for one in known:
        for others in (*theirs, *(known[other].keys() for other in known if other != one)):
            for name in sorted(others - known[one].keys()) if known[one].keys() & others else ():
                block = next(known[one][both] for both in known[one] if both in others)
                new = ast.parse(f"{one}.{name}()").body[0]
                for at in range(len(block.statements) + 1):
                    yield dataclasses.replace(added(code, block, at, new), is_as_theirs=others in theirs)


def blocks_of(code: Code) -> list[Block]:
    """The blocks of a function, each before those inside of it."""
    return list(_blocks(code.tree, ()))


def added(code: Code, block: Block, at: int, new: ast.stmt) -> StatementEdit:
    """A function with one more statement in a block, before all or behind the one before `at`."""
    is_behind = at > 0
    beside = block.statements[at - is_behind]
    more = [*block.statements]
    more.insert(at, ast.copy_location(copy.copy(new), beside))
    say = functools.partial(_words_of_lacking, code, shortened(new), beside, is_behind)
    return StatementEdit(code, beside, [(block, more)], say)


def _words_of_lacking(code: Code, written: str, beside: ast.stmt, is_behind: bool) -> tuple[str, str]:
    where = f"{'behind' if is_behind else 'before'} `{_first_line(beside)}`"
    text = f"`{written}` is lacking {where}, {line_of(code, beside)}: with it {_RIGHT}"
    return text, f"write `{written}` {where}"


def _words(block: Block, at: int, other: Block, to: int) -> tuple[str, str]:
    same = other.owner is block.owner and other.field == block.field
    is_behind = to > 0 and not (same and to - 1 == at)
    beside = other.statements[to - 1] if is_behind else other.statements[to]
    said = f"`{_first_line(beside)}`"
    if same:
        crossed = block.statements[to - 1] if to > at else block.statements[to]
        said = f"`{_first_line(crossed)}`"
        sides = ("before", "behind") if to > at else ("behind", "before")
        return f"{sides[0]} {said}; {sides[1]} it", f"{sides[1]} {said}"
    side = "behind" if is_behind else "before"
    if block.owner in other.around:
        where = f"inside of {other.head}, {side} {said}"
        return f"outside of {other.head}; inside of it", where
    where = f"outside of {block.head}, {side} {said}"
    return f"inside of {block.head}; outside of it", where


def _first_line(node: ast.stmt) -> str:
    return shortened(node).partition(":")[0] if hasattr(node, "body") else shortened(node)
