"""Statistics of two trained models' weights, kind by kind, which show a weight decay on the wrong parameters.

Two correct trainings end in different weights. But rounding makes a tensor larger as often as smaller, while a decay on
the wrong parameters makes all tensors of one kind smaller. So each kind of tensor of each part of the model is judged
by the median of its log ratios, against the scatter between the reference and its copy that differs in the last bit.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

from twinalign.case.moved_values import OF_FLOAT32
from twinalign.files.curve_names import CURVE_PREFIX, LEARNING_RATE, REPEAT_PREFIX, WEIGHT_NORM, WEIGHTS_PREFIX
from twinalign.verdict.results import ALIGNED, DIVERGED, INCONCLUSIVE, ROUNDING, JsonFields, TensorVerdict

RMS, AXES = 2, 4
"""Places in what `stages.train.weight_statistics` gives."""
_FACTOR = 4.0
_FEWEST = 3
"""Tensors of a kind from which its middle says something."""
_SMALLEST_SHIFT = 1e-3
_SHOWN = 6
_SHORT = 60
"""Steps of a training that float64 may repeat as a whole."""
_RUNNING_MEANS = "running means"
_ALIKE = 0.25
_LARGEST_DECAY = 1.0
"""A larger weight decay is nobody's recipe: something else has made the shift."""


@dataclasses.dataclass(frozen=True)
class KindOfWeights(JsonFields):
    """Tensors of one kind in one part of the model."""

    kind: str
    names: tuple[str, ...]
    shift: float
    """Median logarithm of the port's root mean square over the reference's."""
    scatter: float
    """Root mean square of these logarithms for a copy of the reference that differs in the last bit."""
    wrong: bool
    """Whether the scatter does not explain the shift."""
    decay: float | None
    """Weight decay that would make the shift if only one side had it; None if learning rates are unknown, if tensors
    are shifted by other shares, and for running means, which do not decay."""

    def verdict(self, suffix: str = "") -> TensorVerdict:
        """A row among the tensors of the stage."""
        shown = ", ".join(self.names[:_SHOWN]) + (
            f" and {len(self.names) - _SHOWN} more" if len(self.names) > _SHOWN else ""
        )
        size = f"{100 * np.expm1(self.shift):+.2g}%"
        reason = f"median size {size} against the reference, whose own scatter is {100 * self.scatter:.2g}%"
        if self.wrong and self.decay is not None and abs(self.decay) <= _LARGEST_DECAY:
            side = "the port" if self.shift < 0 else "the reference"
            reason += f"; a weight decay of {abs(self.decay):.2g} on {side}'s side alone would explain that"
        elif self.wrong and self.kind.endswith(_RUNNING_MEANS):
            reason += "; paddle lists running statistics among the parameters: does an average of weights take them in?"
        reason += f": {shown}"
        verdict = DIVERGED if self.wrong else ALIGNED
        tensor = TensorVerdict(f"weights of {self.kind}{suffix}", verdict, reason, basis="repeat")
        tensor.size, tensor.max_rel = len(self.names), float(abs(np.expm1(self.shift)))
        tensor.noise_ratio = abs(self.shift) / self.scatter if self.scatter else None
        return tensor


def compare_weights(
    reference: Mapping[str, np.ndarray],
    port: Mapping[str, np.ndarray],
    moved: Mapping[str, np.ndarray],
    rates: np.ndarray | None = None,
) -> list[KindOfWeights]:
    """Judge the weights of two trained models, from the statistics of their tensors (`[5]`) by the reference's names.

    `moved` is of a second training of the reference, from weights that differ in the last bit; `rates` are the learning
    rates of all steps.
    """
    found = []
    for kind, names in _kinds(reference).items():
        usable = [n for n in names if all(_size(side, n) > 0 for side in (reference, port, moved))]
        if len(usable) < _FEWEST:
            continue
        logs = np.array([[np.log(_size(s, n) / _size(reference, n)) for n in usable] for s in (port, moved)])
        shift, scatter = float(np.median(logs[0])), float(np.sqrt(np.square(logs[1]).mean()))
        one_way = bool((np.sign(logs[0]) == np.sign(shift)).mean() > 0.8)
        wrong = one_way and abs(shift) > max(_FACTOR * scatter, _SMALLEST_SHIFT)
        total = float(rates.sum()) if rates is not None and np.isfinite(rates).all() else 0.0
        is_alike = float(np.median(np.abs(logs[0] - shift))) <= _ALIKE * abs(shift)  # decay shrinks all by one share
        decays = total > 0 and not kind.endswith(_RUNNING_MEANS) and is_alike
        found.append(KindOfWeights(kind, tuple(usable), shift, scatter, wrong, -shift / total if decays else None))
    return found


def judged_weights(reference: Mapping[str, np.ndarray], port: Mapping[str, np.ndarray]) -> list[KindOfWeights]:
    """The same, of the recordings of two trainings.

    A decay shows in the weights during the training, too: where these are equal, none explains the trained ones.
    """
    ours, theirs = (below(arrays, WEIGHTS_PREFIX) for arrays in (reference, port))
    moved = below(reference, REPEAT_PREFIX + WEIGHTS_PREFIX)
    sizes, others = (below(arrays, CURVE_PREFIX + WEIGHT_NORM) for arrays in (reference, port))
    last = [(sizes[name][-1], others[name][-1]) for name in sizes.keys() & others.keys() if len(sizes[name])]
    are_equal = bool(last) and all(np.isclose(own, other, rtol=OF_FLOAT32, atol=0.0) for own, other in last)
    return compare_weights(ours, theirs, moved, None if are_equal else reference.get(CURVE_PREFIX + LEARNING_RATE))


def doubt_weights(tensor: TensorVerdict, steps: int, exact_steps: int) -> None:
    """Say of weights that the port's own rounding, of which the repeat shows too little, may have shifted them.

    Float64 of all steps tells; a long training is not made in it as a whole.
    """
    if exact_steps >= steps:
        tensor.verdict = ROUNDING
        tensor.reason += "; the float64 runs agree in all steps: it is rounding that grows"
    elif steps <= _SHORT:
        tensor.verdict, tensor.parted_at = INCONCLUSIVE, steps - 1
        tensor.reason += (
            f"; float64 runs of all {steps} steps (float64_train_steps in the case) would tell rounding apart"
        )


def _size(side: Mapping[str, np.ndarray], name: str) -> float:
    value = float(side[name][RMS]) if name in side else 0.0
    return value if np.isfinite(value) else 0.0


def _kinds(reference: Mapping[str, np.ndarray]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, statistics in reference.items():
        part = name.partition(".")[0] if "." in name else "the model"
        found.setdefault(f"{part}: {_kind_of(name, int(statistics[AXES]))}", []).append(name)
    return found


def _kind_of(name: str, axes: int) -> str:
    named = {"running_mean": _RUNNING_MEANS, "bias": "biases"}
    other = "scales of normalisation layers" if axes <= 1 else "matrices and kernels"
    return named.get(name.rpartition(".")[2], other)


def below(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """The arrays under a prefix, by the rest of their names."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
