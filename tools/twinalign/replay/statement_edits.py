"""Statements of a function moved to another place of it, left out, or added as others have them: the nearest first."""

import ast
import copy
import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set

from twinalign.replay.aligned_code import Code, line_of
from twinalign.replay.code_text import shortened

_BLOCKS = ("body", "orelse")
_LOOPS = (ast.For, ast.While)
_ENDS = (ast.Break, ast.Continue, ast.Return, ast.Raise)
_MOST = 400
_RIGHT = "the port does what the reference does"


@dataclasses.dataclass(frozen=True)
class StatementEdit:
    """A function with one statement at another place, without it, or with one more.

    Attributes:
        code, edited: the function as it is, and with the edit.
        node: the statement, or the one beside which another is added.
        text, to_do: in words what is wrong, and what is to be done.
        crossed: how many statements lie between both places.
    """

    code: Code
    edited: Code
    node: ast.stmt
    text: str
    to_do: str
    crossed: int = 1

    @property
    def lines_of_port(self) -> list[tuple[str, int, int]]:
        return [(self.code.file, self.node.lineno, self.node.end_lineno or self.node.lineno)]

    def to_json(self) -> dict[str, str]:
        return {"to_do": self.to_do}


@dataclasses.dataclass(frozen=True)
class _Block:
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


def statement_edits(code: Code, chosen: Callable[[ast.stmt], bool] = lambda node: True) -> Iterator[StatementEdit]:
    """Edits of a function's `chosen` statements, each that makes another function once; see `_edits`."""
    known = {ast.dump(code.tree)}
    for edit in _edits(code, chosen):
        if (made := ast.dump(edit.edited.tree)) not in known:
            known.add(made)
            yield edit


def _edits(code: Code, chosen: Callable[[ast.stmt], bool]) -> Iterator[StatementEdit]:
    """Each call and assignment of a loop elsewhere in its blocks, or in those around or inside of them; calls left out;
    calls of one object that another has: `b.clear()` beside `a.clear()`, `a.step()` and `b.step()`.

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
    found, calls = [], list[tuple[_Block, int]]()
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
                for to in range(len(other.statements) + (not isinstance(other.statements[-1], _ENDS))):
                    crossed = _crossed(block, at, other, to)
                    if crossed and not _is_cut_off(statement, crossed, known):
                        found.append((not (is_call or is_block), len(crossed), statement.lineno, block, at, other, to))
    found.sort(key=lambda one: one[:3])
    moved = (
        dataclasses.replace(_moved(code, block, at, other, to), crossed=crossed)
        for _, crossed, _, block, at, other, to in found[:_MOST]
    )
    others = (*(_left_out(code, block, at) for block, at in calls), *_lacking(code, calls))
    written = Counter(ast.dump(block.statements[at]) for block, at in calls)
    yield from (_left_out(code, b, at) for b, at in calls if written[ast.dump(b.statements[at])] > 1)
    yield from itertools.islice(moved, len(calls) * 2)
    yield from others
    yield from moved


def _blocks(node: ast.AST, around: tuple[ast.AST, ...]) -> Iterator[_Block]:
    for field in _BLOCKS:
        statements = getattr(node, field, None)
        if isinstance(statements, list) and statements and isinstance(statements[0], ast.stmt):
            yield _Block(node, field, (*around, node))
            for one in statements:
                if not isinstance(one, (ast.FunctionDef, ast.ClassDef)):
                    yield from _blocks(one, (*around, node))


def _in_loop(block: _Block) -> bool:
    return any(isinstance(one, _LOOPS) for one in block.around)


def _function(statement: ast.stmt) -> str:
    called = statement.value.func if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) else None
    return called.id if isinstance(called, ast.Name) else ""


def _is_cut_off(statement: ast.stmt, crossed: Sequence[ast.stmt], known: Set[str]) -> bool:
    """Whether one of both reads what the other makes, but for names that are `known` before, with another value."""
    made, used = _made(statement), _names(statement)
    return any((_made(one) & used | made & _names(one)) - known for one in crossed)


def _made(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}


def _crossed(block: _Block, at: int, other: _Block, to: int) -> list[ast.stmt] | None:
    """The statements between both places; None where one is inside of what is moved, or in no block beside its own."""
    if other.owner is block.owner and other.field == block.field:
        if to in (at, at + 1):
            return None
        return block.statements[min(at + 1, to) if to > at else to : to if to > at else at]
    if block.owner in other.around:  # into a block beside it
        inner = next((one for one in block.statements if one in other.around), None)
        if inner is None or other.around[-2:] != (block.owner, other.owner):
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


def _moved(code: Code, block: _Block, at: int, other: _Block, to: int) -> StatementEdit:
    made, source, target = _copied(code, block, other)
    moved = source[at]
    target.insert(to, moved)
    source.pop(at + (1 if source is target and to <= at else 0))
    if not source:
        source.append(ast.Pass())
    node, (now, then) = block.statements[at], _words(block, at, other, to)
    text = f"`{shortened(node)}`, {line_of(code, node)}, stands {now} {_RIGHT}"
    return StatementEdit(code, made, node, text, f"write `{shortened(node)}` {then}")


def _left_out(code: Code, block: _Block, at: int) -> StatementEdit:
    made, source, _ = _copied(code, block, block)
    source[at] = ast.copy_location(ast.Pass(), source[at])
    node = block.statements[at]
    text = f"`{shortened(node)}`, {line_of(code, node)}, is too much: without it {_RIGHT}"
    return StatementEdit(code, made, node, text, f"leave `{shortened(node)}` out")


def _lacking(code: Code, calls: Sequence[tuple[_Block, int]]) -> Iterator[StatementEdit]:
    """A call of no arguments that one object lacks and another has, beside each statement of its own blocks."""
    known: dict[str, dict[str, _Block]] = {}
    for block, at in calls:
        statement = block.statements[at]
        called = (
            statement.value.func if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) else None
        )
        if isinstance(called, ast.Attribute):
            known.setdefault(ast.unparse(called.value), {}).setdefault(called.attr, block)
    for one, other in itertools.permutations(known, 2):
        for name in known[other].keys() - known[one].keys() if known[one].keys() & known[other].keys() else ():
            block = next(known[one][both] for both in known[one] if both in known[other])
            new = ast.parse(f"{one}.{name}()").body[0]
            for at, beside in enumerate(block.statements):
                made, source, _ = _copied(code, block, block)
                source.insert(at + 1, ast.copy_location(new, beside))
                where = f"behind `{_first_line(beside)}`"
                text = f"`{one}.{name}()` is lacking {where}, {line_of(code, beside)}: with it {_RIGHT}"
                yield StatementEdit(code, made, beside, text, f"write `{one}.{name}()` {where}")


def _copied(code: Code, block: _Block, other: _Block) -> tuple[Code, list[ast.stmt], list[ast.stmt]]:
    """The function again, and there the statements of two blocks."""
    made = copy.deepcopy(code.tree)
    known = dict(zip(map(id, ast.walk(code.tree)), ast.walk(made), strict=True))
    source, target = (getattr(known[id(one.owner)], one.field) for one in (block, other))
    return dataclasses.replace(code, tree=made), source, target


def _words(block: _Block, at: int, other: _Block, to: int) -> tuple[str, str]:
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


def _names(*nodes: ast.AST) -> set[str]:
    inside: Sequence[ast.AST] = [one for node in nodes for one in ast.walk(node)]
    return {one.id for one in inside if isinstance(one, ast.Name)}
