"""Where a model's source does what paddle does otherwise: it combines tensors of two types, sets items, changes tensors
that are used elsewhere too, sorts, gathers or pads truth values, or asks what is in a tensor.
"""

import itertools
import sys
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_TORCH = torch.__path__[0]
_NUMBERS_ALONE = (
    *("amax", "amin", "argsort", "diag_embed", "gather", "kron", "max", "min", "pad", "prod", "repeat_interleave"),
    *("scatter", "scatter_", "take_along_dim", "unique"),
)
"""Functions of which paddle has no kernel for truth values."""
_HOLDERS = 4
"""Of a tensor of one variable while it is changed: the variable, the operator, the arguments here, who counts them."""


class Promotions(TorchFunctionMode):
    """Notes the places inside the block where an operator is given a whole number or truth value and another type.

    `found` has file → (line, column, last line, last column) → the types of both sides and of what torch makes of
    them. Lines count from 1, columns in bytes from 0, as in Python's syntax tree. Two floating-point types are left
    out: paddle promotes them too. In place of the types stand

    - `items`, `tensors` or `numbers`, `part` or `whole` where items that these name of a part of a tensor, or of a
      whole one, are set to what has a gradient;
    - `shared` three times where something else, too, holds the tensor that is changed in place, or the one it is of;
    - `truth`, `method` or `function`, and the type that it gives, where truth values are given to what paddle has for
      numbers alone;
    - `member` three times where something is looked for in a tensor with `in`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, dict[tuple[int, int, int, int], tuple[str, str, str]]] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if len(args) == 2 and all(isinstance(value, torch.Tensor) for value in args):
            first, second = args[0].dtype, args[1].dtype
            if first != second and not (first.is_floating_point and second.is_floating_point):
                self._note(first, second, torch.result_type(*args))
        if func is torch.Tensor.__setitem__ and getattr(args[2], "requires_grad", False):
            named = "tensors" if _is_named_by_tensors(args[1]) else "numbers"
            self._note("items", named, "whole" if args[0]._base is None else "part")
        elif func is torch.Tensor.__contains__:
            self._note("member", "member", "member")
        elif name.endswith("_") and args and isinstance(args[0], torch.Tensor):
            base = args[0]._base
            if sys.getrefcount(args[0]) > _HOLDERS or (base is not None and sys.getrefcount(base) > _HOLDERS - 1):
                self._note("shared", "shared", "shared")
        truths = [place for place, value in enumerate(args) if getattr(value, "dtype", None) is torch.bool]
        made = func(*args, **(kwargs or {}))
        if truths == [0] and name in _NUMBERS_ALONE and isinstance(made, torch.Tensor):
            self._note("truth", "method" if getattr(torch.Tensor, name, None) is func else "function", made.dtype)
        return made

    def in_order(self) -> dict[str, list[list[int | str]]]:
        """File → the places in it with their types, each as one list."""
        return {
            file: sorted([*place, *types] for place, types in places.items()) for file, places in self.found.items()
        }

    def _note(self, *kinds: Any) -> None:
        frame = sys._getframe(2)
        while frame.f_back is not None and frame.f_code.co_filename.startswith(_TORCH):
            frame = frame.f_back
        line, last, column, end = next(itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None))
        if line is not None and last is not None and column is not None and end is not None:
            first, second, made = (str(kind).removeprefix("torch.") for kind in kinds)
            places = self.found.setdefault(frame.f_code.co_filename, {})
            if first != "shared" or (line, column, last, end) not in places:
                places[line, column, last, end] = first, second, made


def leave_scripts_in_python() -> None:
    """From now on `torch.jit.script` gives back what it is given: what TorchScript compiles runs unseen."""
    torch.jit._state.disable()


def _is_named_by_tensors(index: Any) -> bool:
    """Whether a list or a tensor of several elements is among what names items."""
    parts = index if isinstance(index, tuple) else (index,)
    return any(isinstance(part, (list, range)) or getattr(part, "ndim", 0) > 0 for part in parts)
