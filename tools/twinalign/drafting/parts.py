"""What is drafted beside a model: its loss, its optimizer with the schedule, and the transform of its images.

Each is named like a model, `module:name` or `path.py:name(smooth=1.0)`. With brackets, or where it is a class, it is
called and its result is the loss or the transform; a function without brackets is itself. An optimizer is called with
the list of parameters and what is in its brackets, and returns the optimizer, or the optimizer and its schedule.
"""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from twinalign.conversion.model_factory import load_factory
from twinalign.errors import InputError

BUILD = "build"
"""Module of a port that builds its model and its parts."""
KINDS = ("loss", "optimizer", "transform")
Builders = Mapping[str, Callable[..., Any]]
"""Kind → what builds it: without arguments, an optimizer with the list of parameters."""


def load_part(kind: str, specification: str) -> Callable[..., Any]:
    """What builds the part that `specification` names; raises InputError as `load_factory` does."""
    try:
        factory, arguments = load_factory(specification)
    except InputError as error:
        raise InputError(f"--{kind} {error}") from None
    if kind == "optimizer" or is_called(factory, specification):
        return functools.partial(factory, **arguments)
    return lambda: factory


def is_called(factory: Any, specification: str) -> bool:
    """Whether the part is what a call returns, not the function itself."""
    return "(" in specification.partition(":")[2] or isinstance(factory, type)


def shared_inputs(model: Any, loss: Any, names: Sequence[str]) -> tuple[list[str], list[str], bool]:
    """Names of the inputs that the model takes, and of those for the loss; whether the loss takes them by name.

    What only the loss has parameters for is the loss's; else what the model's `forward` has no parameter left for.
    """
    if loss is None:
        return list(names), [], False
    accepted = list(inspect.signature(getattr(loss, "forward", loss)).parameters)[1:]
    taken = list(inspect.signature(model.forward).parameters)
    own = [name for name in names if name in accepted and name not in taken]
    if own:
        return [name for name in names if name not in own], [name for name in names if name in accepted], True
    named = [name for name in names if name in taken] or list(names)[: len(taken)]
    return named, [name for name in names if name not in named], False


def loss_of(loss: Any, outputs: Any, inputs: Mapping[str, Any], names: Sequence[str], by_name: bool) -> Any:
    """The loss of the model's outputs; of several values the one called `loss`."""
    value = (
        loss(outputs, **{name: inputs[name] for name in names})
        if by_name
        else loss(outputs, *(inputs[name] for name in names))
    )
    return value["loss"] if isinstance(value, Mapping) else value


def optimizer_and_schedule(made: Any) -> tuple[Any, Any]:
    """Of what an optimizer's factory returned; the schedule may be None."""
    return (made[0], made[1]) if isinstance(made, (tuple, list)) else (made, None)


def sample_image(index: int) -> Any:
    """A PIL image of smooth colours, another size for each index; a port's case has a copy of it."""
    from PIL import Image

    coarse = np.random.default_rng(index).integers(0, 256, (6, 7, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((67 + 9 * index, 54 + 7 * index), Image.Resampling.BICUBIC)
