"""What a freshly built model starts from: the values of each parameter, drawn with several seeds."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from twinalign.backends.state_layout import StateEntry
from twinalign.files.recordings import sample
from twinalign.stages.context import StageContext

SEEDS = 4
"""Enough to see a deviation that is 10 % off in a tensor of 10,000 elements, with a probability of 1e-9 for chance."""
_LARGEST_GRAM = 512


def record_initial(context: StageContext) -> None:
    """Build the model with several seeds, and record of each real tensor of its state, tables of indices included,

    - `draws/NAME`: float32 [seeds, at most 4096], the same elements of each seed's tensor;
    - `extremes/NAME`: float64 [seeds, 2], the least and the largest of all elements;
    - `gram/NAME`: float64 [1], the largest cosine between two rows (or columns, whichever are fewer) of the first
      seed's matrix, which is 0 where they are orthogonal.

    NAME and layout are the reference's. The metadata's `initial` has each tensor's shape in that layout and on this
    side, its name and the class of its layer on this side, and the tensors that are one (`tied`).
    """
    draws: dict[str, list[np.ndarray]] = {}
    extremes: dict[str, list[list[float]]] = {}
    for number in reversed(range(SEEDS)):  # the first seed's model is kept: last, it is never one of two
        model = context.construct(number)
        shapes: dict[str, list[int]] = {}
        for name, values in state_in_reference(context, model):
            shapes[name] = list(values.shape)
            draws.setdefault(name, []).append(sample(values))
            extremes.setdefault(name, []).append([values.min(), values.max()])
            if number == 0 and (cosine := _largest_cosine(values)) is not None:
                context.recording.add(f"gram/{name}", np.array([cosine]))
        if number == 0:
            layout = [StateEntry.of(entry) for entry in context.backend.describe_state(model)]
        del model
    for name, found in draws.items():
        context.recording.add(f"draws/{name}", np.stack(found[::-1]))
        context.recording.add(f"extremes/{name}", np.array(extremes[name][::-1], np.float64))
    names = {entry.key: [part.name for part in context.canonical.parts(entry.key)] for entry in layout}
    context.recording.metadata["initial"] = {
        "shapes": shapes,
        "own_shapes": {name: list(entry.shape) for entry in layout for name in names[entry.key] if name in shapes},
        "own_names": {name: entry.key for entry in layout for name in names[entry.key] if name in shapes},
        "classes": {name: _short(entry.bases) for entry in layout for name in names[entry.key] if name in shapes},
        "tied": sorted(
            [name, first]
            for entry in layout
            if entry.tied_to is not None
            for name, first in zip(names[entry.key], names.get(entry.tied_to, ()), strict=False)
            if name != first
        ),
    }


def state_in_reference(context: StageContext, model: Any) -> Iterator[tuple[str, np.ndarray]]:
    """Each real tensor of a model's state that has elements, in float32, by the reference's names and in its layout."""
    # Only looked at, so not copied.
    state = ((key, context.backend.values_of(t)) for key, t in context.backend.state_tensors(model).items())
    items = (("", key, array) for key, array in state if array.dtype.kind in "fViub")
    for _, name, array in context.canonical.to_reference(items):
        if array.size:
            yield name, np.asarray(array, np.float32)


def _short(bases: tuple[str, ...]) -> str:
    return bases[0].rpartition(".")[2] if bases else ""


def _largest_cosine(values: np.ndarray) -> float | None:
    """Of two rows of [out, rest], or of two columns where there are more rows; None where there is no such pair."""
    matrix = values.reshape(len(values), -1) if values.ndim > 1 else values[:, None] if values.ndim else np.ones((1, 1))
    matrix = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    if not 2 <= len(matrix) <= _LARGEST_GRAM:
        return None
    matrix = matrix.astype(np.float64)
    norms = np.linalg.norm(matrix, axis=1)
    if not norms.all():
        return None
    matrix /= norms[:, None]
    cosines = np.abs(matrix @ matrix.T)  # one array, whose product takes half the time
    np.fill_diagonal(cosines, 0.0)
    return float(cosines.max())
