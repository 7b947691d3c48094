"""What can be told of a port whose pass raises before it ends: the first layer that returns another shape."""

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from twinalign.replay.case_run import CaseRun
from twinalign.replay.layer_calls import Call, CallStack, wrapped
from twinalign.replay.nested_tensors import take_apart
from twinalign.replay.path_names import PathNames


def port_unfinished(
    worker: Any, stage: str, weights: Mapping[str, Any], folder: str, calls: Sequence[dict], rename: Mapping[str, str]
) -> dict[str, Any]:
    """Run the port until it raises, and compare shapes of what its layers return with those of the reference's calls.

    Shapes that differ in the order of their axes alone may be another layout, and do not count.

    Returns:
        `other_shape`: a sentence about the first call to end whose result has another shape, empty if there is none.
    """
    run = CaseRun.of(worker, stage, weights)
    known = [Call.from_json(call) for call in calls]
    names = PathNames.of(run, known, rename)
    by_name = {(call.path, call.ordinal): call for call in known}
    stack, found = CallStack(), list[str]()

    def around(path: str, layer: Any, forward: Callable[..., Any], arguments: tuple, keywords: dict) -> Any:
        call = stack.begin(path, layer)
        try:
            result = forward(*arguments, **keywords)
        finally:
            stack.end(call)
        theirs = by_name.get((names.reference_path(path), call.ordinal))
        if theirs is not None and layer is not None:
            shapes = [list(tensor.shape) for tensor in take_apart(result, run.backend.is_tensor)[0]]
            pairs = zip(shapes, (tensor.shape for tensor in theirs.outputs), strict=False)
            for ours, expected in pairs:
                if sorted(ours) != sorted(expected) and (math.prod(ours), math.prod(expected)) != (1, 1):
                    found.append(f"{path} returns {ours} where the reference returns {list(expected)}")
        return result

    # It has raised before, and is asked for no more than what it does until then.
    with (
        run.backend.default_dtype(run.dtype),
        wrapped(run.backend.named_layers(run.model), around),
        run.backend.no_grad(),
        contextlib.suppress(Exception),
    ):
        run.through(around)
    return {"other_shape": found[0] if found else ""}
