"""Edits that make a line of the port's code what the reference's source has in its place.

The two functions are aligned statement by statement. Where two partners differ, the smallest parts that differ are
exchanged, in paddle's spelling of the commonest names. Nothing here tells which edit is right: a re-run does.
"""

import difflib
import re
from collections.abc import Iterator, Sequence

import libcst as cst
from libcst import matchers

from twinalign.edits.source import Edit, Source

_SPELLED = {"torch": "paddle", "dim": "axis", "eps": "epsilon"}
_EXCHANGED = cst.BaseExpression | cst.BaseSmallStatement
_LATER = 10_000
_WORD = re.compile(r"[A-Za-z_]\w*|\d[\d.e+-]*|[^\s\w]")


def edits_from_reference(
    port: Source, span: tuple[int, int], reference: Source, other: tuple[int, int]
) -> Iterator[Edit | None]:
    """Edits of the function in these lines of the port, the smallest first, from the reference's function in others."""
    mine, theirs = _statements(port, span), _statements(reference, other)
    found: list[tuple[int, Edit | None]] = []
    for ours, partners in _differing(port, mine, reference, theirs):
        if len(ours) == len(partners):
            for old, new in zip(ours, partners, strict=True):
                found += _exchanged(port, old, reference, new)
        elif not ours and mine:
            found += _inserted(port, mine, reference, theirs, partners)
        else:
            found += [(_size(port, old), port.edit(old, cst.Pass())) for old in ours]
    yield from (edit for _, edit in sorted(found, key=lambda one: one[0]))


def _statements(source: Source, span: tuple[int, int]) -> list[cst.BaseSmallStatement]:
    """The simple statements that begin in these lines, in the order of the text, without texts in quotes."""
    found = [
        node
        for node in source.positions
        if isinstance(node, cst.BaseSmallStatement)
        and span[0] <= source.span(node)[0] <= span[1]
        and not (isinstance(node, cst.Expr) and isinstance(node.value, cst.SimpleString | cst.ConcatenatedString))
    ]
    return sorted(found, key=source.span)


def _words(source: Source, node: cst.CSTNode) -> list[str]:
    return [_SPELLED.get(word, word) for word in _WORD.findall(source.text_of(node))]


def _differing(
    port: Source,
    mine: Sequence[cst.BaseSmallStatement],
    reference: Source,
    theirs: Sequence[cst.BaseSmallStatement],
) -> Iterator[tuple[Sequence[cst.BaseSmallStatement], Sequence[cst.BaseSmallStatement]]]:
    """Runs of the port's statements and of the reference's that stand in their place."""
    ours = [" ".join(_words(port, node)) for node in mine]
    others = [" ".join(_words(reference, node)) for node in theirs]
    for kind, first, last, begin, end in difflib.SequenceMatcher(None, ours, others, autojunk=False).get_opcodes():
        if kind != "equal":
            yield mine[first:last], theirs[begin:end]


def _exchanged(
    port: Source, old: cst.CSTNode, reference: Source, new: cst.CSTNode, whole: bool = True
) -> Iterator[tuple[int, Edit | None]]:
    """Of two partners the smallest parts that differ, and what holds them.

    An edit that leaves another difference beside it (not `whole`) comes after those that leave none.
    """
    ours, theirs = ([child for child in node.children if _is_code(child)] for node in (old, new))
    if type(old) is type(new) and len(ours) == len(theirs):
        pairs = zip(ours, theirs, strict=True)
        different = [pair for pair in pairs if _words(port, pair[0]) != _words(reference, pair[1])]
        for mine, other in different:
            yield from _exchanged(port, mine, reference, other, whole and len(different) == 1)
    if isinstance(old, _EXCHANGED) and isinstance(new, _EXCHANGED):
        size = _size(port, old) + _size(reference, new)
        yield size + (0 if whole else _LATER), port.edit(old, _in_paddle(new))


def _inserted(
    port: Source,
    mine: Sequence[cst.BaseSmallStatement],
    reference: Source,
    theirs: Sequence[cst.BaseSmallStatement],
    missing: Sequence[cst.BaseSmallStatement],
) -> Iterator[tuple[int, Edit | None]]:
    """The reference's statement behind the partner of the one before it, in the same line."""
    before = [node for node in theirs if reference.span(node) < reference.span(missing[0])]
    texts = {tuple(_words(port, node)): node for node in mine}
    partner = next((texts[key] for node in before[::-1] if (key := tuple(_words(reference, node))) in texts), None)
    if partner is not None and not isinstance(partner, cst.Return):
        added = "; ".join(cst.Module([]).code_for_node(_in_paddle(node)) for node in missing)
        text = port.text_of(partner)
        yield len(added), Edit(port.file, port.span(partner), text, f"{text}; {added}")


def _is_code(node: cst.CSTNode) -> bool:
    return not isinstance(
        node, cst.BaseParenthesizableWhitespace | cst.Comma | cst.LeftParen | cst.RightParen | cst.Dot
    )


def _size(source: Source, node: cst.CSTNode) -> int:
    return len(source.text_of(node))


def _in_paddle(node: cst.CSTNode) -> cst.CSTNode:
    """With the commonest names as paddle spells them."""
    spelled = matchers.replace(
        node,
        matchers.Name(value=matchers.MatchIfTrue(_SPELLED.__contains__)),
        lambda name, _: name.with_changes(value=_SPELLED[cst.ensure_type(name, cst.Name).value]),
    )
    return spelled if isinstance(spelled, cst.CSTNode) else node
