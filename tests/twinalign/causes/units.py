"""Pairs of a right unit and the same unit done wrong by other code, for tests of causes."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from tests.twinalign.causes.module_unit import ModuleUnit
from twinalign.causes.layers.explaining import Known, examined_unit
from twinalign.causes.proving import prove
from twinalign.causes.registry import Explanation
from twinalign.replay.budget import Budget
from twinalign.replay.wrong_unit import WrongUnit


def explain(unit: WrongUnit, known: Known = (), budget: Budget | None = None) -> Explanation | None:
    """The confirmed cause of what is wrong in a unit, or None where no cause reproduces the port."""
    examined = examined_unit(unit, known)
    found = prove(examined, budget) if examined is not None else None
    return found and examined.told_inside(found) if examined is not None else None


class Unit(nn.Module):
    """A module from a function of itself and its inputs, with parts as attributes."""

    def __init__(self, function: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(self, *inputs)


@dataclasses.dataclass
class Case:
    """A fault, planted by hand.

    Attributes:
        id: of the cause that is to be confirmed.
        right: builds the reference's unit.
        wrong: builds the port's from a copy of the reference's, which it may change and return.
        inputs: shapes of normal inputs, or arrays.
        options: of the unit (phase, training, forced, facts...).
    """

    id: str
    right: Callable[[], nn.Module]
    wrong: Callable[[Any], nn.Module]
    inputs: Sequence[Any]
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    name: str = ""

    def __str__(self) -> str:
        return "-".join(filter(None, (self.id, self.name)))


def case(
    identifier: str,
    right: Callable[[], nn.Module],
    wrong: Callable[[Any], nn.Module],
    *inputs: Any,
    name: str = "",
    **options: Any,
) -> Case:
    return Case(identifier, right, wrong, inputs, options, name)


def unit(function: Callable[..., Any], **parts: Any) -> Callable[[], nn.Module]:
    """A builder of a `Unit`."""
    return lambda: Unit(function, **copy.deepcopy(parts))


def doing(function: Callable[..., Any]) -> Callable[[Any], nn.Module]:
    """The same parts with other code."""

    def wrong(right: Any) -> nn.Module:
        right.function = function
        return right

    return wrong


def changed(**attributes: Any) -> Callable[[Any], nn.Module]:
    """The same layer with other attributes."""

    def wrong(right: nn.Module) -> nn.Module:
        for name, value in attributes.items():
            setattr(right, name, value)
        return right

    return wrong


def with_values(change: Callable[[dict[str, torch.Tensor]], None]) -> Callable[[Any], nn.Module]:
    """The same layer with other values in its parameters and buffers."""

    def wrong(right: nn.Module) -> nn.Module:
        state = {name: value.clone() for name, value in right.state_dict().items()}
        change(state)
        right.load_state_dict(state)
        return right

    return wrong


def values_of(case: Case, seed: int = 0) -> tuple[ModuleUnit, dict[str, np.ndarray]]:
    """The reference's unit with the wrong unit's values in it."""
    rng = np.random.default_rng(seed)
    inputs = [rng.standard_normal(item) if isinstance(item, tuple) else item for item in case.inputs]
    right = case.right().double()
    with torch.no_grad():
        for name, tensor in (*right.named_parameters(), *right.named_buffers()):
            if tensor.is_floating_point():
                values = torch.from_numpy(rng.standard_normal(tuple(tensor.shape)))
                tensor.copy_(values.square() + 0.3 if "var" in name else values)
    wrong = case.wrong(copy.deepcopy(right))
    options = dict(case.options)
    examined = ModuleUnit(right, inputs, {}, **options)
    port = ModuleUnit(wrong, inputs, {}, **{**options, "recorded": examined.recorded}).reference
    # Paddle counts no batches.
    examined.port = {name: value for name, value in port.items() if not name.endswith("num_batches_tracked")}
    return examined, dict(examined.port)


def explained(case: Case) -> Explanation | None:
    """What the engine finds."""
    examined, _ = values_of(case)
    return explain(examined)


def identified(case: Case) -> str:
    """The id that the engine finds; `unexplained` for none."""
    found = explained(case)
    return "unexplained" if found is None else found.id
