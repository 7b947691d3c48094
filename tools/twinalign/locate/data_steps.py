"""The input pipeline's part of locating, on one side: samples as they come, and the steps that make their images."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.case import Steps
from twinalign.recording import save_npz
from twinalign.stages.calling import named_values

STAGE = "data"
MORE_SAMPLES = 4
"""Samples that are read beyond those that are compared, so that one out of its place is recognised."""
SAMPLE = "(sample)"
"""Name of the step after the last: what `Case.dataset` does with the image that the steps have made."""


def record_samples(worker: Any, folder: str) -> dict[str, Any]:
    """Write the samples of every split, each value of each sample an array.

    Returns:
        `splits`: split → `names` of the arrays in its file (`INDEX.NAME`), `compared` samples, and whether the split
        `ended` with those that were read.
    """
    case = worker.fresh_case(STAGE)
    found = {}
    for split in case.splits:
        samples = iter(case.dataset(worker.framework, split))
        arrays: dict[str, np.ndarray] = {}
        read = list(itertools.islice(samples, case.data_samples + MORE_SAMPLES))
        for index, sample in enumerate(read):
            arrays.update(sample_arrays(worker.backend, sample, f"{index}."))
        save_npz(Path(folder) / f"{split}_{worker.side}.npz", arrays)
        found[split] = {"compared": case.data_samples, "count": len(read), "ended": _ended(samples)}
    return {"splits": found}


def _ended(samples: Any) -> bool:
    return next(samples, _NOTHING) is _NOTHING


_NOTHING = object()


def sample_arrays(backend: Any, sample: Any, prefix: str = "") -> dict[str, np.ndarray]:
    """Every value of a sample by its path, a lone one by the prefix alone."""
    return {
        prefix + name: backend.to_array(leaf) if backend.is_tensor(leaf) else np.asarray(leaf)
        for name, leaf in named_values(sample, backend.is_tensor, "")
    }


def steps_of(worker: Any, split: str, index: int) -> dict[str, Steps]:
    """What `Case.preprocessing` gives, or else the steps of the dataset's `Compose`; empty where there is neither."""
    case = worker.fresh_case(STAGE)
    given = dict(case.preprocessing(worker.framework, split, index))
    return given or _composed(case.dataset(worker.framework, split), index)


def _composed(dataset: Any, index: int) -> dict[str, Steps]:
    """The steps of `dataset.transform`, whose input is what the dataset holds before it is transformed."""
    holder = next(
        (name for name in ("transform", "transforms") if hasattr(getattr(dataset, name, None), "transforms")), ""
    )
    if not holder or not hasattr(dataset, "__getitem__"):
        return {}
    composed = getattr(dataset, holder).transforms
    steps = [(type(step).__name__, step) for step in composed]
    return {"image": [("load", functools.partial(_untransformed, dataset, holder, index)), *steps]}


def _untransformed(dataset: Any, holder: str, index: int, nothing: Any) -> Any:
    """The image of a sample as the dataset reads it."""
    transform = getattr(dataset, holder)
    setattr(dataset, holder, None)
    try:
        sample = dataset[index]
    finally:
        setattr(dataset, holder, transform)
    return (
        next(iter(sample.values()))
        if isinstance(sample, Mapping)
        else sample[0]
        if isinstance(sample, tuple)
        else sample
    )


def record_steps(
    worker: Any, split: str, indices: Iterable[int], path: str, given: str | None = None
) -> dict[str, Any]:
    """Run the steps of some samples and write what each step returns (`SAMPLE.IMAGE.STEP`).

    Args:
        worker: the recorder that calls.
        split: one of the case's.
        indices: numbers of the samples.
        path: the `.npz` file to write.
        given: a file of the other side, whose results the steps are given in place of this side's own; the steps must
            have the same names there.

    Returns:
        `steps`: `SAMPLE.IMAGE` → its steps, each a `name`, what it is told (`arguments`) and the `error` with which it
        ended the chain, if any.
    """
    arrays: dict[str, np.ndarray] = {}
    described: dict[str, list[dict[str, Any]]] = {}
    forced = dict(np.load(given, allow_pickle=False)) if given else {}
    for index in indices:
        for image, steps in steps_of(worker, split, index).items():
            key = f"{index}.{image}"
            described[key] = []
            value: Any = None
            for number, (name, function) in enumerate(steps):
                before = forced.get(f"{key}.{number - 1}")
                if before is not None:
                    value = as_given(worker, before, value)
                entry = {"name": name, "arguments": arguments_of(function), "error": None}
                described[key].append(entry)
                try:
                    value = function(value)
                except Exception as error:  # what the port's step cannot take is a finding
                    entry["error"] = f"{type(error).__name__}: {error}"[:300]
                    break
                arrays[f"{key}.{number}"] = as_array(worker.backend, value)
    save_npz(Path(path), arrays)
    return {"steps": described}


def as_array(backend: Any, value: Any) -> np.ndarray:
    """An image of any kind as an array, PIL's with the channels last."""
    return backend.to_array(value) if backend.is_tensor(value) else np.asarray(value)


def as_given(worker: Any, array: np.ndarray, own: Any) -> Any:
    """An array in the form in which this side hands images on: PIL image, tensor or array."""
    if worker.backend.is_tensor(own):
        return worker.backend.to_tensor(array, str(array.dtype), worker.device)
    if hasattr(own, "getbands"):
        from PIL import Image

        return Image.fromarray(array)
    return array


def arguments_of(function: Any) -> dict[str, str]:
    """What a step is told beside the image, as text: a partial's arguments, or a callable object's attributes."""
    return {name: _text(value) for name, value in bound_arguments(function).items()}


def bound_arguments(function: Any) -> dict[str, Any]:
    """What a step is told beside the image, by name."""
    if isinstance(function, functools.partial):
        return {**{str(place): value for place, value in enumerate(function.args)}, **function.keywords}
    if hasattr(function, "__dict__") and not hasattr(function, "__code__") and not isinstance(function, type):
        return {k: v for k, v in vars(function).items() if not k.startswith("_") and k not in ("training", "keys")}
    return {}


def _text(value: Any) -> str:
    return repr(value)[:200]
