"""A call of another layer of the same class, where one is called in its place and it is not called at all."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from twinalign.replay.aligned_code import Code, last_part, own_attribute
from twinalign.replay.helper_edits import HelperEdit


@dataclasses.dataclass(frozen=True)
class OtherLayer(HelperEdit):
    """The call of a layer for that of another one; the port then makes other calls than it is known to make."""


def calls_of_other_layers(
    codes: Sequence[Code], layers: Sequence[tuple[str, Any]], called: Collection[str]
) -> Iterator[OtherLayer]:
    """`self.second(x)` for `self.first(x)`, once each call.

    Args:
        layers: the port's, by path.
        called: paths of those that it calls.
    """
    by_path = dict(layers)
    for path, layer in layers:
        parent, _, name = path.rpartition(".")
        if path in called or any(one.startswith(f"{path}.") for one in called) or parent not in by_path:
            continue
        owner = type(by_path[parent]).__name__
        for code in codes:
            if code.name.rpartition(".")[0].rpartition(".")[2] != owner:
                continue
            for call in sorted(code.calls, key=lambda call: -call.lineno):  # what was copied comes behind the original
                other = own_attribute(call.func)
                beside = by_path.get(f"{parent}.{other}".lstrip(".")) if other not in (None, name) else None
                if beside is not None and type(beside) is type(layer):
                    new = ast.Attribute(ast.Name("self", ast.Load()), last_part(path), ast.Load())
                    yield OtherLayer(code, call.func, ast.fix_missing_locations(ast.copy_location(new, call.func)))
