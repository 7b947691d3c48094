"""Edits that let a statement of the port read as the reference's that is most alike.

A port is written line by line: most of its statements have the words of one of the reference's, apart from what the
frameworks call otherwise. Where a statement has not, and one of the reference's has no partner either, they are taken
for a pair, and each part in which the two differ is an edit.
"""

from __future__ import annotations

import ast
import builtins
import dataclasses
import difflib
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from twinalign.replay.aligned_code import Code
from twinalign.replay.edited_trees import with_nodes
from twinalign.replay.grafts import Graft
from twinalign.replay.helper_edits import HelperEdit
from twinalign.replay.likeness import SPELLED, likeness, ratio, words_of
from twinalign.replay.slices import FAR
from twinalign.replay.torch_in_paddle import NotSpelledError, in_paddle

_NEAREST = 500
"""So many statements of the port are looked at, those nearest to what is wrong."""
_COMPARED = 20
"""And so many of the reference's, that differ in the fewest words, are compared with each word by word."""
_LESS_ALIKE = 0.1
"""A statement is no partner if another one is more alike by so much."""
_PARTNERS = 3
"""So many statements of the reference's are tried for one of the port's."""
_INNER = 0.5
"""Share of equal words from which what two parts are applied to is compared as well, and from which a part is changed,
and not replaced as a whole."""
_LIKE_NAMES = 0.7
"""Share of equal letters of two names that may have been taken for each other."""
_OTHER_ORDER = 0.5
"""Of a word, where two statements have the same words in another order."""
_MOST = 120
_A_STEP = 0.05
"""Of a pair's likeness, for each step by which it is farther from what is wrong."""
HEADS = "test", "iter"
_BLOCKS = ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom


@dataclasses.dataclass
class _Statement:
    parts: list[ast.AST]
    """The statement, or what stands in the head of a block."""
    words: list[str]
    code: Code | None = None


def statement_edits_by_pairs(
    codes: Sequence[Code],
    theirs: Sequence[ast.AST],
    functions: Sequence[tuple[Mapping[str, Any], Any]],
    far: Mapping[int, int],
) -> Iterator[HelperEdit]:
    """Edits of the port's functions, those of the most alike pairs and those near to what is wrong first.

    Args:
        theirs: the reference's functions that do the same.
        functions: the same, as `values_of` has them, with the names that they read from their modules.
        far: of `distances`.
    """
    read = (item for function, _ in functions for item in function["globals"].items())
    modules = {name: str(found[1]) for name, found in read if found[0] == "name"}
    every = [dataclasses.replace(one, code=code) for code in codes for one in _statements(code.tree)]
    distances = [min(far.get(id(node), FAR) for part in one.parts for node in ast.walk(part)) for one in every]
    nearest = sorted(range(len(every)), key=distances.__getitem__)[:_NEAREST]
    ours = [every[at] for at in nearest]
    others = list({tuple(one.words): one for tree in theirs for one in _statements(tree)}.values())
    if not ours or not others:
        return
    apart, both = _apart(ours, others)
    names = _names_by_equal_statements(ours, others, apart)
    alone = np.flatnonzero(apart.min(0) > 0)
    pairs: list[tuple[float, _Statement, _Statement]] = []
    for at, one, own in zip(nearest, ours, apart, strict=True):
        if own.min() == 0:
            continue
        like = alone[np.argsort(own[alone], kind="stable")[:_COMPARED]]
        alike = sorted(((likeness(one.words, others[to].words), int(to)) for to in like), reverse=True)[:_PARTNERS]
        least = max((share for share, _ in alike), default=0.0) - _LESS_ALIKE
        chosen = [(share, others[to]) for share, to in alike if share > max(least, 0.0)]
        pairs += [(distances[at] * _A_STEP - share, one, other) for share, other in chosen]
    found = [
        (score, edit, kind) for score, one, other in pairs for edit, kind in _edits(one, other, both, modules, names)
    ]
    times = Counter(kind for kind, _ in {(kind, edit.old.lineno) for _, edit, kind in found})
    ordered = sorted(found, key=lambda one: (isinstance(one[1], Graft), one[0]))
    once = (edit for _, edit, kind in ordered if kind is not None and times[kind] == 1)
    often = (edit for _, edit, kind in ordered if kind is None or times[kind] > 1)
    edits = itertools.chain(once, _of_copies(codes), often)
    yield from itertools.islice({(id(edit.old), ast.dump(edit.new)): edit for edit in edits}.values(), _MOST)


def _edits(
    one: _Statement, other: _Statement, both: frozenset[str], modules: Mapping[str, str], names: Mapping[str, str]
) -> Iterator[tuple[HelperEdit, Any]]:
    """Edits with which a statement has more of the other's words, each with the words that it changes; None where it
    takes an item that the other has besides.

    What a port writes otherwise in several places is its way of writing it.
    """
    code = one.code
    assert code is not None
    target, own = _shared(other.words, both), _shared(one.words, both)

    def spelled(node: ast.expr) -> ast.expr | None:
        return _in_words_of(code, node, modules, names)

    def edit_of(old: ast.expr, new: ast.expr) -> HelperEdit:
        kind = HelperEdit if ratio(words_of(old), words_of(new)) >= _INNER else Graft
        return kind(code, old, ast.fix_missing_locations(ast.copy_location(new, old)))

    for old, new in _differing(one.parts, other.parts):
        for more in _with_more(old, new, spelled):
            yield edit_of(old, more), None
        made = spelled(new)
        if made is None or not isinstance(getattr(old, "ctx", ast.Load()), ast.Load):
            continue
        edit = edit_of(old, made)
        nearer = _shared([word for part in one.parts for word in words_of(edit.within(part))], both)
        if _differ(nearer, target) < _differ(own, target):
            before, after = Counter(own), Counter(nearer)
            yield edit, (frozenset((before - after).items()), frozenset((after - before).items()))


def _of_copies(codes: Sequence[Code]) -> Iterator[HelperEdit]:
    """Edits of calls that a function makes twice in the same words, each with the like name of something else."""
    for code in codes:
        calls = [one.value for one in code.nodes if isinstance(one, ast.Expr) and isinstance(one.value, ast.Call)]
        times = Counter(map(ast.dump, calls))
        names = [node for call in calls if times[ast.dump(call)] > 1 for node in ast.walk(call)]
        for node in (one for one in names if isinstance(one, ast.Name) and one.id in code.first_lines):
            for other in difflib.get_close_matches(node.id, code.first_lines.keys() - {node.id}, cutoff=_LIKE_NAMES):
                yield HelperEdit(code, node, ast.copy_location(ast.Name(other, ast.Load()), node))


def _statements(tree: ast.AST) -> Iterator[_Statement]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.stmt) or isinstance(node, _BLOCKS):
            continue
        heads = [getattr(node, name) for name in HEADS if hasattr(node, name)]
        parts: list[ast.AST] = heads if hasattr(node, "body") else [node]
        if words := [word for part in parts for word in words_of(part)]:
            yield _Statement(parts, words)


def _apart(ours: Sequence[_Statement], others: Sequence[_Statement]) -> tuple[np.ndarray, frozenset[str]]:
    """By how many words each statement differs from each of the other side's, `[ours, others]`, and the words that
    count: not those that one side alone has, nor brackets and the like."""
    spoken = [{word for one in side for word in one.words if _counts(word)} for side in (ours, others)]
    spoken[0].update(name for one in ours if one.code is not None for name in one.code.first_lines)
    both = frozenset(spoken[0] & spoken[1])
    said = [[set(_numbered(_shared(one.words, both))) for one in side] for side in (ours, others)]
    places = {word: place for place, word in enumerate(set().union(*said[0], *said[1]))}
    mine, its = (np.zeros((len(side), len(places)), np.float32) for side in said)
    for side, found in zip(said, (mine, its), strict=True):
        for row, words in zip(found, side, strict=True):
            row[[places[word] for word in words]] = 1.0
    apart = (mine.sum(1)[:, None] + its.sum(1)[None] - 2.0 * mine @ its.T).astype(np.float64)
    for at, other in np.argwhere(apart == 0):
        apart[at, other] = _differ(*(_shared(one.words, both) for one in (ours[at], others[other])))
    return apart, both


def _numbered(words: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Each word with the number of times that it has come before."""
    times = Counter[str]()
    for word in words:
        yield word, times[word]
        times[word] += 1


def _differ(one: list[str], other: list[str]) -> float:
    """By how many words two statements differ, or whether in their order alone."""
    counts = Counter(one), Counter(other)
    return ((counts[0] - counts[1]) + (counts[1] - counts[0])).total() or _OTHER_ORDER * (one != other)


def _shared(words: Sequence[str], both: frozenset[str]) -> list[str]:
    return [word for word in words if word in both]


def _counts(word: str) -> bool:
    return word[0].isalnum() or word[0] in "_<>:-+*/%&|~"


def _names_by_equal_statements(
    ours: Sequence[_Statement], others: Sequence[_Statement], apart: np.ndarray
) -> dict[str, str]:
    """Name of the reference's → what it is called in the port, by statements that are the same but for names."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for one, distances in zip(ours, apart, strict=True):
        for at in np.flatnonzero(distances == 0):
            pairs = list(zip(one.parts, others[int(at)].parts, strict=False))
            names = [
                [node.id for part in side for node in ast.walk(part) if isinstance(node, ast.Name)]
                for side in zip(*pairs, strict=True)
            ]
            if len(names[0]) == len(names[1]):
                for own, their in zip(*names, strict=True):
                    found[their][own] += 1
    return {their: own.most_common(1)[0][0] for their, own in found.items()}


def _differing(ours: Sequence[ast.AST], theirs: Sequence[ast.AST]) -> Iterator[tuple[ast.expr, ast.expr]]:
    """The parts in which two statements differ, the smallest first, each with what the other has there."""
    for one, other in zip(ours, theirs, strict=False):
        yield from sorted(_inside(one, other), key=lambda pair: len(ast.dump(pair[0])))


def _inside(one: ast.AST, other: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    if words_of(one) == words_of(other):
        return
    children = [*_children(one, other)] if type(one) is type(other) else [*_holders(one, other)]
    different = [pair for pair in children if words_of(pair[0]) != words_of(pair[1])]
    inside = [found for pair in different for found in _inside(*pair)]
    is_more = len(different) != 1 or not inside or _size(one) != _size(other)
    if is_more and isinstance(one, ast.expr) and isinstance(other, ast.expr):
        yield one, other
    yield from inside


def _size(node: ast.AST) -> tuple[Any, ...]:
    """The kind of a part, and how many parts of each kind it has."""
    return type(node), *(len(value) for _, value in ast.iter_fields(node) if isinstance(value, list))


def _holders(one: ast.AST, other: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """What either part is a method, an item, an attribute or a function of, if that is alike: `x.unsqueeze(1)` and
    `x[:, None]` are one."""
    first, second = _holder(one), _holder(other)
    for pair in ((first, second), (one, second), (first, other)):
        if None not in pair and ratio(words_of(pair[0]), words_of(pair[1])) >= _INNER:
            yield pair  # type: ignore[misc]
            return


def _holder(node: ast.AST) -> ast.expr | None:
    if isinstance(node, ast.Call):
        return node.func.value if isinstance(node.func, ast.Attribute) else next(iter(node.args), None)
    return node.value if isinstance(node, (ast.Attribute, ast.Subscript)) else None


def _with_more(one: ast.AST, other: ast.AST, spelled: Callable[[ast.expr], Any]) -> Iterator[ast.expr]:
    """A call or a dictionary with one more of the other's named items; `spelled`: in the port's words, None if it has
    none."""
    if isinstance(one, ast.Call) and isinstance(other, ast.Call):
        given = {SPELLED.get(str(item.arg), item.arg) for item in one.keywords}
        for item in (item for item in other.keywords if item.arg is not None and item.arg not in given):
            if (call := spelled(ast.Call(ast.Name("dict", ast.Load()), [], [item]))) is not None:
                yield ast.Call(one.func, one.args, [*one.keywords, *call.keywords])
    if isinstance(one, ast.Dict) and isinstance(other, ast.Dict):
        known = {ast.dump(key) for key in one.keys if key is not None}
        pairs = zip(other.keys, other.values, strict=True)
        for key, value in ((key, value) for key, value in pairs if key is not None and ast.dump(key) not in known):
            if (more := spelled(ast.Dict([key], [value]))) is not None:
                yield ast.Dict([*one.keys, *more.keys], [*one.values, *more.values])


def _children(one: ast.AST, other: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """The parts of two pieces of code in the same places, as far as both have them."""
    for field, value in ast.iter_fields(one):
        its = getattr(other, field, None)
        both = (value, its) if isinstance(value, list) and isinstance(its, list) else ([value], [its])
        yield from (pair for pair in zip(*both, strict=False) if all(isinstance(part, ast.AST) for part in pair))


def _in_words_of(code: Code, node: ast.expr, modules: Mapping[str, str], names: Mapping[str, str]) -> ast.expr | None:
    """An expression of the reference's as the port's function may write it; None if a name is not known there."""
    held = {name: value for one in code.functions for name, value in one.__globals__.items()}
    places = {value.__name__: name for name, value in held.items() if isinstance(value, ModuleType)}
    known = {*held, *dir(builtins), *code.first_lines, *(n for one in code.functions for n in one.__code__.co_freevars)}
    bound = {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load)}
    renamed: dict[ast.AST, ast.AST] = {
        one: ast.Name(names[one.id], ast.Load())
        for one in ast.walk(node)
        if isinstance(one, ast.Name) and one.id in names and one.id not in modules and one.id not in bound
    }
    try:
        made = in_paddle(with_nodes(node, renamed), modules, places)
    except NotSpelledError:
        return None
    read = {one.id for one in ast.walk(made) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}
    return made if read - bound <= known else None
