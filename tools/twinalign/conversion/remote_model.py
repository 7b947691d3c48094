"""The parent's ends of the models that run in their sides' processes, and the comparison of two such runs."""

import contextlib
import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.conversion.fingerprints import agree, fingerprint
from twinalign.conversion.linear_parts import Rows
from twinalign.conversion.model_factory import FactoryModel
from twinalign.conversion.options import Options
from twinalign.conversion.separate_biases import Biases
from twinalign.conversion.trial_model import describe_model, run_model
from twinalign.errors import SideCrashError
from twinalign.processes.guardian import temporary_folder
from twinalign.processes.side_process import ChildError, SideProcess


class RemoteModel:
    """The model of one side. Requests and answers are separate calls, so that both sides can work at the same time."""

    def __init__(self, side: str, process: SideProcess, folder: Path, name: str, **which: Any) -> None:
        """Arrays are exchanged in `folder`; messages show `name`; `which` is passed to the process's `trial_model`."""
        self._side, self._process, self._folder, self._name, self._which = side, process, folder, name, which
        self._files = 0
        self.versions: dict[str, int] = {}
        """Path of a layer → version of its part of the state dict, known once the layout is."""

    def ask_layout(self) -> None:
        self._ask(describe_model)

    def layout(self) -> list[dict[str, Any]]:
        answer = self._answer()
        self.versions = answer["versions"]
        found: list[dict[str, Any]] = answer["layout"]
        return found

    def ask_run(self, inputs: Path, **request: Any) -> None:
        """Request a run on arrays that `save` wrote; `request` has `weights` or `colours`, see `TrialModel.run`."""
        self._ask(run_model, inputs=str(inputs), outputs=str(self._outputs), **request)

    def run(self) -> tuple[list[dict[str, Any]], list[np.ndarray]]:
        """The calls of the requested run, and what the model returned."""
        calls: list[dict[str, Any]] = self._answer()["calls"]
        with np.load(self._outputs, allow_pickle=False) as arrays:
            return calls, list(arrays.values())

    def save(self, arrays: Mapping[str, np.ndarray]) -> Path:
        """Write arrays for the child; bfloat16 is written as float32, which holds it exactly."""
        self._files += 1
        path = self._folder / f"{self._side}{self._files}.npz"
        np.savez(
            path,
            allow_pickle=False,
            **{k: v.astype(np.float32) if v.dtype.name == "bfloat16" else v for k, v in arrays.items()},
        )
        return path

    @property
    def _outputs(self) -> Path:
        return self._folder / f"outputs_{self._side}.npz"

    def _ask(self, function: Callable[..., dict[str, Any]], **values: Any) -> None:
        with self._named():
            self._process.send(function, **values, **self._which)

    def _answer(self) -> dict[str, Any]:
        with self._named():
            return self._process.answer()

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except ChildError as error:
            model = f"the {self._side} model {self._name}"
            said = f"the process of {model} ended {error.reason}" if error.died else f"{model} failed: {error.reason}"
            raise SideCrashError(said) from None


RememberedRuns = dict[str, tuple[list[dict[str, Any]], list[np.ndarray]]]
"""What runs gave, by a hash of the inputs and of what was asked for."""


class RememberedModel(RemoteModel):
    """A model that has not changed since its `known` runs, which are not run again."""

    def __init__(self, known: RememberedRuns, side: str, process: SideProcess, folder: Path, name: str, **which: Any):
        """`known` is filled with what is run."""
        super().__init__(side, process, folder, name, **which)
        self._known = known
        self._key = ""

    def ask_run(self, inputs: Path, **request: Any) -> None:
        asked = hashlib.sha256(inputs.read_bytes())
        if request.get("weights"):
            asked.update(Path(request["weights"]).read_bytes())
        asked.update(json.dumps({**request, "weights": None}, sort_keys=True, default=list).encode())
        self._key = asked.hexdigest()
        if self._key not in self._known:
            super().ask_run(inputs, **request)

    def run(self) -> tuple[list[dict[str, Any]], list[np.ndarray]]:
        if self._key not in self._known:
            self._known[self._key] = super().run()
        return self._known[self._key]


@contextlib.contextmanager
def started_models(options: Options) -> Iterator[dict[str, RemoteModel]]:
    """Side → the model that its factory makes, in a process that lives inside the block; its layout is requested."""
    with contextlib.ExitStack() as held:
        folder = held.enter_context(temporary_folder("twinalign-convert-"))
        processes = {
            side: held.enter_context(SideProcess(side, python=options.pythons.get(side))) for side in options.factories
        }
        models = {}
        for side, factory in options.factories.items():
            processes[side].start(FactoryModel, factory=factory, rules=list(options.rules))
            models[side] = RemoteModel(side, processes[side], folder, factory)
            models[side].ask_layout()
        yield models


@dataclasses.dataclass
class Run:
    """The layer calls and the outputs of one run of one model."""

    calls: list[dict[str, Any]]
    outputs: list[np.ndarray]

    def seen_by(self, path: str, what: str = "inputs", number: int | None = None) -> list[dict[str, Any]]:
        """Fingerprints of the `inputs`, or the `outputs`, of all calls of the layer; `number`: of that one alone."""
        which = slice(None) if number is None else slice(number, number + 1)
        return [tensor for call in self.calls if call["path"] == path for tensor in call[what][which]]


class BothModels:
    """Runs both models on one input at the same time."""

    def __init__(self, reference: RemoteModel, paddle: RemoteModel, inputs: Mapping[str, np.ndarray]) -> None:
        """`inputs` are given to both models by position; floating-point ones in float64.

        `rows` says which layers of either side are coloured in parts, `biases` which with a parameter beside them,
        `turned` whether a matrix of one model may be the transpose of the other's, `positive` whether the models' own
        tensors are made without negative numbers.
        """
        self.models = (reference, paddle)
        self.rows: tuple[Rows, Rows] = ({}, {})
        self.biases: tuple[Biases, Biases] = ({}, {})
        self.turned = self.positive = False
        self._inputs = reference.save(inputs)
        self.shapes = [tuple(array.shape) for array in inputs.values()]

    def run(self, requests: Sequence[Mapping[str, Any]]) -> tuple[Run, Run]:
        """Run both models; a request has `colours` or `weights`.

        Where weights made from colours lead to what is no number, everything behind that looks alike: the models' own
        tensors, among which a variance may be, then lose their signs in this and all later runs.
        """
        found = self._run(requests)
        if self.positive or any("weights" in request for request in requests) or not _no_number(found[0]):
            return found
        self.positive = True
        again = self._run(requests)
        self.positive = not _no_number(again[0])
        return again if self.positive else found

    def _run(self, requests: Sequence[Mapping[str, Any]]) -> tuple[Run, Run]:
        for side, (model, request) in enumerate(zip(self.models, requests, strict=True)):
            model.ask_run(self._inputs, **self._how(side), **request)
        found, errors = [], []
        for model in self.models:  # both answers are read, so that the next request gets its own
            try:
                found.append(Run(*model.run()))
            except SideCrashError as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return found[0], found[1]

    def run_paddle(self, request: Mapping[str, Any]) -> Run:
        """Run the paddle model alone."""
        self.models[1].ask_run(self._inputs, **self._how(1), **request)
        return Run(*self.models[1].run())

    def _how(self, side: int) -> dict[str, Any]:
        return {
            "rows": self.rows[side],
            "biases": self.biases[side],
            "turned": self.turned,
            "positive": self.positive,
        }


def _no_number(run: Run) -> bool:
    """Whether a layer is given or returns what is no number; infinity, as in a mask, is one."""
    tensors = (tensor for call in run.calls for what in ("inputs", "outputs") for tensor in call[what])
    return any(math.isnan(tensor["scale"]) for tensor in tensors)


def outputs_agree(runs: tuple[Run, Run]) -> bool:
    """Whether the outputs of both models agree; one side may return more (auxiliary heads)."""
    pairs = list(zip(runs[0].outputs, runs[1].outputs, strict=False))
    return bool(pairs) and all(agree(fingerprint(a), fingerprint(b)) for a, b in pairs)


def relative_differences(runs: tuple[Run, Run]) -> list[float]:
    """Largest difference over largest magnitude, for each output that both return; inf if shapes differ."""
    found = []
    for mine, other in zip(runs[0].outputs, runs[1].outputs, strict=False):
        if mine.shape != other.shape or not np.array_equal(np.isfinite(mine), np.isfinite(other)):
            found.append(float("inf"))
            continue
        scale = float(np.abs(mine).max(initial=0.0))
        found.append(float(np.abs(mine - other).max(initial=0.0)) / (scale or 1.0))
    return found
