"""Records the first training step of a side's ranks, part by part; called through `SideProcess.call`."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.files.rank_recordings import rank_path
from twinalign.files.recordings import save_npz
from twinalign.stages.context import StageContext, rank_inputs, step_inputs

PARTS = ("inputs", "weights", "forward", "loss", "gradient")
"""Parts of a step, in order: a fault shows in its own part and in those after it."""
_DTYPE = "float64"


def observe(
    worker: Any, stage: str, weights: Mapping[str, Any], path: str, cause: str = "", variant: int = 0, given: str = ""
) -> dict[str, Any]:
    """Take the first training step in float64 and write this rank's values of each part.

    Args:
        worker: the recorder of this rank.
        stage: `"backward"`, or `"loss"` for a case without an optimizer.
        weights: as for `Worker.record`.
        path: recording of all ranks, next to which this one writes its part.
        cause, variant: id and number of the variant of the cause that is applied to the reference; empty for none.
        given: file of the port's weights, for causes that need them.

    Returns:
        `failed`: the error that the cause led to; empty if there was none.
    """
    context = _context(worker, stage, weights)
    around: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    if cause:
        around = _variants(worker, context.case, cause, given)[variant].apply()
    try:
        with around, worker.backend.default_dtype(_DTYPE):
            _first_step(context, stage)
    except Exception as error:
        if not cause:
            raise
        return {"failed": f"{type(error).__name__}: {error}"}
    context.recording.metadata["layer_classes"] = worker.layer_classes()
    context.recording.save(rank_path(Path(path), worker.rank))
    return {"failed": ""}


def variants(worker: Any, stage: str, given: str, cause: str) -> dict[str, Any]:
    """What distinguishes each variant of a cause."""
    return {"details": [item.detail for item in _variants(worker, worker.fresh_case(stage), cause, given)]}


def keep_weights(worker: Any, stage: str, weights: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Write the model's tensors before the first step, in the reference's names and layout."""
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
    context: StageContext = worker.context(case, stage, _DTYPE, weights)
    return context


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
    values.loss.backward()
    context.add("forward", values.outputs)
    context.add("loss", values.losses)
    context.add_state(("gradient.", key, array) for key, array in backend.gradient_items(model))


def _variants(worker: Any, case: Any, cause: str, given: str) -> list[Any]:
    from twinalign.backends.torch.reference_only import rank_mistakes as tools
    from twinalign.causes.ranks import RankSubject
    from twinalign.causes.registry import known_causes

    arrays: dict[str, np.ndarray] = {}
    if given:
        with np.load(rank_path(Path(given), worker.rank), allow_pickle=False) as stored:
            arrays = dict(stored)
    with worker.backend.default_dtype("float32"):
        paths = tuple(tools.batch_norms(case.reference())) if cause == "rank_batch_norm" else ()
    subject = RankSubject(case, tools, worker.rank, worker.ranks, arrays, paths)
    return list(next(item for item in known_causes("ranks") if item.id == cause).variants(subject))
