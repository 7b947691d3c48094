"""Where a model's source combines tensors of two types, of which torch makes one, or sets items of a tensor."""

import itertools
import sys
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_TORCH = torch.__path__[0]


class Promotions(TorchFunctionMode):
    """Notes the places inside the block where an operator is given a whole number or truth value and another type.

    `found` has file → (line, column, last line, last column) → the types of both sides and of what torch makes of
    them. Lines count from 1, columns in bytes from 0, as in Python's syntax tree. Two floating-point types are left
    out: paddle promotes them too. Where items that tensors name are set to what has a gradient, all three are `items`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, dict[tuple[int, int, int, int], tuple[str, str, str]]] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if len(args) == 2 and all(isinstance(value, torch.Tensor) for value in args):
            first, second = args[0].dtype, args[1].dtype
            if first != second and not (first.is_floating_point and second.is_floating_point):
                self._note(first, second, torch.result_type(*args))
        if func is torch.Tensor.__setitem__ and _sets_trained_items(*args[1:]):
            self._note("items", "items", "items")
        return func(*args, **(kwargs or {}))

    def _note(self, *dtypes: Any) -> None:
        frame = sys._getframe(2)
        while frame.f_back is not None and frame.f_code.co_filename.startswith(_TORCH):
            frame = frame.f_back
        line, last, column, end = next(itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None))
        if line is not None and last is not None and column is not None and end is not None:
            first, second, made = (str(dtype).removeprefix("torch.") for dtype in dtypes)
            self.found.setdefault(frame.f_code.co_filename, {})[line, column, last, end] = first, second, made


def _sets_trained_items(index: Any, value: Any) -> bool:
    parts = index if isinstance(index, tuple) else (index,)
    return isinstance(value, torch.Tensor) and value.requires_grad and all(isinstance(p, torch.Tensor) for p in parts)
