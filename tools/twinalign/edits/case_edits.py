"""Edits of how a case converts weights: the pairs of its `rename`, and what its rules say of stored tensors.

Nothing here tells which edit is right: a re-run does.
"""

import difflib
import itertools
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import libcst as cst

from twinalign.edits.source import Edit, Source, name_of, with_arguments

_MOST_EXCHANGED = 10
"""In a longer `rename` neighbours alone are exchanged."""
_MOST_PACKED = 3
"""More packed parts than these are left in their order."""


def exchanged_pairs(source: Source, line: int, layer: str) -> Iterator[Edit | None]:
    """Two partners in the `rename` of the class in this line exchanged, one of them in a layer; then no `rename`.

    Without one, twinalign runs both models to find the pairs.
    """
    rename = _rename(source, line)
    if rename is None:
        return
    elements = list(rename.elements)
    numbers = itertools.combinations(range(len(elements)), 2)
    for one, two in numbers if len(elements) <= _MOST_EXCHANGED else itertools.pairwise(range(len(elements))):
        pair: Any = elements[one], elements[two]
        if all(isinstance(element, cst.DictElement) for element in pair) and any(
            _is_within(_text(element.value), layer) for element in pair
        ):
            made = [*elements]
            made[one], made[two] = (pair[at].with_changes(value=pair[1 - at].value) for at in (0, 1))
            yield source.edit(rename, rename.with_changes(elements=made))
    yield source.edit(rename, cst.Dict([])) if elements else None


def known_names(source: Source, line: int, names: Sequence[Collection[str]]) -> Iterator[Edit | None]:
    """Names in the `rename` of the class in this line that do not exist made the closest that do; then no `rename`.

    Args:
        names: of the reference's and of the port's layers and tensors.
    """
    rename = _rename(source, line)
    if rename is None:
        return
    for element in rename.elements:
        if isinstance(element, cst.DictElement):
            for node, known in zip((element.key, element.value), names, strict=True):
                written = _text(node)
                if written and "*" not in written and written not in known:
                    for close in difflib.get_close_matches(written, sorted(known), n=2):
                        yield source.edit(node, cst.SimpleString(f'"{close}"'))
    yield source.edit(rename, cst.Dict([])) if rename.elements else None


def stored_otherwise(source: Source) -> Iterator[Edit | None]:
    """Tensors that a file of storage rules declares, transposed or not; the parts of packed ones in another order."""
    for call in source.of_type(cst.Call):
        if source.text_of(call.func).endswith("Stored.of"):
            given = {source.text_of(one.keyword): one.value for one in call.args if one.keyword is not None}
            is_transposed = "transposed" in given and source.text_of(given["transposed"]) == "True"
            yield source.edit(call, with_arguments(call, {"transposed": not is_transposed}, []))
        elif name_of(call) == "packed":
            for parts in [argument.value for argument in call.args if isinstance(argument.value, cst.List)]:
                texts = [source.text_of(element) for element in parts.elements]
                if all(isinstance(element.value, cst.SimpleString) for element in parts.elements):
                    for order in list(itertools.permutations(texts))[1:] if len(texts) <= _MOST_PACKED else ():
                        yield Edit(source.file, source.span(parts), source.text_of(parts), f"[{', '.join(order)}]")


def _rename(source: Source, line: int) -> cst.Dict | None:
    """What is assigned to `rename` in the class that this line stands in."""
    for node in source.of_type(cst.ClassDef):
        first, last = source.lines(node)
        for one in node.body.body if first <= line <= last else ():
            for part in one.body if isinstance(one, cst.SimpleStatementLine) else ():
                target = part.targets[0].target if isinstance(part, cst.Assign) else getattr(part, "target", None)
                value = getattr(part, "value", None)
                if target is not None and source.text_of(target) == "rename" and isinstance(value, cst.Dict):
                    return value
    return None


def _text(node: cst.BaseExpression) -> str:
    return str(node.evaluated_value) if isinstance(node, cst.SimpleString) else ""


def _is_within(name: str, layer: str) -> bool:
    """Whether one of two paths is the other or lies below it."""
    return not layer or f"{name}.".startswith(f"{layer}.") or f"{layer}.".startswith(f"{name}.")
