"""Hooks on the gradients of parameters: `paddle.grad` leaves them out, while `backward` and torch's `grad` run them."""

import functools
import weakref
from collections.abc import Callable
from typing import Any

import paddle

_KEPT: dict[int, tuple[weakref.ref[Any], dict[int, Callable[[Any], Any]]]] = {}
"""By the identity of a tensor, which is no key itself: what was registered on it, by the number that removes it."""


def keep_hooks_of_leaves() -> None:
    """Note every hook that this process registers from now on on a tensor that nothing has made."""
    register, remove = paddle.Tensor._register_grad_hook, paddle.Tensor._remove_grad_hook
    if hasattr(register, "__wrapped__"):
        return

    @functools.wraps(register)
    def registered(self: Any, hook: Callable[[Any], Any]) -> int:
        number = int(register(self, hook))
        if self.is_leaf:
            at, kept = id(self), _of(self)
            _KEPT[at] = weakref.ref(self, lambda gone: _KEPT.pop(at, None)), kept | {number: hook}
        return number

    @functools.wraps(remove)
    def removed(self: Any, number: int) -> bool:
        _of(self).pop(number, None)
        return bool(remove(self, number))

    paddle.Tensor._register_grad_hook, paddle.Tensor._remove_grad_hook = registered, removed


def hooked(leaf: Any, gradient: Any) -> Any:
    """What the hooks of a tensor make of its gradient, or the gradient; None stays None."""
    for hook in _of(leaf).values() if gradient is not None else ():
        made = hook(gradient)
        gradient = gradient if made is None else made
    return gradient


def _of(tensor: Any) -> dict[int, Callable[[Any], Any]]:
    reference, kept = _KEPT.get(id(tensor), (lambda: None, {}))
    return kept if reference() is tensor else {}
