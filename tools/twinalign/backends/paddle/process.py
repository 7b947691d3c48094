"""Versions and settings of paddle in this process: devices, threads, generators, precision, memory."""

import contextlib
import functools
import hashlib
import os
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import paddle
from paddle.tensor import creation

from twinalign.backends.paddle.port_only.data_loader import raise_errors_of_datasets
from twinalign.backends.paddle.port_only.kernels import make_float64_exact
from twinalign.backends.paddle.port_only.leaf_hooks import keep_hooks_of_leaves
from twinalign.patching import replaced

_ADDRESS = re.compile("0x[0-9a-f]+")
"""Where a generator lies in memory, which its state says among its numbers."""
_GIVE_A_DTYPE = ("cast", "full", "full_like", "arange", "linspace", "sum")
"""Kernels that are told the dtype of their result."""
_OF_ONE_DTYPE = (
    "concat", "stack", "add_n", "lerp", "matmul", "bmm", "dot", "addmm", "linear", "scatter", "put_along_axis",
)  # fmt: skip
"""Kernels that refuse tensors of different dtypes, as arrays in float32 and what is made beside them in float64."""
_OPERATORS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")
"""Those of Python that paddle gives float32 for, whatever the default, where a whole number meets a float."""
_ACCURACY_COMPATIBLE = "FLAGS_use_accuracy_compatible_kernel"
FRAMEWORK = "paddle"
MODEL_CLASS = "paddle.nn.Layer"


def versions() -> dict[str, str]:
    found = {"paddle": paddle.__version__, "numpy": np.__version__}
    if paddle.is_compiled_with_cuda():
        found["cuda"] = paddle.version.cuda()
        found["cudnn"] = paddle.version.cudnn()
    return found


def numerics_flags() -> dict[str, Any]:
    flags: dict[str, Any] = {
        "default_dtype": paddle.get_default_dtype(),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS"),
    }
    for name in ("FLAGS_use_mkldnn", "FLAGS_cudnn_deterministic", _ACCURACY_COMPATIBLE):
        with contextlib.suppress(ValueError):  # not every version knows every flag
            flags[name] = paddle.get_flags(name)[name]
    return flags


def device_of(name: str) -> str:
    if name == "cpu":
        return "cpu"
    if not paddle.is_compiled_with_cuda() or paddle.device.cuda.device_count() == 0:
        raise RuntimeError("paddle sees no GPU")
    return f"gpu:{paddle.distributed.ParallelEnv().device_id}"  # 0 where no launcher chose another


def configure(device: str, threads: int | None) -> None:
    # paddle takes its number of threads from OMP_NUM_THREADS, which is set before the process starts.
    paddle.set_device(device_of(device))
    make_float64_exact()
    raise_errors_of_datasets()
    keep_hooks_of_leaves()


def import_for_optimizers() -> None:
    pass  # paddle imports all of it at once


def use_accuracy_compatible(on: bool) -> None:
    with contextlib.suppress(ValueError):  # only paddle 3.3 and later has the flag
        paddle.set_flags({_ACCURACY_COMPATIBLE: on})


def set_seed(seed: int) -> None:
    paddle.seed(seed)


def random_state() -> str:
    states = "".join(map(str, paddle.get_rng_state()))
    return hashlib.sha256(_ADDRESS.sub("", states).encode()).hexdigest()


def _float64_for_float32(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel, which gives float64 to what asks for float32, as a normalisation does with `x.astype("float32")`."""

    def asked(value: Any) -> Any:
        return paddle.float64 if isinstance(value, type(paddle.float32)) and value == paddle.float32 else value

    @functools.wraps(kernel)
    def called(*args: Any, **kwargs: Any) -> Any:
        if paddle.get_default_dtype() != "float64":
            return kernel(*args, **kwargs)
        return kernel(*map(asked, args), **{name: asked(value) for name, value in kwargs.items()})

    return called


def _tensor_in_float64(made: Callable[..., Any]) -> Callable[..., Any]:
    """What `paddle.to_tensor` calls, which gives float64 to what asks for float32, as `torch.tensor` does then."""

    @functools.wraps(made)
    def called(data: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        in_float64 = paddle.get_default_dtype() == "float64"
        return made(data, "float64" if in_float64 and dtype in (paddle.float32, "float32") else dtype, *args, **kwargs)

    return called


def _in_one_dtype(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel, which takes tensors in float32 beside those in float64, as arithmetic does."""

    @functools.wraps(kernel)
    def called(*args: Any, **kwargs: Any) -> Any:
        given = [*args, *kwargs.values()]
        tensors = [one for value in given for one in (value if isinstance(value, (list, tuple)) else [value])]
        dtypes = {one.dtype for one in tensors if isinstance(one, paddle.Tensor)}
        if not {paddle.float32, paddle.float64} <= dtypes:
            return kernel(*args, **kwargs)
        return kernel(*map(_widened, args), **{name: _widened(value) for name, value in kwargs.items()})

    return called


def _widened(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(map(_widened, value))
    is_single = isinstance(value, paddle.Tensor) and value.dtype == paddle.float32
    return value.astype("float64") if is_single else value


def _is_whole(value: Any) -> bool:
    return not (value.is_floating_point() or value.is_complex())


def _operators() -> list[str]:
    names = (f"__{side}{name}__" for name in _OPERATORS for side in ("", "r"))
    return [name for name in names if hasattr(paddle.Tensor, name)]


def _float64_for_whole_numbers(operator: Callable[..., Any], divides: bool) -> Callable[..., Any]:
    """The operator of tensors, which gives float64 where whole numbers meet one of Python's floats, or are divided."""

    @functools.wraps(operator)
    def called(self: Any, other: Any) -> Any:
        if paddle.get_default_dtype() == "float64" and (divides or isinstance(other, float)):
            self, other = (
                value.astype("float64") if isinstance(value, paddle.Tensor) and _is_whole(value) else value
                for value in (self, other)
            )
        return operator(self, other)

    return called


@contextlib.contextmanager
def default_dtype(dtype: str) -> Iterator[None]:
    before = paddle.get_default_dtype()
    paddle.set_default_dtype(dtype)
    try:
        with contextlib.ExitStack() as stack:
            for name in _GIVE_A_DTYPE if dtype == "float64" else ():
                stack.enter_context(replaced(paddle._C_ops, name, _float64_for_float32(getattr(paddle._C_ops, name))))
            for name in _OF_ONE_DTYPE if dtype == "float64" else ():
                if hasattr(paddle._C_ops, name):  # not every version has all
                    stack.enter_context(replaced(paddle._C_ops, name, _in_one_dtype(getattr(paddle._C_ops, name))))
            if dtype == "float64":
                made = _tensor_in_float64(creation._to_tensor_non_static)
                stack.enter_context(replaced(creation, "_to_tensor_non_static", made))
            for name in _operators() if dtype == "float64" else ():
                operator = _float64_for_whole_numbers(getattr(paddle.Tensor, name), name.endswith("truediv__"))
                stack.enter_context(replaced(paddle.Tensor, name, operator))
            yield
    finally:
        paddle.set_default_dtype(before)


def peak_device_memory() -> int:
    return paddle.device.cuda.max_memory_allocated() if paddle.is_compiled_with_cuda() else 0


def try_path(device: str, dtype: str) -> None:
    configure(device, None)
    x = paddle.ones([4, 4], dtype=dtype)
    x.stop_gradient = False
    paddle.matmul(x, x).sum().backward()


def communication_backends() -> list[str]:
    return ["gloo"] + (["nccl"] if paddle.is_compiled_with_cuda() else [])
