"""Signs of fabrication between the arrays of one side: its steps, gradients, optimizer's state and stages disagree.

What is made up beside honest arrays has to fit them: a step moves the parameters, an optimizer's state comes from the
gradients of the step, and two stages that compute the same from the same inputs give the same.
"""

import re
from collections.abc import Iterator, Mapping

import numpy as np

from twinalign.bundle.case_source import CaseSource
from twinalign.bundle.contents import Contents
from twinalign.bundle.fabrication_in_metadata import CONTRADICTION, Sign
from twinalign.bundle.layout import recording_member
from twinalign.files.recordings import PROJECTIONS_SUFFIX
from twinalign.verdict.precisions import EPSILONS
from twinalign.verdict.stage_recordings import StageRecordings

_OF_STEP = re.compile(r"step(\d{1,6})\.(gradient|parameter|loss|learning_rate|[^.]+)(?:\.(.+))?")
_SQUARES = re.compile(r"\.moment2\.(?!.*\(projections\)$)|running_var$")
_FEW = 16
"""So few numbers are a sum of others by chance."""
_HEAD = 256
"""Elements that stand for the whole."""
_ALIKE, _UNLIKE = 1e-4, 1e-3
"""What is left of a state that is a sum of known terms, and of one that is not, as a share of it."""
_MOSTLY = 0.75
_CLIPPED = 0.05
"""Share of elements that have the greatest magnitude only where gradients were clipped."""
_SAME, _NEARLY = 5e-4, 0.125
"""Relative distance that rounding leaves at most between two calls of one model, in float64 and where it has none."""
_MOVED = 64
"""Units in the last place by which a step must move a parameter before one that moves none is odd."""

Arrays = Mapping[str, np.ndarray]
Kept = dict[tuple[str, str, str, str], dict[str, np.ndarray]]
"""Part of the case, side, precision and hash of the inputs -> name in the backward stage -> value in another stage."""


def signs_in_steps(recordings: StageRecordings) -> Iterator[Sign]:
    """Contradictions within the recordings of the backward stage."""
    for one in recordings.of_ranks() if recordings.ranks > 1 else [recordings]:
        for (side, dtype), recording in one.by_key.items():
            steps = _by_step(recording.arrays)
            texts = [*_unmoved(steps, dtype), *_states_of_other_gradients(steps), *_negative(recording.arrays)]
            yield from (Sign(CONTRADICTION, recording_member(side, "backward", dtype), text) for text in texts)


def signs_between_stages(stage: str, recordings: StageRecordings, contents: Contents, kept: Kept) -> Iterator[Sign]:
    """What the backward stage gives otherwise than forward or loss did; `kept` is filled by their turns."""
    if stage not in ("forward", "loss", "backward") or recordings.ranks > 1:
        return
    for (side, dtype), recording in recordings.by_key.items():
        inputs = recording.metadata.get("inputs_sha256", {}).get("0")
        rounded = dtype != "float64" and (side, "float64") in recordings.by_key
        if recording.metadata.get("draws") or inputs is None or rounded:
            continue
        values = kept.setdefault((contents.part_of(stage), side, dtype, inputs), {})
        if stage == "forward" and any(name.startswith("buffer.") for name in recording.arrays):
            values |= {} if _observes(contents) else _renamed(recording.arrays, "buffer.", "step0.buffer.")
        elif stage == "loss":
            values |= _renamed(recording.arrays, "", "step0.loss.")
        elif stage == "backward":
            for name in _differing(values, recording.arrays, _SAME if dtype == "float64" else _NEARLY):
                text = f"{name} is not what an earlier stage computed from the same inputs"
                yield Sign(CONTRADICTION, recording_member(side, stage, dtype), text)
                break


def _renamed(arrays: Arrays, prefix: str, other: str) -> dict[str, np.ndarray]:
    found = {name: array for name, array in arrays.items() if name.startswith(prefix) and array.dtype.kind == "f"}
    return {other + name.removeprefix(prefix): array.copy() for name, array in found.items()}


def _observes(contents: Contents) -> bool:
    """Whether the case's forward stage calls the model otherwise than its steps do."""
    source = CaseSource(map(contents.archive.read, contents.manifest["source"]), ("observe",))
    return source.unread or source.defines("observe")


def _differing(values: Arrays, arrays: Arrays, most: float) -> Iterator[str]:
    # A schedule that sets more than the rate, a temperature say, may do so before the first step.
    scheduled = any(
        match[3] is None and match[2] not in ("loss", "learning_rate")
        for match in map(_OF_STEP.fullmatch, arrays)
        if match
    )
    for name, value in values.items():
        name = "step0.loss" if name == "step0.loss.loss" and name not in arrays else name
        other = arrays.get(name)
        if other is None or other.shape != value.shape or (scheduled and name.startswith("step0.loss")):
            continue
        with np.errstate(all="ignore"):
            apart, size = (np.linalg.norm(part.ravel().astype(np.float64)) for part in (other - value, value))
        if np.isfinite(apart) and apart > most * size:
            yield name


def _by_step(arrays: Arrays) -> dict[int, dict[str, dict[str, np.ndarray]]]:
    """Step -> quantity -> name of the tensor, empty for a quantity that is one, -> array; without projections."""
    found: dict[int, dict[str, dict[str, np.ndarray]]] = {}
    for name, array in arrays.items():
        match = _OF_STEP.fullmatch(name)
        if match and array.dtype.kind == "f" and not name.endswith(PROJECTIONS_SUFFIX):
            found.setdefault(int(match[1]), {}).setdefault(match[2], {})[match[3] or ""] = array
    return dict(sorted(found.items()))


def _unmoved(steps: Mapping[int, Mapping[str, Arrays]], dtype: str) -> Iterator[str]:
    """A step with gradients and a rate, after which every parameter is what it was before."""
    before: Arrays = {}
    for step, named in steps.items():
        parameters = named.get("parameter", {})
        rate = float(np.max(np.abs(named.get("learning_rate", {}).get("", np.zeros(1))), initial=0.0))
        expected = False
        for name, gradient in named.get("gradient", {}).items():
            own, old = parameters.get(name), before.get(name)
            if own is None or old is None or own.shape != old.shape or not own.size:
                continue
            if not np.array_equal(own, old, equal_nan=True):
                break
            size = float(np.abs(own).max())
            expected |= rate * min(1.0, float(np.abs(gradient).max(initial=0.0))) > _MOVED * EPSILONS[dtype] * size
        else:
            if expected:
                yield f"step {step} has gradients and the learning rate {rate:g}, and moves no parameter"
                return
        before = parameters


def _states_of_other_gradients(steps: Mapping[int, Mapping[str, Arrays]]) -> Iterator[str]:
    """State of an optimizer that does not come from the gradients, where that of the other tensors and steps does.

    Averages of gradients, or of their squares, are sums of the gradient, the state before and, with coupled decay, the
    parameter. Where most of them are not after the first step, the optimizer is of another kind.
    """
    linear: dict[str, set[str]] = {}
    before: Mapping[str, Arrays] = {}
    for step, named in steps.items():
        gradients, parameters = named.get("gradient", {}), named.get("parameter", {})
        for quantity in named.keys() - {"gradient", "parameter", "buffer", "loss"}:
            left = {
                name: _unexplained(
                    named[quantity][name], gradient, before.get(quantity, {}).get(name), parameters[name]
                )
                for name, gradient in gradients.items()
                if name in named[quantity] and name in parameters
            }
            known = {name: share for name, share in left.items() if share is not None}
            if not before:
                vanished = not any(gradient.any() for gradient in gradients.values())
                alike = {name for name, share in known.items() if share < _ALIKE}
                linear[quantity] = set(known) if vanished or len(alike) >= _MOSTLY * len(known) else set()
            for name in known:
                if known[name] > _UNLIKE and name in linear.get(quantity, ()):
                    yield f"the optimizer's {quantity} of {name} does not come from the gradient of step {step}"
                    return
        before = named


def _unexplained(
    state: np.ndarray, gradient: np.ndarray, before: np.ndarray | None, parameter: np.ndarray
) -> float | None:
    """What is left of a state that a sum of the others should give, as a share of it; None where nothing can be said.

    That is the median of some elements, of which the worst quarter does not count: they may have been clipped.
    """
    terms = [gradient, parameter] if before is None else [gradient, parameter, before]
    if any(term.shape != state.shape for term in terms):
        return None
    head = [part.reshape(-1)[:_HEAD].astype(np.float64) for part in (state, *terms)]
    taken = np.isfinite(head).all(axis=0)
    if head[1].any():  # an optimizer may leave alone what has no gradient
        taken &= head[1] != 0
    values, first, *others = (part[taken] for part in head)
    greatest = np.abs(values).max(initial=0.0)
    if values.size < _FEW or not greatest or np.count_nonzero(np.abs(values) == greatest) > _CLIPPED * values.size:
        return None
    return min(_left(values, [power, *others]) for power in (first, first * first)) / float(greatest)


def _left(values: np.ndarray, terms: list[np.ndarray]) -> float:
    columns = np.stack([term / (np.abs(term).max(initial=0.0) or 1.0) for term in terms], axis=1)
    kept = np.arange(values.size)
    apart = np.abs(values)
    for share in (0.75, 0.75):
        solution = np.linalg.lstsq(columns[kept], values[kept], rcond=None)[0]
        apart = np.abs(columns @ solution - values)
        kept = np.argsort(apart)[: max(len(terms) + 1, int(share * values.size))]
    return float(np.median(apart))


def _negative(arrays: Arrays) -> Iterator[str]:
    for name, array in arrays.items():
        if _SQUARES.search(name) and array.dtype.kind == "f" and array.min(initial=0.0) < 0:
            yield f"{name} is an average of squares, and below zero"
            return
