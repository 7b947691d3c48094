"""Results of layers that nothing uses: that the port's are others says nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from twinalign.replay.case_run import CaseRun
from twinalign.replay.forced_call import ForcedCall
from twinalign.replay.layer_calls import CallStack, wrapped
from twinalign.replay.nested_tensors import put_together, take_apart


def leave_out_unused(worker: Any, run: CaseRun, units: Sequence[ForcedCall]) -> None:
    """Take from wrong units what they return beside others and what makes no difference in the port's own pass.

    One side may return edges that are updated, the other those that it was given, where the nodes alone are used.
    """
    several = [unit for unit in units if unit.ended and unit.layer is not None and len(unit.outputs) > 1]
    usual: list[np.ndarray] | None = None
    for unit in several:
        for number in range(len(unit.outputs)):
            if (name := f"output.{number}") not in unit.wrong_ends():
                continue
            try:
                usual = _returned(worker, run) if usual is None else usual
                changed = _returned(worker, run, (unit.path, unit.call.ordinal, number, len(unit.outputs)))
            except Exception:  # the port's own pass may not run, or not with another value
                continue
            if len(usual) == len(changed) and all(map(_same, usual, changed)):
                for found in (unit.differences, unit.port, unit.reference):
                    found.pop(name, None)
                unit.not_judged.add(name)  # so that no cause has to leave it as it is


def _returned(worker: Any, run: CaseRun, changed: tuple[str, int, int, int] | None = None) -> list[np.ndarray]:
    """What the port and its loss return in a pass of its own.

    `changed`: path and ordinal of a call, which of so many tensors that it returns is another there.
    """
    fresh, stack = CaseRun.of(worker, run.stage, run.weights, run.draw), CallStack()
    worker.backend.set_seed(fresh.case.seed)

    def around(path: str, layer: Any, forward: Callable[..., Any], arguments: tuple, keywords: dict) -> Any:
        call = stack.begin(path, layer)
        try:
            result = forward(*arguments, **keywords)
        finally:
            stack.end(call)
        if changed is None or (path, call.ordinal) != changed[:2]:
            return result
        leaves, skeleton = take_apart(result, fresh.backend.is_tensor)
        if len(leaves) != changed[3]:
            raise ValueError("other tensors than were judged")
        return put_together(skeleton, [one + 1 if at == changed[2] else one for at, one in enumerate(leaves)])

    backend = fresh.backend
    with backend.default_dtype(fresh.dtype), wrapped(backend.named_layers(fresh.model), around), backend.no_grad():
        outputs, loss = fresh.through(around)
    return [backend.to_array(one) for one in take_apart([outputs, loss], backend.is_tensor)[0]]


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == other.shape and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
