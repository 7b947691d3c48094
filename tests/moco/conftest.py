"""Both twins behind one face: numpy in and out, state in the reference's names and layouts."""

from __future__ import annotations

import importlib
import importlib.util
import json
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import paddle
import pytest
import torch
from PIL import Image

GOLDEN = Path(__file__).resolve().parent.parent / "golden"


def load(name: str) -> Any:
    # In importlib mode a file beside this one is no module that one can import by name.
    spec = importlib.util.spec_from_file_location(f"moco_{name}", Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Twin:
    """One of the two packages."""

    def __init__(self, package: str) -> None:
        self.package = package
        self.is_torch = package == "moco_ref"

    def __repr__(self) -> str:
        return self.package

    def module(self, name: str) -> ModuleType:
        return importlib.import_module(f"{self.package}.{name}")

    def simulate_ranks(self, count: int, function: Callable[[int], Any]) -> list[Any]:
        """What `function(rank)` returns for each of so many ranks, threads of this process."""
        return load("simulated_ranks").simulate_ranks(self.module("distributed"), count, function)

    def seed(self, seed: int) -> None:
        torch.manual_seed(seed) if self.is_torch else paddle.seed(seed)

    def tensor(self, array: Any) -> Any:
        array = np.array(array)
        return torch.from_numpy(array) if self.is_torch else paddle.to_tensor(array)

    def parameter(self, array: np.ndarray) -> Any:
        if self.is_torch:
            return torch.nn.Parameter(torch.from_numpy(array.copy()))
        parameter = paddle.create_parameter(list(array.shape), dtype=str(array.dtype))
        parameter.set_value(array)
        return parameter

    def array(self, tensor: Any) -> np.ndarray:
        return tensor.detach().numpy()

    def to(self, model: Any, dtype: str) -> Any:
        model.to(getattr(torch, dtype)) if self.is_torch else model.to(dtype=dtype)
        return model

    def to_dtype(self, tensor: Any, dtype: str) -> Any:
        return tensor.to(getattr(torch, dtype)) if self.is_torch else tensor.astype(dtype)

    def clear_gradients(self, optimizer: Any) -> None:
        optimizer.zero_grad() if self.is_torch else optimizer.clear_grad(set_to_zero=False)

    def without_gradients(self) -> Any:
        return torch.no_grad() if self.is_torch else paddle.no_grad()

    def is_trainable(self, parameter: Any) -> bool:
        return parameter.requires_grad if self.is_torch else not parameter.stop_gradient

    def reference_name(self, key: str) -> str:
        prefix, _, name = key.rpartition(".")
        name = name if self.is_torch else {"_mean": "running_mean", "_variance": "running_var"}.get(name, name)
        return f"{prefix}.{name}" if prefix else name

    def transposed(self, model: Any) -> set[str]:
        """The keys whose arrays this twin stores transposed."""
        if self.is_torch:
            return set()
        return {f"{n}.weight" for n, layer in model.named_sublayers() if isinstance(layer, paddle.nn.Linear)}

    def state(self, model: Any) -> dict[str, np.ndarray]:
        transposed = self.transposed(model)
        return {
            self.reference_name(key): value.numpy().T if key in transposed else value.numpy()
            for key, value in model.state_dict().items()
        }

    def load(self, model: Any, arrays: dict[str, np.ndarray]) -> None:
        """Set the state entries that are in `arrays`, by reference name and in reference layout."""
        transposed = self.transposed(model)
        for key, value in model.state_dict().items():
            array = arrays.get(self.reference_name(key))
            if array is not None:
                array = np.array(array.T if key in transposed else array, order="C")
                value.copy_(torch.from_numpy(array)) if self.is_torch else value.set_value(array)

    def gradients(self, model: Any) -> dict[str, np.ndarray]:
        transposed = self.transposed(model)
        return {
            key: parameter.grad.numpy().T if key in transposed else parameter.grad.numpy()
            for key, parameter in model.named_parameters()
            if self.is_trainable(parameter) and parameter.grad is not None
        }

    def save(self, path: Path, arch: str = "vit_digits", settings: Mapping[str, Any] | None = None) -> Any:
        """Write a pre-training checkpoint; return its model."""
        self.seed(5)
        model = self.module("models.moco").build_moco(arch, 8, 16)
        optimizer = self.module("training.optimizer").build_optimizer("adamw", model.parameters(), 0.1, 0.0)
        self.module("files.checkpoint").save_checkpoint(
            path, model, optimizer, 1, 0, {"arch": arch, **(settings or {})}
        )
        return model

    def run(self, *arguments: Any) -> int:
        """A program of the twin as from the command line; returns its exit code."""
        code: int = self.module("__main__").main([str(argument) for argument in arguments])
        return code

    def refusal(self, capsys: pytest.CaptureFixture[str], *arguments: Any) -> str:
        """The one line of a program that ends with exit code 2."""
        assert self.run(*arguments) == 2
        errors = capsys.readouterr().err
        assert errors.startswith("error: ")
        assert errors.count("\n") == 1
        return errors.removeprefix("error: ").removesuffix("\n")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """train/ and val/ with two classes of two pictures."""
    root = tmp_path_factory.mktemp("pictures")
    for place, name in enumerate(f"{split}/{cls}/{n}.png" for split in ("train", "val") for cls in "ab" for n in "01"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.random.RandomState(place).randint(0, 256, (32, 32, 3), dtype="uint8")).save(path)
    return root


@pytest.fixture(params=["moco_ref", "moco_paddle"])
def twin(request) -> Twin:
    return Twin(request.param)


@pytest.fixture
def twins() -> tuple[Twin, Twin]:
    return Twin("moco_ref"), Twin("moco_paddle")


def golden(name: str) -> Any:
    return json.loads((GOLDEN / name).read_text(encoding="utf-8"))


def golden_fill(key: str, shape: tuple[int, ...]) -> np.ndarray:
    """The weights that the golden figures were made with (tests/golden/README.md)."""
    array = 0.02 * np.random.RandomState(zlib.crc32(key.encode()) & 0x7FFFFFFF).randn(*shape)
    if key.endswith(".running_var"):
        array = np.abs(array) + 0.5
    elif len(shape) == 1 and key.endswith(".weight"):
        array = 1 + array
    return array.astype("float32")


def golden_probe(key: str, array: np.ndarray) -> tuple[float, float]:
    """L2 norm, and dot product with noise that the key names, in float64."""
    array = np.asarray(array, dtype="float64")
    noise = np.random.RandomState(zlib.crc32(f"probe:{key}".encode()) & 0x7FFFFFFF).randn(*array.shape)
    return float(np.linalg.norm(array)), float((array * noise).sum())


@pytest.fixture
def golden_figures() -> Any:
    return golden


@pytest.fixture
def fill() -> Any:
    return golden_fill
