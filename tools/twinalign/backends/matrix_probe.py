"""Find out what a user's layer computes and how it stores its matrix: run a copy of it alone, look at the result."""

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Run = Callable[[Any, dict[str, np.ndarray], np.ndarray], np.ndarray]
"""Runs a copy of a layer in evaluation mode, in float64, with these parameters on this input."""
_OF_BATCH_NORM = "weight", "bias", "running_mean", "running_var"
_FRAMEWORK_MODULES = ("torch.", "paddle.", "torchvision.ops.")


def probe_matrices(layer: Any, children: Mapping[str, Any], run: Run) -> dict[str, str]:
    """`{name: "in_out" or "out_in"}` for the matrix of a leaf layer that computes x W + b or x Wᵀ + b, else `{}`.

    Only layers of classes that neither framework ships are tested, with a single matrix and at most one vector.
    """
    parameters = _own_parameters(layer, children)
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


def probe_norm(layer: Any, children: Mapping[str, Any], run: Run) -> dict[str, Any]:
    """`{"kind": "layer norm", "slots": {name: "weight" or "bias"}}` for a leaf layer that computes one, else `{}`.

    The layer is of a class that neither framework ships, and has one or two vectors. It normalises the last axis, or
    the second, with or without (RMS norm) taking the mean off. The same for a batch norm with fixed statistics, whose
    four vectors may be buffers.
    """
    if (frozen := _probe_fixed_norm(layer, children, run)) is not None:
        return frozen
    vectors = _own_parameters(layer, children)
    shapes = [tuple(value.shape) for value in vectors.values()]
    size = max((length for shape in shapes for length in shape), default=0)
    if size < 2 or len(vectors) > 2 or any(math.prod(shape) != size for shape in shapes):
        return {}
    generator = np.random.default_rng(0)
    values = {name: generator.standard_normal(shape) for name, shape in zip(vectors, shapes, strict=True)}
    flat = {name: value.reshape(size) for name, value in values.items()}
    for shape, axis in (((2, 3, size), -1), ((2, size, 3, 2), 1), ((2, size, 3), 1)):
        x = 100 * generator.standard_normal(shape)  # beside which an epsilon is nothing
        try:
            given = run(layer, values, x)
        except Exception:  # a layer of the user's own may refuse such an input in any way it likes
            continue
        for centred, names in itertools.product((True, False), itertools.permutations(vectors)):
            y = x - centred * x.mean(axis, keepdims=True)
            y = np.moveaxis(y / np.sqrt((y * y).mean(axis, keepdims=True)), axis, -1) * flat[names[0]]
            expected = np.moveaxis(y + (flat[names[1]] if len(names) > 1 else 0), -1, axis)
            if given.shape == shape and np.allclose(given, expected, rtol=1e-3, atol=1e-3):
                return {"kind": "layer norm", "slots": dict(zip(names, ("weight", "bias"), strict=False))}
    return {}


def _probe_fixed_norm(layer: Any, children: Mapping[str, Any], run: Run) -> dict[str, Any] | None:
    if not _is_own_leaf(layer, children):
        return None
    held = {name: value for name, value in (*layer._parameters.items(), *layer._buffers.items()) if value is not None}
    vectors = {name: value for name, value in held.items() if math.prod(value.shape) > 1}
    sizes = {math.prod(value.shape) for value in vectors.values()}
    if len(vectors) != len(_OF_BATCH_NORM) or len(sizes) != 1:
        return None
    size, generator = sizes.pop(), np.random.default_rng(0)
    values = {name: 100 + 50 * generator.random(tuple(value.shape)) for name, value in vectors.items()}
    flat = {name: value.reshape(size) for name, value in values.items()}
    for tail in ((3, 2), (3,), ()):
        x = 100 * generator.standard_normal((2, size, *tail))
        try:
            given = run(layer, values, x)
        except Exception:  # a layer of the user's own may refuse such an input in any way it likes
            continue
        for names in itertools.permutations(flat):
            weight, bias, mean, variance = (flat[name].reshape(size, *(1 for _ in tail)) for name in names)
            expected = (x - mean) / np.sqrt(variance) * weight + bias
            if given.shape == x.shape and np.allclose(given, expected, rtol=1e-3, atol=1e-3):
                return {"kind": "batch norm", "slots": dict(zip(names, _OF_BATCH_NORM, strict=True))}
    return None


def _own_parameters(layer: Any, children: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a leaf layer of a class that neither framework ships; of others none."""
    if not _is_own_leaf(layer, children):
        return {}
    return {name: value for name, value in layer._parameters.items() if value is not None}


def _is_own_leaf(layer: Any, children: Mapping[str, Any]) -> bool:
    of_framework = type(layer).__module__.startswith(_FRAMEWORK_MODULES)
    return not of_framework and all(child is None for child in children.values())
