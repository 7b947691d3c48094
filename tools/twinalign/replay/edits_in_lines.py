"""The edit inside of lines of the port with which they do what the reference's lines in their place do.

A formula that is written otherwise gives the port's values only with all of its lines, of which one may be wrong.
Which one shows where the port is mended: with the right edit of it all lines together give the reference's values.
"""

import ast
import builtins
import dataclasses
import difflib
import functools
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from twinalign.replay.aligned_code import Code, Difference
from twinalign.replay.edited_trees import with_nodes
from twinalign.replay.exchanged_parts import exchangeable
from twinalign.replay.helper_edits import Edit, HelperEdit, PartsExchanged, Run, fitting_edit, mended_helper
from twinalign.replay.left_out_arguments import left_out_arguments
from twinalign.replay.likeness import words_of
from twinalign.replay.port_lines import LinesVariant
from twinalign.replay.small_edits import in_calls_of_reference, parts_of_reference, plain_edits

_FEW_WORDS = 4
"""A single line in which both sides differ by no more words says itself what is wrong."""
_SAME_NAME = 0.8
"""Share of equal letters of two attributes that are called much alike, as `_scale` and `scale`."""


def told_inside(
    text: str, evidence: Mapping[str, Any], lines: LinesVariant, run: Run, edit: Edit | None = None
) -> tuple[str, dict[str, Any]] | None:
    """Text and evidence of an explanation that names `lines`, with the edit inside of them or of what they call.

    None if no such edit is known. `edit`: the one inside of a function that is.
    """
    head, found, end = text.rpartition(lines.detail)
    in_lines = (mended_lines,) if found else ()
    searches = (mended_helper, *in_lines) if len(lines.lines) == 1 else (*in_lines, mended_helper)
    edit = edit or lines.edit or next((one for search in searches if (one := search(lines, run)) is not None), None)
    if edit is None:
        return None
    edit = _in_own_names(edit)
    known = {"helper_edit": edit.to_json() | {"of": text}}
    if any(edit.code is one.ours for one in lines.lines) or edit.text == lines.detail:
        return head + edit.text + end, {**evidence, "lines_of_port": edit.lines_of_port, **known}
    joint, end = ("", end) if found else ("; ", "")
    where = "in" if lines.is_whole else "called by"
    said = f"{head}{joint}{edit.text}; {where} {found or 'the line'}{end}"
    return said, {**evidence, "lines_of_port": [*edit.lines_of_port, *evidence["lines_of_port"]], **known}


def _in_own_names(edit: Edit) -> Edit:
    """The edit with the port's attributes of `self` where it has the reference's that are called much like them."""
    if type(edit) is not HelperEdit or not isinstance(edit.new, ast.expr):
        return edit
    own = {one.attr for one in _of_self(edit.code.tree)}
    changed: dict[ast.AST, ast.AST] = {}
    for one in (one for one in _of_self(edit.new) if one.attr not in own):
        for name in difflib.get_close_matches(one.attr, own, 1, _SAME_NAME):
            changed[one] = ast.Attribute(one.value, name, ast.Load())
    new = ast.fix_missing_locations(ast.copy_location(with_nodes(edit.new, changed), edit.old))
    return dataclasses.replace(edit, new=new) if changed else edit


def _of_self(tree: ast.AST) -> list[ast.Attribute]:
    attributes = (one for one in ast.walk(tree) if isinstance(one, ast.Attribute))
    return [one for one in attributes if getattr(one.value, "id", "") == "self"]


def proof_of(variant: Any) -> dict[str, Any]:
    """What a proof has of lines of the port: where they stand, and whether what they call or are given may be wrong."""
    if not isinstance(variant, LinesVariant):
        return {}
    own = {*variant.helpers.alone, *variant.helpers.classes}
    nodes = [one for line in variant.lines if line.new is not None for one in ast.walk(line.new)]
    alike = [one for line in variant.lines if line.has_same_words for one in ast.walk(line.new or ast.Pass())]
    functions = {id(one.func): one.func for one in alike if isinstance(one, ast.Call)}  # local imports may name them
    calls = any(
        isinstance(one, ast.Name) and (one.id in own or (id(one) in functions and not hasattr(builtins, one.id)))
        for one in nodes
    )
    blocks = (line.new.body for line in variant.lines if isinstance(line.new, ast.Module))
    calls = (calls or any(len(body) > 1 for body in blocks)) and variant.edit is None
    is_given = bool(variant.lines) and all(line.reads_other_values_alike for line in variant.lines)
    facts = {"calls_own_code": calls, "is_given_other_values": is_given}
    return {"lines_of_port": variant.lines_of_port, **{fact: True for fact, holds in facts.items() if holds}}


def mended_lines(variant: LinesVariant, run: Run) -> HelperEdit | None:
    """The edit of the lines with which they give the reference's values, on other inputs as well; None if none does.

    Args:
        variant: lines that are proven to give the port's values.
        run: the unit's values under a variant (None: the reference's own), with inputs that are moved.
    """
    if variant.is_whole or not _says_too_much(variant):
        return None
    return fitting_edit(_edits(variant), functools.partial(_with, variant), run)


def _says_too_much(variant: LinesVariant) -> bool:
    """Whether a reader would have to find what is wrong in what differs."""
    if not all(one.text in variant.detail for one in variant.lines if one.old is not None and one.new is not None):
        return False  # it has words of its own
    return len(variant.lines) > 1 or any(_differing_words(one) > _FEW_WORDS for one in variant.lines)


def _differing_words(line: Difference) -> int:
    old, new = ([word for word in words_of(side) if word not in "()[],"] for side in (line.old, line.new))
    if not old or not new:
        return 0
    changes = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return sum(max(last - first, end - begin) for kind, first, last, begin, end in changes if kind != "equal")


def _edits(variant: LinesVariant) -> Iterator[HelperEdit]:
    lines = [(line, _parts(line, len(variant.lines) == 1)) for line in variant.lines if line.new is not None]
    theirs = [line.old for line in variant.lines if line.old is not None]
    nodes = [node for part in theirs for node in ast.walk(part)]
    lacking = [line.old for line in variant.lines if line.old is not None and line.new is None]
    for line, parts in lines:
        # What has a partner stands in its place alone: another line's code there would make that line do nothing.
        for old, new in parts_of_reference(parts, lacking if line.old is None else [line.old, *lacking]):
            if not _read(new) & _assigned(line.theirs) - _assigned(line.ours):
                yield HelperEdit(line.ours, old, new)
    for code in dict.fromkeys(line.ours for line, _ in lines):
        own: list[Any] = [line.new for line, _ in lines if line.ours is code]
        statements = [one for node in own for one in (node.body if isinstance(node, ast.Module) else [node])]
        yield from (PartsExchanged(code, *both) for both in exchangeable([ast.Module(statements, [])]))
    for line, parts in lines:
        yield from (
            HelperEdit(line.ours, *edit) for edit in left_out_arguments(line.ours, parts, variant.helpers.functions)
        )
    every = [
        (HelperEdit(line.ours, *edit) for edit in plain_edits(parts, nodes, ast.walk(line.ours.tree)))
        for line, parts in lines
    ]
    yield from (edit for edits in itertools.zip_longest(*every) for edit in edits if edit is not None)
    for line, parts in lines:
        yield from (HelperEdit(line.ours, *edit) for edit in in_calls_of_reference(parts, theirs))


def _parts(line: Difference, is_alone: bool) -> list[ast.AST]:
    """What may be edited of a line: of one alone what is inside of what it shows to differ, which says more."""
    if is_alone and line.old is not None:
        return list(ast.iter_child_nodes(line.smallest[1]))
    return [] if line.new is None else [line.new]


def _read(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _assigned(code: Code) -> set[str]:
    """Names of a function's own; what only the reference's has still holds its right value beside lines of the port."""
    return {one.id for one in ast.walk(code.tree) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}


def _with(variant: LinesVariant, edit: HelperEdit) -> LinesVariant:
    lines = tuple(
        line if line.new is None else dataclasses.replace(line, new=edit.within(line.new)) for line in variant.lines
    )
    return dataclasses.replace(variant, lines=lines)
