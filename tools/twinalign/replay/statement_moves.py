"""Statements of a function moved to another place of it, or left out, the nearest places first."""

import ast
import copy
import dataclasses
from collections.abc import Iterator, Sequence

from twinalign.replay.aligned_code import shortened

_BLOCKS = ("body", "orelse")
_LOOPS = (ast.For, ast.While)
_ENDS = (ast.Break, ast.Continue, ast.Return, ast.Raise)
_MOST = 400


@dataclasses.dataclass(frozen=True)
class Move:
    """A statement at another place.

    Attributes:
        tree: the function with it there.
        node: the statement where it stands.
        statement: its text.
        now, then: words for where it stands and where it is moved to.
    """

    tree: ast.FunctionDef
    node: ast.stmt
    statement: str
    now: str
    then: str


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


def moves(tree: ast.FunctionDef) -> Iterator[Move]:
    """Each call and assignment of a loop at each other place of its blocks, or of those around or inside of them.

    Left out are places at which it would read what is not made yet, and calls of functions that are handed in, which
    record. Calls come first.
    """
    blocks = [block for block in _blocks(tree, ()) if not isinstance(block.statements[-1], _ENDS)]
    given = {one.arg for one in tree.args.args}
    has_loop = any(isinstance(one, _LOOPS) for one in ast.walk(tree))
    found = []
    for block in blocks:
        for at, statement in enumerate(block.statements):
            is_call = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
            if not is_call and not isinstance(statement, (ast.Assign, ast.AugAssign)):
                continue
            if (is_call and _function(statement) in given) or (has_loop and not _in_loop(block)):
                continue
            for other in blocks:
                for to in range(len(other.statements) + 1):
                    crossed = _crossed(block, at, other, to)
                    if crossed and not _is_cut_off(statement, crossed) and (not has_loop or _in_loop(other)):
                        found.append((not is_call, len(crossed), statement.lineno, block, at, other, to))
    found.sort(key=lambda one: one[:3])
    for *_, block, at, other, to in found[:_MOST]:
        yield _move(tree, block, at, other, to)


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


def _is_cut_off(statement: ast.stmt, crossed: Sequence[ast.stmt]) -> bool:
    """Whether one of both reads what the other makes."""
    made, used = _made(statement), _names(statement)
    return any(_made(one) & used or made & _names(one) for one in crossed)


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
        place = next(n for n, one in enumerate(other.statements) if one is block.owner)
        if to > place:
            return [*block.statements[at + 1 :], ast.Pass(), *other.statements[place + 1 : to]]
        return [*block.statements[:at], ast.Pass(), *other.statements[to:place]]
    return None


def _move(tree: ast.FunctionDef, block: _Block, at: int, other: _Block, to: int) -> Move:
    statement = block.statements[at]
    known: dict[int, ast.AST] = {}
    made = copy.deepcopy(tree)
    for one, two in zip(ast.walk(tree), ast.walk(made), strict=True):
        known[id(one)] = two
    source: list[ast.stmt] = getattr(known[id(block.owner)], block.field)
    target: list[ast.stmt] = getattr(known[id(other.owner)], other.field)
    moved = source[at]
    target.insert(to, moved)
    source.pop(at + (1 if source is target and to <= at else 0))
    if not source:
        source.append(ast.Pass())
    now, then = _words(block, at, other, to)
    return Move(made, statement, shortened(statement), now, then)


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
