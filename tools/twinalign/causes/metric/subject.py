"""The reference's metric under examination: what it is given, what it does and what it returns, changed."""

import contextlib
import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from twinalign.backends.torch.reference_only.operations import FunctionCall
from twinalign.causes.component import Component, explain, is_refuted
from twinalign.patching import replaced
from twinalign.replay.evaluation_calls import KeptResults, rows_of
from twinalign.replay.layer_calls import wrapped
from twinalign.replay.metric import (
    PART,
    STAGE,
    floor_of,
    numbers_of,
    outputs_and_labels,
    parts,
    sorted_outputs,
    varied_model,
)
from twinalign.replay.nested_tensors import put_together, take_apart
from twinalign.replay.wrong_unit import rewriting

Numbers = dict[str, np.ndarray]
Handler = Callable[[FunctionCall], Any]


class MetricSubject(Component):
    """What causes in a metric are asked about.

    Attributes:
        port, reference, floors: name → number, or array of an evaluation as a whole.
        outputs, labels: what the metric is given; None and empty for an evaluation as a whole.
        take: chooses rows, and changes outputs and labels.
        handle: stands between the metric and torch's functions.
        finish: changes the numbers.
        groups: makes groups of rows, which are measured each by itself and averaged.
        training: whether the model evaluates in training mode.
    """

    def __init__(self, worker: Any, weights: Mapping[str, Any], reference: str, port: str) -> None:
        self.worker, self.backend = worker, worker.backend
        self.case = worker.fresh_case(STAGE)
        self.reference: Numbers = {}
        self.port: Numbers = {}
        self.labels = np.zeros(0, dtype=np.int64)
        for numbers, path in ((self.reference, reference), (self.port, port)):
            with np.load(path, allow_pickle=False) as stored:
                numbers.update({k.removeprefix("result."): stored[k] for k in stored if k.startswith("result.")})
                if numbers is self.reference:
                    self._given = [stored[key] for key in sorted_outputs(stored)]
                    self.labels = stored["labels"] if "labels" in stored else self.labels  # noqa: SIM401
        self.floors = {name: floor_of(number) for name, number in self.reference.items()}
        self.outputs = self._given or None
        self.take: Callable[[list[np.ndarray], np.ndarray], tuple[list[np.ndarray], np.ndarray]] | None = None
        self.handle: Handler | None = None
        self.finish: Callable[[Numbers], Numbers] = lambda numbers: numbers
        self.groups: Callable[[np.ndarray], list[np.ndarray]] | None = None
        self.training = False
        self._weights = weights
        self._results = KeptResults(self.backend)

    def run(self, whole: bool = True) -> Numbers:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.backend.default_dtype("float64"))
            stack.enter_context(self.backend.no_grad())
            if self.handle is not None:
                stack.enter_context(rewriting().intercepting(None, self.handle))
            if self.outputs is not None:
                return self.finish(self._measured())
            return self._evaluations() if whole else self.finish(self._evaluated(None))

    once = functools.partialmethod(run, whole=False)

    def _measured(self) -> Numbers:
        found = self._of_rows(*[np.arange(len(self.labels))] * 2)
        for number, rows in enumerate(parts(len(self.labels))):
            own = {name for name in self.port if name.endswith(f"{PART}{number}")}
            if own:
                found |= {f"{name}{PART}{number}": value for name, value in self._of_rows(*rows).items()}
        return found

    def _of_rows(self, rows: np.ndarray, of_labels: np.ndarray) -> Numbers:
        outputs, labels = [rows_of(o, rows, len(self.labels)) for o in self._given], self.labels[of_labels]
        if self.take:
            outputs, labels = self.take(outputs, labels)
        if self.groups is None:
            return self._metric(outputs, labels)
        chosen = [([rows_of(o, rows, len(labels)) for o in outputs], labels[rows]) for rows in self.groups(labels)]
        found = [self._metric(*given) for given in chosen]
        return {name: np.mean([numbers[name] for numbers in found], axis=0) for name in found[0]}

    def _metric(self, outputs: list[np.ndarray], labels: np.ndarray) -> Numbers:
        tensors = [
            self.backend.to_tensor(np.ascontiguousarray(array), "float64", self.worker.device) for array in outputs
        ]
        given = self._skeleton(tensors)
        return numbers_of(self.backend, self.worker.fresh_case(STAGE).metric(given, labels, "torch"))

    def _skeleton(self, tensors: list[Any]) -> Any:
        """The outputs in the form in which the model returns them."""
        if len(tensors) == 1:
            return tensors[0]
        outputs, _ = outputs_and_labels(self.worker, self.case, self._built())
        return put_together(take_apart(outputs, self.backend.is_tensor)[1], tensors)

    def _built(self, variation: int | None = None) -> Any:
        if variation is not None:
            return varied_model(self.worker, self.case, self._weights, variation)
        model = self.worker.build_model(self.case, STAGE, "float64", self._weights)
        self.backend.set_training(model, False)
        return model

    def _evaluations(self) -> Numbers:
        found = self.finish(self._evaluated(None))
        known = {name.partition(PART)[2] for name in self.port} - {""}
        for number in sorted(int(text) for text in known):
            if self.impatient and is_refuted(self, found):
                break
            numbers = self.finish(self._evaluated(number))
            found |= {f"{name}{PART}{number}": value for name, value in numbers.items()}
        return found

    def _evaluated(self, variation: int | None) -> Numbers:
        """The evaluation; unless the model itself is changed, its layers return what they did for the same inputs."""
        model = self._built(variation)
        case = self.worker.fresh_case(STAGE)
        if self.training:
            self.backend.set_training(model, True)
            with replaced(model, "eval", lambda: model), replaced(model, "train", lambda mode=True: model):
                return numbers_of(self.backend, case.evaluate(model, "torch", "float64"))
        children = [(path, layer) for path, layer in self.backend.named_layers(model) if path and "." not in path]
        with wrapped(children, self._results.of_run(variation)):
            return numbers_of(self.backend, case.evaluate(model, "torch", "float64"))

    @property
    def lone(self) -> list[str]:
        """Names of the results that are single numbers."""
        return [name for name, number in self.reference.items() if number.ndim == 0 and PART not in name]


def explain_metric(worker: Any, weights: Mapping[str, Any], reference: str, port: str) -> dict[str, Any]:
    """Why the port's numbers differ from the reference's, from files of `record_metric`."""
    return explain(MetricSubject(worker, weights, reference, port), "metric")
