"""Edits that make a line of the port's code what the reference's source has in its place.

The two functions are aligned statement by statement. Where two partners differ, the smallest parts that differ are
exchanged, in paddle's spelling of the commonest names. Nothing here tells which edit is right: a re-run does.
"""

import difflib
import functools
import re
from collections.abc import Container, Iterator, Sequence

import libcst as cst

from twinalign.edits.source import Edit, Source

_SPELLED = {"torch": "paddle", "dim": "axis", "eps": "epsilon"}
_Exchanged = cst.BaseExpression | cst.BaseSmallStatement
_Statement = _Exchanged | cst.Param
_LATER = 10_000
_SAME_NAME, _OTHER_NAME = 0.3, 0.5
"""Share of equal words above which two statements are partners, where both begin alike and where they do not."""
_NAME = re.compile(r"[A-Za-z_]\w*")
_WORD = re.compile(r"[A-Za-z_]\w*|\d[\d.e+-]*|[^\s\w]")


def edits_from_reference(
    port: Source, span: tuple[int, int], reference: Source, other: tuple[int, int]
) -> Iterator[Edit | None]:
    """Edits of the function in these lines of the port, the smallest first, from the reference's function in others."""
    mine, theirs = _statements(port, span), _statements(reference, other)
    found: list[tuple[int, Edit | None]] = []
    for ours, partners in _differing(port, mine, reference, theirs):
        if ours and partners:
            found += _exchanged(port, ours[0], reference, partners[0])
        elif partners and mine:
            found += _inserted(port, mine, reference, theirs, partners)
        elif ours and isinstance(ours[0], cst.BaseSmallStatement):
            found.append((_size(port, ours[0]), port.edit(ours[0], cst.Pass())))
    known = set(_NAME.findall(port.text))
    found = [(size + _LATER * _is_spelling(edit, known), edit) for size, edit in found]
    yield from (edit for _, edit in sorted(found, key=lambda one: one[0]))


def _is_spelling(edit: Edit | None, known: Container[str]) -> bool:
    """Whether an edit rather writes torch's name of something: the port's file has not all of its names."""
    return edit is not None and (edit.before == "F" or not all(name in known for name in _NAME.findall(edit.after)))


def _statements(source: Source, span: tuple[int, int]) -> list[_Statement]:
    """What is exchanged as a whole in these lines, in the order of the text, without texts in quotes.

    Simple statements, the expressions of `for`, `if` and `while`, and parameters that have a default.
    """
    return [node for node in _statements_of_file(source) if span[0] <= source.span(node)[0] <= span[1]]


@functools.lru_cache(maxsize=16)  # a function is compared with many others, and telling kinds of nodes takes long
def _statements_of_file(source: Source) -> list[_Statement]:
    nodes: list[cst.CSTNode | None] = []
    for node in source.positions:
        if isinstance(node, cst.BaseSmallStatement):
            quoted = isinstance(node, cst.Expr) and isinstance(node.value, cst.SimpleString | cst.ConcatenatedString)
            nodes.append(None if quoted else node)
        elif isinstance(node, cst.If | cst.While):
            nodes.append(node.test)
        elif isinstance(node, cst.For):
            nodes.append(node.iter)
        elif isinstance(node, cst.Param):
            nodes.append(node if node.default is not None else None)
    return sorted((node for node in nodes if isinstance(node, _Statement)), key=source.span)


def _words(source: Source, node: cst.CSTNode) -> list[str]:
    parts = [node.name, node.default] if isinstance(node, cst.Param) else [node]  # a parameter's span is its name alone
    text = " ".join(source.text_of(part) for part in parts if part is not None)
    return [_SPELLED.get(word, word) for word in _WORD.findall(text)]


def similarity(port: Source, span: tuple[int, int], reference: Source, other: tuple[int, int]) -> float:
    """Share of equal words of two functions that stand in these lines, 0 to 1."""
    ours, theirs = (
        [word for node in _statements(source, lines) for word in _words(source, node)]
        for source, lines in ((port, span), (reference, other))
    )
    return difflib.SequenceMatcher(None, ours, theirs, autojunk=False).ratio()


def _differing(
    port: Source,
    mine: Sequence[_Statement],
    reference: Source,
    theirs: Sequence[_Statement],
) -> Iterator[tuple[Sequence[_Statement], Sequence[_Statement]]]:
    """Runs of the port's statements and of the reference's that stand in their place; one or none of each."""
    ours = [" ".join(_words(port, node)) for node in mine]
    others = [" ".join(_words(reference, node)) for node in theirs]
    for kind, first, last, begin, end in difflib.SequenceMatcher(None, ours, others, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        left, right = first, begin
        for at, partner in [*_pairs(ours[first:last], others[begin:end]), (last - first, end - begin)]:
            yield from ((mine[one : one + 1], ()) for one in range(left, first + at))
            if right < begin + partner:
                yield (), theirs[right : begin + partner]
            if first + at < last and begin + partner < end:
                yield mine[first + at : first + at + 1], theirs[begin + partner : begin + partner + 1]
            left, right = first + at + 1, begin + partner + 1


def _pairs(ours: Sequence[str], others: Sequence[str]) -> list[tuple[int, int]]:
    """The most alike partners of two runs of statements, in order (Needleman and Wunsch, 1970, without gap costs)."""
    best: dict[tuple[int, int], tuple[float, tuple[tuple[int, int], ...]]] = {}
    for at in range(len(ours) + 1):
        for other in range(len(others) + 1):
            found = [best[at - 1, other]] if at else []
            found += [best[at, other - 1]] if other else []
            if at and other:
                alike = _alike(ours[at - 1], others[other - 1])
                score, pairs = best[at - 1, other - 1]
                found += [(score + alike, (*pairs, (at - 1, other - 1)))] if alike else []
            best[at, other] = max(found, key=lambda one: one[0], default=(0.0, ()))
    return list(best[len(ours), len(others)][1])


def _alike(ours: str, other: str) -> float:
    """Share of equal words, more where both assign to one name; 0 if they have too little in common."""
    one, two = ours.split(), other.split()
    ratio = difflib.SequenceMatcher(None, one, two, autojunk=False).ratio()
    same_name = one[:1] == two[:1]
    return ratio + same_name if ratio > (_SAME_NAME if same_name else _OTHER_NAME) else 0.0


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
    if isinstance(old, _Exchanged) and isinstance(new, _Exchanged):
        size = _size(port, old) + _size(reference, new)
        yield size + (0 if whole else _LATER), port.edit(old, _in_paddle(new))


def _inserted(
    port: Source,
    mine: Sequence[_Statement],
    reference: Source,
    theirs: Sequence[_Statement],
    missing: Sequence[_Statement],
) -> Iterator[tuple[int, Edit | None]]:
    """The reference's statement behind the partner of the one before it, in the same line."""
    before = [node for node in theirs if reference.span(node) < reference.span(missing[0])]
    texts = {tuple(_words(port, node)): node for node in mine if isinstance(node, cst.BaseSmallStatement)}
    partner = next((texts[key] for node in before[::-1] if (key := tuple(_words(reference, node))) in texts), None)
    small = all(isinstance(node, cst.BaseSmallStatement) for node in missing)
    if partner is not None and small and not isinstance(partner, cst.Return):
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
    spelled = node.visit(_PaddleNames())
    return spelled if isinstance(spelled, cst.CSTNode) else node


class _PaddleNames(cst.CSTTransformer):
    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:  # noqa: N802 - LibCST's name
        return updated_node.with_changes(value=_SPELLED.get(original_node.value, original_node.value))
