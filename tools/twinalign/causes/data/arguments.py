"""What the steps of an input pipeline are told, where numbers bound to a step are other ones."""

import ast
import contextlib
import copy
import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

from twinalign.causes.data.subject import Chain, ImageSubject, image_cause
from twinalign.causes.registry import Variant
from twinalign.replay.data_pipeline import arguments_of, bound_arguments

Told = tuple[str, ...]
"""Path to a number among the arguments of a step: the argument, then fields and places."""


def with_arguments(function: Any, values: dict[str, Any]) -> Callable[[Any], Any]:
    """The same step told other things: a partial with other arguments, or a callable object with other attributes."""
    if isinstance(function, functools.partial):
        positional = [values.get(str(place), value) for place, value in enumerate(function.args)]
        named = {name: values.get(name, value) for name, value in function.keywords.items()}
        return functools.partial(function.func, *positional, **named)
    other: Callable[[Any], Any] = copy.copy(function)
    for name, value in values.items():
        setattr(other, name, value)
    return other


def numbers_in(value: Any, path: Told = ()) -> Iterator[tuple[Told, float]]:
    """Every number in an argument, with its path: through tuples, lists and dataclasses."""
    if isinstance(value, bool):
        return
    if isinstance(value, (int, float)):
        yield path, value
    elif isinstance(value, (tuple, list)):
        for place, item in enumerate(value):
            yield from numbers_in(item, (*path, str(place)))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from numbers_in(getattr(value, field.name), (*path, field.name))


def with_number(value: Any, path: Told, number: Any) -> Any:
    """The argument with another number at a path."""
    if not path:
        return number
    if isinstance(value, (tuple, list)):
        items = [with_number(v, path[1:], number) if str(i) == path[0] else v for i, v in enumerate(value)]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return dataclasses.replace(value, **{path[0]: with_number(getattr(value, path[0]), path[1:], number)})


def _variant(subject: ImageSubject, detail: str, change: Callable[[Chain, Any], dict[str, Any]]) -> Variant:
    """The variant in which each step is told what `change` says of it."""

    def edit(chain: Chain) -> list[tuple[str, Callable[[Any], Any]]]:
        changed = ((name, function, change(chain, function)) for name, function in chain.steps)
        return [(name, with_arguments(function, values) if values else function) for name, function, values in changed]

    return subject.variant(detail, edit=edit)


@image_cause(difference="random_resized_crop", rank=-2)
def step_arguments(subject: ImageSubject) -> Iterator[Variant]:
    """A step is given other arguments than in the reference."""
    differing: dict[int, dict[str, Any]] = {}
    shown = ""
    for chain, told in zip(subject.chains, subject.port_arguments, strict=False):
        own = arguments_of(chain.steps[0][1])
        values = bound_arguments(chain.steps[0][1])
        for name in own.keys() & told.keys():
            value = read(told[name], values[name]) if own[name] != told[name] else None
            if value is not None:
                differing.setdefault(id(chain), {})[name] = value
                shown = shown or f"{name} {told[name]} for {own[name]}"
    if differing:
        yield _variant(subject, shown, lambda chain, function: differing.get(id(chain), {}))


def read(text: str, like: Any) -> Any:
    """An argument from its text, of the kind that the reference has: literals, and dataclasses; None for any other."""
    kinds = next((k for k in ((bool,), (int, float), (tuple, list), (str,)) if isinstance(like, k)), ())
    with contextlib.suppress(ValueError, SyntaxError):
        if dataclasses.is_dataclass(like) and not isinstance(like, type):
            call = ast.parse(text, mode="eval").body
            if isinstance(call, ast.Call) and not call.args:
                fields = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
                return dataclasses.replace(like, **fields)
            return None
        value = ast.literal_eval(text)
        return value if isinstance(value, kinds) else None
    return None


@image_cause(rank=1)
def argument_negated(subject: ImageSubject) -> Iterator[Variant]:
    """A step goes the other way: a number that it is given has the other sign."""
    yield from _each_number(subject, "is negated", lambda value: -value)


@image_cause(rank=2)
def argument_other(subject: ImageSubject) -> Iterator[Variant]:
    """A number that a step is given differs."""
    yield from _each_number(subject, "is 0", lambda value: type(value)(0))
    yield from _each_number(subject, "is doubled", lambda value: 2 * value)
    yield from _each_number(subject, "is halved", lambda value: type(value)(value / 2))
    yield from _each_number(subject, "is one more", lambda value: value + 1)
    yield from _each_number(subject, "is one less", lambda value: value - 1)


@image_cause(difference="color_jitter", rank=1)
def jitter_order(subject: ImageSubject) -> Iterator[Variant]:
    """The parts of a step are done in another order."""
    for detail, arrange in (
        ("the reversed one", lambda order: order[::-1]),
        ("the fixed order", lambda order: tuple(sorted(order))),
        ("the fixed order, reversed", lambda order: tuple(sorted(order, reverse=True))),
        ("the inverse permutation", lambda order: tuple(order.index(i) for i in range(len(order)))),
    ):

        def change(chain: Chain, function: Any, arrange: Any = arrange) -> dict[str, Any]:
            return {
                name: dataclasses.replace(value, order=arrange(tuple(value.order)))
                for name, value in bound_arguments(function).items()
                if dataclasses.is_dataclass(value) and not isinstance(value, type) and hasattr(value, "order")
            }

        yield _variant(subject, detail, change)


def _each_number(subject: ImageSubject, detail: str, change: Callable[[Any], Any]) -> Iterator[Variant]:
    for _, function in subject.chains[0].steps:
        for name, value in bound_arguments(function).items():
            for path, number in numbers_in(value):
                if change(number) == number:
                    continue

                def told(chain: Chain, step: Any, name: str = name, path: Told = path) -> dict[str, Any]:
                    own = bound_arguments(step)
                    if name not in own:
                        return {}
                    at = dict(numbers_in(own[name]))
                    return {name: with_number(own[name], path, change(at[path]))} if path in at else {}

                yield _variant(subject, f"{'.'.join([name, *path])} {detail}", told)
