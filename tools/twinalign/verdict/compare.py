"""The functions for every comparison: bare arrays, files, both sides of a stage, and one side recorded twice.

A reviewer's `twinalign verify` uses these too and runs nothing, so they import nothing that runs a case. What judges
a training is imported where one is judged: a comparison of two files starts in little more time than numpy.
"""

import contextlib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.errors import InputError
from twinalign.files.attached_recordings import is_attached
from twinalign.files.recordings import Recording, read_metadata
from twinalign.sides import SIDES
from twinalign.verdict.allowances import Allowance
from twinalign.verdict.array_comparison import compare_arrays as compare_arrays
from twinalign.verdict.case_allowances import allowances_for
from twinalign.verdict.excuses import draws_of, excuse_rounded_samples
from twinalign.verdict.file_comparison import PathLike, compare_bare_files, compare_training_files, recorded_stage
from twinalign.verdict.kept_state import without, without_lone_state
from twinalign.verdict.metric_elsewhere import apart_elsewhere, counted_otherwise
from twinalign.verdict.rank_comparison import join_comparisons, rounding_over_ranks
from twinalign.verdict.rates_elsewhere import excuse_rates
from twinalign.verdict.results import ALIGNED, DIVERGED, INCONCLUSIVE, Comparison, TensorVerdict, whole
from twinalign.verdict.stage_recordings import StageRecordings, described_samples, different_inputs
from twinalign.verdict.structure import give_one_type

_NAMES = {"ref": "reference", "paddle": "port"}
_LEAST_EFFECT = 1e-4
"""Relative change of outputs by other inputs below which a model hardly depends on them."""
_SHARE_OF_EFFECT = 0.01
"""Difference of the float64 runs, as a share of that change, above which agreement says nothing about the layers."""
_ROUNDED_BATCHES = (
    "the batches of the metric differ in the float64 runs, by no more than rounding to float32, and the results by no "
    "more than that explains: of these only float32 is judged"
)
_ON_THRESHOLD = (
    "numbers of the metric that agree in float32 jump in the float64 runs: a sample lies on a threshold, or two have "
    "one score, and a last bit decides how they count; of these only float32 is judged"
)
_OF_BATCHES = 64.0
"""How many times the relative difference of batches may be found in what a model makes of them."""
_OF_A_MACHINE = ("platform", "python", "processors")
"""Entries of a recording's environment that are the same for two recordings of one machine."""
_ROUNDING = 1e-12
"""Relative difference of float64 runs that rounding explains, however little depends on the inputs."""


def compare_files(
    reference: PathLike,
    reproduced: PathLike,
    *,
    reference64: PathLike | None = None,
    reproduced64: PathLike | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    only: Iterable[str] = (),
    skip: Iterable[str] = (),
    accept: Iterable[str] = (),
    allowances: Iterable[Allowance | str] = (),
    **options: Any,
) -> Comparison:
    """Compare two files, or two folders of them; recordings of `twinalign run` are judged as it judges them.

    In folders, files are matched by name without words for the side (`ref`, `paddle`, ...); their tensors are named
    `FILE:TENSOR`. If no float64 run and no tolerances are given, those in a folder `float64` next to both files are
    used, and a note says so.

    Options are those of `compare_arrays`, except that `reference64`, `reproduced64` and `reference_repeat` are files.

    Raises:
        InputError: a file is missing or broken, a file is compared with a folder, or a folder has no files.
    """
    paths = Path(reference), Path(reproduced)
    only, skip = tuple(only), tuple(skip)
    if is_attached(paths[0]) or is_attached(paths[1]):
        from twinalign.verdict.attached_comparison import compare_attached  # two files need nothing of conversion

        given = {"reference64": reference64, "reproduced64": reproduced64} | {
            "reference_repeat": options.pop("reference_repeat", None)
        }
        folders = {name: None if path is None else Path(path) for name, path in given.items()}
        judged = {"rtol": rtol, "atol": atol, "only": only, "skip": skip, "accept": accept, "allowances": allowances}
        return compare_attached(*paths, **folders, **judged, **options)  # type: ignore[arg-type, misc]
    stage, accepted, allowed = recorded_stage(*paths)
    if stage == "train" and rtol is None and atol is None:
        comparison = compare_training_files(paths, (reference64, reproduced64), only, skip, (*allowed, *allowances))
    else:
        comparison = compare_bare_files(
            *paths,
            reference64=reference64,
            reproduced64=reproduced64,
            rtol=rtol,
            atol=atol,
            only=only,
            skip=skip,
            accept=(*accepted, *accept),
            allowances=(*allowed, *allowances),
            **options,
        )
    if stage is not None:
        with contextlib.suppress(AttributeError, TypeError):  # metadata that twinalign did not write
            _say_inputs_differ(comparison, *(read_metadata(path) for path in paths))
    if stage is not None and rtol is None:
        comparison.notes.append(f"conventions and allowances are those of `twinalign run` for stage {stage}")
    return comparison


def compare_stage(stage: str, recordings: StageRecordings, description: Mapping[str, Any]) -> Comparison:
    """Judge one stage, rank by rank if there are several; raises InputError if numbers of ranks differ."""
    try:
        ranks = recordings.ranks
    except InputError as error:
        raise InputError(f"stage {stage}: {error}") from None
    if ranks == 1:
        return _compare_rank(stage, recordings, description)
    of_ranks = recordings.of_ranks()
    dtype = recordings.judged_dtype
    rounding = rounding_over_ranks([(one.arrays("ref", dtype), one.arrays("ref", "float64")) for one in of_ranks])
    return join_comparisons([_compare_rank(stage, one, description, rounding) for one in of_ranks])


def compare_same_side(
    stage: str, side: str, first: StageRecordings, second: StageRecordings, description: Mapping[str, Any]
) -> Comparison:
    """Judge two recordings of one side, possibly from two machines and as one rank, by the rules for two sides."""
    low = first.judged_dtype
    arrays = [recordings.arrays(side, low) or {} for recordings in (first, second)]
    high = [recordings.arrays(side, "float64") if low == "float32" else None for recordings in (first, second)]
    allowed = allowances_for(stage, first.metadata("paddle"), description)
    if stage == "train":
        from twinalign.verdict.training_comparison import compare_training

        return compare_training(arrays[0], arrays[1], high[0], high[1], allowances=allowed)
    return compare_arrays(
        arrays[0],
        arrays[1],
        reference64=high[0],
        reproduced64=high[1],
        allowances=allowed,
        described=described_samples(first.metadata(side)),
    )


def _compare_rank(
    stage: str,
    recordings: StageRecordings,
    description: Mapping[str, Any],
    known_rounding: Mapping[str, float] | None = None,
) -> Comparison:
    dtype = recordings.judged_dtype
    reference, reproduced = recordings.arrays("ref", dtype), recordings.arrays("paddle", dtype)
    assert reference is not None
    assert reproduced is not None
    if stage == "train":
        from twinalign.verdict.training_comparison import compare_training

        high, other = (recordings.arrays(side, "float64") if dtype != "float64" else None for side in SIDES)
        named = allowances_for(stage, recordings.metadata("paddle"), description)
        training = compare_training(reference, reproduced, high, other, dtype, named)
        if recordings.metadata_of("paddle", "float64").get("rounded_batches"):
            training.notes.append(
                "each side rounds its batches to float32 itself, to slightly different numbers: in float64 the port "
                "was given the reference's"
            )
        excuse_rates(training, reference, reproduced)
        return training
    high_of = SIDES if dtype != "float64" else ()
    comparison = _compare_tensors(stage, recordings, description, high_of, known_rounding)
    if stage == "data":
        excuse_rounded_samples(comparison, reference, reproduced)
    comparison.notes += _notes_on_outputs(recordings)
    _doubt_constant_outputs(comparison, recordings.metadata("ref").get("effect_of_inputs"))
    on_threshold = set[str]()
    casts = recordings.repeat and recordings.casts_to_float32
    if comparison.verdict == DIVERGED and casts:
        # A float64 run that the model itself rounds to float32 decides no more than another run in float32 does.
        comparison = _compare_tensors(stage, recordings, description)
        comparison.notes.append(
            f"the reference's float64 run computes in float32 in {casts} places, so only float32 is judged"
        )
        rounded = _rounded_runs(recordings)
        for tensor in _wrong(_compare_tensors(stage, rounded, description)) if rounded else ():
            reason = f"the float64 runs differ by more than rounding to float32 explains: {tensor.reason}"
            _prepend(comparison, f"{tensor.name} (float64)", reason)
    elif comparison.verdict == DIVERGED:
        on_threshold = counted_otherwise(recordings, dtype) if stage == "metric" else on_threshold
        excused = {_ROUNDED_BATCHES: _by_rounded_batches(comparison, recordings), _ON_THRESHOLD: on_threshold}
        comparison = _without_float64(comparison, excused, stage, recordings, description)
    excuse_rates(comparison, reference, reproduced)
    if comparison.verdict == ALIGNED:
        theirs, ours = (recordings.metadata_of(side, "float64") for side in SIDES)
        by = recordings.batches_rounded_by()
        exact = recordings.arrays("ref", "float64") or {}
        for name, reason in apart_elsewhere(theirs, ours, reference, exact, dtype, by > 0 or bool(on_threshold)):
            _prepend(comparison, name, reason)
    for name, (shape, ported) in recordings.sampled_shapes().items():
        if shape != ported:  # samples are equally long, whatever the size of the tensors
            _prepend(comparison, f"shape of {name}", f"shape {shape} against {ported}")
    _say_inputs_differ(comparison, recordings.metadata("ref"), recordings.metadata("paddle"))
    return comparison


def _wrong(comparison: Comparison) -> list[TensorVerdict]:
    return [tensor for tensor in comparison.tensors if tensor.verdict == DIVERGED and tensor.accepted is None]


def _without_float64(
    comparison: Comparison,
    excused: Mapping[str, Collection[str]],
    stage: str,
    recordings: StageRecordings,
    description: Mapping[str, Any],
) -> Comparison:
    """Judge by float32 alone what a note excuses in float64."""
    wrong = {tensor.name for tensor in _wrong(comparison)}
    excused = {note: wrong.intersection(names) for note, names in excused.items() if wrong.intersection(names)}
    if not excused:
        return comparison
    in_float32 = _compare_tensors(stage, recordings, description, with_float64=("ref",))
    names = set().union(*excused.values())
    judged = {tensor.name: tensor for tensor in in_float32.tensors if tensor.name in names}
    comparison.tensors = [judged.get(tensor.name, tensor) for tensor in comparison.tensors]
    comparison.verdict = whole(comparison.tensors)
    if comparison.verdict != DIVERGED:  # what else is wrong needs no word on these
        comparison.notes += excused
    return comparison


def _by_rounded_batches(comparison: Comparison, recordings: StageRecordings) -> set[str]:
    """Tensors whose float64 runs differ only as batches make them differ that each side has rounded to float32."""
    most = _OF_BATCHES * recordings.batches_rounded_by()
    apart = ((one.name, one.fp64_rel) for one in _wrong(comparison) if (one.fp64_ratio or 0.0) > 1.0)
    return {name for name, size in apart if size is not None and size <= most} if most > 0 else set()


def _say_inputs_differ(comparison: Comparison, reference: Mapping[str, Any], port: Mapping[str, Any]) -> None:
    """Put the steps for which the sides were given different inputs, by their metadata, before everything else."""
    reason = "inputs(rng) gave the sides different arrays: it must depend on rng alone"
    if "rank" in reference:
        reason = "this rank has different samples on each side: share() must depend on its arguments alone"
    first, second = (metadata.get("environment", {}) for metadata in (reference, port))
    if any(first.get(entry) != second.get(entry) for entry in _OF_A_MACHINE):
        reason += "; on two machines, the libraries that it calls must have the same versions"
    for step in reversed(different_inputs(reference, port)):
        _prepend(comparison, f"inputs of step {step}", reason)


def _doubt_constant_outputs(comparison: Comparison, effect: float | None) -> None:
    """Outputs that hardly depend on the inputs agree whatever the layers do: what differs is compared with what varies.

    `effect`: relative change of the reference's outputs by other inputs; None where it is not known.
    """
    if effect is None or effect >= _LEAST_EFFECT:
        return
    for tensor in comparison.tensors:
        if tensor.name.startswith("buffer.") or tensor.verdict != ALIGNED or tensor.fp64_rel is None:
            continue
        if tensor.fp64_rel > max(_SHARE_OF_EFFECT * effect, _ROUNDING):
            tensor.verdict = INCONCLUSIVE
            tensor.reason = (
                f"in float64 the sides differ by {tensor.fp64_rel:.1g} of the output, and other inputs change it by "
                f"only {effect:.1g}: what depends on the inputs may be wrong; give trained or random weights in "
                "reference()"
            )
    comparison.verdict = whole(comparison.tensors)


def _notes_on_outputs(recordings: StageRecordings) -> list[str]:
    """Which outputs were paired without their names, and which hold nothing to compare."""
    notes = []
    if paired := recordings.paired_by_order():
        pairs = ", ".join(f"{ported} with {name}" for ported, name in list(paired.items())[:3])
        more = ", …" if len(paired) > 3 else ""
        notes.append(f"outputs are paired by their order, since they have no name in common: {pairs}{more}")
    for side, whose in zip(SIDES, ("reference", "port"), strict=True):
        for name, kind in recordings.metadata(side).get("left_out", {}).items():
            notes.append(f"the {whose}'s output {name} is left out: a {kind} holds no numbers of its own")
    return notes


def _rounded_runs(recordings: StageRecordings) -> StageRecordings | None:
    """The float64 runs of both sides, rounded, in place of those in the judged precision."""
    low, found = recordings.judged_dtype, {}
    for side in SIDES:
        judged, high = recordings.by_key[side, low], recordings.arrays(side, "float64")
        if high is None:
            return None
        with np.errstate(all="ignore"):  # what is beyond float32 becomes infinite there
            arrays = {name: high[name].astype(array.dtype) for name, array in judged.arrays.items() if name in high}
        found[side, low] = Recording(arrays, judged.metadata)
    return StageRecordings(found, recordings.repeat, recordings.between)


def _prepend(comparison: Comparison, name: str, reason: str) -> None:
    comparison.tensors.insert(0, TensorVerdict(name, DIVERGED, reason, basis="structure"))
    comparison.verdict = DIVERGED


def _compare_tensors(
    stage: str,
    recordings: StageRecordings,
    description: Mapping[str, Any],
    with_float64: Collection[str] = (),
    known_rounding: Mapping[str, float] | None = None,
) -> Comparison:
    """Judge the recordings of all tensors; the float64 runs of the sides `with_float64` take part."""
    dtype = recordings.judged_dtype
    changed_by_draws, notes = draws_of(recordings.metadata("ref"), recordings.metadata("paddle"))
    low = {side: recordings.arrays(side, dtype) or {} for side in SIDES}
    lone, of_state = without_lone_state(low)
    high = [without(recordings.arrays(side, "float64") if side in with_float64 else None, lone) for side in SIDES]
    judged = [without(low[side], lone) or {} for side in SIDES]
    for name in sorted({name for side in SIDES for name in recordings.metadata(side).get("numbers", ())}):
        give_one_type(name, judged, high)
    comparison = compare_arrays(
        *judged,
        reference64=high[0],
        reproduced64=high[1],
        reference_repeat=recordings.repeat.arrays if recordings.repeat else None,
        repeats=recordings.metadata("ref").get("repeats"),
        changed_by_draws=changed_by_draws,
        accept=description.get("accept", ()),
        allowances=allowances_for(stage, recordings.metadata("paddle"), description),
        known_rounding=known_rounding,
        described=described_samples(recordings.metadata("ref")),
    )
    comparison.notes += [*notes, *of_state, *notes_of_model(recordings.metadata("ref"), recordings.metadata("paddle"))]
    return comparison


def notes_of_model(reference: Mapping[str, Any], port: Mapping[str, Any]) -> list[str]:
    """What the recorded numbers cannot show: weights that are tied on one side alone, outputs that do not depend."""
    notes = [
        f"{' and '.join(group)} are one tensor in the {_NAMES[side]} alone: they start equal, and training parts them"
        for side, groups in port.get("tied_apart", {}).items()
        for group in groups
    ]
    effect = reference.get("effect_of_inputs")
    if effect is not None and effect < _LEAST_EFFECT:
        notes.append(
            f"other inputs change the reference's outputs by {effect:.1g} of their size, so that they say little of "
            "the layers before: does a freshly built layer start at zero? Give trained or random weights in reference()"
        )
    return notes
