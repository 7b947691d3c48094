"""What a single training of both sides cannot say: several seeds, one that changes framework on the way."""

import dataclasses
import functools
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.errors import InputError
from twinalign.files.curve_names import BATCH_SIZE, CURVE_PREFIX, OUTCOME_PREFIX
from twinalign.files.recordings import Recording, read_metadata
from twinalign.recorder.recorder import Recorder
from twinalign.recorder.recording_plan import PlannedRecording
from twinalign.recorder.run_settings import RunSettings, experiments
from twinalign.runs.tensorboard import TensorBoardLogs, fill_logs
from twinalign.sides import SIDES
from twinalign.verdict.outcomes import MARGIN, SEEDS_PREFIX
from twinalign.verdict.results import Comparison
from twinalign.verdict.training_comparison import SWITCHED_PREFIX, SWITCHED_STEP

TRAIN = "train"
Progress = Callable[[str, str], None]


def check_experiments(settings: RunSettings) -> None:
    """Refuse impossible experiments; raises InputError."""
    if settings.seeds < 1:
        raise InputError(f"--seeds {settings.seeds}: give the number of trainings a side, 1 or more")
    if not settings.margin > 0:
        raise InputError(f"--margin {settings.margin:g}: must be above 0, in points")
    if settings.switch_at < 0:
        raise InputError(f"--switch-at {settings.switch_at}: give the number of steps before the switch, 1 or more")
    for option in experiments(settings):
        if settings.ranks > 1:
            raise InputError(f"{option}: trains as one process; leave --ranks {settings.ranks} out")
        if settings.stages and TRAIN not in settings.stages:
            raise InputError(f"{option}: belongs to the train stage; add it to --stages")
        if settings.precision not in ("both", "float32"):
            raise InputError(f"{option}: trains in float32; leave --precision {settings.precision} out")


def explain_training(recorder: Recorder, comparison: Comparison, progress: Progress) -> None:
    """Add to the train stage what explains it without affecting the verdict: throughput and swaps.

    Raises:
        InputError: swaps that this case cannot make.
    """
    assert comparison.training is not None
    comparison.training["throughput"] = {side: _throughput(recorder, side) for side in SIDES}
    if recorder.settings.swaps:
        from twinalign.search.training_swaps import swap_parts  # here: few runs swap parts

        with recorder.running() as weights:
            found = swap_parts(
                recorder.processes,
                weights[recorder.description["parts"][TRAIN]],
                recorder.out / "swaps",
                recorder.settings.swaps,
                progress,
            )
        if found is None:
            raise InputError("--swap: the case trains no step in float64; set float64_train_steps")
        comparison.training["swaps"] = found.to_json()


def _throughput(recorder: Recorder, side: str) -> dict[str, Any]:
    """Steps and images per second: the median over steps, so that pauses do not count."""
    path = recorder.recording_path(side, TRAIN, recorder.dtypes_of(TRAIN)[0])
    seconds = read_metadata(path).get("step_seconds") or []
    middle = float(np.median(seconds)) if seconds else 0.0
    sizes = Recording.load(path).arrays.get(CURVE_PREFIX + BATCH_SIZE)
    images = float(np.median(sizes)) / middle if sizes is not None and len(sizes) and middle else None
    return {"steps": len(seconds), "seconds_a_step": round(middle, 5), "images_a_second": images and round(images, 1)}


def record_seeds(recorder: Recorder, progress: Progress, logs: TensorBoardLogs | None = None) -> None:
    """Train with further seeds, and add all outcomes to both recordings of the train stage.

    Finished trainings are reused, so an interrupted run continues where it stopped. With one seed, the outcomes of
    earlier runs with more are removed from the recordings.

    Raises:
        InputError: the training has no outcomes, or ignores the seed.
    """
    settings = recorder.settings
    if settings.ranks > 1:
        return
    paths = {side: recorder.recording_path(side, TRAIN, "float32") for side in SIDES}
    if not all(path.exists() for path in paths.values()):
        return
    first = int(read_metadata(paths["ref"])["seed"])
    outcomes = {side: [_outcomes(path)] for side, path in paths.items()}
    for seed in range(first + 1, first + settings.seeds):
        of_seed = Recorder(_for_seed(settings, seed), functools.partial(_say_seed, progress, seed))
        of_seed_logs = logs.named(f" seed {seed}") if logs is not None else None
        if of_seed_logs is not None:
            of_seed.points = of_seed_logs.points
        list(of_seed.record())
        if of_seed_logs is not None:
            fill_logs(of_seed_logs, of_seed)
            of_seed_logs.close()
        for side in SIDES:
            path = of_seed.recording_path(side, TRAIN, "float32")
            if read_metadata(path)["seed"] != seed:
                raise InputError(
                    f"--seeds {settings.seeds}: {of_seed.description['name']} trains with a seed of its own; "
                    "let part('train') take over self.seed"
                )
            outcomes[side].append(_outcomes(path))
    for side, path in paths.items():
        _add_outcomes(path, outcomes[side] if settings.seeds > 1 else [], settings.margin)


def _say_seed(progress: Progress, seed: int, side: str, text: str) -> None:
    progress(side, f"seed {seed}: {text}")


def _for_seed(settings: RunSettings, seed: int) -> RunSettings:
    return dataclasses.replace(
        settings,
        out=settings.out / "seeds" / str(seed),
        stages=(TRAIN,),
        precision="float32",
        options={**settings.options, "seed": str(seed)},
        plan={"repeat": False},
    )


def _outcomes(path: Path) -> dict[str, float]:
    arrays = Recording.load(path).arrays
    return {name: float(array[0]) for name, array in arrays.items() if name.startswith(OUTCOME_PREFIX)}


def _add_outcomes(path: Path, outcomes: Sequence[Mapping[str, float]], margin: float) -> None:
    added: dict[str, np.ndarray] = {}
    if outcomes:
        if not outcomes[0]:
            raise InputError(
                "--seeds: the case's train() returns no outcomes to compare; return {name: (percent, samples)}"
            )
        added = {SEEDS_PREFIX + name: np.array([of_seed[name] for of_seed in outcomes]) for name in outcomes[0]}
        added[MARGIN] = np.array(margin)
    _replace(path, SEEDS_PREFIX, added)


def _replace(path: Path, prefix: str, added: Mapping[str, np.ndarray]) -> None:
    """Replace all arrays under a prefix in a recording."""
    recording = Recording.load(path)
    arrays = {name: array for name, array in recording.arrays.items() if not name.startswith(prefix)} | dict(added)
    if arrays.keys() != recording.arrays.keys() or any(
        not np.array_equal(array, recording.arrays[name]) for name, array in added.items()
    ):
        Recording(arrays, recording.metadata).save(path)


def record_switched(recorder: Recorder, progress: Progress) -> None:
    """Train the first steps on one side and the rest on the other, with weights, buffers and moving averages carried.

    In float32, and also in float64 if more steps than the first part are trained there. The result is added to the
    recordings of the side where it ends; without `--switch-at`, results of earlier runs are removed.

    Raises:
        InputError: fewer steps than that, or optimizers with different state.
    """
    settings = recorder.settings
    start = settings.switch_from
    other = next(side for side in SIDES if side != start)
    added: dict[tuple[str, str], dict[str, np.ndarray]] = {}
    if settings.switch_at:
        precisions = [
            dtype
            for dtype in recorder.dtypes_of(TRAIN)
            if dtype != "float64" or recorder.description["float64_train_steps"] > settings.switch_at
        ]
        with recorder.running() as weights:
            for dtype in precisions:
                found = _switched(recorder, weights, start, other, dtype, progress)
                added[other, dtype] = {SWITCHED_PREFIX + name: array for name, array in found.items()}
                added[other, dtype][SWITCHED_STEP] = np.array(settings.switch_at)
    for side in SIDES:
        for dtype in recorder.dtypes_of(TRAIN):
            path = recorder.recording_path(side, TRAIN, dtype)
            if path.exists():
                _replace(path, SWITCHED_PREFIX, added.get((side, dtype), {}))


def _switched(
    recorder: Recorder, weights: Mapping[str, Any], start: str, other: str, dtype: str, progress: Progress
) -> dict[str, np.ndarray]:
    settings = recorder.settings
    folder = settings.out / "switch"
    carried = str(folder / f"carried_{dtype}.npz")
    common = {"repeat": False, "switch_at": settings.switch_at}
    paths = {side: folder / f"train_{side}_{dtype}.npy" for side in SIDES}
    progress(start, f"switch: first {settings.switch_at} steps in {dtype}")
    leaves = {**common, "steps": settings.switch_at, "carry_out": carried}
    recorder.make(PlannedRecording(start, TRAIN, dtype, paths[start]), weights, plan=leaves)
    recorder.make(PlannedRecording(other, TRAIN, dtype, paths[other]), weights, plan={**common, "carry_in": carried})
    joined = _joined(paths[start], paths[other], settings.switch_at)
    shutil.rmtree(folder)
    return joined


def _joined(first: Path, second: Path, steps: int) -> dict[str, np.ndarray]:
    """The second side's recording, with the first side's points before its own."""
    head, found = Recording.load(first).arrays, dict(Recording.load(second).arrays)
    for name, points in found.items():
        if name.startswith(CURVE_PREFIX) and name in head and len(head[name]) <= len(points):
            begun = head[name][:steps]
            found[name] = np.concatenate([begun, points[len(begun) :]])
    return found
