"""Devices, and the seed of what paddle draws."""

from __future__ import annotations

import paddle
from paddle import nn


def number_of_gpus() -> int:
    """Return how many GPUs paddle can use."""
    # diff: both ask what the library was built for; torch also asks whether the driver works.
    return paddle.device.cuda.device_count() if paddle.device.is_compiled_with_cuda() else 0


def require_gpu(place: int = 0) -> None:
    """Refuse a GPU that is not there.

    Raises:
        ValueError: there is none, or none for the process with this number on its node.
    """
    if number_of_gpus() == 0:
        raise ValueError("--device gpu: paddle sees no GPU here; give --device cpu, or mend its installation")
    if place >= number_of_gpus():
        raise ValueError(
            f"--device gpu: process {place} of this node has no GPU, {number_of_gpus()} are visible; "
            "start as many processes as there are GPUs"
        )


def default_device() -> str:
    """Return "gpu" if there is one, else "cpu"."""
    return "gpu" if number_of_gpus() else "cpu"


def set_device(name: str) -> str:
    """Return paddle's name of the device "cpu" or "gpu", on which the models are to be built.

    Raises:
        ValueError: there is no GPU.
    """
    if name == "gpu":
        require_gpu()
    # diff: models and tensors are built on the current device, and go to none later.
    paddle.set_device(name)
    return name


def on_device(model: nn.Layer, device: str) -> nn.Layer:
    """Return the model on the device that `set_device` named."""
    return model


def seed_everything(seed: int) -> None:
    """Seed the generator that a model's initialisation draws from."""
    paddle.seed(seed)
