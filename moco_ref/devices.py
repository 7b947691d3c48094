"""Devices, and the seed of what torch draws."""

from __future__ import annotations

import torch
from torch import nn


def number_of_gpus() -> int:
    """Return how many GPUs torch can use."""
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def require_gpu(place: int = 0) -> None:
    """Refuse a GPU that is not there.

    Raises:
        ValueError: there is none, or none for the process with this number on its node.
    """
    if number_of_gpus() == 0:
        raise ValueError("--device gpu: torch sees no GPU here; give --device cpu, or mend its installation")
    if place >= number_of_gpus():
        raise ValueError(
            f"--device gpu: process {place} of this node has no GPU, {number_of_gpus()} are visible; "
            "start as many processes as there are GPUs"
        )


def default_device() -> str:
    """Return "gpu" if there is one, else "cpu"."""
    return "gpu" if number_of_gpus() else "cpu"


def set_device(name: str) -> str:
    """Return torch's name of the device "cpu" or "gpu", on which the models are to be built.

    Raises:
        ValueError: there is no GPU.
    """
    if name == "gpu":
        require_gpu()
    return "cuda" if name == "gpu" else "cpu"


def on_device(model: nn.Module, device: str) -> nn.Module:
    """Return the model on the device that `set_device` named."""
    return model.to(device)


def seed_everything(seed: int) -> None:
    """Seed the generator that a model's initialisation draws from."""
    torch.manual_seed(seed)
