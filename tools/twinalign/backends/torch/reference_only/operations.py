"""The calls that a unit of the reference makes, as causes see them; no framework is needed here."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
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


Path = tuple[Any, ...]
"""Where a value stands in the arguments of a call: an argument's name, then places in tuples and parts of slices."""
OF_SLICE = ("start", "stop", "step")


@dataclasses.dataclass(frozen=True)
class Value:
    """The tensor number `index` that a call returned."""

    key: Key
    index: int = 0


@dataclasses.dataclass(frozen=True)
class TensorFacts:
    """What a trace keeps of a tensor."""

    shape: tuple[int, ...]
    name: str | None = None
    """Its state-dict name if it is a parameter or a buffer of the unit."""
    kind: str = "f"
    """Kind of its dtype by numpy's letter: floating `f`, integer `i`, bool `b`, complex `c`."""
    value: Value | None = None
    """Which call has returned it, None where no call has."""

    @property
    def floating(self) -> bool:
        return self.kind == "f"


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


@dataclasses.dataclass(eq=False)
class Site:
    """A call in a trace: like `FunctionCall`, with `TensorFacts` instead of tensors."""

    key: Key
    arguments: Mapping[str, Any]
    results: list[TensorFacts]
    """Facts of the tensors that it returns."""
    position: int
    """Its number among all calls."""
    line: str = ""
    """The line of the reference's own code that makes it, in words; empty if a framework's code makes it."""
    in_place: bool = False
    known: bool = False
    """Whether the port's own code computes these values, too."""
    group: int = 0
    """Which of the calls of its line it is; one that is made again, in a loop or another call, has the same number."""
    handing_on: tuple[Key, ...] = ()
    """Calls inside it whose results it returns as they are."""

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

    @property
    def output(self) -> TensorFacts:
        """Facts of the first returned tensor, those of a number where it returns none."""
        return self.results[0] if self.results else TensorFacts(())

    @property
    def number(self) -> float | None:
        """The number of a product, quotient, sum or difference of a tensor with a number; None for two tensors."""
        values = (self.arguments.get(name) for name in ("other", "input"))
        return next((float(v) for v in values if isinstance(v, (int, float)) and not isinstance(v, bool)), None)

    def atoms(self) -> list[tuple[Path, Any]]:
        """Everything in the arguments that is no container; of a child layer nothing, of what is handed on that."""
        if self.name in (LAYER, ENTRY):
            return []
        shown = {UNIT: "output", HANDED: "input"}.get(self.name)
        return list(atoms({k: v for k, v in self.arguments.items() if k == shown or (not shown and k != "output")}))

    def operands(self) -> list[tuple[Path, TensorFacts]]:
        return [(path, value) for path, value in self.atoms() if isinstance(value, TensorFacts)]

    @functools.cached_property
    def givers(self) -> list[Key]:
        """The calls that have returned what it is given."""
        given = (value for _, value in atoms(self.arguments))
        return [fact.value.key for fact in given if isinstance(fact, TensorFacts) and fact.value is not None]


def atoms(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Everything in a value that is no container, with its place; a tensor of a trace is one thing."""
    if isinstance(value, Mapping):
        parts: Any = value.items()
    elif isinstance(value, (tuple, list)):
        parts = enumerate(value)
    elif isinstance(value, slice):
        parts = [(part, getattr(value, part)) for part in OF_SLICE]
    elif dataclasses.is_dataclass(value) and not isinstance(value, (type, TensorFacts)):
        parts = [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    else:
        yield path, value
        return
    for name, part in parts:
        yield from atoms(part, (*path, name))


def taken(value: Any, path: Path) -> Any:
    """What stands at a place in arguments."""
    for part in path:
        fields = isinstance(value, slice) or dataclasses.is_dataclass(value)
        value = getattr(value, part) if fields else value[part]
    return value


def put(value: Any, path: Path, new: Any) -> Any:
    """The same arguments with something else in one place."""
    if not path:
        return new
    first, rest = path[0], path[1:]
    if isinstance(value, slice):
        return slice(
            *(put(getattr(value, part), rest, new) if part == first else getattr(value, part) for part in OF_SLICE)
        )
    if isinstance(value, Mapping):
        return {**value, first: put(value[first], rest, new)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.replace(value, **{first: put(getattr(value, first), rest, new)})
    items = [put(item, rest, new) if at == first else item for at, item in enumerate(value)]
    if hasattr(value, "_fields"):
        return type(value)(*items)
    return items if isinstance(value, list) else tuple(items)
