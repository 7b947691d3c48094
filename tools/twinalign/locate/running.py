"""One part of a case, ready to be run in a recorder process."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from twinalign.case import Case
from twinalign.locate.nesting import take_apart
from twinalign.stages.context import scalar_loss, step_inputs
from twinalign.stages.naming import CanonicalNames

_CHECKED = 256
"""Elements of a parameter that tell whether it has moved; an update moves them all."""


@dataclasses.dataclass
class CaseRun:
    """A case with its model and the framework that runs them."""

    case: Case
    backend: ModuleType
    framework: str
    device: str
    dtype: str
    model: Any
    canonical: CanonicalNames
    """What the tensors of this side are on the reference side."""
    weights: Mapping[str, Any]
    """What the recorder is given of this side's weights."""

    @classmethod
    def of(cls, worker: Any, stage: str, weights: Mapping[str, Any], dtype: str) -> CaseRun:
        """A fresh case and its model with the initial weights, in the mode that the case records in."""
        case = worker.fresh_case(stage)
        worker.backend.set_seed(case.seed)
        with worker.backend.default_dtype(dtype):
            model = worker.build_model(case, stage, dtype, weights)
        worker.backend.set_training(model, case.train_mode)
        names = CanonicalNames.of(weights)
        return cls(case, worker.backend, worker.framework, worker.device, dtype, model, names, weights)

    def reset(self, worker: Any) -> None:
        """Give the model its initial weights again."""
        worker.restore_weights(self.model, self.weights)

    def inputs(self) -> dict[str, Any]:
        """The case's inputs of the first step, as tensors."""
        return {
            name: self.backend.to_tensor(array, self.dtype, self.device)
            for name, array in step_inputs(self.case).items()
        }

    def total_loss(self, outputs: Any, inputs: Mapping[str, Any]) -> Any:
        """What is differentiated: the case's loss, or what stands in for it."""
        if type(self.case).loss is Case.loss:
            return self.stand_in_loss(outputs)
        return scalar_loss(self.case.loss(outputs, inputs, self.framework))

    def stand_in_loss(self, outputs: Any) -> Any:
        """For a case without a loss: what the model returns, weighted at random; None where nothing can learn."""
        total = None
        for number, tensor in enumerate(take_apart(outputs, self.backend.is_tensor)[0]):
            if self.backend.differentiable(tensor):
                weights = np.random.default_rng([self.case.seed, number]).standard_normal(tuple(tensor.shape))
                term = (
                    tensor * self.backend.to_tensor(weights / max(1, weights.size) ** 0.5, self.dtype, self.device)
                ).sum()
                total = term if total is None else total + term
        return total


def checksum(tensor: Any) -> float:
    """A number that changes when a tensor is moved, from some of its elements; -1 for NaN, which equals nothing.

    What a framework counts as changes in place leaves out those that are made behind its back (`parameter.data`).
    """
    flat = tensor.detach().flatten()
    total = float(flat[:: max(1, flat.shape[0] // _CHECKED)].sum())
    return total if total == total else -1.0


@contextlib.contextmanager
def in_evaluation_mode(layer: Any) -> Iterator[None]:
    """Let this one layer evaluate inside the block."""
    layer.training = False
    try:
        yield
    finally:
        layer.training = True
