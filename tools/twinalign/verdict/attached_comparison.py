"""Two attached trainers compared in the order of execution, and what is proven of why they differ."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.errors import InputError
from twinalign.files.attached_recordings import AttachedRecording, ranks_of
from twinalign.verdict.array_comparison import compare_arrays
from twinalign.verdict.array_difference import distance, root_mean_square
from twinalign.verdict.attached_evidence import moved_since, norm, recomputed
from twinalign.verdict.attached_findings import findings
from twinalign.verdict.attached_rank_causes import find_rank_causes
from twinalign.verdict.attached_steps import (
    BEFORE,
    HALVES,
    QUANTITIES,
    Name,
    Pair,
    Step,
    in_order,
    pair_labels,
    paired_calls,
    read_steps,
    translation,
)
from twinalign.verdict.case_allowances import allowances_for
from twinalign.verdict.precisions import epsilon_of
from twinalign.verdict.rank_comparison import join_comparisons
from twinalign.verdict.results import ALIGNED, DIVERGED, INCONCLUSIVE, Comparison, TensorVerdict, whole
from twinalign.verdict.tensor_judge import ZERO_FACTOR

_SETTINGS = ("lr", "weight_decay", "decoupled", "beta1", "beta2", "epsilon", "momentum", "dampening", "nesterov")
_GRADIENTS = ("first_gradient", "unclipped", "gradient")
_OF_THE_TRAINED = (*BEFORE, *_GRADIENTS, "updated_state", "updated_master")
_AMPLIFIED = 0.05
"""Relative difference up to which, in a later step and without a measure of rounding, nothing can be said."""
_MOVED = 1e-3
_SAME_BEGINNING = 1e-2
"""Relative difference: half precisions round by less."""
_VANISHES = 2.0**-20
"""Of all gradients' root mean square: a gradient that differs by less is rounding of a sum that cancels."""
_UNITS = 32.0
"""Units in the last place that the kernels of two frameworks may differ by, whatever one repeat shows."""
_WITHOUT_NOISE = (
    "no repeat of the reference and no float64 recordings were given, so that rounding is not measured: record the "
    "reference once more with attach(..., repeat=True) and give it as --ref-repeat"
)


def compare_attached(
    reference: Path,
    reproduced: Path,
    *,
    reference64: Path | None = None,
    reproduced64: Path | None = None,
    reference_repeat: Path | None = None,
    only: Iterable[str] = (),
    skip: Iterable[str] = (),
    **options: Any,
) -> Comparison:
    """Compare two folders that `twinalign.attach` wrote; `Comparison.attached` says what differs first and why.

    Raises:
        InputError: a folder holds no recording, the sides have other numbers of ranks, or no step in common.
    """
    folders = ranks_of(reference), ranks_of(reproduced)
    if len(folders[0]) != len(folders[1]):
        raise InputError(f"{reproduced}: {len(folders[1])} ranks, {reference} has {len(folders[0])}; record it anew")
    others = (reference_repeat, reference64, reproduced64)
    partners = [ranks_of(path) if path is not None else [None] * len(folders[0]) for path in others]
    found, pairs = [], []
    for rank, sides in enumerate(zip(*folders, strict=True)):
        of_rank = [partner[rank] for partner in partners]
        comparison, pair = _compare_rank(*sides, *of_rank, only=only, skip=skip, **options)
        found.append(comparison)
        pairs.append(pair)
    return found[0] if len(found) == 1 else _joined(found, pairs)


def _joined(found: Sequence[Comparison], pairs: Sequence[Pair]) -> Comparison:
    """One comparison of all ranks: what a cause between them explains is not told of each rank again."""
    joined = join_comparisons(found)
    facts = [one.attached or {} for one in found]
    firsts = [one["first"] for one in facts if one["first"]]
    steps = zip(*(pair.reference for pair in pairs), strict=False), zip(*(pair.port for pair in pairs), strict=False)
    causes = find_rank_causes(*map(list, steps)) if firsts else []
    told = {(cause["step"], cause["quantity"]) for cause in causes}
    of_ranks = ({**cause, "rank": rank} for rank, one in enumerate(facts) for cause in one["causes"])
    # That gradients differ, and no more, is no news where the ranks are the reason.
    general = {"backward"} if causes else set()
    causes += [one for one in of_ranks if (one["step"], one["quantity"]) not in told and one["id"] not in general]
    first = min(firsts, key=lambda one: (one["step"], QUANTITIES.index(one["quantity"])), default=None)
    joined.attached = {"first": first, "causes": causes, "steps": [], "noise": facts[0]["noise"]}
    return joined


def _compare_rank(
    reference: Path,
    reproduced: Path,
    repeat: Path | None,
    reference64: Path | None,
    reproduced64: Path | None,
    **options: Any,
) -> tuple[Comparison, Pair]:
    recordings = AttachedRecording.load(reference), AttachedRecording.load(reproduced)
    pair = _pair(recordings)
    chosen = [(step.number, names) for step, names in _compared_names(pair)]
    first, second = _arrays(pair.reference, chosen), _arrays(pair.port, chosen)
    partners: dict[str, Any] = {}
    for name, path in (("reference_repeat", repeat), ("reference64", reference64), ("reproduced64", reproduced64)):
        if path is not None:
            other = AttachedRecording.load(path)
            steps = [
                paired_calls(a, b)
                for a, b in _same_steps(pair.reference, read_steps(other, translation(recordings[0], other)))
            ]
            partners[name] = _arrays(steps, chosen)
            _require_same_beginning(recordings[0], steps[0], pair.reference[0], path)
    known = _rounding(first, partners.get("reference_repeat", {}))
    options["allowances"] = (*allowances_for("backward", recordings[1].about, {}), *options.get("allowances", ()))
    try:
        comparison = compare_arrays(first, second, **partners, known_rounding=known, search=False, **options)
    except InputError as error:
        raise InputError(f"{reference} and {reproduced}: {error}") from error
    if options.get("rtol") is None:
        _judge_updates(comparison.tensors, pair)
        _judge_casts(comparison.tensors, pair)
        _judge_by_step(comparison.tensors, first, pair.reference[0].number)
        comparison.verdict = whole(comparison.tensors)
    if not partners:
        comparison.notes.append(_WITHOUT_NOISE)
    comparison.notes += _notes(pair)
    noise = "measured" if partners else _WITHOUT_NOISE
    comparison.attached = findings(comparison, pair, noise)
    accepted = {tensor.accepted for tensor in comparison.tensors}
    causes = [cause for cause in comparison.attached["causes"] if cause["id"] not in accepted]
    comparison.attached["causes"] = causes
    if causes and comparison.verdict != DIVERGED and options.get("rtol") is None:
        comparison.verdict = DIVERGED
    return comparison, pair


def _require_same_beginning(reference: AttachedRecording, partner: Step, first: Step, path: Path) -> None:
    """Raise InputError where a partner does not begin as the reference does: what it shows would not be rounding."""
    given, own = partner.named("weights"), first.named("weights")
    both = [name for name in own if name in given and own[name].shape == given[name].shape]
    apart = {name: given[name].astype(np.float64) - own[name] for name in both}
    if norm(apart) > _SAME_BEGINNING * norm({name: own[name] for name in both}):
        worst = max(apart, key=lambda name: root_mean_square(apart[name]))
        raise InputError(
            f"{path}: {worst} begins with other values than in {reference.folder}, and rounding is measured "
            f"from the same ones: record it with weights={reference.folder}"
        )


def _pair(recordings: tuple[AttachedRecording, AttachedRecording]) -> Pair:
    translate = translation(*recordings)
    steps = read_steps(recordings[0], lambda step: step), read_steps(recordings[1], translate)
    both = _same_steps(*steps)
    if not both:
        shown = " and ".join(f"{r.folder} ({', '.join(map(str, r.steps)) or 'none'})" for r in recordings)
        raise InputError(f"{shown}: no recorded step in common; attach both with the same steps")
    both = [_filled(one, paired_calls(one, other)) for one, other in both]
    for one, other in both:
        pair_labels(one, other)
    return Pair(recordings, [one for one, _ in both], [other for _, other in both])


def _same_steps(first: Sequence[Step], second: Sequence[Step]) -> list[tuple[Step, Step]]:
    by_number = {step.number: step for step in second}
    return [(step, by_number[step.number]) for step in first if step.number in by_number]


def _filled(reference: Step, port: Step) -> tuple[Step, Step]:
    """Where one side alone clips, the other's gradient before clipping is its gradient."""
    for one, other in ((reference, port), (port, reference)):
        if one.named("unclipped") and not other.named("unclipped"):
            other.arrays |= {f"unclipped.{name}": array for name, array in other.named("gradient").items()}
    names = sorted(set(reference.settings) & set(port.settings))
    for key in _SETTINGS:
        if names and all(key in side.settings[name] for side in (reference, port) for name in names):
            for side in (reference, port):
                side.arrays[f"setting.{key}"] = np.array([float(side.settings[name][key]) for name in names])
    return reference, port


def _compared_names(pair: Pair) -> Iterable[tuple[Step, list[str]]]:
    """The names of each step that are compared, in order of execution; what a side has alone as a whole is left out."""
    before: tuple[Step, Step] | None = None
    for one, other in zip(pair.reference, pair.port, strict=True):
        continues = before is not None and before[0].number + 1 == one.number
        kept = continues and all(
            not moved_since(then, now) for then, now in zip(before or (), (one, other), strict=True)
        )
        in_both = {Name.of(n).quantity for n in one.arrays} & {Name.of(n).quantity for n in other.arrays}
        names = [name for name in in_order(one) if Name.of(name).quantity in in_both]
        names += [name for name in other.arrays if name not in one.arrays and Name.of(name).quantity in in_both]
        # A step is told by what it updates: what one side's optimizer lacks has a cause of its own, and what another
        # optimizer updates may have gradients left from its own step.
        trained = set(one.settings) & set(other.settings)
        held = [quantity for quantity in _OF_THE_TRAINED if one.number or quantity != "first_gradient"]
        names = [n for n in names if Name.of(n).rest in trained or Name.of(n).quantity not in held]
        alone = {*_of_one_signature(one, other), *_of_one_signature(other, one)}
        names = [name for name in names if name not in alone]
        yield one, [name for name in names if not (kept and Name.of(name).quantity in BEFORE)]
        before = one, other


def _of_one_signature(first: Step, second: Step) -> list[str]:
    """Inputs that one side alone has, in calls that share others: the models take other arguments."""
    inputs = [[name for name in step.arrays if Name.of(name).quantity == "input"] for step in (first, second)]
    shared = {Name.of(name).call for name in set(inputs[0]) & set(inputs[1])}
    return [name for name in inputs[0] if name not in inputs[1] and Name.of(name).call in shared]


def _arrays(steps: Sequence[Step], chosen: Sequence[tuple[int, list[str]]]) -> dict[str, np.ndarray]:
    by_number = {step.number: step.arrays for step in steps}
    return {
        f"step{number}.{name}": by_number[number][name]
        for number, names in chosen
        for name in names
        if name in by_number.get(number, ())
    }


def _rounding(reference: Mapping[str, np.ndarray], repeat: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Relative rounding of each tensor: what the repeat changes in its quantity in this step, the typical tensor's.

    One repeat changes a small tensor by luck alone; the tensors of one quantity have passed through the same layers.
    """
    found: dict[tuple[str, str], list[float]] = {}
    groups = {name: (name.partition(".")[0], Name.of(name.partition(".")[2]).quantity) for name in reference}
    for name, array in reference.items():
        if name in repeat and repeat[name].shape == array.shape and array.dtype.kind == "f":
            size = root_mean_square(array)
            if size:
                found.setdefault(groups[name], []).append(distance(array, repeat[name]) / size)
    return {name: float(np.median(found[group])) for name, group in groups.items() if group in found}


def _judge_updates(tensors: Sequence[TensorVerdict], pair: Pair) -> None:
    """Judge each update alone: what the reference's optimizer makes of the port's own gradient, weights and state."""
    steps = {one.number: (one, other) for one, other in zip(pair.reference, pair.port, strict=True)}
    for tensor in tensors:
        head, _, rest = tensor.name.partition(".")
        name = Name.of(rest)
        if name.quantity not in ("updated", "updated_state") or name.rest == "":
            continue
        reference, port = steps[int(head.removeprefix("step"))]
        own, theirs = (recomputed(side, side, name) for side in (reference, port))
        judged = recomputed(port, reference, name)
        if own is None or theirs is None or judged is None or own > 2 or "skipped" in port.events:
            continue
        if judged <= 2:
            tensor.verdict, tensor.basis = ALIGNED, "float64"
            tensor.reason = "what the reference's optimizer makes of the port's own gradient, recomputed in float64"
        elif tensor.verdict != DIVERGED:
            tensor.verdict, tensor.basis = DIVERGED, "float64"
            tensor.reason = f"{judged:.3g} times over the rounding of the reference's optimizer on the port's gradient"


def _judge_casts(tensors: Sequence[TensorVerdict], pair: Pair) -> None:
    """An output in half precision on one side alone differs, though by no more than this precision rounds."""
    steps = {one.number: (one, other) for one, other in zip(pair.reference, pair.port, strict=True)}
    for tensor in tensors:
        head, _, rest = tensor.name.partition(".")
        sides = steps[int(head.removeprefix("step"))]
        if Name.of(rest).quantity == "output" and all(rest in side.arrays for side in sides):
            theirs, ours = (side.dtype(rest) for side in sides)
            if (theirs in HALVES) != (ours in HALVES):
                tensor.verdict, tensor.basis = DIVERGED, "exact"
                tensor.reason = f"the port's output is {ours}, the reference's {theirs}"


def _judge_by_step(tensors: Sequence[TensorVerdict], reference: Mapping[str, np.ndarray], first: int) -> None:
    """What tolerances cannot decide: gradients that vanish, and later steps, where rounding has grown."""
    sizes: dict[str, float] = {}
    for label, array in reference.items():
        head, _, rest = label.partition(".")
        if Name.of(rest).quantity in _GRADIENTS and array.size:
            sizes[head] = max(sizes.get(head, 0.0), root_mean_square(array))
    wrong, recorded = False, {int(label.partition(".")[0].removeprefix("step")) for label in reference}
    for tensor in tensors:
        head, _, rest = tensor.name.partition(".")
        name = Name.of(rest)
        if tensor.basis == "repeat" and tensor.verdict in (DIVERGED, INCONCLUSIVE):
            _judge_by_one_repeat(tensor, reference[tensor.name])
        elif tensor.basis == "tolerance" and tensor.verdict in (DIVERGED, INCONCLUSIVE):
            if name.quantity in _GRADIENTS and (tensor.rms_abs or 0) <= _VANISHES * sizes.get(head, 0):
                tensor.verdict, tensor.reason = ALIGNED, "rounding of a gradient that vanishes beside the others"
            elif not wrong and int(head.removeprefix("step")) > first and name.quantity != "setting":
                size = root_mean_square(reference[tensor.name])
                # What a step begins with is compared after a recorded step only where it is not what that one left.
                moved = name.quantity in BEFORE and int(head.removeprefix("step")) - 1 in recorded
                if (tensor.rms_abs or np.inf) <= (_MOVED if moved else _AMPLIFIED) * size:
                    tensor.verdict = INCONCLUSIVE
                    tensor.reason += "; rounding that the steps before have amplified may explain it (--ref-repeat)"
        wrong = wrong or tensor.verdict == DIVERGED


def _judge_by_one_repeat(tensor: TensorVerdict, reference: np.ndarray) -> None:
    """Over the rounding that one repeat shows: what a tensor changes by in one draw is not yet its greatest change."""
    ratio = max(tensor.noise_ratio or 0.0, tensor.noise_ratio_worst or 0.0)
    if ratio > ZERO_FACTOR:
        tensor.verdict = DIVERGED
        tensor.reason = f"the difference is {ratio:.3g} times what one unit in the last place of the weights changes"
    elif (tensor.rms_abs or 0.0) <= _UNITS * epsilon_of(reference.dtype) * root_mean_square(reference):
        tensor.verdict, tensor.reason = ALIGNED, f"within {_UNITS:g} units in the last place of its own size"
    else:
        tensor.verdict = INCONCLUSIVE


def _notes(pair: Pair) -> list[str]:
    counts = [len(recording.numbers) for recording in pair.recordings]
    notes = [f"the reference recorded {counts[0]} steps, the port {counts[1]}"] if counts[0] != counts[1] else []
    if (pair.recordings[0].about["framework"]) == pair.recordings[1].about["framework"]:
        notes.append(f"both recordings are of {pair.recordings[0].about['framework']}")
    for first, second, whose in ((pair.reference, pair.port, "reference"), (pair.port, pair.reference, "port")):
        alone = sorted(
            {Name.of(n).rest for one, other in zip(first, second, strict=True) for n in _of_one_signature(one, other)}
        )
        notes += [f"the {whose}'s model alone is given {', '.join(alone)}"] if alone else []
    return notes
