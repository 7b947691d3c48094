"""Values of attributes of the port's layer in the reference's."""

import itertools
from collections.abc import Iterator
from typing import Any

from twinalign.replay.helpers import Helpers
from twinalign.replay.port_lines import LinesVariant
from twinalign.replay.table_lines import made_in
from twinalign.replay.wrong_unit import WrongUnit


def attributes_of(module: Any, unit: WrongUnit) -> Iterator[LinesVariant]:
    """The reference's layer with the port's value of one of its own attributes."""
    if module is None or type(module).__module__.startswith("torch."):
        return
    own = {name.lstrip("_"): name for name in vars(module)}
    others: list[LinesVariant] = []
    for name, value in unit.facts.items():
        mine = vars(module).get(own.get(name, ""))
        if name in own and isinstance(mine, (bool, int, float, str, tuple, list)):
            value = tuple(value) if isinstance(mine, tuple) and isinstance(value, list) else value
            if value != mine and not (isinstance(mine, tuple) and set(mine) == {value}):  # 0 is (0, 0) to a layer
                detail = f"`{name}` is {value!r} in place of {mine!r}"
                others.append(LinesVariant(detail, (), module, {}, Helpers({}, ()), ((own[name], value),)))
    yield from others
    if len(others) > 1:  # a constructor may make several from one argument, such as a dilation and the padding for it
        detail = "; ".join(one.detail for one in others)
        every = tuple(pair for one in others for pair in one.attributes)
        yield LinesVariant(detail, (), module, {}, Helpers({}, ()), every)
    tables = dict[str, tuple[str, object]](getattr(unit, "tables", dict)())
    for one in [{name: tables[name]} for name in tables] + [tables] * (len(tables) > 1):
        text, places = made_in(list(one), getattr(unit, "constructor", {}), module)
        have, them = ("has", "it") if len(one) == 1 else ("have", "them")
        unknown = f"; the constructor makes {them}, and no weights hold {them}"
        detail = f"`{'`, `'.join(one)}` {have} other values{f': {text}' if text else unknown}"
        yield LinesVariant(detail, (), module, {}, Helpers({}, ()), tuple(one.values()), makers=places)


def exchanged_layers(module: Any) -> Iterator[LinesVariant]:
    """The reference's layer with two of its own layers in each other's place, if these have weights of the same shapes.

    Each keeps the weights that the port's layer of its name has.
    """
    shapes = {
        name: (type(layer), [(key, tuple(tensor.shape)) for key, tensor in layer.state_dict().items()])
        for name, layer in (module.named_children() if module is not None else ())
    }
    for one, other in itertools.combinations([name for name, (_, tensors) in shapes.items() if tensors], 2):
        if shapes[one] == shapes[other] and not one.isdigit():
            places = ((one, getattr(module, other)), (other, getattr(module, one)))
            yield LinesVariant(f"{one} and {other}", (), module, {}, Helpers({}, ()), places)
