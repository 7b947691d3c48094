"""Steps of torch's optimizers, and the hooks that torch calls before them.

torch puts hooks around the `step` of a class when the first optimizer of this class is made. A class whose `step` is
replaced before that has them all the same, and steps that are watched are seen as the step itself sees them: behind
every hook, such as one that clips gradients.
"""

import collections
import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.optim import optimizer as module

from twinalign.backends import optimizer_steps
from twinalign.patching import replaced

_HOOKS = "_optimizer_step_pre_hooks"
_GLOBAL_HOOKS = "_global_optimizer_pre_hooks"


def pre_hooks(optimizer: Any) -> list[Callable[..., Any]]:
    """What is called before each step of an optimizer, in torch's order."""
    of_all, its_own = getattr(module, _GLOBAL_HOOKS), getattr(optimizer, _HOOKS, {})
    return list(itertools.chain(of_all.values(), its_own.values()))


def replacing_steps(
    replacement: Callable[[Callable[..., Any]], Callable[..., Any]],
) -> contextlib.AbstractContextManager[None]:
    """Inside the block every optimizer uses `replacement(step)` in place of its own `step`, which calls the hooks."""
    busy: set[int] = set()

    def hooked(original: Callable[..., Any]) -> Callable[..., Any]:
        # Else torch would do it when an optimizer is made, around the replacement, and leave both in the class.
        first = original if getattr(original, "hooked", False) else torch.optim.Optimizer.profile_hook_step(original)

        def step(self: Any, *arguments: Any, **keywords: Any) -> Any:
            # A class's step may call the one it derives from; what only wraps an optimizer has no hooks.
            if id(self) in busy or not hasattr(self, _HOOKS):
                return original(self, *arguments, **keywords)
            busy.add(id(self))
            try:
                return first(self, *arguments, **keywords)
            finally:
                busy.discard(id(self))

        return step

    def replacing(original: Callable[..., Any]) -> Callable[..., Any]:
        step: Any = replacement(hooked(original))
        step.hooked = True
        return step

    return optimizer_steps.replacing_steps(torch.optim.Optimizer, replacing)


def watching_steps(
    before: Callable[[Any], None],
    after: Callable[[Any], None],
    inside: Callable[[Any], None] | None = None,
) -> contextlib.AbstractContextManager[None]:
    """Call `before(optimizer)` behind the hooks before every step, and `after(optimizer)` behind those after it.

    `inside` as for `optimizer_steps.watched`.
    """
    return replacing_steps(optimizer_steps.watched(before, after, calling_last, inside))


@contextlib.contextmanager
def calling_last(optimizer: Any, before: Callable[[Any], None]) -> Iterator[None]:
    """Inside the block, in which the optimizer makes a step, call `before(optimizer)` once, behind all other hooks."""
    if not hasattr(optimizer, _HOOKS):
        before(optimizer)
        yield
        return
    called: list[bool] = []

    def once(*given: Any) -> None:
        if not called:
            called.append(True)
            before(optimizer)

    handle = optimizer.register_step_pre_hook(once)
    try:
        yield
    finally:
        handle.remove()


def run_pre_hooks(optimizer: Any) -> None:
    """Call what torch calls before a step without arguments."""
    for hook in pre_hooks(optimizer):
        hook(optimizer, (optimizer,), {})


@contextlib.contextmanager
def without_pre_hooks(optimizer: Any) -> Iterator[None]:
    """Inside the block torch calls no hooks before steps of this optimizer, nor those of all optimizers."""
    with contextlib.ExitStack() as stack:
        if hasattr(optimizer, _HOOKS):
            stack.enter_context(replaced(optimizer, _HOOKS, collections.OrderedDict()))
        stack.enter_context(replaced(module, _GLOBAL_HOOKS, collections.OrderedDict()))
        yield
