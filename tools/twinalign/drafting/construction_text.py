"""The text of the calls that build a model and its parts again, with what it imports; in the reference's process."""

import dataclasses
import functools
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from twinalign.conversion.model_factory import load_factory
from twinalign.drafting.parts import is_called, loop_roles
from twinalign.errors import InputError

FRAMEWORKS = ("torch", "numpy", "paddle", "twinalign", "functorch", "triton", "einops")
"""Packages whose classes no port takes along; einops computes with paddle's tensors as well."""
_LITERALS = (bool, int, float, complex, str, bytes, type(None))


class _NoSourceError(Exception):
    """A value that no short text makes again."""


Given = Callable[[Any], dict[str, Any] | None]
"""What the constructor of a model, or of a layer, was given, by name; None if none of its own ran."""


def root_of_model(model: Any, given_to: Given, returned: Sequence[tuple[Any, Any, dict[str, Any]]]) -> dict[str, Any]:
    """The class with what it was given; where that has no source, the innermost function that returned the model and
    whose arguments have one.
    """
    kind, given = type(model), given_to(model)
    makers = [(maker, arguments) for value, maker, arguments in returned if value is model]
    if (
        given is not None
        and kind.__module__.partition(".")[0] not in FRAMEWORKS
        and "<locals>" not in kind.__qualname__
    ):
        makers.insert(0, (kind, given))
    for maker, arguments in makers:
        imports: set[tuple[str, str]] = {(maker.__module__, maker.__qualname__)}
        values = dict(arguments)
        try:
            texts = _sources(values, imports, given_to)
        except _NoSourceError:
            continue
        return {"calls": maker.__qualname__, "arguments": texts, "imports": sorted(imports)}
    raise InputError(f"--ref: nothing that returned the {kind.__name__} can be called again with arguments in text")


def root_of_part(kind: str, specification: str) -> dict[str, Any]:
    """The function or class that makes a part, and its arguments."""
    factory, arguments = load_factory(specification)
    positional = factory.args if isinstance(factory, functools.partial) else ()
    function = factory.func if isinstance(factory, functools.partial) else factory
    imports: set[tuple[str, str]] = set()
    try:
        calls = _source(function, imports)
    except _NoSourceError:
        raise InputError(f"--{kind} {specification}: it is no function or class of a module") from None
    roles = loop_roles(specification, factory, arguments) if kind == "train" else {}
    texts = [*map(repr, positional), *(f"{name}={role}" for name, role in roles.items())]
    texts += [f"{name}={value!r}" for name, value in arguments.items()]
    return {
        "calls": calls,
        "arguments": texts,
        "imports": sorted(imports),
        "called": kind in ("optimizer", "train") or is_called(function, specification),
    }


def _sources(given: Mapping[str, Any], imports: set[tuple[str, str]], given_to: Given) -> list[str]:
    """Texts of the arguments of a call."""
    texts = [_source(value, imports, given_to) for value in given.get("*", ())]
    return texts + [f"{name}={_source(value, imports, given_to)}" for name, value in given.items() if name != "*"]


def _source(value: Any, imports: set[tuple[str, str]], given_to: Given = lambda value: None) -> str:
    """Text that makes a value again, a layer by what its constructor was given; `imports` gets what it names."""
    if type(value) in _LITERALS:
        return repr(value)
    if type(value) in (list, tuple, set):
        parts = [_source(item, imports, given_to) for item in value]
        comma = "," if isinstance(value, tuple) and len(parts) == 1 else ""
        brackets = "[]" if isinstance(value, list) else "()" if isinstance(value, tuple) else "{}"
        return f"{brackets[0]}{', '.join(parts)}{comma}{brackets[1]}" if parts or brackets != "{}" else "set()"
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{_source(k, imports, given_to)}: {_source(v, imports, given_to)}" for k, v in value.items())
            + "}"
        )
    if isinstance(value, functools.partial):
        parts = [_source(value.func, imports, given_to), *(_source(item, imports, given_to) for item in value.args)]
        parts += [f"{name}={_source(item, imports, given_to)}" for name, item in value.keywords.items()]
        imports.add(("functools", "partial"))
        return f"partial({', '.join(parts)})"
    if isinstance(value, (type, types.FunctionType)) and "<" not in value.__qualname__:
        if value.__module__.partition(".")[0] == "torch":
            return _public_name(value)
        imports.add((value.__module__, value.__qualname__))
        return value.__qualname__
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _source_of_dataclass(value, imports)
    if (given := given_to(value)) is not None and type(value).__module__.partition(".")[0] not in FRAMEWORKS:
        return f"{_source(type(value), imports)}({', '.join(_sources(given, imports, given_to))})"
    raise _NoSourceError


def _source_of_dataclass(value: Any, imports: set[tuple[str, str]]) -> str:
    """The call that makes an equal one: what `__post_init__` makes of the fields is made of them once more."""
    kind = type(value)
    given = {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
    try:
        equal = "<" not in kind.__qualname__ and kind(**given) == value
    except Exception:  # whatever its own code raises
        equal = False
    if not equal:
        raise _NoSourceError
    imports.add((kind.__module__, kind.__qualname__))
    return f"{kind.__qualname__}({', '.join(f'{name}={_source(item, imports)}' for name, item in given.items())})"


def _public_name(value: Any) -> str:
    """`torch.nn.GELU` for `torch.nn.modules.activation.GELU`."""
    name = str(value.__name__)
    for place in ("torch.nn", "torch.nn.functional", "torch.optim", "torch"):
        if vars(sys.modules[place]).get(name) is value:
            return f"{place}.{name}"
    raise _NoSourceError
