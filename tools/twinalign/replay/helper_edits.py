"""The line inside of a port's own function that is wrong, where the function stands for one of torch's.

Torch's function has no lines to compare. Each small edit of the port's function is tried: the one with which it gives
what torch's does, on other inputs as well, says which line is wrong, and how.
"""

import ast
import contextlib
import copy
import dataclasses
import functools
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from twinalign.replay.aligned_code import Code, last_part, line_of
from twinalign.replay.arguments_of_namesakes import arguments_of_namesakes
from twinalign.replay.assignment_edits import assignment_edits, repeated_edits, sibling_edits
from twinalign.replay.code_text import AS_WRITTEN, shortened, shortened_both
from twinalign.replay.counted_elements import counted_elements
from twinalign.replay.edited_trees import number_of, times, with_nodes
from twinalign.replay.exchanged_axes import exchanged_axes
from twinalign.replay.exchanged_parts import exchangeable
from twinalign.replay.fitting import fitting_number
from twinalign.replay.guarded import guarded
from twinalign.replay.lacking_calls import lacking_calls
from twinalign.replay.left_out_arguments import (
    left_out_arguments,
    left_out_factors,
    left_out_masks,
    left_out_names,
)
from twinalign.replay.likeness import are_siblings, own_words, words_of
from twinalign.replay.own_copies import own_copies
from twinalign.replay.port_lines import LinesVariant
from twinalign.replay.shares_of_ranges import shares_of_ranges
from twinalign.replay.sibling_functions import sibling_functions
from twinalign.replay.small_edits import expressions, plain_edits
from twinalign.replay.statement_edits import StatementEdit
from twinalign.replay.torch_in_paddle import with_paddles_words
from twinalign.replay.wording import Wording
from twinalign.verdict.array_difference import difference

_SECONDS, _LONGEST = 6.0, 2.0
"""Of processor time, for all edits, and for one, with which a loop may have no end."""
_EXACT = 1e-7
"""Relative: what an edit may leave of the difference to torch's function: constants are written in some digits."""
_ROUNDED = 1e-6
"""The same for float32: an image that is normalised in another order of operations."""
_DRAWS = (0.0, 0.3, 1.0, 3.0)
"""Relative sizes of what inputs are moved by; the first run is on the inputs as they are."""
_SHOWN = ast.Call, ast.BinOp, ast.Compare, ast.Subscript, ast.keyword, ast.Assign, ast.AugAssign, ast.Return
_LONGEST_SHOWN = 80
_DIGITS = 6
"""A number that is read off is taken for one of so many digits."""
Values = Mapping[str, np.ndarray]
Run = Callable[[LinesVariant | None, float], Values]


@dataclasses.dataclass(frozen=True)
class HelperEdit:
    """A part of a function of the port, and what it must be for the function to give what torch's gives."""

    code: Code
    old: ast.expr | ast.stmt
    new: ast.expr | ast.stmt

    @property
    def text(self) -> str:
        """What the port has in place of what, with the line."""
        before, after = self._both
        return f"`{before}` in place of `{after}`, {line_of(self.code, self.old)}"

    def to_json(self) -> dict[str, Any]:
        found = dict(zip(("before", "after"), self._both, strict=True))
        return found | ({"of_line": of_line} if (of_line := self._of_line) else {})

    @property
    def _of_line(self) -> list[int]:
        """Which one it is of those that read alike in that line, from 0, and how many there are, if more than one."""
        around, text = self._around, ast.unparse(self._around)
        alike = [
            one
            for one in self.code.nodes
            if type(one) is type(around) and getattr(one, "lineno", 0) == self.old.lineno and ast.unparse(one) == text
        ]
        alike.sort(key=lambda one: getattr(one, "col_offset", 0))
        at = next((at for at, one in enumerate(alike) if one is around), None)
        return [at, len(alike)] if len(alike) > 1 and at is not None else []

    @property
    def _around(self) -> ast.AST:
        """The smallest operation or call around a mere name, number or slice, which says nothing alone; if it is long,
        the keyword with it."""
        found: ast.AST = self.old
        for node in ast.walk(self.code.tree) if isinstance(self.old, (ast.Name, ast.Constant, ast.Slice)) else ():
            if not isinstance(node, _SHOWN) or all(one is not self.old for one in ast.walk(node)):
                continue
            if found is self.old if isinstance(node, ast.keyword) else len(ast.unparse(node)) <= _LONGEST_SHOWN:
                found = node
        return found

    @property
    def _both(self) -> tuple[str, str]:
        """What is there and what takes its place, in the port's names, also where the reference's code does."""
        tree, names = copy.deepcopy(with_paddles_words(self.within(self._around))), dict[str, ast.AST]()
        for node in ast.walk(self.code.tree):
            if isinstance(node, ast.Name) and (written := getattr(node, AS_WRITTEN, None)) is not None:
                names[node.id] = written
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and node.id in names and not hasattr(node, AS_WRITTEN):
                setattr(node, AS_WRITTEN, names[node.id])
        return shortened_both(self._around, tree)

    @property
    def exchanges(self) -> bool:
        """Whether both have the same words, in another order."""
        return sorted(words_of(self.old)) == sorted(words_of(self.new))

    @property
    def edited(self) -> Code:
        """The function with the edit in it."""
        return dataclasses.replace(self.code, tree=self.within(self.code.tree))

    @property
    def lines_of_port(self) -> list[tuple[str, int, int]]:
        return [(self.code.file, self.old.lineno, self.old.end_lineno or self.old.lineno)]

    @property
    def changes(self) -> dict[ast.AST, ast.AST]:
        """Part of the function's code → what takes its place."""
        return {self.old: self.new}

    def within(self, tree: ast.AST) -> Any:
        """A piece of the function's code with the edit in it; the given one stays as it is."""
        return with_nodes(tree, self.changes)


@dataclasses.dataclass(frozen=True)
class PartsExchanged(HelperEdit):
    """Two parts of a function of the port, `old` and `new`, that must stand in each other's place."""

    @property
    def text(self) -> str:
        one, other = (f"`{shortened(part)}`, {line_of(self.code, part)}" for part in (self.old, self.new))
        return f"{one}, and {other}, stand in each other's place"

    def to_json(self) -> dict[str, str]:
        one, other = (f"`{shortened(part)}`" for part in (self.old, self.new))
        return {"to_do": f"exchange {one} and {other}"}

    @property
    def exchanges(self) -> bool:
        return True

    @property
    def lines_of_port(self) -> list[tuple[str, int, int]]:
        return [(self.code.file, part.lineno, part.end_lineno or part.lineno) for part in (self.old, self.new)]

    @property
    def changes(self) -> dict[ast.AST, ast.AST]:
        return {self.old: self.new, self.new: self.old}


@dataclasses.dataclass(frozen=True)
class BothEdits(HelperEdit):
    """Two edits of a function at once; `old` and `new` are those of the first."""

    other: HelperEdit

    @property
    def text(self) -> str:
        is_same = super().text == self.other.text
        return f"{super().text}, in both places" if is_same else f"{super().text}, and {self.other.text}"

    def to_json(self) -> dict[str, str]:
        both = (super().to_json(), self.other.to_json())
        to_do = dict.fromkeys(f"write `{one['after']}` in place of `{one['before']}`" for one in both)
        return {"to_do": " and ".join(to_do) if len(to_do) > 1 else f"{', '.join(to_do)}, in both places"}

    @property
    def lines_of_port(self) -> list[tuple[str, int, int]]:
        return list(dict.fromkeys([*super().lines_of_port, *self.other.lines_of_port]))

    @property
    def changes(self) -> dict[ast.AST, ast.AST]:
        return super().changes | self.other.changes


Edit = HelperEdit | StatementEdit


def mended_helper(variant: LinesVariant, run: Run) -> HelperEdit | None:
    """The edit of a function that a line of the port calls with which the line does what the reference's does.

    None if it calls no function of the port's own, or no edit does.

    Args:
        variant: the line that is proven to be wrong.
        run: the unit's values under a variant (None: the reference's own), with inputs that are moved.
    """
    helpers = variant.helpers.alone
    called = code_running(variant, helpers)
    theirs = [line.old for line in variant.lines if line.old is not None]
    if not called or not theirs:
        return None
    right = run(None, 0.0)

    def remaining(edit: HelperEdit) -> np.ndarray:
        return _flat(run(with_edited_function(variant, edit), 0.0), right)

    edits: Iterator[HelperEdit] = itertools.chain(
        ranked_edits(called, theirs),
        (edit for code in called for edit in read_off(code, remaining)),
    )
    if any(own_words(line.old) != own_words(line.new) for line in variant.lines if line.old and line.new):
        # A line that gives other arguments is wrong itself, and not the defaults for all calls.
        edits = (edit for edit in edits if all(edit.old is not one for one in edit.code.tree.args.defaults))
    return fitting_edit(edits, functools.partial(with_edited_function, variant), run)


def fitting_edit(
    edits: Iterable[HelperEdit], mended: Callable[[HelperEdit], LinesVariant], run: Run
) -> HelperEdit | None:
    """The first edit with which the port's lines give the reference's values on all draws, within a limit of time.

    `mended`: the lines with an edit. `run`: as for `mended_helper`.
    """
    until, right = time.process_time() + _SECONDS, functools.cache(functools.partial(run, None))
    for draw in _DRAWS:
        with contextlib.suppress(Exception):  # the code may not run on moved inputs
            right(draw)
    for edit in edits:
        if time.process_time() > until:
            return None
        try:
            with guarded(_LONGEST):
                if all(is_same(run(mended(edit), draw), right(draw)) for draw in _DRAWS):
                    return edit
        except Exception:  # an edit may not run, nor the code on moved inputs
            continue
    return None


def with_edited_function(variant: LinesVariant, edit: Edit) -> LinesVariant:
    """Lines that call a function of the port, with an edit in it."""
    functions = [edit.edited if code is edit.code else code for code in variant.helpers.functions]
    return dataclasses.replace(variant, helpers=dataclasses.replace(variant.helpers, functions=functions))


def edits_of_function(code: Code, theirs: Sequence[ast.AST], known: Sequence[Code]) -> Iterator[HelperEdit]:
    """Small edits of a function of the port.

    Args:
        theirs: the reference's code that does the same.
        known: the port's functions that it may call.
    """
    parts = [*code.tree.body, *code.tree.args.defaults]
    yield from (PartsExchanged(code, *both) for both in exchangeable([code.tree]))
    of_function = (left_out_names, left_out_masks, left_out_factors)
    nodes = [node for part in theirs for node in ast.walk(part)]
    arguments = left_out_arguments(code, parts, known), arguments_of_namesakes(parts, nodes)
    lacking = *arguments, *(find(code, parts) for find in of_function)
    plain = plain_edits(parts, nodes, ast.walk(code.tree))
    pairs = itertools.chain(exchanged_axes(code.tree), repeated_edits(code.tree))
    yield from (BothEdits(code, *one, HelperEdit(code, *other)) for one, other in pairs)
    others = assignment_edits(code.tree), sibling_edits(code.tree), counted_elements(parts), own_copies(code.tree)
    around = lacking_calls(code, parts, nodes, known)
    edits = itertools.chain(*lacking, *others, sibling_functions(code), shares_of_ranges(code.tree), plain, around)
    yield from (HelperEdit(code, *edit) for edit in edits)


def ranked_edits(codes: Sequence[Code], theirs: Sequence[ast.AST]) -> list[HelperEdit]:
    """Small edits of functions: what exchanges parts first, then what brings them nearer to the reference's wording;
    other names, of which there are many, and signs and factors last, of which one fits by chance.

    `theirs`: the reference's code that does the same.
    """
    ranks = ranks_of_edits(codes, theirs)
    return sorted(ranks, key=lambda edit: (ranks[edit][0] > 0, ranks[edit][1], ranks[edit][0]))


def ranks_of_edits(
    codes: Sequence[Code], theirs: Sequence[ast.AST], chosen: Callable[[HelperEdit], bool] = lambda edit: True
) -> dict[HelperEdit, tuple[int, int]]:
    """Each `chosen` small edit → from 0, what exchanges parts, to 4, signs and factors; and the wording that is lost,
    at most 0.

    Another edit that writes the same is the same.
    """
    wording = Wording([code.tree for code in codes], theirs)
    edits = (edit for code in codes for edit in edits_of_function(code, theirs, codes) if chosen(edit))
    different = {(id(one.old), type(one), ast.dump(one.new)): one for one in edits}.values()
    return {edit: (_rank(edit), -max(wording.gain(edit.old, edit.new), 0)) for edit in different}


def _writes_other_name(edit: HelperEdit) -> bool:
    """Whether an edit writes another name that is none of its siblings, such as `x2` for `x1`."""
    if not isinstance(edit.new, ast.Name) or edit.new.id in {getattr(one, "id", "") for one in ast.walk(edit.old)}:
        return False
    return not (isinstance(edit.old, ast.Name) and are_siblings(edit.old.id, edit.new.id))


def _rank(edit: HelperEdit) -> int:
    if edit.exchanges:
        return 0
    if isinstance(edit.old, ast.Constant):  # whole numbers may be axes and places, which fit no scale by chance
        both = (edit.old.value, getattr(edit.new, "value", None))
        return 1 if all(isinstance(one, int) for one in both) else 2
    scales = isinstance(edit.new, (ast.UnaryOp, ast.Call)) or isinstance(getattr(edit.new, "op", None), ast.Mult)
    if scales and edit.old in _given_to(edit.new):
        if isinstance(edit.new, ast.BinOp) and isinstance(edit.new.right, ast.Name):  # a square, or what is lacking
            return 3 if edit.new.left is edit.new.right else 2
        return 4
    return 3 if _writes_other_name(edit) else 1


def _given_to(node: ast.AST) -> list[ast.AST]:
    """What a factor, a sign or `detach` stands before or behind of."""
    children = list(ast.iter_child_nodes(node))
    is_detached = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "detach"
    if not isinstance(node, ast.Call):
        return children
    return list(ast.iter_child_nodes(node.func)) if is_detached else []


def reached(variant: LinesVariant, helpers: Mapping[str, Code]) -> list[str]:
    """The port's own functions that its line calls, and those that these call, whatever they are called there."""
    own = {id(code): name for name, code in helpers.items()}
    return list(dict.fromkeys(own[id(code)] for code in code_running(variant, helpers) if id(code) in own))


def code_running(variant: LinesVariant, helpers: Mapping[str, Code]) -> list[Code]:
    """The port's own functions that run with its lines, those that are called first before others, and the methods of
    its classes that are made there."""
    found, waiting = list[Code](), [(one.new, one.ours) for one in variant.lines if one.new is not None]
    known = variant.helpers
    while waiting:
        tree, code = waiting.pop(0)
        nodes = list(ast.walk(tree))
        read = {node.id for node in nodes if isinstance(node, ast.Name)}
        read |= {last_part(str(code.globals[name][1])) for name in read if name in code.globals}
        read |= {name for node in nodes if (name := known.layer(code, node) or known.method(code, node))}
        called = [helpers[name] for name in helpers if name in read]
        called += [method for name in known.classes if name in read for method in known.classes[name]]
        for one in [one for one in called if all(one is not other for other in found)]:
            found.append(one)
            waiting.append((one.tree, one))
    return found


def read_off(code: Code, remaining: Callable[[HelperEdit], np.ndarray]) -> Iterator[HelperEdit]:
    """Edits with the number that leaves least: in place of one, or as a factor."""
    for node in expressions([*code.tree.body, *code.tree.args.defaults]):
        number = number_of(node)
        if isinstance(node, ast.Constant) and number is None:
            continue
        start = 1.0 if number is None else float(number)

        def made(value: float, node: ast.expr = node) -> HelperEdit:
            new = ast.copy_location(ast.Constant(value), node) if isinstance(node, ast.Constant) else times(node, value)
            return HelperEdit(code, node, new)

        try:
            found = fitting_number(lambda value: remaining(made(value)), start, 1)
        except Exception:  # with another number the code may not run
            continue
        if found is not None and np.isfinite(found) and found != start:
            yield made(float(f"{found:.{_DIGITS}g}"))


def _flat(found: Values, right: Values) -> np.ndarray:
    parts = [
        np.asarray(found[name] - right[name], np.float64).ravel() for name in right if right[name].dtype.kind == "f"
    ]
    return np.concatenate(parts) if parts else np.zeros(0)


def is_same(found: Values, right: Values, rounded: bool = False) -> bool:
    """Whether values agree but for what constants in some digits make, or rounding to float32 (`rounded`: in all)."""
    shares = {name: _ROUNDED if rounded or value.dtype == np.float32 else _EXACT for name, value in right.items()}
    return found.keys() >= right.keys() and all(
        difference(found[name], value).relative <= shares[name] for name, value in right.items()
    )
