"""What a single training of both sides cannot say: several seeds, one that changes framework on the way."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from twinalign.errors import InputError
from twinalign.jobs import SIDES, Job, RunSettings
from twinalign.locate.training_swaps import swap_parts
from twinalign.recording import Recording, read_metadata
from twinalign.runner import Recorder
from twinalign.stages.train import CURVE_PREFIX, OUTCOME_PREFIX
from twinalign.stages.watching import BATCH_SIZE
from twinalign.tensorboard import TensorBoardLogs, fill_logs
from twinalign.training_verdict import MARGIN, SEEDS_PREFIX, compare_training
from twinalign.verdict.results import ALIGNED, DIVERGED, INCONCLUSIVE, whole

if TYPE_CHECKING:
    from twinalign.verdict import Comparison

TRAIN = "train"
Progress = Callable[[str, str], None]


def check_experiments(settings: RunSettings) -> None:
    """Refuse experiments that cannot be made; raises InputError."""
    asked = {"--seeds": settings.seeds > 1, "--switch-at": settings.switch_at > 0, "--swap": bool(settings.swaps)}
    if settings.seeds < 1:
        raise InputError(f"--seeds {settings.seeds}: give the number of trainings a side, 1 or more")
    if not settings.margin > 0:
        raise InputError(f"--margin {settings.margin:g}: must be above 0, in points")
    if settings.switch_at < 0:
        raise InputError(f"--switch-at {settings.switch_at}: give the number of steps before the switch, 1 or more")
    for option, wanted in asked.items():
        if wanted and settings.ranks > 1:
            raise InputError(f"{option}: trains as one process; leave --ranks {settings.ranks} out")
        if wanted and settings.stages and TRAIN not in settings.stages:
            raise InputError(f"{option}: belongs to the train stage; add it to --stages")
        if wanted and settings.precision not in ("both", "float32"):
            raise InputError(f"{option}: trains in float32; leave --precision {settings.precision} out")


def add_experiments(recorder: Recorder, comparison: Comparison, progress: Progress) -> None:
    """Make the experiments that the run is asked for, and add what they say to the comparison of the train stage.

    A training that changes framework on the way decides as the others do; swaps explain and do not decide.

    Raises:
        InputError: an experiment that cannot be made with this case.
    """
    assert comparison.training is not None
    comparison.training["throughput"] = {side: _throughput(recorder, side) for side in SIDES}
    if recorder.settings.switch_at:
        switched = record_switched(recorder, progress)
        comparison.training["switched"] = switched.to_json()
        if DIVERGED in (comparison.verdict, switched.comparison.verdict):
            comparison.verdict = DIVERGED
        elif switched.comparison.verdict != ALIGNED:
            comparison.verdict = INCONCLUSIVE
    if recorder.settings.swaps:
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
    """Steps and images a second: the middle of all steps, so that pauses do not count."""
    path = recorder.recording_path(side, TRAIN, recorder.dtypes_of(TRAIN)[0])
    seconds = read_metadata(path).get("step_seconds") or []
    middle = float(np.median(seconds)) if seconds else 0.0
    sizes = Recording.load(path).arrays.get(CURVE_PREFIX + BATCH_SIZE)
    images = float(np.median(sizes)) / middle if sizes is not None and len(sizes) and middle else None
    return {"steps": len(seconds), "seconds_a_step": round(middle, 5), "images_a_second": images and round(images, 1)}


def record_seeds(recorder: Recorder, progress: Progress, logs: TensorBoardLogs | None = None) -> None:
    """Train with further seeds, and add all outcomes to both recordings of the train stage.

    What has been trained before is reused, so that a run which was stopped goes on where it was. With one seed, the
    outcomes of earlier runs with more are taken out of the recordings.

    Raises:
        InputError: the training has no outcomes, or takes no notice of the seed.
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
        out = settings.out / "seeds" / str(seed)
        of_seed = Recorder(_for_seed(settings, seed, out), functools.partial(_say_seed, progress, seed))
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


def _for_seed(settings: RunSettings, seed: int, out: Path) -> RunSettings:
    return dataclasses.replace(
        settings,
        out=out,
        stages=(TRAIN,),
        precision="float32",
        options={**settings.options, "seed": str(seed)},
        plan={"repeat": False},
    )


def _outcomes(path: Path) -> dict[str, float]:
    arrays = Recording.load(path).arrays
    return {name: float(array[0]) for name, array in arrays.items() if name.startswith(OUTCOME_PREFIX)}


def _add_outcomes(path: Path, outcomes: Sequence[Mapping[str, float]], margin: float) -> None:
    recording = Recording.load(path)
    added: dict[str, np.ndarray] = {}
    if outcomes:
        if not outcomes[0]:
            raise InputError(
                "--seeds: the case's train() returns no outcomes to compare; return {name: (percent, samples)}"
            )
        added = {SEEDS_PREFIX + name: np.array([of_seed[name] for of_seed in outcomes]) for name in outcomes[0]}
        added[MARGIN] = np.array(margin)
    arrays = {name: array for name, array in recording.arrays.items() if not name.startswith(SEEDS_PREFIX)} | added
    if arrays.keys() != recording.arrays.keys() or any(
        not np.array_equal(array, recording.arrays[name]) for name, array in added.items()
    ):
        Recording(arrays, recording.metadata).save(path)


@dataclasses.dataclass(frozen=True)
class Switched:
    """A training that began on one side and went on on the other, compared with the reference's that stayed.

    Attributes:
        step: after which it changed.
        start: the side that it began on.
        comparison: with the reference that stayed.
    """

    step: int
    start: str
    comparison: Comparison

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types."""
        verdict = self.comparison.verdict
        wrong = [t for t in self.comparison.tensors if t.verdict == verdict] if verdict != ALIGNED else []
        return {
            "step": self.step,
            "start": self.start,
            "verdict": verdict,
            "reason": f"{wrong[0].name}: {wrong[0].reason}" if wrong else "it goes on as the reference that stayed",
            "tensors": [tensor.to_json() for tensor in self.comparison.tensors],
        }


def record_switched(recorder: Recorder, progress: Progress) -> Switched:
    """Train the first steps on one side and the rest on the other, with weights, buffers and moving averages carried.

    In float32 throughout, and in float64 where more steps than the first part are trained there.

    Raises:
        InputError: fewer steps than that, or optimizers that keep other state.
    """
    settings = recorder.settings
    start = settings.switch_from
    other = next(side for side in SIDES if side != start)
    folder = settings.out / "switch"
    precisions = [
        dtype
        for dtype in recorder.dtypes_of(TRAIN)
        if dtype != "float64" or recorder.description["float64_train_steps"] > settings.switch_at
    ]
    with recorder.running() as weights:
        for dtype in precisions:
            carried = str(folder / f"carried_{dtype}.npz")
            common = {"repeat": False, "switch_at": settings.switch_at}
            paths = {side: switched_path(settings.out, side, dtype) for side in SIDES}
            progress(start, f"switch: first {settings.switch_at} steps in {dtype}")
            leaves = {**common, "steps": settings.switch_at, "carry_out": carried}
            recorder.make(Job(start, TRAIN, dtype, paths[start]), weights, plan=leaves)
            recorder.make(Job(other, TRAIN, dtype, paths[other]), weights, plan={**common, "carry_in": carried})
            Path(carried).unlink()
            _join(paths[start], paths[other], settings.switch_at)
    return Switched(settings.switch_at, start, _compare_switched(recorder, other, precisions))


def switched_path(out: Path, side: str, dtype: str) -> Path:
    """Where the part of a switched training lies that a side has made; the second side's is joined to the whole."""
    return out / "switch" / f"train_{side}_{dtype}.npy"


def _join(first: Path, second: Path, steps: int) -> None:
    """Put the first side's points before the second's."""
    head, whole_run = Recording.load(first).arrays, Recording.load(second)
    for name, points in whole_run.arrays.items():
        if name.startswith(CURVE_PREFIX) and name in head and len(head[name]) <= len(points):
            begun = head[name][:steps]
            whole_run.arrays[name] = np.concatenate([begun, points[len(begun) :]])
    whole_run.save(second)


def _compare_switched(recorder: Recorder, side: str, precisions: Sequence[str]) -> Comparison:
    found = []
    for dtype in precisions:
        stayed = Recording.load(recorder.recording_path("ref", TRAIN, dtype)).arrays
        switched = Recording.load(switched_path(recorder.out, side, dtype)).arrays
        stayed = {name: array for name, array in stayed.items() if not name.startswith(SEEDS_PREFIX)}
        found.append(compare_training(stayed, switched, None, None, dtype))
    comparison = found[0]
    for tensor in (tensor for other in found[1:] for tensor in other.tensors):
        tensor.name += " (float64)"
        comparison.tensors.append(tensor)
    comparison.verdict = whole(comparison.tensors)
    return comparison
