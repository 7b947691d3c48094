"""What is drafted beside a model: its loss, its optimizer with the schedule, the transform of its images, its loop.

Each is named like a model, `module:name` or `path.py:name(smooth=1.0)`. With brackets, or where it is a class, it is
called and its result is the loss or the transform; a function without brackets is itself. An optimizer is called with
the list of parameters and what is in its brackets, and returns the optimizer, or the optimizer and its schedule. A
training loop is called with those of `ROLES` that it has parameters for, by their names, and what is in its brackets.
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
KINDS = ("loss", "optimizer", "transform", "train")
Builders = Mapping[str, Callable[..., Any]]
"""Kind → what builds it: without arguments, an optimizer with the list of parameters; a loop runs with all `ROLES`."""
ROLES = {
    "model": ("model", "net", "network", "module"),
    "batches": ("batches", "loader", "data_loader", "dataloader", "train_loader", "train_dataloader", "data"),
    "loss": ("loss", "criterion", "loss_fn", "loss_function", "loss_func"),
    "optimizer": ("optimizer", "optim", "opt"),
    "schedule": ("schedule", "scheduler", "lr_scheduler"),
}
"""What a training loop may be given, and the names of parameters that stand for it."""
_MISSING = {
    "loss": "name a loss with --loss",
    "optimizer": "name an optimizer with --optimizer",
    "schedule": "let what --optimizer names return the optimizer and its schedule",
}


def load_part(kind: str, specification: str) -> Callable[..., Any]:
    """What builds the part that `specification` names; raises InputError as `load_factory` does."""
    try:
        factory, arguments = load_factory(specification)
    except InputError as error:
        raise InputError(f"--{kind} {error}") from None
    if kind == "train":
        return functools.partial(_looped, specification, factory, arguments)
    if kind == "optimizer" or is_called(factory, specification):
        return functools.partial(factory, **arguments)
    return lambda: factory


def loop_roles(specification: str, loop: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, str]:
    """Parameter of a training loop → its role; raises InputError where a parameter has none, and no value either."""
    found = {}
    for name, parameter in inspect.signature(loop).parameters.items():
        if name in arguments or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        roles = [role for role, names in ROLES.items() if name in names]
        if roles:
            found[name] = roles[0]
        elif parameter.default is parameter.empty:
            text = f"--train {specification}: {name!r} is no name of {', '.join(ROLES)}; give it a value in brackets"
            raise InputError(f"{text}, {specification.partition('(')[0]}({name}=…)")
    for role in ("model", "batches"):
        if role not in found.values():
            raise InputError(f"--train {specification}: it has no parameter called {' or '.join(ROLES[role])}")
    return found


def _looped(specification: str, loop: Callable[..., Any], arguments: Mapping[str, Any], **given: Any) -> Any:
    """Run the loop on what it takes of the `ROLES`; raises InputError where that is not there."""
    roles = loop_roles(specification, loop, arguments)
    for name, role in roles.items():
        if given[role] is None and inspect.signature(loop).parameters[name].default is inspect.Parameter.empty:
            raise InputError(f"--train {specification}: it takes {name!r}; {_MISSING[role]}")
    return loop(**{name: given[role] for name, role in roles.items()}, **arguments)


def run_loop(builders: Builders, model: Any, parameters: list[Any], batches: Sequence[Any]) -> Any:
    """What the training loop returns after it ran on batches, with the loss, the optimizer and its schedule."""
    loss = builders["loss"]() if "loss" in builders else None
    made = builders["optimizer"](parameters) if "optimizer" in builders else None
    optimizer, schedule = optimizer_and_schedule(made)
    return builders["train"](model=model, batches=batches, loss=loss, optimizer=optimizer, schedule=schedule)


def is_called(factory: Any, specification: str) -> bool:
    """Whether the part is what a call returns, not the function itself."""
    return "(" in specification.partition(":")[2] or isinstance(factory, type)


def shared_inputs(
    model: Any, loss: Any, names: Sequence[str], looped: bool = False
) -> tuple[list[str], list[str], bool]:
    """Names of the inputs that the model takes, and of those for the loss; whether the loss takes them by name.

    What only the loss has parameters for is the loss's; else what the model's `forward` has no parameter left for.
    Without a loss the model takes all, unless there is a training loop, which takes what the model does not.
    """
    if loss is None and not looped:
        return list(names), [], False
    accepted = list(inspect.signature(getattr(loss, "forward", loss)).parameters)[1:] if loss is not None else []
    taken = list(inspect.signature(model.forward).parameters)
    own = [name for name in names if name in accepted and name not in taken]
    if own:
        return [name for name in names if name not in own], [name for name in names if name in accepted], True
    named = [name for name in names if name in taken] or list(names)[: len(taken)]
    return named, [name for name in names if name not in named and loss is not None], False


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
