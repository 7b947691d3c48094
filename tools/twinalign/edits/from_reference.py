"""Edits that make a line of the port's code what the reference's source has in its place.

The two functions are aligned statement by statement. Where two partners differ, the smallest parts that differ are
exchanged, put in or taken out, in paddle's spelling of the commonest names. Nothing here tells which edit is right: a
re-run does.
"""

import ast
import difflib
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import libcst as cst

from twinalign.edits.source import Edit, Source
from twinalign.edits.statements import (
    Exchanged,
    Lines,
    Statement,
    code_of,
    in_paddle,
    spelled,
    statements,
    with_lists,
    words,
)
from twinalign.replay.likeness import partners_in_order, ratio

_LATER = 10_000
_UNKNOWN_NAMES = 5_000
"""What is added to the size of an edit that leaves another difference, and of one that writes names new to the file."""
_PARTNERS = 0.6
"""Share of equal words from which a part of an expression is taken for the partner of another."""
_LONGEST = 120
"""Words; longer expressions are not taken apart, since each of their parts is compared."""
_OF_PADDLE = ("weight_attr", "default_initializer", "parameters", "name")
"""Keywords that paddle's calls have where torch's have none of that name: they are no difference."""
_AS_LISTS = str.maketrans("()", "[]")
_PLACE = "__place__"
_NAME = re.compile(r"[A-Za-z_]\w*")
_Found = tuple[int, Edit | None]
"""Size of an edit, by which the likelier comes first, and the edit."""


def edits_from_reference(port: Source, span: Lines, reference: Source, other: Lines) -> list[tuple[int, Edit]]:
    """Edits of the function in these lines of the port, the likeliest first, from the reference's function in others.

    Before each stands its size, by which edits of several functions are to be ordered.
    """
    reference = with_lists(reference, port)
    mine, theirs = statements(port, span, "paddle"), statements(reference, other, "torch")
    found: list[_Found] = [*_reordered(port, mine, reference, theirs), *_cut_off(port, mine, reference, theirs)]
    differing = list(_differing(port, mine, reference, theirs))
    alike = {partners[0]: ours[0] for ours, partners in differing if ours and partners}
    for ours, partners in differing:
        if ours and partners:
            found += _exchanged(port, ours[0], reference, partners[0])
        elif partners and mine:
            found += _inserted(port, mine, reference, theirs, partners, alike)
        elif ours and isinstance(ours[0], cst.BaseSmallStatement):
            found.append((_size(port, ours[0]), port.without(ours[0])))
    ranked = [(size + _UNKNOWN_NAMES * is_spelling(edit, port), edit) for size, edit in found if edit is not None]
    return sorted(ranked, key=lambda one: one[0])


def is_spelling(edit: Edit, port: Source) -> bool:
    """Whether an edit rather writes torch's name of something: the port's file has not all of its names.

    The keyword of an argument is no such name. Nor is a list for a tuple more than spelling, or a module for `self`.
    """
    if edit.before.translate(_AS_LISTS) == edit.after.translate(_AS_LISTS):
        return True
    if edit.before == "self" and re.search(rf"\b(import|as) {re.escape(edit.after)}\b", port.text):
        return True
    known = set(_NAME.findall(port.text))
    names = _NAME.findall(re.sub(r"\w+\s*=(?!=)|[\"'][^\"']*[\"']", "", edit.after))
    return edit.before == "F" or not all(name in known or name in ("True", "False", "None") for name in names)


def similarity(port: Source, span: Lines, reference: Source, other: Lines) -> float:
    """Share of equal words of two functions that stand in these lines, 0 to 1."""
    ours, theirs = (
        [word for node in statements(source, lines, framework) for word in words(source, node)]
        for source, lines, framework in ((port, span, "paddle"), (reference, other, "torch"))
    )
    return ratio(ours, theirs)


def _differing(
    port: Source,
    mine: Sequence[Statement],
    reference: Source,
    theirs: Sequence[Statement],
) -> Iterator[tuple[Sequence[Statement], Sequence[Statement]]]:
    """Runs of the port's statements and of the reference's that stand in their place; one or none of each."""
    ours = [" ".join(words(port, node)) for node in mine]
    others = [" ".join(words(reference, node)) for node in theirs]
    for kind, first, last, begin, end in difflib.SequenceMatcher(None, ours, others, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        left, right = first, begin
        pairs = _partners(ours[first:last], others[begin:end])
        for at, partner in [*pairs, (last - first, end - begin)]:
            yield from ((mine[one : one + 1], ()) for one in range(left, first + at))
            if right < begin + partner:
                yield (), theirs[right : begin + partner]
            if first + at < last and begin + partner < end:
                yield mine[first + at : first + at + 1], theirs[begin + partner : begin + partner + 1]
            left, right = first + at + 1, begin + partner + 1


def _partners(ours: Sequence[str], others: Sequence[str]) -> list[tuple[int, int]]:
    return partners_in_order([text.split() for text in ours], [text.split() for text in others])


def _exchanged(
    port: Source, old: cst.CSTNode, reference: Source, new: cst.CSTNode, whole: bool = True
) -> Iterator[_Found]:
    """Of two partners the smallest parts that differ, and what holds several of them.

    An edit that leaves another difference beside it (not `whole`) comes after those that leave none. What holds one
    difference alone would be made the same by another edit.
    """
    yield from _around(port, old, reference, new, whole)
    ours, theirs = ([child for child in node.children if _is_code(child)] for node in (old, new))
    if type(old) is type(new):
        pairs = list(zip(ours, theirs, strict=True)) if len(ours) == len(theirs) else []
        if isinstance(old, cst.Call | cst.List | cst.Tuple):
            found, pairs = _sequences(port, old, reference, new, whole)
            yield from found
        different = [pair for pair in pairs if words(port, pair[0]) != words(reference, pair[1])]
        alone = whole and len(different) == 1 and len(ours) == len(theirs)
        smaller = [one for pair in different for one in _exchanged(port, pair[0], reference, pair[1], alone)]
        yield from smaller
        if alone and smaller:
            return
    if isinstance(old, Exchanged) and isinstance(new, Exchanged):
        size = _size(port, old) + _size(reference, new)
        yield size + (0 if whole else _LATER), port.edit(old, in_paddle(new, reference, port))


def _around(port: Source, old: cst.CSTNode, reference: Source, new: cst.CSTNode, whole: bool) -> Iterator[_Found]:
    """What stands around the part of one partner that is the other's partner rather, taken away or put in.

    What is alike stays in the port's spelling.
    """
    if not isinstance(old, cst.BaseExpression) or not isinstance(new, cst.BaseExpression):
        return
    ours, theirs, later = words(port, old), words(reference, new), _LATER * (not whole)
    if max(len(ours), len(theirs)) > _LONGEST:
        return
    least = ratio(ours, theirs)
    inside = _likest(port, old, theirs, least)
    if inside is not None:
        yield _size(port, old) - _size(port, inside) + later, port.edit(old, inside)
    kept = _likest(reference, new, ours, least)
    if kept is not None:
        text = port.text_of(old)
        around = code_of([new.deep_replace(kept, cst.Name(_PLACE))], "", reference, port)
        plain, bracketed = around.replace(_PLACE, text), around.replace(_PLACE, f"({text})")
        after = plain if _is_same_expression(plain, bracketed) else bracketed
        yield _size(reference, new) - _size(reference, kept) + later, Edit(port.file, port.span(old), text, after)


def _is_same_expression(one: str, other: str) -> bool:
    try:
        trees = [ast.dump(ast.parse(f"({text})", mode="eval")) for text in (one, other)]
    except SyntaxError:
        return False
    return trees[0] == trees[1]


def _likest(source: Source, node: cst.CSTNode, wanted: Sequence[str], least: float) -> Any:
    """The part of an expression with the greatest share of words equal to these; None if the whole has as many."""
    best = None
    for child in node.children:
        if isinstance(child, cst.BaseExpression):
            alike = ratio(words(source, child), wanted)
            if alike > max(least, _PARTNERS):
                best, least = child, alike
        inner = _likest(source, child, wanted, least)
        if inner is not None:
            best, least = inner, ratio(words(source, inner), wanted)
    return best


def _sequences(
    port: Source, old: Any, reference: Source, new: Any, whole: bool
) -> tuple[list[_Found], list[tuple[cst.CSTNode, cst.CSTNode]]]:
    """Arguments or items put in, taken out or brought into the reference's order, and the pairs of others."""
    ours, theirs = (list(node.args if isinstance(node, cst.Call) else node.elements) for node in (old, new))
    said = [[" ".join(words(source, one)) for one in ones] for source, ones in ((port, ours), (reference, theirs))]
    heads: list[tuple[cst.CSTNode, cst.CSTNode]] = [(old.func, new.func)] if isinstance(old, cst.Call) else []
    if sorted(said[0]) == sorted(said[1]):
        if said[0] == said[1] or len(set(said[0])) < len(said[0]):
            return [], heads
        texts = [port.text_of(ours[said[0].index(one)]) for one in said[1]]
        first, last = port.span(ours[0]), port.span(ours[-1])
        span = (*first[:2], *last[2:])
        return [(1 + _LATER * (not whole), Edit(port.file, span, port.text_at(span), ", ".join(texts)))], heads
    if isinstance(old, cst.Call):
        matched = _paired_arguments(port, ours, reference, theirs)
    else:
        matched = [(at, at) for at in range(len(ours))] if len(ours) == len(theirs) else _matched(*said)
    pairs = [(ours[one], theirs[two]) for one, two in matched]
    surplus = [at for at in range(len(ours)) if at not in {one for one, _ in matched}]
    missing = [at for at in range(len(theirs)) if at not in {two for _, two in matched}]
    found: list[_Found] = [
        (_size(port, ours[at]), _without(port, ours, at)) for at in surplus if _keyword(ours[at]) not in _OF_PADDLE
    ]
    for one, two in itertools.product(surplus, missing):  # a keyword on one side may have no name on the other
        found += _around(port, ours[one].value, reference, theirs[two].value, whole)
    for at in missing:
        before = max((one for one, two in matched if two < at), default=-1)
        found.append((_size(reference, theirs[at]), _with(port, old, ours, before, reference, theirs[at])))
    alone = whole and len(found) == 1 and all(words(port, a) == words(reference, b) for a, b in [*heads, *pairs])
    return [(size + (0 if alone else _LATER), edit) for size, edit in found], [*heads, *pairs]


def _paired_arguments(
    port: Source, ours: Sequence[cst.Arg], reference: Source, theirs: Sequence[cst.Arg]
) -> list[tuple[int, int]]:
    """Places of arguments of one name; of the others of one place, where none has a name, else of equal values."""
    names = [_keyword(one) for one in ours], [spelled(_keyword(one), keyword=True) for one in theirs]
    pairs = [(at, names[1].index(name)) for at, name in enumerate(names[0]) if name and name in names[1]]
    rest = [[at for at in range(len(of)) if at not in {pair[side] for pair in pairs}] for side, of in enumerate(names)]
    if len(rest[0]) == len(rest[1]) and not any(
        of[at] for of, places in zip(names, rest, strict=True) for at in places
    ):
        return [*pairs, *zip(*rest, strict=True)]
    values = [" ".join(words(port, ours[at].value)) for at in rest[0]]
    others = [" ".join(words(reference, theirs[at].value)) for at in rest[1]]
    return [*pairs, *((rest[0][one], rest[1][two]) for one, two in _matched(values, others))]


def _keyword(item: Any) -> str:
    keyword = getattr(item, "keyword", None)
    return "" if keyword is None else str(keyword.value)


def _matched(ours: Sequence[str], others: Sequence[str]) -> list[tuple[int, int]]:
    """Places of equal, and between them of alike, items of two sequences."""
    found: list[tuple[int, int]] = []
    for kind, first, last, begin, end in difflib.SequenceMatcher(None, ours, others, autojunk=False).get_opcodes():
        if kind == "equal":
            found += zip(range(first, last), range(begin, end), strict=True)
        elif kind == "replace":
            found += [(first + one, begin + two) for one, two in _partners(ours[first:last], others[begin:end])]
    return found


def _without(port: Source, items: Sequence[cst.CSTNode], at: int) -> Edit:
    """The edit that takes out an item with its comma."""
    span = port.span(items[at])
    if at + 1 < len(items):
        span = (*span[:2], *port.span(items[at + 1])[:2])
    elif at:
        span = (*port.span(items[at - 1])[2:], *span[2:])
    return Edit(port.file, span, port.text_at(span), "")


def _with(
    port: Source, old: Any, items: Sequence[cst.CSTNode], before: int, reference: Source, item: Any
) -> Edit | None:
    """The edit that puts in an item of the reference's behind that of number `before`; -1: ahead of the first."""
    bare = item.with_changes(comma=cst.MaybeSentinel.DEFAULT)
    if not items:
        of = "args" if isinstance(old, cst.Call) else "elements"
        return port.edit(old, old.with_changes(**{of: [in_paddle(bare, reference, port)]}))
    written = code_of([bare], "", reference, port)
    if isinstance(item, cst.Arg) and item.keyword is not None:
        before = len(items) - 1  # a keyword may stand behind all others
    text = port.text_of(items[max(before, 0)])
    after = f"{written}, {text}" if before < 0 else f"{text}, {written}"
    return Edit(port.file, port.span(items[max(before, 0)]), text, after)


def _reordered(
    port: Source, mine: Sequence[Statement], reference: Source, theirs: Sequence[Statement]
) -> Iterator[_Found]:
    """Two neighbouring statements that the reference has the other way round, exchanged."""
    others = [words(reference, node) for node in theirs]
    followed = list(itertools.pairwise(others))
    for one, two in itertools.pairwise(mine):
        ours = words(port, one), words(port, two)
        if ours[0] != ours[1] and ours[::-1] in followed and ours not in followed:
            span = (*port.span(one)[:2], *port.span(two)[2:])
            texts = port.text_of(one), port.text_of(two)
            between = port.text_at((*port.span(one)[2:], *port.span(two)[:2]))
            yield 1, Edit(port.file, span, port.text_at(span), texts[1] + between + texts[0])


def _cut_off(
    port: Source, mine: Sequence[Statement], reference: Source, theirs: Sequence[Statement]
) -> Iterator[_Found]:
    """What the reference assigns under `no_grad`, and the port does not, cut off from the gradient's way."""
    hidden = [" ".join(words(reference, node)) for node in theirs if _is_without_gradient(reference, node)]
    for node in mine:
        alike = " ".join(words(port, node)) in hidden
        if alike and isinstance(node, cst.Assign) and not _is_without_gradient(port, node):
            value = node.value
            simple = isinstance(value, cst.Call | cst.Name | cst.Attribute | cst.Subscript)
            text = port.text_of(value)
            after = f"{text}.detach()" if simple else f"({text}).detach()"
            yield 1, Edit(port.file, port.span(value), text, after)


def _is_without_gradient(source: Source, node: cst.CSTNode) -> bool:
    line = source.span(node)[0]
    return any(
        source.lines(block)[0] <= line <= source.lines(block)[1]
        for block in source.of_type(cst.With)
        if any("no_grad" in source.text_of(item) for item in block.items)
    )


def _inserted(
    port: Source,
    mine: Sequence[Statement],
    reference: Source,
    theirs: Sequence[Statement],
    missing: Sequence[Statement],
    alike: Mapping[Statement, Statement],
) -> Iterator[_Found]:
    """The reference's statement behind the partner of the one before it, or ahead of that of the next, in one line.

    `alike`: the port's statements that are not the reference's and stand in the place of these.
    """
    small = [node for node in missing if isinstance(node, cst.BaseSmallStatement)]
    if len(small) < len(missing):
        return
    added = code_of(small, "; ", reference, port)
    texts = {tuple(words(port, node)): node for node in mine if isinstance(node, cst.BaseSmallStatement)}
    before = [node for node in theirs if reference.span(node) < reference.span(missing[0])]
    behind = [node for node in theirs if reference.span(node) > reference.span(missing[-1])]
    for nodes, is_before in ((before[::-1], True), (behind, False)):
        partners = (alike.get(node) or texts.get(tuple(words(reference, node))) for node in nodes)
        partner = next((node for node in partners if isinstance(node, cst.BaseSmallStatement)), None)
        if partner is not None and not (is_before and isinstance(partner, cst.Return)):
            text = port.text_of(partner)
            after = f"{text}; {added}" if is_before else f"{added}; {text}"
            yield len(added), Edit(port.file, port.span(partner), text, after)


def _is_code(node: cst.CSTNode) -> bool:
    return not isinstance(
        node, cst.BaseParenthesizableWhitespace | cst.Comma | cst.LeftParen | cst.RightParen | cst.Dot
    )


def _size(source: Source, node: cst.CSTNode) -> int:
    return len(source.text_of(node))
