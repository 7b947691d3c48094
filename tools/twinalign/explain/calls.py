"""What a unit of the reference does, call by call, as hypotheses see it; no framework is needed here."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

LAYER = "layer"
"""Name of the call of a child layer; functions and methods go by their own names."""

UNIT = "unit"
"""Name of the call of the unit's own layer, which is the last."""

ENTRY = "entry"
"""Name of the call that stands for the unit's being given its `input` (a tuple); it returns what the unit is given."""

GRADIENT_MODE = "set_grad_enabled"
"""Name of the call that switches the recording of gradients (`input`: on or off); `no_grad` makes two."""

Key = tuple[str, int]
"""Name of a call and how many of that name came before it in the same pass through the unit."""


@dataclasses.dataclass(frozen=True)
class TensorFacts:
    """What a trace keeps of a tensor.

    Attributes:
        shape: its shape.
        name: its state-dict name, where it is a parameter or a buffer of the unit, else None.
        floating: whether it holds floating-point numbers.
    """

    shape: tuple[int, ...]
    name: str | None = None
    floating: bool = True


@dataclasses.dataclass(frozen=True)
class Apart:
    """A result of a call in place that is not to be written back."""

    value: Any


class Call:
    """A call of a torch function, method or child layer while it happens.

    Attributes:
        key: its name and its number within the pass.
        arguments: values by the function's own parameter names (`input` for the tensor of a method); of a child
            layer `path`, `kind` (the class's name), `module`, `input` (its first tensor) and `output`.
        torch: the framework, so that hypotheses need not import it.
        in_place: whether it writes to its `input`.
    """

    def __init__(
        self,
        key: Key,
        arguments: dict[str, Any],
        execute: Callable[[dict[str, Any]], Any],
        torch: Any,
        name_of: Callable[[Any], str | None],
        in_place: bool = False,
    ) -> None:
        """Describe a call that `execute` makes when given arguments by name."""
        self.in_place = in_place
        self.key = key
        self.arguments = arguments
        self.torch = torch
        self.name_of = name_of
        self._execute = execute

    @property
    def name(self) -> str:
        """The function's name without underscores: `add` for `x + y`, `x += y` and `torch.add`."""
        return self.key[0]

    def __getitem__(self, argument: str) -> Any:
        return self.arguments[argument]

    def get(self, argument: str, default: Any = None) -> Any:
        """An argument, `default` where the call leaves it out or gives None."""
        value = self.arguments.get(argument)
        return default if value is None else value

    def run(self, **changed: Any) -> Any:
        """Make the call, some arguments changed; returns what it returns."""
        return self._execute({**self.arguments, **changed})

    def apart(self) -> Any:
        """What the call returns when it does not write to its input; of a call that does so anyway, raises."""
        if not self.in_place:
            raise ValueError("not in place")
        return Apart(self.run(input=self["input"].clone()))

    @functools.cached_property
    def result(self) -> Any:
        """What the call returns as it stands."""
        return self.run()

    def through(self, change: Change) -> Call:
        """The same call made by `change`, so that a second change can lie over the first."""
        return Call(
            self.key,
            self.arguments,
            lambda arguments: change(Call(self.key, arguments, self._execute, self.torch, self.name_of)),
            self.torch,
            self.name_of,
            self.in_place,
        )


Change = Callable[[Call], Any]
"""Makes a call in another way and returns the result."""


@dataclasses.dataclass(frozen=True)
class Site:
    """A call that a trace has seen: as `Call`, with `TensorFacts` in the place of tensors.

    Attributes:
        key: name and number within the pass.
        arguments: by parameter name.
        output: facts of the first tensor returned.
        position: its place in the order of all calls.
        line: the line of the reference's own code that makes it, in words; empty where a framework's code does.
    """

    key: Key
    arguments: Mapping[str, Any]
    output: TensorFacts
    position: int
    line: str = ""

    @property
    def name(self) -> str:
        """The function's name."""
        return self.key[0]

    def get(self, argument: str, default: Any = None) -> Any:
        """An argument, `default` where the call left it out or gave None."""
        value = self.arguments.get(argument)
        return default if value is None else value

    def shape(self, argument: str = "input") -> tuple[int, ...]:
        """Shape of a tensor argument, empty where it is no tensor."""
        value = self.arguments.get(argument)
        return value.shape if isinstance(value, TensorFacts) else ()

    def parameter(self, argument: str) -> str | None:
        """State-dict name of a tensor argument that is the unit's own parameter or buffer."""
        value = self.arguments.get(argument)
        return value.name if isinstance(value, TensorFacts) else None
