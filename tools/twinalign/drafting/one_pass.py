"""One pass of a torch model, and of what is drafted beside it, on drawn inputs; in the reference's process."""

import hashlib
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from twinalign.backends import load_backend
from twinalign.case.calling import call_model
from twinalign.conversion.model_factory import load_factory
from twinalign.drafting.chance import without_chance
from twinalign.drafting.parts import (
    BUILD,
    Builders,
    load_part,
    loss_of,
    optimizer_and_schedule,
    run_loop,
    sample_image,
    shared_inputs,
)
from twinalign.drafting.untaken_branches import came_to

Inputs = Sequence[Sequence[Any]]
"""Names, shapes, dtypes and, for integers, bounds."""
_RARE: Sequence[Callable[[int], tuple[int, int]]] = (
    lambda bound: (0, min(2, bound)),
    lambda bound: (max(0, bound - 2), bound),
)
"""The least and the greatest of the whole numbers below a bound."""
CANDIDATE = "candidate"
"""Name of a package that is tried in place of the reference."""


def run_once(backend: Any, model: Any, inputs: Inputs, builders: Builders | None = None) -> Iterator[np.ndarray]:
    """Outputs in eval and in training mode, then the loss, the parameters after a step, the transform's image, and the
    parameters after the training loop.

    Before all that come outputs for the least and the greatest integers, for which some models have code of their own:
    a token that pads, say. Without a loss the sum of the outputs in training mode is differentiated.
    """
    builders = builders or {}
    tensors = _tensors_of(backend, inputs)
    taken, for_loss, by_name = shares(model, builders, inputs)
    backend.set_training(model, False)
    for among in _RARE if any(bound is not None for *_, bound in inputs) else ():
        rare = _tensors_of(backend, inputs, among)
        try:
            with backend.no_grad():
                found = backend.tensors_in(call_model(model, {name: rare[name] for name in taken}))
        except Exception as error:  # a sequence of no length does not run, say
            if came_to(str(error)):
                raise
        else:
            yield from map(backend.to_array, found)
    for training in (False, True):
        backend.set_training(model, training)
        outputs = call_model(model, {name: tensors[name] for name in taken})
        found = backend.tensors_in(outputs)
        yield from map(backend.to_array, found)
    if "loss" in builders:
        loss = loss_of(builders["loss"](), outputs, tensors, for_loss, by_name)
        yield backend.to_array(loss)
        loss.backward()
    elif found := [tensor for tensor in found if tensor.requires_grad]:
        sum(tensor.float().sum() for tensor in found).backward()
    if "optimizer" in builders:
        parameters = list(model.parameters())
        optimizer, schedule = optimizer_and_schedule(builders["optimizer"](parameters))
        optimizer.step()
        if schedule is not None:
            schedule.step()
        yield from map(backend.to_array, parameters)
    if "transform" in builders:
        yield np.asarray(builders["transform"]()(sample_image(0)))
    if "train" in builders:
        parameters = list(model.parameters())
        run_loop(builders, model, parameters, [tuple(tensors.values())] * 2)
        yield from map(backend.to_array, parameters)


def _tensors_of(
    backend: Any, inputs: Inputs, among: Callable[[int], tuple[int, int]] = lambda bound: (0, bound)
) -> dict[str, Any]:
    """Drawn tensors; `among` says which of the whole numbers below the bound are drawn."""
    rng = np.random.default_rng(0)
    tensors = {}
    array: Any
    for name, shape, dtype, bound in inputs:
        floating = np.dtype(dtype).kind == "f"
        array = rng.standard_normal(shape) if floating else rng.integers(*among(bound), shape)
        tensors[name] = backend.to_tensor(array.astype(dtype), "float32", "cpu")
    return tensors


def shares(model: Any, builders: Builders, inputs: Inputs) -> tuple[list[str], list[str], bool]:
    """Names of the inputs that the model takes, of those for the loss, and whether the loss takes them by name."""
    loss = builders["loss"]() if "loss" in builders else None
    return shared_inputs(model, loss, [name for name, *_ in inputs], "train" in builders)


def is_scheduled(model: Any, build: Callable[..., Any]) -> bool:
    """Whether the optimizer comes with a schedule."""
    return optimizer_and_schedule(build(list(model.parameters())))[1] is not None


def draws(backend: Any, model: Any, inputs: Inputs, builders: Builders) -> bool:
    """Whether a pass in training mode draws random numbers when every dropout is off; they stay off afterwards."""
    without_chance(model.modules(), model)
    taken, _, _ = shares(model, builders, inputs)
    found = []
    for seed in (0, 1):
        backend.set_seed(seed)
        backend.set_training(model, True)
        tensors = _tensors_of(backend, inputs)
        with backend.no_grad():
            outputs = call_model(model, {name: tensors[name] for name in taken})
            found.append([backend.to_array(tensor) for tensor in backend.tensors_in(outputs)])
    return not all(np.array_equal(a, b) for a, b in zip(*found, strict=True))


def prepare() -> dict[str, Any]:
    """Import torch; called in the process that forks."""
    load_backend("torch")
    return {}


def behaviour_of(folder: str, inputs: Inputs, kinds: Sequence[str] = ()) -> dict[str, Any]:
    """First weights, outputs and gradients of the package in `folder`, and what its parts give, as a digest; for the
    reference's process.
    """
    sys.path.insert(0, folder)
    package = importlib.import_module(f"{CANDIDATE}.{BUILD}")
    builders = {kind: getattr(package, f"build_{kind}") for kind in kinds}
    return _behaviour(package.build_model, inputs, builders)


def behaviour_of_reference(reference: str, inputs: Inputs, parts: Mapping[str, str]) -> dict[str, Any]:
    """The same of the model that `module:factory(…)` builds, and of its parts."""
    factory, arguments = load_factory(reference)
    builders = {kind: load_part(kind, text) for kind, text in parts.items()}
    return _behaviour(lambda: factory(**arguments), inputs, builders)


def _behaviour(build: Callable[[], Any], inputs: Inputs, builders: Builders) -> dict[str, Any]:
    backend = load_backend("torch")
    build()  # a class may keep what its first object found out
    backend.set_seed(0)
    model = build()
    digest = hashlib.sha256()
    for name, array in backend.state_items(model):
        digest.update(name.encode() + array.tobytes())
    for array in run_once(backend, model, inputs, builders):
        digest.update(str(array.shape).encode() + array.tobytes())
    for name, array in backend.gradient_items(model):
        digest.update(name.encode() + array.tobytes())
    return {"digest": digest.hexdigest()}
