"""Why two attached trainers differ, proven by arithmetic on what both recorded."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from twinalign.verdict.array_difference import distance, root_mean_square
from twinalign.verdict.attached_steps import Name, Step

_CLOSE = 1e-4
"""Relative difference below which two recorded numbers of float32 trainers count as the same."""
_HALVES = ("float16", "bfloat16")
_SETTINGS = ("beta1", "beta2", "epsilon", "momentum", "dampening", "nesterov")
_SETTINGS_IN_WORDS = {"epsilon": "the optimizer's epsilon", "nesterov": "Nesterov's momentum"}

Numbers = Sequence[Mapping[str, Any]]
Recomputed = Callable[..., float | None]


@dataclasses.dataclass
class Sides:
    """What causes are looked for in."""

    reference: Sequence[Step]
    port: Sequence[Step]
    numbers: tuple[Numbers, Numbers]
    recomputed: Recomputed
    moved_since: Callable[[Step, Step], list[str]]

    def steps(self) -> Iterator[tuple[Step, Step]]:
        return zip(self.reference, self.port, strict=True)

    def following(self) -> Iterator[tuple[tuple[Step, Step], tuple[Step, Step]]]:
        """Each recorded step with the recorded one right before it."""
        pairs = list(self.steps())
        return ((then, now) for then, now in zip(pairs, pairs[1:], strict=False) if then[0].number + 1 == now[0].number)


def _cause(id: str, step: int, quantity: str, text: str, **evidence: Any) -> dict[str, Any]:
    return {"id": id, "step": step, "quantity": quantity, "text": text, "evidence": evidence}


def find_causes(
    reference: Sequence[Step],
    port: Sequence[Step],
    reference_numbers: Numbers,
    port_numbers: Numbers,
    recomputed: Recomputed,
    moved_since: Callable[[Step, Step], list[str]],
) -> list[dict[str, Any]]:
    """Causes in the order of execution, each once, where it first shows.

    Returns:
        `id`, `step`, `quantity`, `text` and the `evidence` of each.
    """
    sides = Sides(reference, port, (reference_numbers, port_numbers), recomputed, moved_since)
    found = [cause for look in _ORDER if (cause := next(look(sides), None)) is not None]
    return sorted(found, key=lambda cause: cause["step"])


def _same(one: float, other: float, tolerance: float = _CLOSE) -> bool:
    return math.isclose(one, other, rel_tol=tolerance, abs_tol=1e-30)


def _alike(one: np.ndarray | None, other: np.ndarray | None, tolerance: float = _CLOSE) -> bool:
    return one is not None and other is not None and distance(one, other) <= tolerance * root_mean_square(one) + 1e-30


def _norm(arrays: Mapping[str, np.ndarray]) -> float:
    return math.sqrt(sum(float(np.sum(np.square(array.astype(np.float64)))) for array in arrays.values()))


def _same_before(reference: Step, port: Step) -> bool:
    """Whether a step begins alike: weights, batches, outputs of the same values."""
    names = [name for name in reference.arrays if Name.of(name).quantity in ("weights", "input", "output")]
    return all(_alike(reference.arrays[name], port.arrays.get(name), 1e-3) for name in names)


def batches(sides: Sides) -> Iterator[dict[str, Any]]:
    for reference, port in sides.steps():
        names = [name for name in reference.arrays if Name.of(name).quantity == "input"]
        wrong = [name for name in names if name in port.arrays and not _alike(reference.arrays[name], port.arrays[name])]
        if not wrong:
            continue
        name, ours = wrong[0], port.arrays[wrong[0]]
        theirs = reference.arrays[name]
        if ours.shape == theirs.shape and ours.ndim:
            rows = [sorted(map(bytes, np.ascontiguousarray(array.reshape(len(array), -1)))) for array in (ours, theirs)]
            if rows[0] == rows[1]:
                yield _cause("batch_order", reference.number, "input", f"{name}: the same samples in another order")
        for other in sides.reference:
            if other.number != reference.number and _alike(other.arrays.get(name), ours):
                text = f"{name}: the port's batch is that of the reference's step {other.number}"
                yield _cause("batches_shifted", reference.number, "input", text)
        text = f"{name}: the trainers are given other data; attach(..., feed=) gives the port the reference's batches"
        yield _cause("batches", reference.number, "input", text)


def weights(sides: Sides) -> Iterator[dict[str, Any]]:
    reference, port = sides.reference[0], sides.port[0]
    ours = port.named("weights")
    wrong = [name for name, array in reference.named("weights").items() if name in ours and not _alike(array, ours[name], 1e-2 if port.dtype(f"weights.{name}") in _HALVES else _CLOSE)]
    if wrong:
        text = f"{len(wrong)} parameters begin with other values, {wrong[0]} first; start both from one checkpoint (weights=)"
        yield _cause("initial_weights", reference.number, "weights", text, parameters=wrong)


def moved_between(sides: Sides) -> Iterator[dict[str, Any]]:
    for then, now in sides.following():
        moved = [sides.moved_since(*pair) for pair in zip(then, now, strict=True)]
        if moved[1] and not moved[0]:
            text = f"the port moves {moved[1][0]} between the steps, outside of its optimizer; the reference does not"
            yield _cause("weights_moved_between_steps", now[0].number, "weights", text, parameters=moved[1])


def modes(sides: Sides) -> Iterator[dict[str, Any]]:
    for reference, port in sides.steps():
        for call, (theirs, ours) in enumerate(zip(reference.calls, port.calls, strict=False)):
            if theirs.get("training") != ours.get("training"):
                modes = ["training" if fact["training"] else "evaluation" for fact in (ours, theirs)]
                text = f"the port's model is in {modes[0]} mode, the reference's in {modes[1]} mode"
                yield _cause("training_mode", reference.number, "output", text)
            if theirs.get("autocast") != ours.get("autocast"):
                text = f"call {call}: the port casts to {ours['autocast']}, the reference to {theirs['autocast']}"
                yield _cause("autocast", reference.number, "output", text)
            if theirs.get("draws") != ours.get("draws") and not _same_before(reference, port):
                whose, other = ("port", "reference") if ours.get("draws") else ("reference", "port")
                text = f"the {whose}'s model draws random numbers (dropout?), the {other}'s draws none"
                yield _cause("random_draws", reference.number, "output", text)


def _losses_from(step: Step, call: int) -> dict[str, float]:
    """What a loss would be, by the ways to average the cross entropy of its labels."""
    logits, labels = step.arrays.get(f"call{call}.logits"), step.arrays.get(f"call{call}.labels")
    if logits is None or labels is None or logits.size % max(1, labels.size):
        return {}
    shape, logits = step.arrays.get(f"call{call}.output", logits).shape[:-1], logits.reshape(labels.size, -1).astype(np.float64)
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
        if _same(value / divisor, step.losses[call], 1e-4)
    ]
    return min(fits)[1:] if fits else None


def labels(sides: Sides) -> Iterator[dict[str, Any]]:
    for reference, port in sides.steps():
        for call in range(len(reference.calls)):
            theirs, ours = (step.arrays.get(f"call{call}.labels") for step in (reference, port))
            if theirs is None or ours is None or theirs.size != ours.size or not len(port.calls) > call:
                continue
            given = [n for n in reference.arrays if n.startswith(f"call{call}.input")]
            if not all(_alike(reference.arrays[n], port.arrays.get(n)) for n in given):
                continue
            ignored = [step.calls[call].get("cross_entropy", {}).get("ignore_index", -100) for step in (reference, port)]
            theirs, ours = theirs.reshape(-1), ours.reshape(-1)
            if np.array_equal(theirs, ours) and ignored[0] == ignored[1]:
                continue
            counted = [label != ignore for label, ignore in zip((theirs, ours), ignored, strict=True)]
            both = counted[0] & counted[1]
            if np.array_equal(theirs[both], ours[both]) and counted[0].sum() < counted[1].sum():
                text = f"call {call}: the port counts {int(counted[1].sum())} labels, the reference {int(counted[0].sum())}: padding is counted in"
                yield _cause("padding_counted", reference.number, "labels", text)
            for shift in (1, 2, -1):
                moved, kept = (theirs[shift:], ours[:-shift]) if shift > 0 else (theirs[:shift], ours[-shift:])
                used = (moved != ignored[0]) & (kept != ignored[1])
                if used.any() and np.mean(moved[used] == kept[used]) > 0.95:
                    text = f"call {call}: the port's labels are the reference's shifted by {shift} more"
                    yield _cause("labels_shifted_twice", reference.number, "labels", text)
            yield _cause("labels", reference.number, "labels", f"call {call}: the loss is given other labels")


def loss_average(sides: Sides) -> Iterator[dict[str, Any]]:
    for reference, port in sides.steps():
        for call in range(min(len(reference.losses), len(port.losses), len(reference.calls), len(port.calls))):
            if _same(reference.losses[call], port.losses[call]):
                continue
            divisors = sorted({1, len(reference.losses), len(port.losses)})
            theirs, ours = (_way_of(step, call, divisors) for step in (reference, port))
            if theirs is None or ours is None:
                continue
            if theirs[0] != ours[0]:
                text = f"the port averages the loss {ours[0]}, the reference {theirs[0]}; each gives its recorded value"
                yield _cause("loss_average", reference.number, "loss", text, reference=theirs[0], port=ours[0])


def accumulation(sides: Sides) -> Iterator[dict[str, Any]]:
    for reference, port in sides.steps():
        theirs, ours = reference.losses, port.losses
        if len(theirs) != len(ours):
            text = f"the port's step sums {len(ours)} backward passes, the reference's {len(theirs)}"
            if reference.number == sides.reference[0].number:
                yield _cause("accumulated_batches", reference.number, "loss", text)
            else:
                yield _cause("step_skipped", reference.number, "gradient", text + ": its optimizer did not step between")
            continue
        if len(theirs) < 2 or not all(theirs):
            continue
        for factor in (len(theirs), 1 / len(theirs)):
            if all(_same(b, a * factor, 1e-3) for a, b in zip(theirs, ours, strict=True)):
                side = "port" if factor > 1 else "reference"
                text = f"each loss of the port is {factor:g} times the reference's, of {len(theirs)} backward passes: the {side} does not average the accumulated gradients"
                yield _cause("accumulation_not_averaged", reference.number, "loss", text, factor=factor)


def not_cleared(sides: Sides) -> Iterator[dict[str, Any]]:
    for then, now in sides.following():
        for kind in ("gradient", "unclipped"):  # a clipping in place, or one inside of the optimizer
            left = then[1].named(kind)
            first, wanted = now[1].named("first_gradient"), now[0].named("first_gradient")
            names = [name for name in wanted if name in first and name in left]
            if not names or _norm({n: left[n] for n in names}) == 0:
                continue
            kept = {n: first[n].astype(np.float64) - left[n] for n in names}
            apart = [_norm({n: a[n].astype(np.float64) - wanted[n] for n in names}) for a in (kept, first)]
            if apart[0] < 0.01 * apart[1] and apart[1] > 0.01 * _norm(wanted):
                text = "the port's first gradient of the step is the reference's plus that of the step before: it was not cleared"
                yield _cause("gradients_not_cleared", now[0].number, "first_gradient", text)


def clipping(sides: Sides) -> Iterator[dict[str, Any]]:
    for reference, port in sides.steps():
        theirs, ours = ([e for e in step.events if e.startswith(("clip", "backward", "unscale"))] for step in (reference, port))
        clips = [[e for e in events if e.startswith("clip")] for events in (theirs, ours)]
        places = [[i for i, e in enumerate(events) if e.startswith("clip")] for events in (theirs, ours)]
        late = ["backward" in events[place[0] :] if place else False for events, place in zip((theirs, ours), places, strict=True)]
        factor = [_norm(s.named("gradient")) / (_norm(s.named("unclipped")) or 1.0) if s.named("unclipped") else 1.0 for s in (reference, port)]
        n = reference.number
        if late[1] and not late[0]:
            yield _cause("clip_over_micro_batches", n, "gradient", "the port clips after each micro-batch, the reference once a step")
        elif "unscale" in ours and "unscale" in theirs:
            orders = [events.index("unscale") < place[0] if place else True for events, place in zip((theirs, ours), places, strict=True)]
            if orders[0] and not orders[1]:
                yield _cause("clip_before_unscaling", n, "gradient", "the port clips gradients that still have the scaler's factor")
        if clips[0] and not clips[1] and not _same(factor[0], 1.0):
            yield _cause("no_clipping", n, "gradient", f"the reference clips ({clips[0][0]}), the port does not", factors=factor)
        elif clips[0] and clips[1] and clips[0][-1] != clips[1][-1] and not _same(factor[0], factor[1]):
            kind = "clip_limit" if clips[0][-1].split(" at ")[0] == clips[1][-1].split(" at ")[0] else "clip_kind"
            norms = [_norm(step.named("gradient")) for step in (reference, port)]
            text = f"the port does {clips[1][-1]}, the reference {clips[0][-1]}; the norms after it are {norms[1]:.4g} and {norms[0]:.4g}"
            yield _cause(kind, n, "gradient", text, norms=norms)
        elif clips[1] and not clips[0] and not _same(factor[1], 1.0):
            yield _cause("clipping", n, "gradient", f"the port clips ({clips[1][0]}), the reference does not", factors=factor)


def schedule(sides: Sides) -> Iterator[dict[str, Any]]:
    rates = [{int(line["step"]): max(line.get("rates") or [0.0]) for line in lines if line.get("rates")} for lines in sides.numbers]
    steps = sorted(set(rates[0]) & set(rates[1]))
    theirs, ours = ([of_side[step] for step in steps] for of_side in rates)
    wrong = [step for step, a, b in zip(steps, theirs, ours, strict=True) if not _same(a, b, 1e-6)]
    if not wrong:
        return
    ratios = [b / a for a, b in zip(theirs, ours, strict=True) if a]
    if len(ratios) == len(steps) and max(ratios) - min(ratios) < 1e-6 * max(ratios):
        yield _cause("learning_rate", wrong[0], "setting", f"the port's learning rate is {ratios[0]:.6g} times the reference's in every step", factor=ratios[0])
    for shift in (1, -1, 2, -2):
        aligned = [(rates[0].get(step + shift), rates[1][step]) for step in steps if step >= wrong[0]]
        known = [(a, b) for a, b in aligned if a is not None]
        if len(known) >= 1 and len(set(theirs)) > 1 and all(_same(a, b, 1e-6) for a, b in known):
            when = "earlier" if shift > 0 else "later"
            text = f"from step {wrong[0]} the port's learning rate is the reference's of {abs(shift)} step{'s' * (abs(shift) > 1)} {when}"
            yield _cause("schedule_moved", wrong[0], "setting", text, shift=shift)
    if len(set(ours)) == 1 and len(set(theirs)) > 1:
        text = f"the port's learning rate stays {ours[0]:.4g}, the reference's moves: its schedule is never stepped"
        yield _cause("schedule_not_stepped", wrong[0], "setting", text)
    place = steps.index(wrong[0])
    yield _cause("schedule", wrong[0], "setting", f"the port's learning rate is {ours[place]:.6g}, the reference's {theirs[place]:.6g}")


def optimizer(sides: Sides) -> Iterator[dict[str, Any]]:
    for reference, port in sides.steps():
        n, names = reference.number, [name for name in reference.settings if name in port.settings]
        missing = [name for name in reference.settings if name not in port.settings]
        if missing:
            text = f"the port's optimizer lacks {len(missing)} parameters of the reference's, {missing[0]} first"
            yield _cause("parameters_not_trained", n, "updated", text, parameters=missing)
        kinds = {(reference.settings[name]["kind"], port.settings[name]["kind"]) for name in names}
        if any(a != b for a, b in kinds):
            yield _cause("optimizer", n, "updated", f"the port steps with {min(kinds)[1]}, the reference with {min(kinds)[0]}")
            continue
        for key in _SETTINGS:
            wrong = [m for m in names if not _same(*(float(s.settings[m].get(key, 0.0)) for s in (reference, port)), 1e-6)]
            if wrong and (proof := _proof(sides, reference, port, wrong, key)) is not None:
                values = [side.settings[wrong[0]][key] for side in (port, reference)]
                what = _SETTINGS_IN_WORDS.get(key, key)
                text = f"{what} is {values[0]:g} in the port, {values[1]:g} in the reference; with it the reference's formula gives the port's update"
                yield _cause(f"optimizer_{key}", n, "updated", text, parameters=wrong, **proof)


def decay(sides: Sides) -> Iterator[dict[str, Any]]:
    for reference, port in sides.steps():
        n, names = reference.number, [name for name in reference.settings if name in port.settings]
        apart = [m for m in names if reference.settings[m]["decoupled"] != port.settings[m]["decoupled"]]
        apart = [m for m in apart if reference.settings[m]["weight_decay"] or port.settings[m]["weight_decay"]]
        if apart and (proof := _proof(sides, reference, port, apart, "decoupled")) is not None:
            words = ["decoupled from" if s.settings[apart[0]]["decoupled"] else "added to" for s in (port, reference)]
            yield _cause("decay_coupled", n, "updated", f"the port's weight decay is {words[0]} the gradient, the reference's {words[1]} it", parameters=apart, **proof)
        wrong = [m for m in names if not _same(reference.settings[m]["weight_decay"], port.settings[m]["weight_decay"], 1e-6)]
        if wrong and (proof := _proof(sides, reference, port, wrong, "weight_decay")) is not None:
            values = [side.settings[wrong[0]]["weight_decay"] for side in (port, reference)]
            zero = 0.0 in values
            id = "decay_groups" if zero else "weight_decay"
            text = f"{len(wrong)} parameters have another weight decay, {wrong[0]} {values[0]:g} in place of {values[1]:g}"
            yield _cause(id, n, "updated", text, parameters=wrong, **proof)


def _proof(sides: Sides, reference: Step, port: Step, names: Sequence[str], key: str) -> dict[str, Any] | None:
    """Evidence that this setting alone takes the reference's formula to the port's update; None where it does not.

    The learning rate is the port's: a schedule has a cause of its own.
    """
    before, after = [], []
    for name in names:
        ours = port.settings[name]
        rate = {"lr": ours["lr"]}
        for place, changed in ((before, rate), (after, ours if key == "decoupled" else rate | {key: ours[key]})):
            found = sides.recomputed(port, reference, Name("updated", rest=name), **changed)
            if found is not None:
                place.append(found)
    if not after or max(after) > 2:  # another setting differs as well: take them all
        after = [f for m in names if (f := sides.recomputed(port, port, Name("updated", rest=m))) is not None]
        before = [f for m in names if (f := sides.recomputed(port, reference, Name("updated", rest=m), lr=port.settings[m]["lr"])) is not None]
    if not after or not before or max(after) > 2 or max(before) <= 2:
        return None
    return {"left_over_with_it": max(after), "left_over_without_it": max(before)}


def half_weights(sides: Sides) -> Iterator[dict[str, Any]]:
    for reference, port in sides.steps():
        wrong = []
        for name in port.named("updated"):
            kinds = [step.dtype(f"weights.{name}") if f"weights.{name}" in step.arrays else "" for step in (reference, port)]
            masters = [f"master.{name}" in step.arrays for step in (reference, port)]
            if kinds[1] in _HALVES and not masters[1] and (masters[0] or kinds[0] == "float32"):
                found = sides.recomputed(port, port, Name("updated", rest=name))
                if found is None or found <= 2:  # the formula, rounded to the half precision
                    wrong.append(name)
        if wrong:
            kind = port.dtype(f"weights.{wrong[0]}")
            text = f"the port updates {len(wrong)} weights in {kind}, where the reference updates them in float32"
            yield _cause("half_precision_weights", reference.number, "updated", text, parameters=wrong)


def skipped(sides: Sides) -> Iterator[dict[str, Any]]:
    for theirs, ours in zip(*sides.numbers, strict=False):
        if ours.get("skipped") and not theirs.get("skipped"):
            yield _cause("step_skipped", int(ours["step"]), "updated", "the port's gradient scaler skipped this step, the reference's did not")


_ORDER = (weights, batches, modes, moved_between, labels, loss_average, accumulation, not_cleared, clipping)
_ORDER += (schedule, decay, optimizer, half_weights, skipped)
