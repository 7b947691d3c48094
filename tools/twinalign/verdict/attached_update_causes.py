"""Why the updates of two attached trainers differ: learning rate, optimizer and weight decay."""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from twinalign.verdict.attached_evidence import Sides, alike, cause_of, fitted, norm, recomputed, same
from twinalign.verdict.attached_steps import HALVES, Name, Step

_SETTINGS = ("beta1", "beta2", "epsilon", "momentum", "dampening", "nesterov")
_SETTINGS_IN_WORDS = {"epsilon": "the optimizer's epsilon", "nesterov": "Nesterov's momentum"}


def schedule(sides: Sides) -> Iterator[dict[str, Any]]:
    """The learning rate differs: by a factor, moved by steps, or never stepped."""
    rates = [
        {int(line["step"]): max(line.get("rates") or [0.0]) for line in lines if line.get("rates")}
        for lines in sides.numbers
    ]
    steps = sorted(set(rates[0]) & set(rates[1]))
    theirs, ours = ([of_side[step] for step in steps] for of_side in rates)
    wrong = [step for step, a, b in zip(steps, theirs, ours, strict=True) if not same(a, b, 1e-6)]
    if not wrong:
        return
    ratios = [b / a for a, b in zip(theirs, ours, strict=True) if a]
    if len(ratios) == len(steps) and max(ratios) - min(ratios) < 1e-6 * max(ratios):
        text = f"the port's learning rate is {ratios[0]:.6g} times the reference's in every step"
        yield cause_of("learning_rate", wrong[0], "setting", text, factor=ratios[0])
    # A shift that one step alone shows may as well be another interval.
    for least, ways in ((2, _moved), (1, _interval), (1, _moved)):
        yield from ways(rates, steps, wrong[0], least)
    if len(set(ours)) == 1 and len(set(theirs)) > 1:
        text = f"the port's learning rate stays {ours[0]:.4g}, the reference's moves: its schedule is never stepped"
        yield cause_of("schedule_not_stepped", wrong[0], "setting", text)
    place = steps.index(wrong[0])
    text = f"the port's learning rate is {ours[place]:.6g}, the reference's {theirs[place]:.6g}"
    yield cause_of("schedule", wrong[0], "setting", text)


Rates = Sequence[Mapping[int, float]]
"""Of both sides, by step."""


def _moved(rates: Rates, steps: Sequence[int], first: int, least: int) -> Iterator[dict[str, Any]]:
    """The port's rates are the reference's of other steps, as at `least` so many show."""
    for shift in (1, -1, 2, -2):
        aligned = [(rates[0].get(step + shift), rates[1][step]) for step in steps if step >= first]
        known = [(a, b) for a, b in aligned if a is not None]
        if len(known) >= least and len(set(rates[0].values())) > 1 and all(same(a, b, 1e-6) for a, b in known):
            when = "earlier" if shift > 0 else "later"
            count = f"{abs(shift)} step{'s' * (abs(shift) > 1)}"
            text = f"from step {first} the port's learning rate is the reference's of {count} {when}"
            yield cause_of("schedule_moved", first, "setting", text, shift=shift)


def _interval(rates: Rates, steps: Sequence[int], first: int, least: int) -> Iterator[dict[str, Any]]:
    """Both rates take the same values, and stay at each for other numbers of steps, in one ratio."""
    runs = [
        [(value, len(list(run))) for value, run in itertools.groupby(side[step] for step in steps)] for side in rates
    ]
    both = list(zip(*runs, strict=False))
    ratios = {ours[1] / theirs[1] for theirs, ours in list(zip(*(side[:-1] for side in runs), strict=False))}
    if len(both) > least and len(ratios) == 1 and all(same(theirs[0], ours[0], 1e-6) for theirs, ours in both):
        lengths = [side[0][1] for side in runs]
        text = (
            f"the port's schedule first moves after {lengths[1]} steps, the reference's after {lengths[0]}, through "
            "the same values: one moves with each epoch, the other with each update?"
        )
        yield cause_of("schedule_interval", first, "setting", text, reference=lengths[0], port=lengths[1])


def optimizer(sides: Sides) -> Iterator[dict[str, Any]]:
    """The optimizer or one of its settings differs, proven by recomputing its step."""
    for reference, port in sides.steps():
        n, names = reference.number, [name for name in reference.settings if name in port.settings]
        missing = [name for name in reference.settings if name not in port.settings]
        if missing and names:
            text = f"the port's optimizer lacks {len(missing)} parameters of the reference's, {missing[0]} first"
            yield cause_of("parameters_not_trained", n, "updated", text, parameters=missing)
        if not names:  # the step is another optimizer's
            continue
        kinds = {(reference.settings[name]["kind"], port.settings[name]["kind"]) for name in names}
        if any(a != b for a, b in kinds):
            text = f"the port steps with {min(kinds)[1]}, the reference with {min(kinds)[0]}"
            yield cause_of("optimizer", n, "updated", text)
            continue
        for key in _SETTINGS:
            pairs = {m: [float(s.settings[m].get(key, 0.0)) for s in (reference, port)] for m in names}
            wrong = [m for m, (theirs, ours) in pairs.items() if not same(theirs, ours, 1e-6)]
            if wrong and (proof := _proof(reference, port, wrong, key)) is not None:
                values = [side.settings[wrong[0]][key] for side in (port, reference)]
                what = _SETTINGS_IN_WORDS.get(key, key)
                text = f"{what} is {values[0]:g} in the port, {values[1]:g} in the reference, and explains the update"
                yield cause_of(f"optimizer_{key}", n, "updated", text, parameters=wrong, **proof)


def decay(sides: Sides) -> Iterator[dict[str, Any]]:
    """Weight decay differs: of which parameters, how much, or whether it is decoupled."""
    for reference, port in sides.steps():
        n, names = reference.number, [name for name in reference.settings if name in port.settings]
        apart = [m for m in names if reference.settings[m]["decoupled"] != port.settings[m]["decoupled"]]
        apart = [m for m in apart if reference.settings[m]["weight_decay"] or port.settings[m]["weight_decay"]]
        if apart and (proof := _proof(reference, port, apart, "decoupled")) is not None:
            words = ["decoupled from" if s.settings[apart[0]]["decoupled"] else "added to" for s in (port, reference)]
            text = f"the port's weight decay is {words[0]} the gradient, the reference's {words[1]} it"
            yield cause_of("decay_coupled", n, "updated", text, parameters=apart, **proof)
        wrong = [
            m for m in names if not same(reference.settings[m]["weight_decay"], port.settings[m]["weight_decay"], 1e-6)
        ]
        if wrong and (proof := _proof(reference, port, wrong, "weight_decay")) is not None:
            values = [side.settings[wrong[0]]["weight_decay"] for side in (port, reference)]
            zero = 0.0 in values
            id = "decay_groups" if zero else "weight_decay"
            text = (
                f"{len(wrong)} parameters have another weight decay, {wrong[0]} {values[0]:g} in place of {values[1]:g}"
            )
            yield cause_of(id, n, "updated", text, parameters=wrong, **proof)


_WRITTEN = (Name("updated"), *(Name("updated_state", state=one) for one in ("velocity", "moment1", "moment2")))
"""What a step of an optimizer writes; at a small learning rate the weights show less than the state."""


def _proof(reference: Step, port: Step, names: Sequence[str], key: str) -> dict[str, Any] | None:
    """Evidence that this setting alone takes the reference's formula to the port's update; None where it does not.

    The learning rate is the port's: a schedule has a cause of its own.
    """
    rates = {name: {"lr": port.settings[name]["lr"]} for name in names}
    changed = {
        name: port.settings[name] if key == "decoupled" else rates[name] | {key: port.settings[name][key]}
        for name in names
    }
    for written in _WRITTEN:

        def left(settings_of: Step, given: dict[str, dict[str, Any]], written: Name = written) -> float | None:
            quantities = {name: dataclasses.replace(written, rest=name) for name in names}
            found = [recomputed(port, settings_of, quantities[name], **given.get(name, {})) for name in names]
            return max((one for one in found if one is not None), default=None)

        before, after = left(reference, rates), left(reference, changed)
        if after is None or after > 2:  # another setting differs as well: take them all
            after = left(port, {})
        if before is not None and after is not None and after <= 2 < before:
            return {"left_over_with_it": after, "left_over_without_it": before}
    return None


def half_weights(sides: Sides) -> Iterator[dict[str, Any]]:
    """Weights in half precision are updated where the reference has float32."""
    for reference, port in sides.steps():
        wrong = []
        for name in port.named("updated"):
            kinds = [
                step.dtype(f"weights.{name}") if f"weights.{name}" in step.arrays else "" for step in (reference, port)
            ]
            masters = [f"master.{name}" in step.arrays for step in (reference, port)]
            if kinds[1] in HALVES and not masters[1] and (masters[0] or kinds[0] == "float32"):
                found = recomputed(port, port, Name("updated", rest=name))
                if found is None or found <= 2:  # the formula, rounded to the half precision
                    wrong.append(name)
        if wrong:
            kind = port.dtype(f"weights.{wrong[0]}")
            text = f"the port updates {len(wrong)} weights in {kind}, where the reference updates them in float32"
            yield cause_of("half_precision_weights", reference.number, "updated", text, parameters=wrong)


def running_variance(sides: Sides) -> Iterator[dict[str, Any]]:
    """Running variances take the batch's variance as it is, where the reference corrects it by n / (n - 1)."""
    for then, now in sides.following():
        olds, news = ([step.named("buffer") for step in pair] for pair in (then, now))
        for name in news[0]:
            arrays = [side.get(name) for side in (*olds, *news)]
            if any(array is None or array.size < 4 for array in arrays) or alike(arrays[2], arrays[3]):
                continue
            theirs_before, ours_before, theirs, ours = (array.astype(np.float64) for array in arrays)  # type: ignore[union-attr]
            # ours - k ours_before = s (theirs - k theirs_before), for whatever share k of the old values is kept.
            apart = ours - theirs
            left = 1e-2 * norm({"": apart}) / (norm({"": ours}) or 1.0)
            found = fitted([ours_before, theirs, theirs_before], ours, left)
            if found is None or not 0.5 <= found[1] < 1 or not same(-found[2], found[0] * found[1], 1e-2):
                continue
            text = (
                f"{name}: the port keeps the variance of the batch, the reference that times n / (n - 1): paddle's "
                "convention (--accept bn_running_var_biased)"
            )
            yield cause_of("bn_running_var_biased", then[0].number, "buffer", text)


def skipped(sides: Sides) -> Iterator[dict[str, Any]]:
    """A gradient scaler skipped a step of the port."""
    for theirs, ours in zip(*sides.numbers, strict=False):
        if ours.get("skipped") and not theirs.get("skipped"):
            text = "the port's gradient scaler skipped this step, the reference's did not"
            yield cause_of("step_skipped", int(ours["step"]), "updated", text)
