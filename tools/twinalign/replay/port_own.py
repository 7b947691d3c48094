"""The port's own forward pass, in which no layer is given the reference's values."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from twinalign.backends.layer_classes import full_name
from twinalign.replay.case_run import CaseRun
from twinalign.replay.forced_call import ForcedCall
from twinalign.replay.layer_calls import Call, CallStack, Tensor, is_random, wrapped
from twinalign.replay.nested_tensors import order_by_names, take_apart
from twinalign.verdict.array_difference import distance_of_samples, sample_of


def own_forward(
    run: CaseRun,
    calls: Sequence[Call],
    partner: Callable[[str], str],
    units: Mapping[tuple[str, int], int],
) -> tuple[list[Call], dict[str, np.ndarray]]:
    """Run the port as it is.

    Args:
        calls: the reference's.
        partner: path of a layer of the port → path of its counterpart in the reference.
        units: (path in the port, ordinal) → number of the call in the reference, of calls whose values are kept.

    Returns:
        Its calls, with each output's distance from the reference's if the names match. And values: `(forward).0`,
        `(loss).0`, ... of what forward and loss return; `input.NUMBER.0`, `output.NUMBER.0`, ... of `units`;
        `state.NAME` of what no optimizer moves, after the pass, by the reference's names.
    """
    backend, stack = run.backend, CallStack()
    by_name = {(call.path, call.ordinal): call for call in calls}
    found: dict[str, np.ndarray] = {}

    def keep(prefix: str, tensors: Sequence[Any]) -> None:
        found.update({f"{prefix}.{n}": np.array(backend.values_of(tensor)) for n, tensor in enumerate(tensors)})

    def around(path: str, layer: Any, forward: Callable[..., Any], arguments: tuple, keywords: dict) -> Any:
        call = stack.begin(path, layer)
        given, _ = take_apart((arguments, keywords), backend.is_tensor)
        call.inputs = [_described(tensor, sample_of(backend.values_of(tensor))) for tensor in given]
        number = units.get((path, call.ordinal))
        if number is not None:
            keep(f"input.{number}", given)
        try:
            result = forward(*arguments, **keywords)
        finally:
            stack.end(call)
        returned, skeleton = take_apart(result, backend.is_tensor)
        theirs = by_name.get((partner(path), call.ordinal))
        if theirs is not None and (named := order_by_names(skeleton, theirs.places)) is not None:
            returned = [returned[place] for place in named]
        if number is not None:
            keep(f"output.{number}", returned)
        if layer is None:
            keep(path, returned)
        for place, tensor in enumerate(returned):
            call.outputs.append(_described(tensor, sample_of(backend.values_of(tensor))))
            if theirs is not None and place < len(theirs.outputs):
                apart = distance_of_samples(call.outputs[-1].sample, theirs.outputs[place].sample)
                call.outputs[-1].inherited = apart if np.isfinite(apart) else None
        return result

    with backend.default_dtype(run.dtype), wrapped(backend.named_layers(run.model), around), backend.no_grad():
        run.through(around)
    kept = {name: t for name, t in backend.state_tensors(run.model).items() if not backend.trainable(t)}
    state = (("", name, backend.to_array(tensor)) for name, tensor in kept.items())
    return stack.calls, found | {f"state.{name}": array for _, name, array in run.canonical.to_reference(state)}


def _described(tensor: Any, sample: Sequence[float]) -> Tensor:
    return Tensor(None, list(tensor.shape), str(tensor.dtype).rpartition(".")[2], sample=list(sample))


def same_as_own(units: Sequence[ForcedCall]) -> list[Call]:
    """The calls of the port's own pass, from a forced pass that was one: the reference's values were never given."""
    found = []
    for unit in units:
        inputs = [dataclasses.replace(tensor, number=None) for tensor in unit.call.inputs]
        outputs = [dataclasses.replace(tensor, number=None, inherited=unit.apart) for tensor in unit.call.outputs]
        layer = full_name(type(unit.layer)) if unit.layer is not None else unit.path
        call = dataclasses.replace(unit.call, path=unit.path, layer=layer, inputs=inputs, outputs=outputs)
        found.append(dataclasses.replace(call, evaluation=[], random=is_random(unit.layer)))
    return found
