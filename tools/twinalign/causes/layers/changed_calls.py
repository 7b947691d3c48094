"""Decorators of causes about layers: ways in which the calls that a unit of the reference makes can be wrong.

A cause names the functions whose calls it is about, and takes what it needs of `site`, the call as it was traced, and
`subject`, what is known of both units. It yields pairs of a detail for the text and another way to make the call::

    @forward("group_norm")
    def group_norm_groups(site: Site) -> Changes:
        \"\"\"The group norm has another number of groups.\"\"\"
        ...
        yield f"{groups} in place of {current}", changing(num_groups=groups)

A cause that takes `call` is itself the one other way to make the call, and returns what the wrong call returns. A cause
that names no functions is about the unit as a whole: it takes `subject` and yields its variants. One that is no more
than an edit with a name is a row of `enter_edits`, mostly with ways that `ways.py` makes.

Where a unit makes several calls of these functions, a change is tried in all of them at once and in each alone. A
change that cannot run is passed over, so no cause need ask whether it fits.
"""

import dataclasses
import inspect
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

from twinalign.backends.torch.reference_only.operations import LAYER, UNIT, Change, FunctionCall, Key, Site, TensorFacts
from twinalign.backends.torch.reference_only.signatures import ARGUMENTS
from twinalign.causes.layers.subject import CallVariant, LayerSubject
from twinalign.causes.registry import Cause, enter, sentence_of

Changes = Iterable[tuple[str, Any]]
"""Details, each with a `Change`; mypy would not infer lambdas that bind what a loop has."""
Function = TypeVar("Function", bound=Callable[..., Any])
Arguments = ParamSpec("Arguments")

OPERATORS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "matmul": "@", "pow": "**"}
"""By the names of their calls."""
_SPELLED = {"and": "logical_and", "or": "logical_or", "xor": "logical_xor", "norm": "linalg.vector_norm"}
_NEVER = ("input", "other", "_stacklevel", "dtype")
"""Arguments that another function is not given by name."""
_BY_NAME = {"add": ("alpha",), "sub": ("alpha",)}
"""Arguments that a function takes by name alone."""
MOST_SITES = 24
"""A change is tried in each place alone only where there are no more than this many (loops over time steps)."""


def _decorator_of(phase: str) -> Callable[..., Callable[[Function], Function]]:
    def decorator(
        *names: str, sites: Callable[[LayerSubject], list[Site]] | None = None, together: bool = False, **facts: Any
    ) -> Callable[[Function], Function]:
        """Enter a cause of this phase, about the calls of functions of these names, or about those that `sites` gives.

        Calls of different functions are changed at once, too, if `together`; `facts` are further fields of `Cause`.
        """

        def entered(function: Function) -> Function:
            find: Callable[[LayerSubject], Iterable[Any]] = function
            if names or sites:
                find = _found(sites or _calls_of(names), _changes_of(function), together)
            enter(Cause(function.__name__, phase, sentence_of(function), LayerSubject, find, **facts))
            return function

        return entered

    return decorator


forward, backward, state = _decorator_of("forward"), _decorator_of("backward"), _decorator_of("state")


Ways = Callable[[Site, LayerSubject], Changes]
"""From a call as it was traced, and the unit that makes it: other ways to make the call."""
Edit = tuple[str, str, Sequence[str], Ways, Mapping[str, Any]]
"""Id and sentence of a cause, the functions, other ways to make their calls, and further fields of `Cause`."""


def enter_edits(phase: str, edits: Iterable[Edit]) -> None:
    """Enter causes that are no more than an edit of one call with a name."""
    for identifier, text, functions, ways, facts in edits:
        find = _found(_calls_of(functions), ways)
        enter(Cause(identifier, phase, text, LayerSubject, find, plain=True, **facts))


def _calls_of(names: Sequence[str]) -> Callable[[LayerSubject], list[Site]]:
    return lambda subject: subject.named(*names)


def _found(
    sites: Callable[[LayerSubject], list[Site]], ways: Ways, together: bool = False
) -> Callable[[LayerSubject], Iterator[CallVariant]]:
    return lambda subject: changed_calls(subject, sites(subject), lambda site: ways(site, subject), together)


def _changes_of(function: Callable[..., Any]) -> Callable[[Site, LayerSubject], Changes]:
    wanted = inspect.signature(function).parameters
    if "call" in wanted:
        return lambda site, subject: [("", function)]

    def changes(site: Site, subject: LayerSubject) -> Changes:
        known = {"site": site, "subject": subject}
        found: Changes = function(**{name: known[name] for name in wanted})
        return found

    return changes


def changed_calls(
    subject: LayerSubject, sites: list[Site], changes: Callable[[Site], Changes], together: bool = False
) -> Iterator[CallVariant]:
    """Each change made in all the calls that it is for, then in each alone."""
    alone: dict[tuple[str, str], list[tuple[Site, Change]]] = {}
    for site in sites:
        for detail, change in changes(site):
            alone.setdefault((detail, "" if together else site.name), []).append((site, change))
    for (detail, _), calls in alone.items():
        yield subject.variant(detail, {site.key: change for site, change in calls})
    for (detail, _), calls in alone.items():
        if 1 < len(calls) <= MOST_SITES:
            for site, change in calls:
                yield subject.variant(joined(detail, place_of(site, sites)), {site.key: change})


@dataclasses.dataclass(frozen=True)
class Changing:
    """The change that makes a call with other values of some arguments."""

    arguments: Mapping[str, Any]

    def __call__(self, call: FunctionCall) -> Any:
        return call.run(**self.arguments)


def changing(**arguments: Any) -> Change:
    """The change that makes a call with other values of some arguments."""
    return Changing(arguments)


def calls_of_reference(subject: LayerSubject, variant: CallVariant) -> list[dict[str, Any]]:
    """The reference's calls that a variant changes, as data from which the port's source can be edited.

    Each has the function's `name`, its `arguments` that are plain values, the names of the `changed` ones (none where
    the call as a whole is made otherwise), the `path` of a child layer, the `shape` of its input, and its `line`.
    """
    found = []
    for site in subject.sites:
        if (change := variant.changes.get(site.key)) is None:
            continue
        changed = sorted(change.arguments) if isinstance(change, Changing) else []
        plain = {name: value for name, value in site.arguments.items() if _is_plain(value)}
        path = str(site.arguments.get("path", "")) if site.name == LAYER else ""
        settings = vars(site.arguments["module"]) if site.name in (LAYER, UNIT) else {}
        plain |= {name: value for name, value in settings.items() if name[0] != "_" and _is_plain(value)}
        call = {"name": site.name, "arguments": plain, "changed": changed, "path": path, "shape": list(site.shape())}
        found.append(call | {"line": site.line.partition(": ")[0]})
    return found


def _is_plain(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, str)) or (isinstance(value, float) and math.isfinite(value))


def of_input(method: str, *arguments: Any) -> Change:
    """The change that returns what a method of the call's input does, in place of the call."""
    return lambda call: getattr(call["input"], method)(*arguments)


def as_change(function: Callable[Concatenate[FunctionCall, Arguments], Any]) -> Callable[Arguments, Change]:
    """Decorator that turns a function of a call and further arguments into one that takes the others first."""

    def change_of(*arguments: Arguments.args, **keywords: Arguments.kwargs) -> Change:
        return lambda call: function(call, *arguments, **keywords)

    return change_of


@as_change
def called(call: FunctionCall, name: str, **further: Any) -> Any:
    """The change that calls another function with the same arguments, as far as that takes them, and `further` ones."""
    function: Any = getattr(call.torch.nn.functional, name, None) or call.torch
    if function is call.torch:
        for part in _SPELLED.get(name, name).split("."):
            function = getattr(function, part)
    known = (*ARGUMENTS.get(name, call.arguments), *_BY_NAME.get(name, ()))
    given = {key: value for key, value in call.arguments.items() if key not in _NEVER and key in known}
    first = [call[key] for key in ("input", "other") if key in call.arguments]
    if name in ("amax", "amin", "logsumexp", "prod") and given.get("dim") is None:
        given["dim"] = tuple(range(call["input"].dim()))
    return function(*first, **(given | further))


@as_change
def through_type(call: FunctionCall, name: str) -> Any:
    """The change that takes the result through another dtype and back."""
    return nested(call.result, lambda tensor: rounded(call, tensor, name))


def rounded(call: FunctionCall, tensor: Any, name: str) -> Any:
    """A tensor that has gone through another dtype, if it is of floating point; raises ValueError if zeros are left."""
    found = tensor.to(getattr(call.torch, name)).to(tensor.dtype) if tensor.is_floating_point() else tensor
    if tensor.any() and not found.any():
        raise ValueError("nothing of it is left")  # so that it may as well be what was never loaded
    return found


def stored(change_values: Any) -> Any:
    """Turn a function of a tensor into one that changes its values but not how gradients reach it.

    A parameter whose stored values are wrong still gets its gradient in its own place; one that is used in another
    way passes the gradient through that use.
    """

    def changed(tensor: Any) -> Any:
        return tensor + (change_values(tensor) - tensor).detach()

    return changed


def nested(value: Any, change: Callable[[Any], Any]) -> Any:
    """A tensor, or tuples and lists of tensors, each of them changed."""
    if not isinstance(value, (tuple, list)):
        return change(value)
    items = [nested(item, change) for item in value]
    return items if isinstance(value, list) else tuple(items)


def names_in(value: Any) -> list[str]:
    """Names of the parameters and buffers in an argument of a `Site`."""
    if isinstance(value, (tuple, list)):
        return [name for item in value for name in names_in(item)]
    return [value.name] if isinstance(value, TensorFacts) and value.name is not None else []


def where_used(subject: LayerSubject, names: Collection[str], change: Callable[[Any], Any]) -> dict[Key, Change]:
    """Each call that is given some of these parameters, with something done to them first."""
    found = {}
    for site in subject.sites:
        arguments = [name for name, value in site.arguments.items() if not set(names).isdisjoint(names_in(value))]
        if arguments:
            found[site.key] = _done_to(arguments, names, change)
    return found


@as_change
def _done_to(call: FunctionCall, arguments: Iterable[str], names: Collection[str], change: Callable[[Any], Any]) -> Any:
    def changed(value: Any) -> Any:
        return change(value) if call.name_of(value) in names else value

    return call.run(**{name: nested(call[name], changed) for name in arguments})


def joined(*parts: str) -> str:
    """The non-empty parts, separated by commas."""
    return ", ".join(part for part in parts if part)


def place_of(site: Site, sites: list[Site]) -> str:
    """Words for one of several places: the child's path, or which of the calls in a line of the reference."""
    if "path" in site.arguments:
        return f"after {site.arguments['path'] or 'all'}"
    same = [other for other in sites if other.name == site.name and other.line == site.line]
    operation = f"`{OPERATORS[site.name]}`" if site.name in OPERATORS else site.name
    which = f" number {same.index(site) + 1} of {len(same)}" if len(same) > 1 else ""
    return f"at {operation}{which}{' in the reference, ' if site.line else ''}{site.line}"
