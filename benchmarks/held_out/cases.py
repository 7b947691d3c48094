"""The cases of `benchmarks/held_out_faults.py`, whose ports are read anew from the folder `HELD_OUT_PORTS`."""

import hashlib
import importlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from twinalign import Case


def _port(name: str) -> Any:
    """The module of a port as its file now reads."""
    file = Path(os.environ["HELD_OUT_PORTS"]) / f"{name}_port.py"
    module = f"{name}_port_{hashlib.sha256(file.read_bytes()).hexdigest()[:16]}"
    if module not in sys.modules:
        spec = importlib.util.spec_from_file_location(module, file)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[module] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[module])
    return sys.modules[module]


class _Pair(Case):
    name = ""
    classes = 3

    def reference(self) -> Any:
        return importlib.import_module(f"{self.name}_source").Net()

    def reproduced(self) -> Any:
        return _port(self.name).Net()

    def loss(self, outputs: Any, inputs: Any, framework: str) -> Any:
        module = importlib.import_module(f"{self.name}_source") if framework == "torch" else _port(self.name)
        return module.loss(outputs, inputs)

    def optimizer(self, parameters: Any, framework: str) -> Any:
        if framework == "torch":
            import torch

            return torch.optim.SGD(parameters, lr=0.1)
        import paddle

        return paddle.optimizer.SGD(0.1, parameters=parameters)


class Encoder(_Pair):
    name = "encoder"

    def forward(self, model: Any, inputs: Any, framework: str) -> Any:
        return model(inputs["x"], inputs["valid"])

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        valid = np.ones((3, 6), np.float32)
        valid[1, 4:] = 0.0
        valid[2, 5:] = 0.0
        x = rng.standard_normal((3, 6, 6)).astype(np.float32)
        return {"x": x, "valid": valid, "labels": rng.integers(0, 5, 3)}


class Pyramid(_Pair):
    name = "pyramid"

    def forward(self, model: Any, inputs: Any, framework: str) -> Any:
        return model(inputs["x"])

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        x = rng.standard_normal((3, 3, 8, 8)).astype(np.float32)
        return {"x": x, "labels": rng.integers(0, 4, 3)}


class Graph(_Pair):
    name = "graph"

    def forward(self, model: Any, inputs: Any, framework: str) -> Any:
        return model(inputs["x"], inputs["edges"])

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {
            "x": rng.standard_normal((4, 5, 4)).astype(np.float32),
            "edges": (rng.random((4, 5, 5)) < 0.5).astype(np.float32),
            "labels": np.array([0, 1, 0, 1]),
            "wanted": rng.standard_normal((4, 3)).astype(np.float32),
        }


class Window(_Pair):
    name = "window"

    def forward(self, model: Any, inputs: Any, framework: str) -> Any:
        return model(inputs["x"])

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((3, 3, 16, 16)).astype(np.float32), "labels": rng.integers(0, 4, 3)}


class Decoder(_Pair):
    name = "decoder"

    def forward(self, model: Any, inputs: Any, framework: str) -> Any:
        return model(inputs["tokens"], inputs["valid"])

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        valid = np.ones((3, 6), np.int64)
        valid[1, :2] = 0
        valid[2, 5:] = 0
        teacher = rng.standard_normal((3, 6, 11)).astype(np.float32)
        return {"tokens": rng.integers(0, 11, (3, 6)), "valid": valid, "teacher": teacher}


class Series(_Pair):
    name = "series"

    def forward(self, model: Any, inputs: Any, framework: str) -> Any:
        return model(inputs["x"], inputs["parts"], inputs["lengths"])

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {
            "x": rng.standard_normal((3, 3, 7)).astype(np.float32),
            "parts": np.sort(rng.integers(0, 3, (3, 7)), 1),
            "lengths": np.array([7, 4, 5]),
            "wanted": rng.standard_normal(3).astype(np.float32),
        }
