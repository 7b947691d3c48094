"""Tell by evidence how a layer of the user's own keeps its matrix: run a copy of it alone and see what it computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

_FRAMEWORK_MODULES = ("torch.", "paddle.", "torchvision.ops.")


def probe_matrices(
    layer: Any,
    children: Mapping[str, Any],
    run: Callable[[Any, dict[str, np.ndarray], np.ndarray], np.ndarray],
) -> dict[str, str]:
    """`{name: "in_out" or "out_in"}` for the matrix of a leaf layer that computes x W + b or x Wᵀ + b, else `{}`.

    Only layers of classes that neither framework ships are asked, and only those with a single matrix and at most one
    vector. `run(layer, parameters, x)` runs a copy of the layer, in evaluation mode, with these parameters.
    """
    if type(layer).__module__.startswith(_FRAMEWORK_MODULES) or any(child is not None for child in children.values()):
        return {}
    parameters = {name: value for name, value in layer._parameters.items() if value is not None}
    matrices = [name for name, value in parameters.items() if len(value.shape) == 2]
    vectors = [name for name, value in parameters.items() if len(value.shape) == 1]
    if len(matrices) != 1 or len(vectors) > 1 or len(parameters) != len(matrices) + len(vectors):
        return {}
    generator = np.random.default_rng(0)
    values = {name: generator.standard_normal(tuple(value.shape)) for name, value in parameters.items()}
    matrix = values[matrices[0]]
    offsets = [values[name] for name in vectors] or [np.zeros(1)]
    agreeing = []
    for layout, weight in (("in_out", matrix), ("out_in", matrix.T)):
        x = generator.standard_normal((3, weight.shape[0]))
        try:
            given = run(layer, values, x)
        except Exception:  # a layer of the user's own may refuse such an input in any way it likes
            continue
        expected = x @ weight
        # With its vector added, as a Linear, or without, where the vector means something else.
        if any(
            given.shape == expected.shape
            and offset.shape in (expected.shape[1:], (1,))
            and np.allclose(given, expected + offset, rtol=1e-3, atol=1e-3)
            for offset in offsets
        ):
            agreeing.append(layout)
    return {matrices[0]: agreeing[0]} if len(agreeing) == 1 else {}
