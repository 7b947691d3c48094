"""Statistics of two trained models' weights, kind by kind: what decays that should not, or does not and should.

Two right trainings end in other weights. But what rounding does to the size of a tensor goes up as often as down,
while a decay that reaches the wrong parameters makes all of one kind smaller. So each kind of tensor of each part of
the model is judged by the middle of its log ratios, against the scatter of the reference's against its moved copy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from twinalign.verdict.results import ALIGNED, DIVERGED, TensorVerdict, plain

RMS, AXES = 2, 4
"""Places in what `stages.train.weight_statistics` gives."""
_FACTOR = 4.0
_FEWEST = 3
"""Tensors of a kind from which its middle says something."""
_SMALLEST_SHIFT = 1e-3
_SHOWN = 6


@dataclasses.dataclass(frozen=True)
class KindOfWeights:
    """Tensors of one kind in one part of the model.

    Attributes:
        kind: what they are.
        names: of the tensors.
        shift: middle of the logarithms of the port's root mean square over the reference's.
        scatter: root mean square of the same logarithms of the reference's moved copy.
        wrong: whether the shift is beyond what the scatter explains.
        decay: weight decay that, on one side only, would make the shift; None where no learning rates are known.
    """

    kind: str
    names: tuple[str, ...]
    shift: float
    scatter: float
    wrong: bool
    decay: float | None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {field.name: plain(getattr(self, field.name)) for field in dataclasses.fields(self)}

    def verdict(self) -> TensorVerdict:
        """As a row among the tensors of the stage."""
        shown = ", ".join(self.names[:_SHOWN]) + (
            f" and {len(self.names) - _SHOWN} more" if len(self.names) > _SHOWN else ""
        )
        size = f"{100 * np.expm1(self.shift):+.2g}%"
        reason = f"in the middle {size} of the reference's size, whose own scatter is {100 * self.scatter:.2g}%"
        if self.wrong and self.decay is not None:
            side = "the port" if self.shift < 0 else "the reference"
            reason += f"; a weight decay of {abs(self.decay):.2g} on {side}'s side alone would do that"
        reason += f": {shown}"
        tensor = TensorVerdict(f"weights of {self.kind}", DIVERGED if self.wrong else ALIGNED, reason, basis="repeat")
        tensor.size, tensor.max_rel = len(self.names), float(abs(np.expm1(self.shift)))
        tensor.noise_ratio = abs(self.shift) / self.scatter if self.scatter else None
        return tensor


def compare_weights(
    reference: Mapping[str, np.ndarray],
    port: Mapping[str, np.ndarray],
    moved: Mapping[str, np.ndarray],
    rates: np.ndarray | None = None,
) -> list[KindOfWeights]:
    """Judge the weights of two trained models.

    Args:
        reference: name → statistics of the reference's tensors, `[5]` each.
        port: likewise, under the reference's names.
        moved: of the reference trained once more, moved a little.
        rates: the learning rate of every step.
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
        found.append(KindOfWeights(kind, tuple(usable), shift, scatter, wrong, -shift / total if total > 0 else None))
    return found


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
    named = {"running_mean": "running means", "bias": "biases"}
    other = "scales of normalisation layers" if axes <= 1 else "matrices and kernels"
    return named.get(name.rpartition(".")[2], other)
