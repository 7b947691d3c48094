"""Takes arguments and results of layers apart into a list of tensors and a skeleton, and puts them together again."""

import copy
import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_KEY = re.compile(r"\['([^']*)'\]$")


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a tensor stood in a skeleton."""

    number: int


# Not nested functions: one that calls itself is a reference cycle, which keeps its tensors until it is collected.


def take_apart(value: Any, is_tensor: Callable[[Any], bool]) -> tuple[list[Any], Any]:
    """The tensors in nested tuples, lists, dictionaries and dataclasses, in order, and the containers without them."""
    tensors: list[Any] = []
    return tensors, _take(value, is_tensor, tensors)


def _take(item: Any, is_tensor: Callable[[Any], bool], tensors: list[Any]) -> Any:
    if is_tensor(item):
        tensors.append(item)
        return Place(len(tensors) - 1)
    return _mapped(item, lambda member: _take(member, is_tensor, tensors))


def places_in(skeleton: Any) -> list[str]:
    """Where each tensor of a skeleton stood, as Python writes it: `[2]`, `['l1']`, `.logits`; empty for the whole."""
    if isinstance(skeleton, Place):
        return [""]
    if isinstance(skeleton, Mapping):
        members = [(f"[{key!r}]", member) for key, member in skeleton.items()]
    elif isinstance(skeleton, (tuple, list)):
        fields = getattr(skeleton, "_fields", None)
        members = [(f".{fields[at]}" if fields else f"[{at}]", member) for at, member in enumerate(skeleton)]
    elif dataclasses.is_dataclass(skeleton) and not isinstance(skeleton, type):
        members = [(f".{field.name}", getattr(skeleton, field.name)) for field in dataclasses.fields(skeleton)]
    else:
        return []
    return [name + inner for name, member in members for inner in places_in(member)]


def key_of(places: Sequence[str], name: str) -> str:
    """Key under which a function returns a value, `output.N`, in a dictionary; empty if it does not."""
    number = name.removeprefix("output.")
    found = _KEY.search(places[int(number)]) if number.isdigit() and int(number) < len(places) else None
    return found[1] if found else ""


def order_by_names(skeleton: Any, places: Sequence[str]) -> list[int] | None:
    """Which tensor of a skeleton stands in each of `places`; None if these are not all it has, or in this order.

    Two dictionaries with the same keys are the same results, in whatever order they were filled.
    """
    own = places_in(skeleton)
    return [own.index(place) for place in places] if own != [*places] and sorted(own) == sorted(places) else None


def each_once(tensors: Sequence[Any], number: int) -> tuple[list[Any], list[int]]:
    """Tensors without the repeats, if there are so many then, and for each place which of these stands there.

    paddle's LSTMCell returns h and (h, c) where torch's returns h and c.
    """
    distinct = list({id(tensor): tensor for tensor in tensors}.values())
    if len(distinct) != number:
        return list(tensors), list(range(len(tensors)))
    known = {id(tensor): place for place, tensor in enumerate(distinct)}
    return distinct, [known[id(tensor)] for tensor in tensors]


def put_together(skeleton: Any, tensors: Sequence[Any]) -> Any:
    """The containers of a skeleton with these tensors in their places."""
    if isinstance(skeleton, Place):
        return tensors[skeleton.number]
    return _mapped(skeleton, lambda member: put_together(member, tensors))


def _mapped(item: Any, change: Callable[[Any], Any]) -> Any:
    """A container of the same kind with every member changed; anything else unchanged."""
    if isinstance(item, Mapping):
        changed = {key: change(member) for key, member in item.items()}
        return changed if type(item) is dict else _like(item, changed)
    if isinstance(item, tuple):
        members = [change(member) for member in item]
        # Not through the class: torch's PackedSequence looks into what its constructor is given.
        return tuple.__new__(type(item), members) if hasattr(item, "_fields") else tuple(members)
    if isinstance(item, list):
        return [change(member) for member in item]
    if dataclasses.is_dataclass(item) and not isinstance(item, (type, Place)):
        changed = {field.name: change(getattr(item, field.name)) for field in dataclasses.fields(item)}
        return _like(item, changed)
    return item


def _like(item: Any, members: Mapping[str, Any]) -> Any:
    found = copy.copy(item)
    for key, member in members.items():
        if isinstance(item, Mapping):
            found[key] = member
        else:
            object.__setattr__(found, key, member)
    return found


def unstacked(
    arguments: tuple, skeleton: Sequence[Any], shapes: Sequence[Sequence[int]], is_tensor: Callable[[Any], bool]
) -> tuple:
    """Arguments with a list of tensors in place of one that is a stack of them, where the skeleton has a list.

    Args:
        skeleton: other arguments of the same call, without their tensors.
        shapes: of the tensors that stood in it.
    """
    made = list(arguments)
    for at, (given, known) in enumerate(zip(arguments, skeleton, strict=False)):
        if not is_tensor(given) or not isinstance(known, (list, tuple)):
            continue
        if not known or not all(isinstance(one, Place) for one in known):
            continue
        size, part = list(given.shape), list(shapes[known[0].number])
        axes = [axis for axis, many in enumerate(size) if many == len(known) and size[:axis] + size[axis + 1 :] == part]
        if axes:
            made[at] = list(given.unbind(axes[-1]))
    return tuple(made)
