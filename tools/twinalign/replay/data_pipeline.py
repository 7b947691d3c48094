"""Records samples, and the steps that make their images, on one side; writes pictures for a person to look at."""

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.case.calling import named_values
from twinalign.case.definition import Case, Steps
from twinalign.case.samples import first_samples
from twinalign.errors import InputError
from twinalign.files.recordings import save_npz
from twinalign.replay.noted_expressions import values_of
from twinalign.replay.noted_functions import noted
from twinalign.sides import SIDES
from twinalign.verdict.array_difference import ROUNDED_SAMPLE, distance, root_mean_square

STAGE = "data"
MORE_SAMPLES = 4
"""Samples that are read beyond those that are compared, to recognise samples in another order."""
MOST_RANKS = 8
"""Of so many ranks one may have the port's samples; the reference's are then read as far as its last one."""
SAMPLE = "(sample)"
"""Name of the step after the last: what `Case.dataset` does with the image."""


@noted
def record_samples(worker: Any, folder: str, splits: Sequence[str] | None = None, times: int = 1) -> dict[str, Any]:
    """Write the samples of every split; each value of a sample is an array `INDEX.NAME`.

    Args:
        splits: those that are read, None for all.
        times: so many times as many are read as are compared, and some more.

    Returns:
        `splits`: split → `count`, how many samples were read, and `compared`, how many are to be compared.
    """
    case = worker.fresh_case(STAGE)
    found = {}
    for split in case.splits if splits is None else splits:
        most = case.data_samples * times + MORE_SAMPLES
        items = list(items_of(worker, case, split, most))
        arrays = {f"{index}.{name}": array for index, item in enumerate(items) for name, array in item.items()}
        save_npz(Path(folder) / f"{split}_{worker.side}.npz", arrays)
        found[split] = {"compared": case.data_samples, "count": len(items)}
    return {"splits": found}


def items_of(worker: Any, case: Case, split: str, most: int) -> Iterator[dict[str, np.ndarray]]:
    """The first samples of a split, each as its values by name."""
    for sample in first_samples(case.dataset(worker.framework, split), most):
        yield sample_arrays(worker.backend, sample)


def read_items(path: str | Path, count: int) -> list[dict[str, np.ndarray]]:
    """The first samples, so many or as many as there are, from a file of `record_samples`."""
    items: list[dict[str, np.ndarray]] = [{} for _ in range(count)]
    with np.load(path, allow_pickle=False) as arrays:
        for key, array in arrays.items():
            index, _, name = key.partition(".")
            if int(index) < count:
                items[int(index)][name] = array
    return [item for item in items if item]


def same(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two arrays of a sample are the same: whole numbers exactly, others to float32's rounding.

    What is missing, or infinite, has to be so in both.
    """
    if one.shape != other.shape:
        return False
    if not {one.dtype.kind, other.dtype.kind} <= set("biufc"):  # texts, say
        return bool(np.array_equal(one, other))
    exact = one.dtype.kind in "biu" and other.dtype.kind in "biu"
    if not exact and not (finite := np.isfinite(one)).all():
        if not np.array_equal(one[~finite], other[~finite], equal_nan=True):
            return False
        one, other = one[finite], other[finite]
    return distance(one, other) <= (0.0 if exact else ROUNDED_SAMPLE * root_mean_square(one))


def same_item(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> bool:
    """Whether two samples hold equal values under equal names."""
    return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)


@noted
def read_samples(worker: Any, split: str, count: int) -> dict[str, Any]:
    """Read the first samples of a split, so that the functions that make them are noted."""
    for _ in first_samples(worker.fresh_case(STAGE).dataset(worker.framework, split), count):
        pass
    return {}


def values_in_data(worker: Any, path: str, split: str, count: int) -> dict[str, Any]:
    """The values in the code that makes so many samples, as `values_of` writes them."""

    def read() -> None:
        worker.backend.set_seed(worker.case.seed)
        list(items_of(worker, worker.fresh_case(STAGE), split, count))

    return values_of(read, path)


def sample_arrays(backend: Any, sample: Any, prefix: str = "") -> dict[str, np.ndarray]:
    """Every value of a sample by its path; a single one by the prefix alone."""
    leaves = named_values(sample, backend.is_tensor, "")
    return {prefix + name: as_array(backend, leaf) for name, leaf in leaves}


def steps_of(worker: Any, split: str, index: int) -> dict[str, Steps]:
    """The steps from `Case.preprocessing`, else those of the dataset's `Compose`; empty if there is neither."""
    case = worker.fresh_case(STAGE)
    given = dict(case.preprocessing(worker.framework, split, index))
    return given or _composed(case.dataset(worker.framework, split), index)


def _composed(dataset: Any, index: int) -> dict[str, Steps]:
    """The steps of `dataset.transform`, after one that reads the image without them."""
    holder = next(
        (name for name in ("transform", "transforms") if hasattr(getattr(dataset, name, None), "transforms")), ""
    )
    if not holder or not hasattr(dataset, "__getitem__"):
        return {}
    composed = getattr(dataset, holder).transforms
    steps = [(type(step).__name__, step) for step in composed]
    return {"image": [("load", functools.partial(_untransformed, dataset, holder, index)), *steps]}


def _untransformed(dataset: Any, holder: str, index: int, nothing: Any) -> Any:
    transform = getattr(dataset, holder)
    setattr(dataset, holder, None)
    try:
        sample = dataset[index]
    finally:
        setattr(dataset, holder, transform)
    if isinstance(sample, Mapping):
        return next(iter(sample.values()))
    return sample[0] if isinstance(sample, tuple) else sample


@noted
def record_steps(
    worker: Any, split: str, indices: Iterable[int], path: str, given: str | None = None
) -> dict[str, Any]:
    """Run the steps of some samples and write the result of each (`SAMPLE.IMAGE.STEP`).

    Args:
        path: the `.npz` file to write.
        given: a file of the other side, from which each step takes its input; the steps must have the same names there.

    Returns:
        `steps`: `SAMPLE.IMAGE` → its steps, each with `name`, `arguments` and the `error` that it raised, if any.
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
                except Exception as error:  # a port's step that fails is a finding
                    entry["error"] = f"{type(error).__name__}: {error}"[:300]
                    break
                arrays[f"{key}.{number}"] = _image(worker.backend, value, f"{split}, image {image!r}, step {name!r}")
    save_npz(Path(path), arrays)
    return {"steps": described}


def _image(backend: Any, value: Any, step: str) -> np.ndarray:
    if isinstance(value, (tuple, list, dict)):
        raise InputError(
            f"preprocessing of {step} returns a {type(value).__name__}; "
            "let each step return one Pillow image, array or tensor, and give several images steps of their own"
        )
    return as_array(backend, value)


def as_array(backend: Any, value: Any) -> np.ndarray:
    """An image of any kind as an array; Pillow's has the channels last."""
    return backend.to_array(value) if backend.is_tensor(value) else np.asarray(value)


def as_given(worker: Any, array: np.ndarray, own: Any) -> Any:
    """An array in the form of this side's own value: Pillow image, tensor, text, plain number or array."""
    if worker.backend.is_tensor(own):
        return worker.backend.to_tensor(array, str(array.dtype), worker.device)
    if hasattr(own, "getbands"):
        from PIL import Image

        return Image.fromarray(array)
    return array.item() if isinstance(own, (str, int, float)) else array


def arguments_of(function: Any) -> dict[str, str]:
    """The arguments of a step besides the image, as text."""
    return {name: repr(value)[:200] for name, value in bound_arguments(function).items()}


def bound_arguments(function: Any) -> dict[str, Any]:
    """The arguments of a step besides the image: those of a partial, or the attributes of a callable object."""
    if isinstance(function, functools.partial):
        return {**{str(place): value for place, value in enumerate(function.args)}, **function.keywords}
    if hasattr(function, "__dict__") and not hasattr(function, "__code__") and not isinstance(function, type):
        return {k: v for k, v in vars(function).items() if not k.startswith("_") and k not in ("training", "keys")}
    return {}


def keep_pictures(worker: Any, arrays: list[str], stem: str) -> dict[str, Any]:
    """Write `STEM_ref.png` and `STEM_paddle.png` of the `.npy` files of both sides' images.

    Returns:
        `pictures`: their paths; none if the arrays are no images or Pillow is missing.
    """
    loaded = [np.load(path, allow_pickle=False) for path in arrays]
    images = [as_picture(array, loaded[0]) for array in loaded]
    paths: list[str] = []
    try:
        from PIL import Image
    except ImportError:
        return {"pictures": paths}
    for image, side in zip(images, SIDES, strict=True):
        if image is not None:
            path = Path(f"{stem}_{side}.png")
            Image.fromarray(image).save(path)
            paths.append(str(path))
    return {"pictures": paths}


def as_picture(array: np.ndarray, scale_of: np.ndarray) -> np.ndarray | None:
    """An array as uint8 `[height, width]` or `[height, width, 3]`; None if it is no image.

    Args:
        array: one image, or a batch whose first is taken; channels first or last, any range.
        scale_of: the array whose range becomes that of the picture, so that two pictures can be compared.
    """
    while array.ndim > 3:
        array = array[0]
    if array.ndim == 3 and array.shape[0] in (1, 3) and array.shape[-1] not in (1, 3):
        array = array.transpose(1, 2, 0)
    if array.ndim == 3 and array.shape[-1] == 1:
        array = array[..., 0]
    if not (array.ndim == 2 or (array.ndim == 3 and array.shape[-1] == 3)) or not array.size:
        return None
    if array.dtype == np.uint8:
        return np.ascontiguousarray(array)
    low, high = float(np.nanmin(scale_of)), float(np.nanmax(scale_of))
    values = (np.nan_to_num(array.astype(np.float64)) - low) / ((high - low) or 1.0)
    return np.ascontiguousarray((values.clip(0.0, 1.0) * 255).round().astype(np.uint8))
