"""The calls that a unit of the reference makes, as causes see them; no framework is needed here."""

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

HANDED = "handed"
"""Name of the call that stands for a child layer's being given its `input` (a tuple); it returns what that is given."""

GRADIENT_MODE = "set_grad_enabled"
"""Name of the call that switches the recording of gradients (`input`: on or off); `no_grad` makes two."""

Key = tuple[str, int]
"""Name of a call and how many of that name came before it in the same pass through the unit."""


@dataclasses.dataclass(frozen=True)
class TensorFacts:
    """What a trace keeps of a tensor."""

    shape: tuple[int, ...]
    name: str | None = None
    """Its state-dict name if it is a parameter or a buffer of the unit."""
    floating: bool = True


@dataclasses.dataclass(frozen=True)
class Apart:
    """The result of an in-place call that must not be written back."""

    value: Any


@dataclasses.dataclass(eq=False)
class FunctionCall:
    """A call of a torch function, method or child layer while it happens."""

    key: Key
    arguments: dict[str, Any]
    """Values by the function's own parameter names (`input` for the tensor of a method); of a child layer `path`,
    `kind` (the class's name), `module`, `input` (its first tensor) and `output`."""
    execute: Callable[[dict[str, Any]], Any]
    """Makes the call with other arguments."""
    torch: Any
    """The framework, so that causes need not import it."""
    name_of: Callable[[Any], str | None]
    in_place: bool = False
    """Whether it writes to its `input`."""
    earlier: Mapping[Key, list[Any]] = dataclasses.field(default_factory=dict)
    """Tensors that earlier calls returned, of those that the variant reads again."""

    @property
    def name(self) -> str:
        """The function's name without underscores: `add` for `x + y`, `x += y` and `torch.add`."""
        return self.key[0]

    def __getitem__(self, argument: str) -> Any:
        return self.arguments[argument]

    def get(self, argument: str, default: Any = None) -> Any:
        """An argument, or `default` if the call omits it or passes None."""
        value = self.arguments.get(argument)
        return default if value is None else value

    def run(self, **changed: Any) -> Any:
        """Make the call with some arguments changed."""
        return self.execute({**self.arguments, **changed})

    def apart(self) -> Any:
        """The result of an in-place call without writing to its input; raises ValueError for other calls."""
        if not self.in_place:
            raise ValueError("not in place")
        return Apart(self.run(input=self["input"].clone()))

    @functools.cached_property
    def result(self) -> Any:
        return self.run()

    def through(self, change: Change) -> FunctionCall:
        """The same call made by `change`, so that a second change can be applied on top."""
        return dataclasses.replace(
            self,
            execute=lambda arguments: change(dataclasses.replace(self, arguments=arguments, in_place=False)),
        )


Change = Callable[[FunctionCall], Any]
"""Makes a call in another way and returns the result."""


@dataclasses.dataclass(frozen=True)
class Site:
    """A call in a trace: like `FunctionCall`, with `TensorFacts` instead of tensors."""

    key: Key
    arguments: Mapping[str, Any]
    output: TensorFacts
    """Facts of the first returned tensor."""
    position: int
    """Its number among all calls."""
    line: str = ""
    """The line of the reference's own code that makes it, in words; empty if a framework's code makes it."""

    @property
    def name(self) -> str:
        return self.key[0]

    def get(self, argument: str, default: Any = None) -> Any:
        """An argument, or `default` if the call omitted it or passed None."""
        value = self.arguments.get(argument)
        return default if value is None else value

    def tensor(self, argument: str) -> TensorFacts | None:
        value = self.arguments.get(argument)
        return value if isinstance(value, TensorFacts) else None

    def shape(self, argument: str = "input") -> tuple[int, ...]:
        """Shape of a tensor argument, empty if it is not a tensor."""
        tensor = self.tensor(argument)
        return tensor.shape if tensor else ()

    def parameter(self, argument: str) -> str | None:
        """State-dict name of a tensor argument that is the unit's own parameter or buffer."""
        tensor = self.tensor(argument)
        return tensor.name if tensor else None
