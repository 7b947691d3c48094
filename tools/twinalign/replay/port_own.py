"""The port's own forward pass, in which no layer is given the reference's values."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from twinalign.replay.case_run import CaseRun
from twinalign.replay.layer_calls import Call, CallStack, Tensor, wrapped
from twinalign.replay.nested_tensors import take_apart
from twinalign.verdict.array_difference import distance_of_samples, sample_of


def own_forward(run: CaseRun, calls: Sequence[Call], partner: Callable[[str], str]) -> list[Call]:
    """Run the port as it is; returns its calls, with each output's distance from the reference's if the names match.

    Args:
        calls: the reference's.
        partner: path of a layer of the port → path of its counterpart in the reference.
    """
    backend, stack = run.backend, CallStack()
    by_name = {(call.path, call.ordinal): call for call in calls}

    def around(path: str, layer: Any, forward: Callable[..., Any], arguments: tuple, keywords: dict) -> Any:
        call = stack.begin(path, layer)
        given, _ = take_apart((arguments, keywords), backend.is_tensor)
        call.inputs = [_described(tensor, sample_of(backend.values_of(tensor))) for tensor in given]
        try:
            result = forward(*arguments, **keywords)
        finally:
            stack.end(call)
        theirs = by_name.get((partner(path), call.ordinal))
        for number, tensor in enumerate(take_apart(result, backend.is_tensor)[0]):
            call.outputs.append(_described(tensor, sample_of(backend.values_of(tensor))))
            if theirs is not None and number < len(theirs.outputs):
                apart = distance_of_samples(call.outputs[-1].sample, theirs.outputs[number].sample)
                call.outputs[-1].inherited = apart if np.isfinite(apart) else None
        return result

    with backend.default_dtype(run.dtype), wrapped(backend.named_layers(run.model), around), backend.no_grad():
        run.through(around)
    return stack.calls


def _described(tensor: Any, sample: Sequence[float]) -> Tensor:
    return Tensor(None, list(tensor.shape), str(tensor.dtype).rpartition(".")[2], sample=list(sample))


def whole_forward(run: CaseRun, units: Mapping[tuple[str, int], int]) -> dict[str, np.ndarray]:
    """Run the port as it is; returns what forward and loss return, and what went into and came out of some calls.

    Args:
        units: (path in the port, ordinal) → number of the call in the reference.

    Returns:
        `(forward).0`, `(loss).0`, ...; `input.NUMBER.0`, `output.NUMBER.0`, ...; `state.NAME` of what no
        optimizer moves, after the pass, by the reference's names.
    """
    backend, stack = run.backend, CallStack()
    found: dict[str, np.ndarray] = {}

    def keep(prefix: str, value: Any) -> None:
        for number, tensor in enumerate(take_apart(value, backend.is_tensor)[0]):
            found[f"{prefix}.{number}"] = np.array(backend.values_of(tensor))

    def around(path: str, layer: Any, forward: Callable[..., Any], arguments: tuple, keywords: dict) -> Any:
        call = stack.begin(path, layer)
        number = units.get((path, call.ordinal))
        if number is not None:
            keep(f"input.{number}", (arguments, keywords))
        result = forward(*arguments, **keywords)
        stack.end(call)
        if number is not None:
            keep(f"output.{number}", result)
        if layer is None:
            keep(path, result)
        return result

    with backend.default_dtype(run.dtype), wrapped(backend.named_layers(run.model), around), backend.no_grad():
        run.through(around)
    kept = {name: t for name, t in backend.state_tensors(run.model).items() if not backend.trainable(t)}
    state = (("", name, backend.to_array(tensor)) for name, tensor in kept.items())
    return found | {f"state.{name}": array for _, name, array in run.canonical.to_reference(state)}
