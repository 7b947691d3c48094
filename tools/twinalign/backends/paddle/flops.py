"""Floating-point operations of each layer, counted by the rules of `torch.utils.flop_counter`.

`paddle.flops` counts a multiply-add once, knows classes of layers only, and leaves out what a model's own code
multiplies; so the operators themselves are counted here.
"""

import contextlib
import functools
import math
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import paddle
from paddle import _C_ops

from twinalign.patching import replaced

__all__ = ["counting_flops"]


def _product(first: Any, second: Any, transposed_first: bool = False, transposed_second: bool = False) -> int:
    """[…, m, k] times […, k, n], either of them a vector, or transposed."""
    shapes = [list(first.shape), list(second.shape)]
    rows = 1 if len(shapes[0]) == 1 else shapes[0][-1 if transposed_first else -2]
    inner = shapes[0][-1] if len(shapes[0]) == 1 else shapes[0][-2 if transposed_first else -1]
    columns = 1 if len(shapes[1]) == 1 else shapes[1][-2 if transposed_second else -1]
    batch = max(math.prod(shape[:-2]) for shape in shapes)
    return 2 * batch * rows * inner * columns


def _convolution(inputs: Any, weight: Any, out: Any) -> int:
    """Every output is a sum over the kernel and over the channels of its group."""
    return 2 * math.prod(out.shape) * math.prod(weight.shape[1:])


def _transposed_convolution(inputs: Any, weight: Any, out: Any) -> int:
    return 2 * math.prod(inputs.shape) * math.prod(weight.shape[1:])


def _attention(query: Any, key: Any, value: Any) -> int:
    """Two products a head; [batch, length, heads, width]."""
    batch, length, heads, width = query.shape
    return 2 * batch * heads * length * key.shape[1] * (width + value.shape[-1])


def _summed_products(operands: Any, equation: str) -> int:
    """A multiply-add for every combination of the indices of two operands, `...` included."""
    terms = equation.replace(" ", "").partition("->")[0].split(",")
    sizes: dict[Any, int] = {}
    for term, operand in zip(terms, operands, strict=True):
        left, dots, right = term.partition("...")
        shape = list(operand.shape)
        between = range(len(left), len(shape) - len(right)) if dots else ()
        sizes |= {("...", len(shape) - len(right) - at): shape[at] for at in between}
        sizes |= dict(zip(left, shape, strict=False)) | dict(zip(reversed(right), reversed(shape), strict=False))
    return 2 * math.prod(sizes.values()) if len(terms) == 2 else 0


_Rule = Callable[[tuple[Any, ...], Any], int]
_RULES: dict[str, _Rule] = {
    **dict.fromkeys(("matmul", "linear_v2", "linear", "bmm", "mv"), lambda given, out: _product(*_matrices(given))),
    "einsum": lambda given, out: _summed_products(*given[:2]),
    "addmm": lambda given, out: _product(given[1], given[2]),
    "baddbmm": lambda given, out: _product(given[1], given[2]),
    **dict.fromkeys(("conv2d", "conv3d", "depthwise_conv2d"), lambda given, out: _convolution(given[0], given[1], out)),
    **dict.fromkeys(
        ("conv2d_transpose", "conv3d_transpose", "depthwise_conv2d_transpose"),
        lambda given, out: _transposed_convolution(given[0], given[1], out),
    ),
    **dict.fromkeys(
        ("flash_attn", "memory_efficient_attention", "fused_dot_product_attention"),
        lambda given, out: _attention(*given[:3]),
    ),
}


def _matrices(given: tuple[Any, ...]) -> tuple[Any, ...]:
    """The two matrices, and whether each is taken transposed: `matmul` has two flags, `linear_v2` a bias and one."""
    flags = [value for value in given[2:] if isinstance(value, bool)]
    return (*given[:2], *(flags if len(flags) == 2 else (False, *flags)))


def _operators() -> list[tuple[Any, str, Callable[..., Any], _Rule]]:
    """Every attribute by which paddle's own code reaches a counted operator: (owner, name, operator, rule)."""
    rules = {original: rule for name, rule in _RULES.items() if (original := getattr(_C_ops, name, None)) is not None}
    found = [
        (module, name, value, rules[value])
        for module in [module for name, module in sys.modules.items() if name.partition(".")[0] == "paddle"]
        for name, value in list(vars(module).items())
        if isinstance(value, types.BuiltinFunctionType) and value in rules
    ]
    return [*found, (paddle.Tensor, "__matmul__", paddle.Tensor.__matmul__, _RULES["matmul"])]


def _as_method(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that a class binds to its objects, as it does not bind a `functools.partial`."""

    def call(*given: Any, **named: Any) -> Any:
        return function(*given, **named)

    return call


@contextlib.contextmanager
def counting_flops(model: paddle.nn.Layer) -> Iterator[dict[str, int]]:
    """See `protocol.Backend.counting_flops`."""
    counts: dict[str, int] = {}
    running: list[str] = []

    def counted(original: Callable[..., Any], rule: _Rule, *given: Any, **named: Any) -> Any:
        out = original(*given, **named)
        operations = rule((*given, *named.values()), out[0] if isinstance(out, tuple | list) else out)
        for path in dict.fromkeys(["", *running]):
            counts[path] = counts.get(path, 0) + operations
        return out

    with contextlib.ExitStack() as stack:
        for owner, name, original, rule in _operators():
            stack.enter_context(replaced(owner, name, _as_method(functools.partial(counted, original, rule))))
        for path, layer in model.named_sublayers():
            before = layer.register_forward_pre_hook(lambda layer, given, path=path: running.append(path))
            after = layer.register_forward_post_hook(lambda layer, given, out: running.pop() and None)
            stack.callback(before.remove)
            stack.callback(after.remove)
        yield counts
