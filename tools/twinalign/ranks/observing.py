"""The first training step of a side's ranks, part by part; the functions here are called through `Worker.call`."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.recorder.rank_files import rank_path
from twinalign.recording import save_npz
from twinalign.stages.context import StageContext, rank_inputs, step_inputs
from twinalign.stages.naming import CanonicalNames

PARTS = ("inputs", "weights", "forward", "loss", "gradient")
"""In the order in which a step goes through them: a fault shows in its own part and in those after it."""
_DTYPE = "float64"


def observe(
    worker: Any,
    stage: str,
    weights: Mapping[str, Any],
    path: str,
    hypothesis: str = "",
    variant: int = 0,
    given: str = "",
) -> dict[str, Any]:
    """Make the first training step in float64, and write what this rank has of each part.

    Args:
        worker: of this rank.
        stage: `"backward"`, or `"loss"` for a case that has no optimizer.
        weights: as `Worker.record` takes them.
        path: recording of all ranks, beside which this one leaves its part.
        hypothesis: id of a cause, on the reference side, under which the step is made.
        variant: its number among those of the hypothesis.
        given: what the port's ranks observed, for hypotheses that take something of it.

    Returns:
        `failed`: what was raised, empty where all went well.
    """
    context = _context(worker, stage, weights)
    around: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    if hypothesis:
        around = _variants(worker, context.case, hypothesis, given)[variant].apply()
    try:
        with around, worker.backend.default_dtype(_DTYPE):
            _first_step(context, stage)
    except Exception as error:
        if not hypothesis:
            raise
        return {"failed": f"{type(error).__name__}: {error}"}
    context.recording.metadata["layer_classes"] = worker.layer_classes()
    context.recording.save(rank_path(Path(path), worker.rank))
    return {"failed": ""}


def variants(worker: Any, stage: str, given: str, hypothesis: str) -> dict[str, Any]:
    """What distinguishes each variant of a hypothesis."""
    found = _variants(worker, worker.fresh_case(stage), hypothesis, given)
    return {"details": [item.detail for item in found]}


def keep_weights(worker: Any, stage: str, weights: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Write what the model has on this rank before the first step, whole, in the reference's names and layout."""
    context = _context(worker, stage, weights)
    with worker.backend.default_dtype(_DTYPE):
        model = context.build_model()
        context.step_of(model)
    state = (("", key, array) for key, array in worker.backend.state_items(model))
    found = {name: array for _, name, array in context.canonical.to_reference(state)}
    save_npz(rank_path(Path(path), worker.rank), found)
    return {}


def _context(worker: Any, stage: str, weights: Mapping[str, Any]) -> StageContext:
    worker.forget_model()
    case = worker.fresh_case(stage)
    worker.backend.set_seed(case.seed)
    return StageContext(
        case=case,
        framework=worker.framework,
        backend=worker.backend,
        dtype=_DTYPE,
        device=worker.device,
        build_model=lambda: worker.build_model(case, stage, _DTYPE, weights),
        canonical=CanonicalNames.of(weights),
        progress=lambda text: None,
        rank=worker.rank,
        ranks=worker.ranks,
    )


def _first_step(context: StageContext, stage: str) -> None:
    case, backend = context.case, context.backend
    model = context.build_model()
    backend.set_training(model, case.train_mode)
    if stage == "backward":
        parameters = backend.named_parameters(model)
        optimizer = case.optimizer([p for p in parameters.values() if backend.trainable(p)], context.framework)
        case.schedule(optimizer, 0, context.framework)
    run = context.step_of(model)
    for name, array in rank_inputs(case, step_inputs(case), context.rank, context.ranks).items():
        context.recording.add(f"inputs.{name}", array)
    context.add_state(("weights.", key, array) for key, array in backend.state_items(model))
    values = run(context.inputs())
    backend.backward(values.loss)
    context.add("forward", values.outputs)
    context.add("loss", values.losses)
    context.add_state(("gradient.", key, array) for key, array in backend.gradient_items(model))


def _variants(worker: Any, case: Any, hypothesis: str, given: str) -> list[Any]:
    from twinalign.explain.ranks import RankSubject
    from twinalign.explain.registry import hypotheses

    tools = importlib.import_module("twinalign.backends.torch_ranks")
    arrays: dict[str, np.ndarray] = {}
    if given:
        with np.load(rank_path(Path(given), worker.rank), allow_pickle=False) as stored:
            arrays = dict(stored)
    with worker.backend.default_dtype("float32"):
        paths = tuple(tools.batch_norms(case.reference())) if hypothesis == "rank_batch_norm" else ()
    subject = RankSubject(case, tools, worker.rank, worker.ranks, arrays, paths)
    return list(next(item for item in hypotheses("ranks") if item.id == hypothesis).variants(subject))
