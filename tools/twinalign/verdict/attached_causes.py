"""Why two attached trainers differ, proven by arithmetic on what both recorded: up to the clipped gradient."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from twinalign.verdict.attached_average_causes import average_of_statistics, averages
from twinalign.verdict.attached_evidence import Sides, alike, cause_of, moved_since, norm, same
from twinalign.verdict.attached_model_causes import arguments, calls, detached, optimizers_order
from twinalign.verdict.attached_steps import HALVES, Name, Step
from twinalign.verdict.attached_update_causes import decay, half_weights, optimizer, running_variance, schedule, skipped


def find_causes(sides: Sides) -> list[dict[str, Any]]:
    """Causes in the order of execution, each once, where it first shows.

    Returns:
        `id`, `step`, `quantity`, `text` and the `evidence` of each.
    """
    found = [cause for look in _ORDER if (cause := next(look(sides), None)) is not None]
    return sorted(found, key=lambda cause: cause["step"])


def _same_before(reference: Step, port: Step) -> bool:
    """Whether a step begins alike: weights, batches, outputs of the same values."""
    names = [name for name in reference.arrays if Name.of(name).quantity in ("weights", "input", "output")]
    return all(alike(reference.arrays[name], port.arrays.get(name), 1e-3) for name in names)


def _is_made(name: str, step: Step, before: Step | None) -> bool:
    """Whether an input is, in a row at least, what a model returned in this step or the one before: no batch."""
    call, rows = Name.of(name).call, _rows(step.arrays[name])
    for one in (step, *([before] if before else ())):
        outputs = [
            n for n in one.arrays if Name.of(n).quantity == "output" and (one is before or Name.of(n).call < call)
        ]
        if any(rows & _rows(one.arrays[output]) for output in outputs):
            return True
    return False


def _rows(array: np.ndarray) -> set[bytes]:
    return {row.tobytes() for row in np.ascontiguousarray(array)} if array.ndim else set()


def batches(sides: Sides) -> Iterator[dict[str, Any]]:
    """The trainers are given other batches: in another order, of another step, or other data."""
    before: Step | None = None
    for reference, port in sides.steps():
        models = [[call["model"] for call in step.calls] for step in (reference, port)]
        names = [name for name in reference.arrays if Name.of(name).quantity == "input"]
        names = [name for name in names if name in port.arrays and not _is_made(name, reference, before)]
        wrong = [name for name in names if not alike(reference.arrays[name], port.arrays[name])]
        before = reference
        if not wrong or (models[0] != models[1] and len(set(models[0])) > 1):  # other calls have a cause of their own
            continue
        name, ours = wrong[0], port.arrays[wrong[0]]
        theirs = reference.arrays[name]
        if ours.shape == theirs.shape and ours.ndim:
            rows = [sorted(map(bytes, np.ascontiguousarray(array.reshape(len(array), -1)))) for array in (ours, theirs)]
            if rows[0] == rows[1]:
                yield cause_of("batch_order", reference.number, "input", f"{name}: the same samples in another order")
        for other in sides.reference:
            if other.number != reference.number and alike(other.arrays.get(name), ours):
                text = f"{name}: the port's batch is that of the reference's step {other.number}"
                yield cause_of("batches_shifted", reference.number, "input", text)
        text = f"{name}: the trainers are given other data; attach(..., feed=) gives the port the reference's batches"
        yield cause_of("batches", reference.number, "input", text)


def weights(sides: Sides) -> Iterator[dict[str, Any]]:
    """The trainings begin with other weights."""
    reference, port = sides.reference[0], sides.port[0]
    ours = port.named("weights")
    wrong = [
        name
        for name, array in reference.named("weights").items()
        if name in ours and not alike(array, ours[name], 1e-2 if port.dtype(f"weights.{name}") in HALVES else 1e-4)
    ]
    if wrong:
        text = f"{len(wrong)} parameters begin with other values, {wrong[0]} first; start both from one (weights=)"
        yield cause_of("initial_weights", reference.number, "weights", text, parameters=wrong)


def moved_between(sides: Sides) -> Iterator[dict[str, Any]]:
    """Something moves weights between the steps on one side."""
    for then, now in sides.following():
        moved = [moved_since(*pair) for pair in zip(then, now, strict=True)]
        if moved[1] and not moved[0]:
            text = f"the port moves {moved[1][0]} between the steps, outside of its optimizer; the reference does not"
            yield cause_of("weights_moved_between_steps", now[0].number, "weights", text, parameters=moved[1])


def modes(sides: Sides) -> Iterator[dict[str, Any]]:
    """Training mode, automatic casts or random draws differ in a call."""
    for reference, port in sides.steps():
        for call, (theirs, ours) in enumerate(zip(reference.calls, port.calls, strict=False)):
            if theirs.get("training") != ours.get("training"):
                modes = ["training" if fact["training"] else "evaluation" for fact in (ours, theirs)]
                text = f"the port's model is in {modes[0]} mode, the reference's in {modes[1]} mode"
                yield cause_of("training_mode", reference.number, "output", text)
            if theirs.get("autocast") != ours.get("autocast"):
                text = f"call {call}: the port casts to {ours['autocast']}, the reference to {theirs['autocast']}"
                yield cause_of("autocast", reference.number, "output", text)
            if theirs.get("draws") != ours.get("draws") and not _same_before(reference, port):
                whose, other = ("port", "reference") if ours.get("draws") else ("reference", "port")
                text = f"the {whose}'s model draws random numbers (dropout?), the {other}'s draws none"
                yield cause_of("random_draws", reference.number, "output", text)


def _losses_from(step: Step, call: int) -> dict[str, float]:
    """What a loss would be, by the ways to average the cross entropy of its labels."""
    logits, labels = step.arrays.get(f"call{call}.logits"), step.arrays.get(f"call{call}.labels")
    if logits is None or labels is None or labels.dtype.kind not in "iu" or logits.size % max(1, labels.size):
        return {}
    shape, logits = (
        step.arrays.get(f"call{call}.output", logits).shape[:-1],
        logits.reshape(labels.size, -1).astype(np.float64),
    )
    flat = labels.reshape(-1).astype(np.int64)
    valid = flat != step.calls[call].get("cross_entropy", {}).get("ignore_index", -100)
    if not valid.any() or flat[valid].min() < 0 or flat[valid].max() >= logits.shape[1]:
        return {}
    top = logits.max(1, keepdims=True)
    chosen = logits[np.arange(len(flat)), np.where(valid, flat, 0)]
    each = np.where(valid, (np.log(np.exp(logits - top).sum(1)) + top[:, 0]) - chosen, 0.0)
    found = {"over the tokens that have a label": each.sum() / valid.sum(), "as a sum": each.sum()}
    found["over all positions, padding counted in"] = each.mean()
    if len(shape) > 1 and math.prod(shape) == flat.size:
        by_sequence, counts = each.reshape(shape[0], -1).sum(1), valid.reshape(shape[0], -1).sum(1)
        found["over the sequences' own averages"] = float(np.mean(by_sequence / np.maximum(counts, 1)))
        found["over the sequences' sums"] = float(np.mean(by_sequence))
    return {name: float(value) for name, value in found.items()}


def _way_of(step: Step, call: int, divisors: Sequence[int]) -> tuple[str, int] | None:
    ways = _losses_from(step, call)
    fits = [
        (abs(value / divisor - step.losses[call]), name, divisor)
        for name, value in ways.items()
        for divisor in divisors
        if same(value / divisor, step.losses[call], 1e-4)
    ]
    return min(fits)[1:] if fits else None


def labels(sides: Sides) -> Iterator[dict[str, Any]]:
    """The loss is given other labels: shifted once more, or with padding."""
    for reference, port in sides.steps():
        for call in range(len(reference.calls)):
            theirs, ours = (step.arrays.get(f"call{call}.labels") for step in (reference, port))
            if theirs is None or ours is None or theirs.size != ours.size or not len(port.calls) > call:
                continue
            given = [n for n in reference.arrays if n.startswith(f"call{call}.input") and n in port.arrays]
            if not given or not all(alike(reference.arrays[n], port.arrays[n]) for n in given):
                continue
            if {theirs.dtype.kind, ours.dtype.kind} - {"i", "u"}:
                if not alike(theirs, ours):
                    yield _soft_labels(reference.number, call, theirs, ours)
                continue
            ignored = [
                step.calls[call].get("cross_entropy", {}).get("ignore_index", -100) for step in (reference, port)
            ]
            theirs, ours = theirs.reshape(-1), ours.reshape(-1)
            if np.array_equal(theirs, ours) and ignored[0] == ignored[1]:
                continue
            counted = [label != ignore for label, ignore in zip((theirs, ours), ignored, strict=True)]
            both = counted[0] & counted[1]
            if np.array_equal(theirs[both], ours[both]) and counted[0].sum() < counted[1].sum():
                sums = [int(count.sum()) for count in counted]
                text = f"call {call}: the port counts {sums[1]} labels, the reference {sums[0]}: padding is counted in"
                yield cause_of("padding_counted", reference.number, "labels", text)
            for shift in (1, 2, -1):
                moved, kept = (theirs[shift:], ours[:-shift]) if shift > 0 else (theirs[:shift], ours[-shift:])
                used = (moved != ignored[0]) & (kept != ignored[1])
                if used.any() and np.mean(moved[used] == kept[used]) > 0.95:
                    id = "labels_shifted_twice" if shift > 0 else "labels_not_shifted"
                    text = f"call {call}: the port's labels are the reference's shifted by {shift} more"
                    if shift < 0:
                        text = (
                            f"call {call}: the port's labels are the reference's before these are shifted by {-shift}"
                        )
                    yield cause_of(id, reference.number, "labels", text)
            yield cause_of("labels", reference.number, "labels", f"call {call}: the loss is given other labels")


def _soft_labels(number: int, call: int, theirs: np.ndarray, ours: np.ndarray) -> dict[str, Any]:
    """Why probabilities of the classes differ: by how much labels are smoothed, or otherwise."""
    counted = [rows[rows.any(1)] for rows in (theirs, ours)]
    shares = [(1 - rows.max(1)) * rows.shape[1] / (rows.shape[1] - 1) for rows in counted]
    constant = all(len(share) and np.ptp(share) < 1e-4 for share in shares)
    if constant and np.array_equal(counted[0].argmax(1), counted[1].argmax(1)):
        found = [float(share[0]) for share in shares]
        text = f"call {call}: the port smooths labels by {found[1]:.3g}, the reference by {found[0]:.3g}"
        return cause_of("label_smoothing", number, "labels", text, reference=found[0], port=found[1])
    return cause_of("labels", number, "labels", f"call {call}: the loss is given other probabilities of the classes")


def loss_average(sides: Sides) -> Iterator[dict[str, Any]]:
    """The loss is averaged over other things; both averages are recomputed from logits and labels."""
    for reference, port in sides.steps():
        for call in range(min(len(reference.losses), len(port.losses), len(reference.calls), len(port.calls))):
            if same(reference.losses[call], port.losses[call]):
                continue
            divisors = sorted({1, len(reference.losses), len(port.losses)})
            theirs, ours = (_way_of(step, call, divisors) for step in (reference, port))
            if theirs is None or ours is None:
                continue
            if theirs[0] != ours[0]:
                text = f"the port averages the loss {ours[0]}, the reference {theirs[0]}; each gives its recorded value"
                yield cause_of("loss_average", reference.number, "loss", text, reference=theirs[0], port=ours[0])


def accumulation(sides: Sides) -> Iterator[dict[str, Any]]:
    """Accumulated losses are not divided by their number, or a step sums another number of them."""
    for reference, port in sides.steps():
        theirs, ours = reference.losses, port.losses
        if len(theirs) != len(ours):
            text = f"the port's step sums {len(ours)} backward passes, the reference's {len(theirs)}"
            if reference.number == sides.reference[0].number:
                yield cause_of("accumulated_batches", reference.number, "loss", text)
            else:
                yield cause_of(
                    "step_skipped", reference.number, "gradient", text + ": its optimizer did not step between"
                )
            continue
        if len(theirs) < 2 or not all(theirs):
            continue
        for factor in (len(theirs), 1 / len(theirs)):
            if all(same(b, a * factor, 1e-3) for a, b in zip(theirs, ours, strict=True)):
                side = "port" if factor > 1 else "reference"
                text = (
                    f"each loss of the port is {factor:g} times the reference's, of {len(theirs)} backward passes: the "
                    f"{side} does not average the accumulated gradients"
                )
                yield cause_of("accumulation_not_averaged", reference.number, "loss", text, factor=factor)


def not_cleared(sides: Sides) -> Iterator[dict[str, Any]]:
    """Gradients of the step before were left."""
    for then, now in sides.following():
        # A clipping in place, or one inside of the optimizer, or what the step of another optimizer left.
        for kind in ("gradient", "unclipped", "first_gradient"):
            left = then[1].named(kind)
            first, wanted = (step.named("first_gradient") for step in now[::-1])
            wanted = {name: array for name, array in wanted.items() if name in now[0].settings}
            names = [name for name in wanted if name in first and name in left]
            if not names or norm({n: left[n] for n in names}) == 0:
                continue
            kept = {n: first[n].astype(np.float64) - left[n] for n in names}
            apart = [norm({n: a[n].astype(np.float64) - wanted[n] for n in names}) for a in (kept, first)]
            if apart[0] < 0.01 * apart[1] and apart[1] > 0.01 * norm(wanted):
                text = "the port's first gradient is the reference's plus that of the step before: it was not cleared"
                yield cause_of("gradients_not_cleared", now[0].number, "first_gradient", text)


def clipping(sides: Sides) -> Iterator[dict[str, Any]]:
    """Gradients are clipped at another moment, by another limit or kind, or on one side alone."""
    for reference, port in sides.steps():
        n, norms = reference.number, [norm(step.named("gradient")) for step in (reference, port)]
        events = [step.events for step in (reference, port)]
        clips = [[event for event in one if event.startswith("clip")] for one in events]
        # What comes before and what after the first clipping of a step; nothing after it where there is none.
        first = [one.index(clip[0]) if clip else len(one) for one, clip in zip(events, clips, strict=True)]
        late = ["backward" in one[place:] for one, place in zip(events, first, strict=True)]
        factor = [
            norms[side] / (norm(step.named("unclipped")) or 1.0) if step.named("unclipped") else 1.0
            for side, step in enumerate((reference, port))
        ]
        if late == [False, True]:
            text = "the port clips after each micro-batch, the reference once a step"
            yield cause_of("clip_over_micro_batches", n, "gradient", text)
        elif all("unscale" in one for one in events):
            unscaled = ["unscale" in one[:place] for one, place in zip(events, first, strict=True)]
            if unscaled == [True, False]:
                text = "the port clips gradients that still have the scaler's factor"
                yield cause_of("clip_before_unscaling", n, "gradient", text)
        if clips[0] and not clips[1] and not same(factor[0], 1.0):
            text = f"the reference clips ({clips[0][0]}), the port does not"
            yield cause_of("no_clipping", n, "gradient", text, factors=factor)
        elif clips[0] and clips[1] and clips[0][-1] != clips[1][-1] and not same(factor[0], factor[1]):
            kind = "clip_limit" if clips[0][-1].split(" at ")[0] == clips[1][-1].split(" at ")[0] else "clip_kind"
            after = f"the norms after it are {norms[1]:.4g} and {norms[0]:.4g}"
            text = f"the port does {clips[1][-1]}, the reference {clips[0][-1]}; {after}"
            yield cause_of(kind, n, "gradient", text, norms=norms)
        elif clips[1] and not clips[0] and not same(factor[1], 1.0):
            text = f"the port clips ({clips[1][0]}), the reference does not"
            yield cause_of("clipping", n, "gradient", text, factors=factor)


_ORDER: tuple[Callable[[Sides], Iterator[dict[str, Any]]], ...] = (
    *(weights, optimizers_order, calls, batches, arguments, modes, moved_between, labels, loss_average, accumulation),
    *(detached, not_cleared, clipping),
    *(schedule, decay, optimizer, half_weights, skipped, running_variance, averages, average_of_statistics),
)
