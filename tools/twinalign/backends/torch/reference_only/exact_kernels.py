"""What torch's CUDA kernels compute less exactly than the type they compute in, put right for the reference.

`hardsigmoid` and `hardswish` multiply by a sixth, which the CUDA kernels have as a float32: in float64 they return
3e-8 too much, relatively, where the CPU's kernels are exact (docs/gpu.md).
"""

import functools
from collections.abc import Callable

import torch


def forbid_tf32() -> None:
    """Let CUDA compute float32 with all its bits: with TF32, the reference's rounding would excuse a port's faults."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False


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
