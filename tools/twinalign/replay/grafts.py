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
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType
from typing import Any

from twinalign.replay.aligned_code import Code, last_part, parsed
from twinalign.replay.code_lines import Print
from twinalign.replay.code_text import shortened
from twinalign.replay.edited_trees import with_nodes
from twinalign.replay.helper_edits import HelperEdit
from twinalign.replay.likeness import ratio, words_of
from twinalign.replay.noted_values import Values
from twinalign.replay.slices import FAR
from twinalign.replay.small_edits import expressions
from twinalign.replay.torch_in_paddle import NotSpelledError, in_paddle

_SAME = 1e-6
"""Relative: two names stand for one value."""
_MOST, _MOST_NAMES = 40, 16
"""Edits, the likeliest first, and so many more of names, which are alike whatever the reference does with them."""
_NAMES, _FORMS = 2, 4
"""So many names of the port may stand for one of the reference's, and so many forms may an expression take."""
_LEAST, _ABSENT = 0.3, 0.3
"""Share of equal words that two expressions have at least; what one side's value adds that the other side lacks."""
_WITHIN = 0.6
"""That share at least, where the reference does something with a value that the port hands on as it is."""
_LATER = 0.25
"""So much less likely is each step by which a function counts as being farther."""
_SECONDS = 2.0
"""Of processor time, for the expressions of all functions."""
_OPENED = 3
"""So often are names opened."""
_NOTHING = frozenset(("torch", ".", ",", "(", ")"))
_MODULES = frozenset(("paddle", "torch", "np", "numpy", "F", "self", "math"))
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


class _Known:
    """The values of some functions."""

    def __init__(self, every: Iterable[Values]) -> None:
        self._by_size: dict[tuple[int, int], list[Print]] = {}
        for named in every:
            for found in (one for prints in named.values() for one in prints):
                self._by_size.setdefault((math.prod(found[0]), len(found[1])), []).append(found)

    def __contains__(self, wanted: Print) -> bool:
        return any(_same(wanted, one) for one in self._by_size.get((math.prod(wanted[0]), len(wanted[1])), ()))


def grafts(
    codes: Sequence[Code],
    values: Mapping[CodeType, Values],
    theirs: Sequence[tuple[Mapping[str, Any], Values]],
    far: Mapping[int, int],
    delays: Callable[[Code], int] = lambda code: 0,
    late: Callable[[Graft], int] = lambda graft: 0,
) -> list[Graft]:
    """Edits of the port's functions, the likeliest first.

    Args:
        values: of the port's functions.
        theirs: the reference's functions, as `values_of` has them.
        far, delays, late: as for `ordered_edits`; nothing is edited that has no distance, if anything has one.
    """
    every = _Known(values.values())
    shared = {(Path(code.co_filename).name, code.co_firstlineno) for code in values}  # as what makes the inputs
    alone = [(one, named) for one, named in theirs if (one["file"], one["line"]) not in shared]
    others = [(code, named) for one, named in alone if (code := code_of(one)) is not None]
    wanted = [(code, named, list(_expressions(code, named, every))) for code, named in others]
    theirs_all = _Known(named for _, named in others)
    found: list[tuple[float, Graft]] = []
    until = time.process_time() + _SECONDS

    def distance_of(code: Code) -> int:
        return delays(code) + min((far[id(node)] for node in code.nodes if id(node) in far), default=FAR)

    for code in sorted(codes, key=distance_of):
        if time.process_time() > until:
            break
        named = next((values[one.__code__] for one in code.functions if one.__code__ in values), {})
        ours = code.modules
        made = [form for of, others_named, some in wanted for form in _forms(of, others_named, some, named, ours)]
        later = _LATER * delays(code)
        found += ((likely - later, edit) for likely, edit in _edits(code, named, theirs_all, made, far))
    ranked = [edit for _, edit in sorted(found, key=lambda one: (late(one[1]), -one[0]))]
    names = [edit for edit in ranked[_MOST:] if isinstance(edit.old, (ast.Name, ast.Attribute))]
    return ranked[:_MOST] + names[:_MOST_NAMES]


def in_words_of_port(
    code: Code,
    named: Values,
    theirs: Sequence[tuple[Mapping[str, Any], Values]],
    place: tuple[str, int, str],
) -> list[ast.expr]:
    """An expression of the reference's, by file, line and text, as one of the port's functions may write it.

    Args:
        named: the values of the names in the port's function.
        theirs: as for `grafts`.
    """
    modules = code.modules
    if (found := function_at(theirs, place)) is None:
        return []
    of, its = found
    for node in expressions([of.tree]):
        if node.lineno == place[1] and shortened(node) == place[2] and (names := names_of_values(of, node, its)):
            one = _Expression(node, names, True)
            made = [form for form, _ in _forms(of, its, [one], named, modules)]
            return [*made, *(new for form in made if (new := _of_numbers(form, modules)) is not None)]
    return []


def function_at(
    theirs: Sequence[tuple[Mapping[str, Any], Values]], place: tuple[str, int, str]
) -> tuple[Code, Values] | None:
    """The reference's function around a place, and the values of its names; the innermost one."""
    file, line, _ = place
    found = [
        (code, named)
        for one, named in theirs
        if one["file"] == file and one["line"] <= line and (code := code_of(one)) is not None
    ]
    around = [both for both in found if line <= (both[0].tree.end_lineno or 0)]
    return max(around, key=lambda both: both[0].tree.lineno, default=None)


def _of_numbers(form: ast.expr, modules: Mapping[str, str]) -> ast.expr | None:
    """The same for Python's numbers, which paddle's functions do not take."""
    own, changed = modules.get("math"), dict[ast.AST, ast.AST]()
    for node in ast.walk(form):
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == modules.get("paddle"):
            if own is None or not hasattr(math, node.attr):
                return None
            changed[node] = ast.Attribute(ast.Name(own, ast.Load()), node.attr, ast.Load())
    found: ast.expr = with_nodes(form, changed)
    return found if changed else None


def code_of(function: Mapping[str, Any]) -> Code | None:
    """A function of the reference's, as `code_lines.Function` in JSON; None if it has no source."""
    return parsed(
        function["source"], function["file"], function["line"], function["name"], "torch", globals=function["globals"]
    )


def _expressions(code: Code, named: Values, elsewhere: _Known) -> Iterator[_Expression]:
    """What a function computes of values that it has names for, and of nothing else."""
    absent = _absent(code, named, elsewhere)
    for node in expressions([code.tree]):
        if isinstance(node, _COMPUTED) and (names := names_of_values(code, node, named)):
            yield _Expression(node, names, id(node) in absent)


def _absent(code: Code, named: Values, elsewhere: _Known) -> set[int]:
    """ids of what names are made of whose values are nowhere on the other side, and of what is returned."""
    found = set()
    for node in ast.walk(code.tree):
        if isinstance(node, ast.Return) and node.value is not None:
            found.add(id(node.value))
        elif isinstance(node, ast.Assign):
            prints = [one for target in node.targets for one in named.get(ast.unparse(target), ())]
            known = [one in elsewhere for one in prints]
            # One number is somewhere by chance; of tensors, those of later steps differ wherever the fault is.
            if prints and not (all(known) if not any(one[0] for one in prints) else any(known)):
                found.add(id(node.value))
    return found


def names_of_values(code: Code, node: ast.AST, named: Values) -> dict[str, list[ast.expr]] | None:
    """Names in an expression that stand for values; None if it needs something else, such as the user's functions."""
    found: dict[str, list[ast.expr]] = {}
    waiting: list[ast.AST] = [node]
    bound = {name for one in ast.walk(node) if isinstance(one, ast.comprehension) for name in _read(one.target)}
    while waiting:
        one = waiting.pop()
        if getattr(one, "id", "") in bound:
            continue
        if isinstance(one, (ast.Name, ast.Attribute, ast.Subscript)) and (written := ast.unparse(one)) in named:
            found.setdefault(written, []).append(one)
            continue
        if isinstance(one, ast.Name):
            kind, place = ([*code.globals.get(one.id, ("", "")), ""])[:2]
            of_library = kind == "name" and str(place).partition(".")[0] in ("torch", "numpy", "math", "paddle")
            if not of_library and not hasattr(builtins, one.id):
                return None
        elif isinstance(one, (ast.Lambda, ast.Starred)) or _makes_layer(one):
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
    modules = code.named_things
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
    """What holds the value of a name of the reference's in a function of the port, or a plain number itself.

    Where nothing has that value, what has its name and shape.
    """
    shared = {other: sum(any(_same(one, two) for two in found) for one in prints) for other, found in ours.items()}
    names = {
        other: difflib.SequenceMatcher(None, name.rpartition(".")[2], other.rpartition(".")[2]).ratio()
        for other in shared
        if shared[other]
    }
    least = 0.0 if any(map(_tells, prints)) else _SAME_NAME
    likest = sorted(names, key=lambda other: (-shared[other], -names[other]))
    alike = [other for other in likest if names[other] >= least]
    found: list[ast.expr] = [ast.parse(other, mode="eval").body for other in alike[:_NAMES]]
    if not found and len(prints) == 1 and not prints[0][0] and len(prints[0][1]) == 1:
        number = prints[0][1][0]
        found = [ast.Constant(int(number) if number.is_integer() and abs(number) < 1e6 else number)]
    # It may have been changed in place since.
    if not found and {tuple(one[0]) for one in prints} & {tuple(one[0]) for one in ours.get(name, ())}:
        found = [ast.parse(name, mode="eval").body]
    return found


def _edits(
    code: Code, named: Values, elsewhere: _Known, made: Sequence[tuple[ast.expr, bool]], chosen: Collection[int]
) -> Iterator[tuple[float, Graft]]:
    """How likely each is, from 0 to 1.6, and the edit."""
    known = {ast.dump(node) for node in expressions([code.tree])}
    opening = _Opening(made_once(code))
    forms = {dumped: one for one in made if (dumped := ast.dump(one[0])) not in known}
    right = {ast.dump(new) for new, _ in made}  # what the reference has as well is right where it stands
    around: dict[str, list[tuple[ast.expr, bool]]] = {}  # but for what the reference does with it
    for one in forms.values():
        for part in _directly_inside(one[0]):
            around.setdefault(ast.dump(part), []).append(one)
    absent = _absent(code, named, elsewhere)
    for node in expressions([code.tree, *code.tree.args.defaults]):
        if chosen and id(node) not in chosen:
            continue
        is_plain = not isinstance(node, _COMPUTED) and not opening.opens(node)
        if is_plain and not isinstance(node, (ast.Name, ast.Attribute)):
            continue
        inside = is_plain or ast.dump(node) in right
        for new, is_absent in around.get(ast.dump(node), []) if inside else forms.values():
            are_absent = is_absent + (id(node) in absent)
            least = 0.0 if are_absent == len((node, new)) or (is_plain and is_absent) else _LEAST
            if least and not opening.names(node) & opening.names(new):
                continue
            ours, theirs = opening.words(node, new), opening.words(new, node)
            share = ratio(ours, theirs, least)
            if share >= least and _said(ours) != _said(theirs):
                likely = max(share, _WITHIN) if is_plain else share
                yield likely + _ABSENT * are_absent, Graft(code, node, ast.copy_location(new, node))


def _directly_inside(node: ast.expr) -> Iterator[ast.AST]:
    """What an expression does something with: its operands, what it calls a method of, and what it gives a function."""
    for child in ast.iter_child_nodes(node):
        yield child.value if isinstance(child, ast.Attribute) and child is getattr(node, "func", None) else child


class _Opening:
    """Expressions of a function with what its names are made of in their place, however each side cuts it up."""

    def __init__(self, made_of: Mapping[str, ast.expr]) -> None:
        self._made_of = made_of
        self._words: dict[tuple[int, frozenset[str]], list[str]] = {}
        self._names: dict[int, frozenset[str]] = {}

    def opens(self, node: ast.expr) -> bool:
        """Whether it is a name that is made of something."""
        return getattr(node, "id", "") in self._made_of

    def names(self, node: ast.expr) -> frozenset[str]:
        """Its names and attributes, and those of what its names are made of."""
        if id(node) not in self._names:
            found, waiting = set[str](), [node]
            while waiting:
                new = {one.id for part in waiting for one in ast.walk(part) if isinstance(one, ast.Name)} - found
                found |= new | {
                    one.attr for part in waiting for one in ast.walk(part) if isinstance(one, ast.Attribute)
                }
                waiting = [self._made_of[name] for name in new if name in self._made_of]
            self._names[id(node)] = frozenset(found - _MODULES)
        return self._names[id(node)]

    def words(self, node: ast.expr, other: ast.expr) -> list[str]:
        """The words of an expression, with what its names are made of in place of those that another has not."""
        closed = _read(other) & self._made_of.keys()
        key = id(node), frozenset(closed)
        if key not in self._words:
            self._words[key] = words_of(self._opened(node, closed))
        return self._words[key]

    def _opened(self, node: ast.expr, closed: Collection[str]) -> ast.expr:
        for _ in range(_OPENED):
            names = [one for one in ast.walk(node) if isinstance(one, ast.Name) and one.id in self._made_of]
            opened: dict[ast.AST, ast.AST] = {one: self._made_of[one.id] for one in names if one.id not in closed}
            if not opened:
                break
            node = with_nodes(node, opened)
        return node


def made_once(code: Code) -> dict[str, ast.expr]:
    """Names that are assigned in one place of a function, and not in a loop → what they are made of."""
    stored = Counter(
        one.id for one in ast.walk(code.tree) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
    )
    every = itertools.chain.from_iterable(map(_assigned, ast.walk(code.tree)))
    return {name: value for name, value in every if stored[name] == 1 and name not in _read(value)}


def _assigned(node: ast.AST) -> list[tuple[str, ast.expr]]:
    """The names that a statement gives a value, each with its own: `a, b = 1, 2` too."""
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return []
    target, value = node.targets[0], node.value
    is_tuple = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts)
    pairs = zip(target.elts, value.elts, strict=True) if is_tuple else [(target, value)]  # type: ignore[attr-defined]
    return [(one.id, made) for one, made in pairs if isinstance(one, ast.Name)]


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
    largest = max(map(abs, other[1]), default=0.0)
    return all(abs(ours - theirs) <= _SAME * largest for ours, theirs in zip(one[1], other[1], strict=True))
