"""Constants that torch's CUDA kernels keep in float32: the reference's float64 runs on a GPU get them exactly.

`hardsigmoid` and `hardswish` multiply by a sixth, which the CUDA kernels have as a float32: in float64 they return
3e-8 too much, relatively, where the CPU's kernels are exact (docs/gpu.md).
"""

import functools
from collections.abc import Callable

import torch


def make_float64_exact(device: str) -> None:
    """Let every later call of these kernels in float64 on a kind of device ("cuda") be exact, also in place."""
    for name, exact in (("hardsigmoid", _hardsigmoid), ("hardswish", _hardswish)):
        for in_place in (False, True):
            called = f"{name}_" if in_place else name
            kernel = getattr(torch._C._nn, called)
            if not hasattr(kernel, "__wrapped__"):
                setattr(torch._C._nn, called, _around(kernel, exact, device, in_place))


def _around(
    kernel: Callable[[torch.Tensor], torch.Tensor],
    exact: Callable[[torch.Tensor], torch.Tensor],
    device: str,
    in_place: bool,
) -> Callable[[torch.Tensor], torch.Tensor]:
    @functools.wraps(kernel)
    def called(x: torch.Tensor) -> torch.Tensor:
        if x.dtype is not torch.float64 or x.device.type != device:
            return kernel(x)
        return x.copy_(exact(x.clone())) if in_place else exact(x)

    return called


def _hardsigmoid(x: torch.Tensor) -> torch.Tensor:
    return (x + 3).clamp(0, 6) / 6


def _hardswish(x: torch.Tensor) -> torch.Tensor:
    return x * _hardsigmoid(x)
