"""Both sides at a later step: its inputs, and the weights that the reference has then.

A moving average of weights that begin equal, or an optimizer's state, shows nothing in the first step.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.conversion.canonical_names import CanonicalNames
from twinalign.files.reader import read_arrays
from twinalign.files.recordings import save_npz
from twinalign.replay.case_run import CaseRun

STAGE = "backward"


def reference_later_weights(worker: Any, weights: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """Take the reference's steps in float64, and write its weights before each but the first: `STEP_ref.npz`.

    Returns:
        `steps`: how many files there are, none where the user's code does not run in this way.
    """
    Path(folder).mkdir(parents=True, exist_ok=True)
    written = 0
    try:
        run = CaseRun.of(worker, STAGE, weights)
        case, backend = run.case, run.backend
        trainable = [p for p in backend.named_parameters(run.model).values() if backend.trainable(p)]
        with backend.default_dtype(run.dtype):
            optimizer = case.optimizer(trainable, run.framework)
            for step in range(case.steps - 1):
                case.schedule(optimizer, step, run.framework)
                _, loss = dataclasses.replace(run, step=step).through(
                    lambda path, layer, forward, arguments, keywords: forward(*arguments, **keywords)
                )
                loss.backward()
                optimizer.step()
                backend.clear_gradients(run.model)
                save_npz(Path(folder) / f"{step + 1}_ref.npz", dict(backend.state_items(run.model)))
                written = step + 1
    except Exception:  # the steps before, or the first weights, are still there to be searched
        pass
    return {"steps": written}


def port_later_weights(worker: Any, weights: Mapping[str, Any], reference: str, path: str) -> dict[str, Any]:
    """Write the port's weights file again, with the reference's values of another file in the port's layout."""
    names = CanonicalNames.of(weights)
    found = dict(read_arrays(weights["path"]))
    with np.load(reference, allow_pickle=False) as theirs:
        for key in found:
            array = names.from_reference(key, theirs)
            found[key] = found[key] if array is None else array
    save_npz(Path(path), found)
    return {}
