"""Gradients of the whole model, and the reference with the ties that the port's weights have."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.replay.case_run import CaseRun

CAUSES = {
    "weights_not_shared": "weights that are one tensor in the reference are tensors of their own in the port",
    "weights_shared": "weights that are tensors of their own in the reference are one tensor in the port",
}
"""Id of each cause of wrong ties and what it says of the port."""


def reference_use_ties(worker: Any, tied: Sequence[Sequence[str]], apart: Sequence[Sequence[str]]) -> dict[str, Any]:
    """From now on build models whose keys in each group of `tied` are one tensor, and in each of `apart` several."""
    worker.forget_model()
    worker.retie = functools.partial(_retie, tied, apart)
    return {}


def _retie(tied: Sequence[Sequence[str]], apart: Sequence[Sequence[str]], model: Any) -> Any:
    from twinalign.backends.torch.reference_only import ties

    known = model.state_dict()  # another part of the case may be another model
    for keys in tied:
        if all(key in known for key in keys):
            ties.tie(model, keys)
    ties.untie(model, [keys for keys in apart if all(key in known for key in keys)])
    return model


def gradients_of_parameters(
    worker: Any, stage: str, weights: Mapping[str, Any], path: str, draw: int
) -> dict[str, Any]:
    """Write the gradients of the loss by all parameters to an `.npz` file, by the reference's names and in float64.

    Returns:
        `crash`: why the model does not run on this draw of inputs; empty where it does.
    """
    try:
        run = CaseRun.of(worker, stage, weights, draw)
        with run.backend.default_dtype(run.dtype):
            _, loss = run.through(lambda path, layer, forward, arguments, keywords: forward(*arguments, **keywords))
            loss.backward()
        items = (("", name, np.array(array)) for name, array in run.backend.gradient_items(run.model))
        found = {name: array for _, name, array in run.canonical.to_reference(items)}
        run.backend.clear_gradients(run.model)
    except Exception as error:  # a user's code may not run on other inputs
        return {"crash": f"{type(error).__name__}: {error}"}
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **found)  # type: ignore[arg-type]
    return {"crash": ""}
