"""Versions and settings of torch in this process: devices, threads, generators, precision, memory."""

import contextlib
import hashlib
import importlib
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from twinalign.backends.torch.reference_only.exact_kernels import forbid_tf32, make_float64_exact

FRAMEWORK = "torch"
MODEL_CLASS = "torch.nn.Module"


def versions() -> dict[str, str]:
    found = {"torch": torch.__version__, "numpy": np.__version__}
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
    if torch.backends.cudnn.is_available():
        found["cudnn"] = str(torch.backends.cudnn.version())
    return found


def numerics_flags() -> dict[str, Any]:
    return {
        "threads": torch.get_num_threads(),
        "default_dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "mkldnn": torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled,
        "cuda_matmul_allow_tf32": torch.backends.cuda.matmul.allow_tf32,
        "cudnn_allow_tf32": torch.backends.cudnn.allow_tf32,
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS"),
    }


def device_of(name: str) -> torch.device:
    if name == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise RuntimeError("torch sees no GPU")
    return torch.device("cuda", torch.cuda.current_device())


def configure(device: str, threads: int | None) -> None:
    device_of(device)
    if threads:
        torch.set_num_threads(threads)
    torch.backends.cudnn.benchmark = False
    forbid_tf32()
    if device != "cpu":
        make_float64_exact("cuda")


def import_for_optimizers() -> None:
    """Import what torch else imports at the first step of an optimizer, for seconds."""
    importlib.import_module("torch._dynamo")


def use_accuracy_compatible(on: bool) -> None:
    pass  # the kernels are paddle's


def set_seed(seed: int) -> None:
    torch.manual_seed(seed)


def random_state() -> str:
    states = [torch.get_rng_state(), *(torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [])]
    return hashlib.sha256(b"".join(state.numpy().tobytes() for state in states)).hexdigest()


class _Float64ForFloat32(TorchFunctionMode):
    """Gives float64 to what asks for float32, as a normalisation does with `x.to(torch.float32)`."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.get_default_dtype() is torch.float64:
            func = torch.Tensor.double if func is torch.Tensor.float else func
            args = tuple(torch.float64 if value is torch.float32 else value for value in args)
            kwargs = {name: torch.float64 if value is torch.float32 else value for name, value in kwargs.items()}
        return func(*args, **kwargs)


@contextlib.contextmanager
def default_dtype(dtype: str) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, dtype))
    try:
        with _Float64ForFloat32() if dtype == "float64" else contextlib.nullcontext():
            yield
    finally:
        torch.set_default_dtype(before)


def peak_device_memory() -> int:
    return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0


def try_path(device: str, dtype: str) -> None:
    configure(device, None)
    x = torch.ones(4, 4, device=device_of(device), dtype=getattr(torch, dtype), requires_grad=True)
    (x @ x).sum().backward()


def communication_backends() -> list[str]:
    if not torch.distributed.is_available():
        return []
    return [name for name in ("gloo", "nccl") if getattr(torch.distributed, f"is_{name}_available")()]
