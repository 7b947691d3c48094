"""The cases in whose ports `benchmarks/fix_faults.py` plants faults."""

import importlib
from typing import Any

import numpy as np

from twinalign import Case


class _Pair(Case):
    """A source and a port that are two modules beside this file."""

    train_mode = True
    accept = ("bn_running_var_biased",)

    def _module(self, framework: str) -> Any:
        side = "source" if framework == "torch" else "port"
        return importlib.import_module(f"{self.name}_{side}")

    def reference(self) -> Any:
        return self._module("torch").Net()

    def reproduced(self) -> Any:
        return self._module("paddle").Net()

    def forward(self, model: Any, inputs: Any, framework: str) -> Any:
        return model(inputs["x"])

    def loss(self, outputs: Any, inputs: Any, framework: str) -> Any:
        return self._module(framework).loss(outputs, inputs["labels"])

    def optimizer(self, parameters: Any, framework: str) -> Any:
        return self._module(framework).optimizer(parameters)


class Blocks(_Pair):
    name = "blocks"

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        images = rng.standard_normal((4, 3, 17, 17)).astype(np.float32)
        return {"x": images, "labels": rng.integers(0, 10, 4)}


class Recipe(_Pair):
    name = "recipe"
    float64_train_steps = 6
    initial = True

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        images = rng.standard_normal((4, 3, 12, 12)).astype(np.float32)
        return {"x": images, "labels": rng.integers(0, 5, 4)}

    def schedule(self, optimizer: Any, step: int, framework: str) -> None:
        self._module(framework).schedule(optimizer, step)

    def dataset(self, framework: str, split: str) -> Any:
        return self._module(framework).Pictures(split)

    def metric(self, outputs: Any, labels: np.ndarray, framework: str) -> Any:
        return self._module(framework).accuracy(outputs, labels)

    def train(self, framework: str, model: Any, record: Any, steps: int | None = None) -> Any:
        return self._module(framework).train(model, record, steps)
