"""What the steps of an input pipeline are told, where numbers bound to a step are other ones."""

import ast
import contextlib
import copy
import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

from twinalign.backends.torch.reference_only.operations import Path, atoms, put
from twinalign.causes.component import Others, Pairs, enter_rows
from twinalign.causes.data.subject import Chain, ImageSubject
from twinalign.replay.data_pipeline import arguments_of, bound_arguments


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


def numbers_in(value: Any) -> list[tuple[Path, Any]]:
    """Every number in an argument, with its path: through tuples, lists and dataclasses."""
    return [(path, x) for path, x in atoms(value) if isinstance(x, (int, float)) and not isinstance(x, bool)]


def _telling(change: Callable[[Chain, Any], dict[str, Any]]) -> Callable[[Chain], list[tuple[str, Any]]]:
    """The edit of a chain that tells each step what `change` says of it."""

    def edit(chain: Chain) -> list[tuple[str, Callable[[Any], Any]]]:
        changed = ((name, function, change(chain, function)) for name, function in chain.steps)
        return [(name, with_arguments(function, values) if values else function) for name, function, values in changed]

    return edit


def _as_the_port(subject: ImageSubject) -> Others:
    for chain in subject.chains:
        for name in _told_otherwise(chain):
            shown = f"{name} {chain.port_arguments[name]} for {arguments_of(chain.steps[0][1])[name]}"
            return {shown: lambda chain, function: _told_otherwise(chain)}
    return ()


def _told_otherwise(chain: Chain) -> dict[str, Any]:
    """Arguments of the port's step that are other ones than the reference's, as far as they can be read."""
    own, values = arguments_of(chain.steps[0][1]), bound_arguments(chain.steps[0][1])
    texts = {name: text for name, text in chain.port_arguments.items() if name in own and own[name] != text}
    found = {name: read(text, values[name]) for name, text in texts.items()}
    return {name: value for name, value in found.items() if value is not None}


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


def _each_number(subject: ImageSubject, told_the_same: bool, others: Mapping[str, Callable[[Any], Any]]) -> Pairs:
    chain = subject.chains[0]
    for detail, change in others.items():
        for _, function in chain.steps:
            own = arguments_of(function)
            for name, value in bound_arguments(function).items():
                if not told_the_same and chain.port_arguments.get(name, own) == own.get(name):
                    continue
                for path, number in numbers_in(value):
                    if change(number) != number:
                        told = functools.partial(_with_other_number, name, path, change)
                        yield f"{'.'.join(map(str, (name, *path)))} {detail}", told


def _with_other_number(name: str, path: Path, change: Callable[[Any], Any], chain: Chain, step: Any) -> dict[str, Any]:
    own = bound_arguments(step)
    at = dict(numbers_in(own[name])) if name in own else {}
    return {name: put(own[name], path, change(at[path]))} if path in at else {}


def _in_order(arrange: Callable[[tuple[int, ...]], tuple[int, ...]], chain: Chain, function: Any) -> dict[str, Any]:
    return {
        name: dataclasses.replace(value, order=arrange(tuple(value.order)))
        for name, value in bound_arguments(function).items()
        if dataclasses.is_dataclass(value) and not isinstance(value, type) and hasattr(value, "order")
    }


_ORDERS: dict[str, Callable[[tuple[int, ...]], tuple[int, ...]]] = {
    "the reversed one": lambda order: order[::-1],
    "the fixed order": lambda order: tuple(sorted(order)),
    "the fixed order, reversed": lambda order: tuple(sorted(order, reverse=True)),
    "the inverse permutation": lambda order: tuple(order.index(i) for i in range(len(order))),
}

enter_rows("data", ImageSubject, "edit", (
    ("step_arguments", "a step is given other arguments than in the reference",
     {"difference": "random_resized_crop", "rank": -2}, _as_the_port),
    ("argument_negated", "a step goes the other way: a number that it is given has the other sign", {"rank": 1},
     lambda s: _each_number(s, True, {"is negated": lambda value: -value})),
    ("argument_other", "a number that a step is given differs", {"rank": 2},
     lambda s: [*_each_number(s, True, {"is doubled": lambda x: 2 * x, "is halved": lambda x: type(x)(x / 2)}),
                *_each_number(s, False, {"is 0": lambda x: type(x)(0), "is one more": lambda x: x + 1,
                                         "is one less": lambda x: x - 1})]),
    ("jitter_order", "the parts of a step are done in another order", {"difference": "color_jitter", "rank": 1},
     lambda s: {detail: functools.partial(_in_order, arrange) for detail, arrange in _ORDERS.items()}),
), of=_telling)  # fmt: skip
