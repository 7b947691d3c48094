"""Which wrong values and gradients reach anything: what cancels out on its way, or ends before, changes nothing.

Runs in the reference's process. Where one side hides elements with -10000 and the other with the least number, a
softmax gives the same. A gradient of equal elements under a maximum, which one side gives to the first and the other
shares out, sums up to the same in what made the elements equal.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.replay.layer_calls import CallStack, wrapped
from twinalign.replay.nested_tensors import put_together, take_apart
from twinalign.replay.reference_pass import ReferencePass
from twinalign.replay.wrong_unit import phase_of
from twinalign.verdict.array_difference import greatest_relative

_NOTHING = 1e-10
"""Relative to a parameter's gradient: what float64 leaves of differences that cancel out."""
_CANCELLED = 1e-13
"""Relative to the greatest gradient: one that cancels out itself is rounding alone."""
_SAME = 1e-14
"""Relative: what float64 leaves of values that are the same."""
_INPUT, _CHILD = "gradient.input.", "gradient.child."


def without_effect(reference: ReferencePass, reports: Sequence[Mapping[str, Any]], folder: Path) -> list[bool]:
    """Of each suspect, whether no parameter's gradient is another one with the port's wrong gradients in their place.

    Suspects with a wrong parameter gradient, or whose gradients cannot be put in their places, are never so.
    """
    try:
        return _without_effect(reference, reports, folder)
    except Exception:  # a user's code may not run twice
        return [False] * len(reports)


def _without_effect(reference: ReferencePass, reports: Sequence[Mapping[str, Any]], folder: Path) -> list[bool]:
    places = [_places(reference, report, folder) for report in reports]
    wanted = {place for found in places for place in found}
    if not wanted:
        return [False] * len(reports)
    ends, loss = _forward(reference, wanted)
    backend, model = reference.backend, reference.run.model
    parameters = {n: p for n, p in backend.named_parameters(model).items() if backend.trainable(p)}
    if loss is None or not backend.differentiable(loss) or not parameters:
        return [False] * len(reports)

    def sent_back(tensors: Sequence[Any], seeds: Sequence[Any]) -> list[float]:
        found = backend.gradients(list(tensors), list(parameters.values()), list(seeds), again=True)
        return [0.0 if one is None else float(np.abs(backend.to_array(one)).max(initial=0.0)) for one in found]

    sizes = sent_back([loss], [loss * 0 + 1])
    limits = [_NOTHING * size + _CANCELLED * max(sizes) for size in sizes]
    return [bool(found) and _reaches_nothing(found, ends, sent_back, limits, reference) for found in places]


def _reaches_nothing(
    wrong: Mapping[tuple[str, int, int], np.ndarray],
    ends: Mapping[tuple[str, int, int], Any],
    sent_back: Callable[[Sequence[Any], Sequence[Any]], list[float]],
    limits: Sequence[float],
    reference: ReferencePass,
) -> bool:
    run = reference.run
    if any(place not in ends or tuple(ends[place].shape) != array.shape for place, array in wrong.items()):
        return False
    seeds = [reference.backend.to_tensor(array, run.dtype, run.device) for array in wrong.values()]
    changes = sent_back([ends[place] for place in wrong], seeds)
    return all(change <= limit for change, limit in zip(changes, limits, strict=True))


def _places(
    reference: ReferencePass, report: Mapping[str, Any], folder: Path
) -> dict[tuple[str, int, int], np.ndarray]:
    """End of a call (`input` or `output`), its number, that of the tensor → what the port's gradient is off by."""
    calls = reference.stack.calls
    children = {calls[number].label: number for number in report["children"]}
    with (
        np.load(folder / f"{report['call']}_port.npz", allow_pickle=False) as port,
        np.load(folder / f"{report['call']}_reference.npz", allow_pickle=False) as ours,
    ):
        found = {}
        for name in (name for name in report["differences"] if phase_of(name) == "backward"):
            place = _place_of(name, report["call"], children)
            if place is None or name not in port or name not in ours or port[name].shape != ours[name].shape:
                return {}
            found[place] = np.asarray(port[name], np.float64) - ours[name]
    return found


def _place_of(name: str, call: int, children: Mapping[str, int]) -> tuple[str, int, int] | None:
    if name.startswith(_INPUT):
        return "input", call, int(name.removeprefix(_INPUT))
    label, _, number = name.removeprefix(_CHILD).rpartition(".")
    return ("output", children[label], int(number)) if name.startswith(_CHILD) and label in children else None


def _forward(reference: ReferencePass, wanted: set[tuple[str, int, int]]) -> tuple[dict[Any, Any], Any]:
    """The differentiable tensors at these places in another forward pass, as ends of the graph, and its loss."""
    run, backend, stack = reference.run, reference.backend, CallStack()
    ends: dict[tuple[str, int, int], Any] = {}

    def keep(end: str, number: int, value: Any) -> None:
        for i, tensor in enumerate(take_apart(value, backend.is_tensor)[0]):
            if (end, number, i) in wanted and backend.differentiable(tensor):
                ends[end, number, i] = tensor.clone()  # what changes the tensor in place leaves this alone

    def around(path: str, layer: Any, forward: Callable[..., Any], arguments: tuple, keywords: dict) -> Any:
        call = stack.begin(path, layer)
        keep("input", call.number, (arguments, keywords))
        try:
            result = forward(*arguments, **keywords)
        finally:
            stack.end(call)
        keep("output", call.number, result)
        return result

    with backend.default_dtype(run.dtype), wrapped(backend.named_layers(run.model), around):
        outputs, loss = run.through(around)
    return ends, loss if run.has_loss else run.stand_in_loss(outputs)


def handed_without_effect(reference: ReferencePass, reports: Sequence[Mapping[str, Any]], folder: Path) -> list[bool]:
    """Of each suspect, whether all that is wrong is what layers are given, which return the same with it."""
    try:
        return [bool(given) and _return_the_same(reference, given) for given in (_given(r, folder) for r in reports)]
    except Exception:  # a user's code may not run twice
        return [False] * len(reports)


def _given(report: Mapping[str, Any], folder: Path) -> dict[tuple[str, int], np.ndarray]:
    """Label of a layer's call and number of a tensor → the port's value; nothing if something else differs."""
    names = [name for name in report["differences"] if phase_of(name) == "forward"]
    if not all(name.startswith("input.") for name in names):
        return {}
    with np.load(folder / f"{report['call']}_port.npz", allow_pickle=False) as port:
        places = {name: name.removeprefix("input.").rpartition(".") for name in names}
        return {(label, int(number)): port[name] for name, (label, _, number) in places.items()}


def _return_the_same(reference: ReferencePass, given: Mapping[tuple[str, int], np.ndarray]) -> bool:
    run, backend, stack = reference.run, reference.backend, CallStack()
    labels, compared, same = {label for label, _ in given}, set[str](), list[bool]()

    def with_the_ports(label: str, value: Any) -> Any:
        tensors, signature = take_apart(value, backend.is_tensor)
        for number, tensor in enumerate(tensors):
            if (label, number) in given:
                array = given[label, number]
                tensors[number] = backend.to_tensor(array.astype(backend.to_array(tensor).dtype), run.dtype, run.device)
        return put_together(signature, tensors)

    def around(path: str, layer: Any, forward: Callable[..., Any], arguments: tuple, keywords: dict) -> Any:
        if len(compared) > len(same):  # inside a layer that is given the port's values
            return forward(*arguments, **keywords)
        call = stack.begin(path, layer)
        try:
            result = forward(*arguments, **keywords)
        finally:
            stack.end(call)
        if call.label in labels:
            compared.add(call.label)
            arguments, keywords = with_the_ports(call.label, (arguments, keywords))
            both = (take_apart(one, backend.is_tensor)[0] for one in (forward(*arguments, **keywords), result))
            pairs = zip(*(map(backend.to_array, tensors) for tensors in both), strict=True)
            same.append(greatest_relative(pairs) <= _SAME)
        return result

    with backend.default_dtype(run.dtype), wrapped(backend.named_layers(run.model), around), backend.no_grad():
        run.through(around)
    return compared == labels and all(same)
