"""Expressions of the reference in place of the port's, in the port's own names.

Which name of the port stands for which of the reference's, the values tell that both held on the same inputs, whatever
they are called and however the code around them is written.
"""

from __future__ import annotations

import ast
import builtins
import dataclasses
import difflib
import itertools
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import numpy as np

from twinalign.replay.aligned_code import Code, last_part, parsed
from twinalign.replay.code_lines import Print
from twinalign.replay.edited_trees import with_nodes
from twinalign.replay.helper_edits import HelperEdit
from twinalign.replay.likeness import ratio, words_of
from twinalign.replay.noted_values import Values
from twinalign.replay.small_edits import expressions
from twinalign.replay.torch_in_paddle import NotSpelledError, in_paddle

_SAME = 1e-6
"""Relative: two names stand for one value."""
_MOST = 40
"""Edits, the likeliest first."""
_NAMES, _FORMS = 2, 4
"""So many names of the port may stand for one of the reference's, and so many forms may an expression take."""
_LEAST = 0.3
"""Share of equal words that two expressions have at least."""
_ABSENT = 0.3
"""What it adds to that share if one side's value is absent on the other side."""
_LATER = 0.25
"""So much less likely is each step by which a function counts as being farther."""
_OPENED = 3
"""So often are names opened."""
_NOTHING = frozenset(("torch", ".", ",", "(", ")"))
_EVERYWHERE = frozenset((0.0, 1.0, 2.0))
_SAME_NAME = 0.6
"""How alike two names are, from 0 to 1, if their values do not tell."""
_COMPUTED = (ast.BinOp, ast.UnaryOp, ast.Call, ast.Compare, ast.IfExp, ast.Subscript)


@dataclasses.dataclass(frozen=True)
class Graft(HelperEdit):
    """An expression of the reference's in place of one of the port's."""


@dataclasses.dataclass(frozen=True)
class _Expression:
    """What a side computes in one place.

    Attributes:
        names: names in it that stand for values, as `x` or `self.x` → the nodes.
        is_absent: whether it is all that some name is made of whose value the other side lacks.
    """

    node: ast.expr
    names: Mapping[str, Sequence[ast.expr]]
    is_absent: bool


def grafts(
    codes: Sequence[Code],
    values: Mapping[CodeType, Values],
    theirs: Sequence[tuple[Mapping[str, Any], Values]],
    chosen: Collection[int] = (),
    delays: Callable[[Code], int] = lambda code: 0,
) -> list[Graft]:
    """Edits of the port's functions, the likeliest first.

    Args:
        values: of the port's functions.
        theirs: the reference's functions, as `kept_values` has them.
        chosen: ids of the port's nodes that may be edited; all if there are none.
        delays: as for `ordered_edits`.
    """
    every = [found for named in values.values() for prints in named.values() for found in prints]
    shared = {(Path(code.co_filename).name, code.co_firstlineno) for code in values}  # as what makes the inputs
    alone = [(one, named) for one, named in theirs if (one["file"], one["line"]) not in shared]
    others = [(code, named) for one, named in alone if (code := _code(one)) is not None]
    wanted = [(code, named, list(_expressions(code, named, every))) for code, named in others]
    theirs_all = [found for _, named in others for prints in named.values() for found in prints]
    found: list[tuple[float, Graft]] = []
    for code in codes:
        named = next((values[one.__code__] for one in code.functions if one.__code__ in values), {})
        held = {name: value for one in code.functions for name, value in one.__globals__.items()}
        ours = {value.__name__: name for name, value in held.items() if isinstance(value, ModuleType)}
        made = [form for of, others_named, some in wanted for form in _forms(of, others_named, some, named, ours)]
        later = _LATER * delays(code)
        found += ((likely - later, edit) for likely, edit in _edits(code, named, theirs_all, made, chosen))
    return [edit for _, edit in sorted(found, key=lambda one: -one[0])[:_MOST]]


def _code(function: Mapping[str, Any]) -> Code | None:
    return parsed(
        function["source"], function["file"], function["line"], function["name"], "torch", globals=function["globals"]
    )


def _expressions(code: Code, named: Values, elsewhere: Sequence[Print]) -> Iterator[_Expression]:
    """What a function computes of values that it has names for, and of nothing else."""
    absent = _absent(code, named, elsewhere)
    for node in expressions([code.tree]):
        if isinstance(node, _COMPUTED) and (names := _names(code, node, named)):
            yield _Expression(node, names, id(node) in absent)


def _absent(code: Code, named: Values, elsewhere: Sequence[Print]) -> set[int]:
    """ids of what names are made of whose values are nowhere on the other side, and of what is returned."""
    found = set()
    for node in ast.walk(code.tree):
        if isinstance(node, ast.Return) and node.value is not None:
            found.add(id(node.value))
        elif isinstance(node, ast.Assign):
            prints = [one for target in node.targets for one in named.get(ast.unparse(target), ())]
            if prints and not any(_same(one, other) for one in prints for other in elsewhere):
                found.add(id(node.value))
    return found


def _names(code: Code, node: ast.expr, named: Values) -> dict[str, list[ast.expr]] | None:
    """Names in an expression that stand for values; None if it needs something else, such as the user's functions."""
    found: dict[str, list[ast.expr]] = {}
    waiting: list[ast.AST] = [node]
    while waiting:
        one = waiting.pop()
        if isinstance(one, (ast.Name, ast.Attribute)) and (written := ast.unparse(one)) in named:
            found.setdefault(written, []).append(one)
            continue
        if isinstance(one, ast.Name):
            kind, place = ([*code.globals.get(one.id, ("", "")), ""])[:2]
            of_library = kind == "name" and str(place).partition(".")[0] in ("torch", "numpy", "math", "paddle")
            if not of_library and not hasattr(builtins, one.id):
                return None
        elif isinstance(one, (ast.Lambda, ast.comprehension, ast.Starred)) or _makes_layer(one):
            return None
        waiting += ast.iter_child_nodes(one)
    return found


def _makes_layer(node: ast.AST) -> bool:
    """Whether it builds an object of a class, which has weights of its own as a rule."""
    return isinstance(node, ast.Call) and last_part(ast.unparse(node.func))[:1].isupper()


def _forms(
    code: Code, others: Values, expressions_of: Iterable[_Expression], ours: Values, places: Mapping[str, str]
) -> Iterator[tuple[ast.expr, bool]]:
    """Expressions of one of the reference's functions in the names of one of the port's; whether each is absent."""
    modules = {name: str(found[1]) for name, found in code.globals.items() if found[0] == "name"}
    partners: dict[str, list[ast.expr]] = {}
    for one in expressions_of:
        for name in one.names.keys() - partners.keys():
            partners[name] = _partners(name, others[name], ours)
        for choice in itertools.islice(itertools.product(*(partners[name] for name in one.names)), _FORMS):
            nodes: dict[ast.AST, ast.AST] = {
                node: new for name, new in zip(one.names, choice, strict=True) for node in one.names[name]
            }
            try:
                yield in_paddle(with_nodes(one.node, nodes), modules, places), one.is_absent
            except NotSpelledError:
                continue


def _partners(name: str, prints: Sequence[Print], ours: Values) -> list[ast.expr]:
    """What holds the value of a name of the reference's in a function of the port, or a plain number itself."""
    names = {
        other: difflib.SequenceMatcher(None, name.rpartition(".")[2], other.rpartition(".")[2]).ratio()
        for other, found in ours.items()
        if any(_same(one, two) for one in prints for two in found)
    }
    least = 0.0 if any(map(_tells, prints)) else _SAME_NAME
    alike = sorted((other for other in names if names[other] >= least), key=lambda other: -names[other])
    found: list[ast.expr] = [ast.parse(other, mode="eval").body for other in alike[:_NAMES]]
    if not found and len(prints) == 1 and prints[0][0] == () and len(prints[0][1]) == 1:
        number = prints[0][1][0]
        found = [ast.Constant(int(number) if number.is_integer() and abs(number) < 1e6 else number)]
    return found


def _edits(
    code: Code,
    named: Values,
    elsewhere: Sequence[Print],
    made: Sequence[tuple[ast.expr, bool]],
    chosen: Collection[int],
) -> Iterator[tuple[float, Graft]]:
    """How likely each is, from 0 to 1.6, and the edit."""
    known = {ast.dump(node) for node in expressions([code.tree])}
    made_of = _made_once(code)
    forms = {ast.dump(new): (new, is_absent) for new, is_absent in made}
    absent = _absent(code, named, elsewhere)
    for node in expressions([code.tree, *code.tree.args.defaults]):
        if chosen and id(node) not in chosen:
            continue
        # What the reference has as well is right where it stands.
        if ast.dump(node) in forms or not (isinstance(node, _COMPUTED) or getattr(node, "id", "") in made_of):
            continue
        for dumped, (new, is_absent) in forms.items():
            ours, theirs = _opened(node, new, made_of), _opened(new, node, made_of)
            are_absent = is_absent + (id(node) in absent)
            least = 0.0 if are_absent == len((ours, theirs)) else _LEAST
            share = ratio(ours, theirs, least)
            if dumped not in known and share >= least and _said(ours) != _said(theirs):
                likely = share + _ABSENT * are_absent
                yield likely, Graft(code, node, ast.copy_location(new, node))


def _made_once(code: Code) -> dict[str, ast.expr]:
    """Names that are assigned in one place of a function, and not in a loop → what they are made of."""
    found: dict[str, ast.expr] = {}
    stored = Counter(
        one.id for one in ast.walk(code.tree) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
    )
    for node in ast.walk(code.tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if stored[name] == 1 and name not in {one.id for one in ast.walk(node.value) if isinstance(one, ast.Name)}:
                found[name] = node.value
    return found


def _opened(node: ast.expr, other: ast.expr, made_of: Mapping[str, ast.expr]) -> list[str]:
    """The words of an expression, with what its names are made of in place of those that another has not."""
    closed = _read(other)
    for _ in range(_OPENED):
        names = [one for one in ast.walk(node) if isinstance(one, ast.Name) and one.id in made_of.keys() - closed]
        if not names:
            break
        opened: dict[ast.AST, ast.AST] = {one: made_of[one.id] for one in names}
        node = with_nodes(node, opened)
    return words_of(node)


def _read(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _said(words: Iterable[str]) -> list[str]:
    """What words say, whether as a function or a method, and whether numbers are whole or not."""
    return sorted(word.removesuffix(".0") for word in words if word not in _NOTHING)


def _tells(found: Print) -> bool:
    """Whether other names hardly have these values by chance, as they have 0, 1 or one small number everywhere."""
    values = {abs(value) for value in found[1]}
    return len(values) > 1 or not values <= _EVERYWHERE


def _same(one: Print, other: Print) -> bool:
    """Whether both are the same values, in the same order, in whatever shape."""
    if math.prod(one[0]) != math.prod(other[0]) or len(one[1]) != len(other[1]):
        return False
    ours, theirs = np.array(one[1]), np.array(other[1])
    return bool(np.abs(ours - theirs).max(initial=0.0) <= _SAME * np.abs(theirs).max(initial=0.0))
