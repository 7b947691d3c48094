"""Functions of the port as wholes in place of the reference's, where both are written too differently to be aligned.

A function of the port is called with what the reference's is given, and runs with all that it calls. If the reference
then gives the port's values, what is wrong is in it; those that call less are tried first.
"""

import ast
import dataclasses
import functools
import itertools
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from twinalign.replay.aligned_code import Code, Difference, last_part, line_of, own_attribute
from twinalign.replay.edited_trees import with_nodes
from twinalign.replay.function_edits import edit_of_function
from twinalign.replay.helper_edits import code_running, fitting_edit, ranked_edits, with_edited_function
from twinalign.replay.helpers import Helpers
from twinalign.replay.likeness import ratio, words_of
from twinalign.replay.line_runs import lines_by_values
from twinalign.replay.mask_forms import mask_of_port
from twinalign.replay.partner_functions import partners
from twinalign.replay.port_lines import LinesVariant, codes_of
from twinalign.replay.returned_tuples import returning_as

_SECONDS = 6.0
"""Of processor time."""
_MOST_PARTNERS = 3
_FIRST = 4
"""Edits of so many lines are tried first: those whose values are the first that the reference does not compute."""
_IS_NAMED = 1.0
Values = Mapping[str, np.ndarray]


def functions_as_wholes(
    functions: Sequence[Mapping[str, Any]],
    theirs: Sequence[Code],
    gives_port: Callable[[LinesVariant], bool],
    run: Callable[[LinesVariant | None, float], Values],
) -> Iterator[LinesVariant]:
    """Functions of the port with which the reference gives the port's values.

    That the whole of the port does so says nothing: what no other of its functions calls counts only if an edit inside
    of it is known.

    Args:
        functions: the port's own, as `code_lines.Function` in JSON.
        theirs: the reference's own functions.
        gives_port: whether lines give the port's values.
        run: as for `edit_of_function`.
    """
    until, wrong = time.process_time() + _SECONDS, set[str]()
    for variant, code, called, is_inner in _candidates(codes_of(functions), theirs):
        if time.process_time() > until:
            return
        if wrong & {code.name, *called} or not gives_port(variant):
            continue
        edit = None if is_inner else edit_of_function(variant, run)
        if is_inner or edit is not None:
            wrong.add(code.name)
            yield dataclasses.replace(variant, edit=edit)


class Layer(Protocol):
    """What is known of a layer, or of other code, that is wrong in the port.

    Attributes:
        unit: has the port's functions and steps, and both names of layers inside.
        port: the port's values that differ.
        lacking: prints of what the port computes and the reference does not.
    """

    unit: Any
    port: Values

    @property
    def lacking(self) -> Sequence[Any]: ...

    def run(self, variant: Any = None, moved: float = 0.0) -> Values:
        """The reference's values under a variant, with inputs that are moved."""
        raise NotImplementedError


def layers_as_wholes(
    layer: Layer, lines: Sequence[LinesVariant], gives_port: Callable[[LinesVariant], bool]
) -> Iterator[LinesVariant]:
    """What a layer of the port computes, in the reference's layer, with the edit that gives the reference's values.

    Args:
        layer: what is known of it.
        lines: the reference with one line of the port each.
        gives_port: whether lines give the port's values.
    """
    unit, named = layer.unit, lines[0]
    theirs = list({id(one.lines[0].theirs): one.lines[0].theirs for one in lines}.values())
    right_lines, others = lines_by_values(getattr(unit, "steps", ()), layer.lacking)
    places = {**dict.fromkeys(right_lines, 2), **dict.fromkeys(others[:_FIRST], 0)}
    labels = {name.removeprefix("input.").rpartition(".")[0] for name in layer.port}
    wrong_layers = {path.partition(".")[0] for path, label in unit.children if label in labels}
    functions, until = getattr(unit, "functions", ()), time.process_time() + _SECONDS
    for variant, _, _, _ in _candidates(codes_of(functions), theirs):
        if time.process_time() > until:
            return
        whole = _in_layer(variant, named.module, {**variant.names, **named.names})
        whole = _with_masks_of_port(whole, getattr(unit, "masks_of_port", {}))
        if not gives_port(whole):
            continue
        codes = code_running(whole, whole.helpers.alone)
        trees = [code.tree for code in theirs]
        edits = ranked_edits(codes, trees)
        given = _given_to_layers(codes, wrong_layers, whole.names)
        edits.sort(key=lambda edit: (edit.old not in given, places.get((edit.code.file, edit.old.lineno), 1)))
        edit = fitting_edit(edits, functools.partial(with_edited_function, whole), layer.run)
        if edit is not None:
            yield dataclasses.replace(whole, edit=edit, detail=edit.text)
            return


def _in_layer(variant: LinesVariant, module: Any, names: Mapping[str, Any]) -> LinesVariant:
    """A function in a layer of the reference, where layers that both sides have stay the reference's."""
    inside = {name for code in variant.helpers.functions for name in code.layers}
    paired = frozenset(name for name in inside if hasattr(module, str(names.get(name, name))))
    helpers = dataclasses.replace(variant.helpers, paired=paired)
    return dataclasses.replace(variant, module=module, names=names, helpers=helpers)


def _with_masks_of_port(whole: LinesVariant, masks: Mapping[int, list[list[float]]]) -> LinesVariant:
    """What a layer computes, with masks as the port has them: place of an argument → values, as `to_json` has them."""
    line = whole.lines[0]
    names = [one.arg for one in line.theirs.tree.args.args][1:]
    other = {names[place]: values for place, values in masks.items() if place < len(names)}
    if not other or line.new is None or not is_forward(line.theirs) or not is_forward(line.ours):
        return whole
    given = [one for one in ast.walk(line.new) if isinstance(one, ast.Name) and one.id in other]
    made: dict[ast.AST, ast.expr] = {one: mask_of_port(one, other[one.id]) for one in given}
    new = ast.fix_missing_locations(with_nodes(line.new, made))
    return dataclasses.replace(whole, lines=(dataclasses.replace(line, new=new), *whole.lines[1:]))


def _given_to_layers(codes: Sequence[Code], layers: Container[str], names: Mapping[str, Any]) -> set[ast.AST]:
    """What the port's code gives layers, by their names in the reference."""
    calls = [(call, own_attribute(call.func)) for code in codes for call in code.calls]
    wanted = [call for call, name in calls if name is not None and names.get(name, name) in layers]
    return {node for call in wanted for one in (*call.args, *call.keywords) for node in ast.walk(one)}


def _candidates(known: Sequence[Code], theirs: Sequence[Code]) -> Iterator[tuple[LinesVariant, Code, set[str], bool]]:
    """Each function of the port in the place of those most like it, what it calls, and whether another calls it."""
    shared = {(code.file, code.name, code.tree.lineno) for code in theirs}
    own = [code for code in known if code.has_run and (code.file, code.name, code.tree.lineno) not in shared]
    ours = [code for code in own if "<locals>" not in code.name]
    calls = {code.name: {other.name for other in ours if _reads(code, other)} for code in ours}
    pairs = [(one, other) for one, other in partners(theirs, known) if "." in one.name and "." in other.name]
    classes = {other.name.partition(".")[0]: one.name.partition(".")[0] for one, other in pairs}
    names = {**{last_part(other.name): last_part(one.name) for one, other in pairs}, **other_names(pairs)}
    found = []
    for code in ours:
        kin = [one for one in theirs if _kind(one) == _kind(code)]
        alike = sorted(kin, key=lambda one, code=code: -_likeness(one, code))  # type: ignore[misc]
        called = _reached(code.name, calls)
        size = is_forward(code), len(called)
        found += [(size, -_likeness(one, code), one, code, called) for one in alike[:_MOST_PARTNERS]]
    for _, _, one, code, called in sorted(found, key=lambda item: item[:2]):
        if (variant := _as_a_whole(one, code, known, classes)) is not None:
            yield (
                dataclasses.replace(variant, names=names),
                code,
                called,
                any(code.name in others for others in calls.values()),
            )


def other_names(pairs: Sequence[tuple[Code, Code]]) -> dict[str, str]:
    """Attributes in the port's methods → those that stand in the same places of the reference's."""
    found: dict[str, str] = {}
    waiting: list[tuple[ast.AST, ast.AST]] = [
        both for one, other in pairs for both in zip(one.tree.body, other.tree.body, strict=False)
    ]
    while waiting:
        one, other = waiting.pop(0)
        if isinstance(one, ast.Attribute) and isinstance(other, ast.Attribute) and one.attr != other.attr:
            found.setdefault(other.attr, one.attr)
        if type(one) is type(other):
            waiting += zip(ast.iter_child_nodes(one), ast.iter_child_nodes(other), strict=False)
    return found


def _likeness(one: Code, other: Code) -> float:
    names = [code.name.rpartition(".")[2] for code in (one, other)]
    named = _IS_NAMED if names[0] == names[1] else 0.5 * ratio(list(names[0]), list(names[1]))
    return ratio(one.words, other.words) + named


def is_forward(code: Code) -> bool:
    """Whether it is what a layer computes."""
    return code.name.endswith(".forward")


def _kind(code: Code) -> tuple[bool, str]:
    """Whether a function is a method, and the name of one that Python calls."""
    name = code.name.rpartition(".")[2]
    return "." in code.name, name if name.startswith("__") else ""


def _reads(code: Code, other: Code) -> bool:
    return other is not code and last_part(other.name) in code.names


def _reached(name: str, calls: Mapping[str, set[str]]) -> set[str]:
    """The functions of the port that run in one."""
    reached, waiting = set[str](), [name]
    while waiting:
        new = calls[waiting.pop()] - reached
        reached |= new
        waiting += new
    return reached


def _as_a_whole(theirs: Code, ours: Code, known: Sequence[Code], classes: Mapping[str, str]) -> LinesVariant | None:
    """The reference's function handing on what it is given; None if it is not given what the port's needs."""
    given = _given(theirs, ours)
    if given is None or any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in ast.walk(theirs.tree)):
        return None
    name = ours.name.replace(".", "_")
    tree = returning_as(theirs.tree, ours.tree)
    alone = ours if (name, tree) == (ours.name, ours.tree) else dataclasses.replace(ours, name=name, tree=tree)
    called = ast.Name(name, ast.Load())
    call = ast.Return(ast.Call(called, *given))
    if ours.of_arrays:
        on_arrays = ast.Attribute(ast.Name("paddle", ast.Load()), "on_arrays", ast.Load())
        call = ast.Return(ast.Call(on_arrays, [called, *given[0]], given[1]))
    place = {"lineno": ours.tree.lineno, "end_lineno": ours.tree.end_lineno, "col_offset": 0, "end_col_offset": 0}
    for node in ast.walk(call):
        if isinstance(node, (ast.expr, ast.stmt)):
            for field, value in place.items():
                setattr(node, field, value)
    names = {name: ["name", f"port.{name}"], "paddle": ["name", "paddle"]}
    caller = Code(theirs.tree, ours.file, ours.name, names)
    line = Difference(theirs, caller, (id(theirs.tree.body[0]), "before"), theirs.tree, call)
    known_defaults, own = _defaults(theirs), _defaults(ours)
    defaults = [
        Difference(theirs, ours, (id(known_defaults[other]), "instead"), known_defaults[other], own[name])
        for name, other in _pairs(given, ours)
        if name in own and other in known_defaults and words_of(own[name]) != words_of(known_defaults[other])
    ]
    text = f"`{ours.name}`, {line_of(ours)}, as a whole in place of `{theirs.name}`, {line_of(theirs)}"
    others = [code for code in known if code is not ours]
    return LinesVariant(text, (line, *defaults), None, {}, Helpers(classes, [*others, alone]))


def _defaults(code: Code) -> dict[str, ast.expr]:
    """What parameters are where they are not given."""
    known = code.tree.args
    names = [one.arg for one in (*known.posonlyargs, *known.args)]
    return dict(zip(reversed(names), reversed(known.defaults), strict=False))


def _pairs(given: tuple[list[ast.expr], list[ast.keyword]], ours: Code) -> list[tuple[str, str]]:
    """Parameters of the port's function, and those of the reference's that they are given."""
    positional, named = given
    mine = [one.arg for one in (*ours.tree.args.posonlyargs, *ours.tree.args.args)]
    pairs = [*zip(mine, positional, strict=False), *((str(one.arg), one.value) for one in named)]
    return [(name, value.id) for name, value in pairs if isinstance(value, ast.Name)]


def _given(theirs: Code, ours: Code) -> tuple[list[ast.expr], list[ast.keyword]] | None:
    """What the port's function is called with: by the same names, the others in their order."""
    known, own = theirs.tree.args, ours.tree.args
    if known.vararg or known.kwarg or own.vararg or own.kwarg:
        return None
    names = [one.arg for one in (*known.posonlyargs, *known.args, *known.kwonlyargs)]
    mine = [one.arg for one in (*own.posonlyargs, *own.args, *own.kwonlyargs)]
    left = iter([name for name in names if name not in mine])
    places = {name: name if name in names else next(left, None) for name in mine}
    needed = [one.arg for one in own.args[: len(own.args) - len(own.defaults)]]
    if any(places[name] is None for name in (*needed, *(one.arg for one in own.posonlyargs))):
        return None
    positional = [*own.posonlyargs, *own.args]
    first = list(itertools.takewhile(lambda one: places[one.arg] is not None, positional))
    keywords = [name for name in mine if name not in {one.arg for one in first} and places[name] is not None]
    return (
        [ast.Name(str(places[one.arg]), ast.Load()) for one in first],
        [ast.keyword(name, ast.Name(str(places[name]), ast.Load())) for name in keywords],
    )
