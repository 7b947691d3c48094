"""How far parts of the code of a unit are from what is wrong in it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from twinalign.replay.aligned_code import Code
from twinalign.replay.forced_call import ForcedCall
from twinalign.replay.nested_tensors import key_of
from twinalign.replay.slices import named_parts, outermost, shared_distances, wrong_parts


def distances_in(
    unit: ForcedCall,
    wrong: Collection[str],
    codes: Sequence[Code],
    lines: Collection[tuple[str, int]],
    classes: Mapping[str, Collection[str]],
) -> dict[int, int]:
    """Of each part of its functions from its wrong values, and from `lines`; `classes`: as of `classes_of_layers`."""
    given = {child.path for child in unit.children for name in wrong if name.startswith(f"input.{child.label}.")}
    returns = not given
    own = [f"{type(unit.layer).__name__}.forward"] if unit.layer is not None else outermost(codes, classes)
    named = {next((part for part in reversed(path.split(".")) if not part.isdigit()), "") for path in given}
    keys = [key_of(unit.call.places, name) for name in wrong] if returns else [""]
    if keys and all(keys):  # each is made of something else
        beside = list(wrong_parts(codes, (), (), lines))
        return shared_distances(codes, [[*named_parts(codes, {key}), *beside] for key in keys], classes)
    return shared_distances(codes, [list(wrong_parts(codes, named, own if returns else [], lines))], classes)


def classes_of_layers(backend: Any, layer: Any) -> dict[str, set[str]]:
    """Attribute → names of the classes of the layers in it, of those inside of a layer."""
    found: dict[str, set[str]] = {}
    for path, inner in backend.named_layers(layer) if layer is not None else ():
        for part in path.split("."):
            found.setdefault(part, set()).add(type(inner).__name__)
    return found
