"""Change the reference's training inside a block, without changing its loop."""

import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from twinalign.backends.torch.reference_only.changed_averages import averaging as averaging
from twinalign.backends.torch.reference_only.steps import (
    pre_hooks,
    replacing_steps,
    run_pre_hooks,
    watching_steps,
    without_pre_hooks,
)
from twinalign.patching import Around, replaced, replaced_everywhere

_SCALARS = ("lr", "weight_decay")
"""Not the betas: one part in 2^24 of 0.999 moves the second moment by 6e-5, and in float64 paddle moves it by less."""


@contextlib.contextmanager
def moved_scalars(change: float) -> Iterator[None]:
    """Inside the block, every step uses a learning rate and weight decay changed by the factor `1 + change`."""
    kept: list[tuple[dict[str, Any], dict[str, Any]]] = []

    def before(optimizer: Any) -> None:
        kept[:] = [(group, {k: v for k, v in group.items() if k in _SCALARS}) for group in optimizer.param_groups]
        for group, values in kept:
            group.update({name: value * (1 + change) for name, value in values.items()})

    def after(optimizer: Any) -> None:
        for group, values in kept:
            group.update(values)

    with watching_steps(before, after):
        yield


@contextlib.contextmanager
def clipping_as_paddle() -> Iterator[None]:
    """Inside the block gradients are clipped by their norm itself, as paddle's optimizers do, not by it and 1e-6."""
    original = torch.nn.utils.clip_grad_norm_

    @functools.wraps(original)
    def clip(parameters: Any, max_norm: float, *arguments: Any, **keywords: Any) -> Any:
        parameters = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        total = original(parameters, math.inf, *arguments, **keywords)
        if total > max_norm:
            original(parameters, float(max_norm * (total + 1e-6) / total), *arguments, **keywords)
        return total

    with replaced_everywhere(original, clip):
        yield


def stepping(times: Callable[[int], int], rate: float = 1.0) -> Around:
    """Let optimizers step `times(number of the step)` times, at `rate` times their learning rate.

    Hooks on the training record those steps like steps of the loop itself.
    """

    @contextlib.contextmanager
    def around(model: Any) -> Iterator[None]:
        numbers: dict[int, int] = {}

        def counted(original: Callable[..., Any]) -> Callable[..., Any]:
            def step(self: Any, *arguments: Any, **keywords: Any) -> Any:
                number = numbers[id(self)] = numbers.get(id(self), -1) + 1
                rates = [group["lr"] for group in self.param_groups]
                result = None
                for group, before in zip(self.param_groups, rates, strict=True):
                    group["lr"] = before * rate
                for _ in range(times(number)):
                    result = original(self, *arguments, **keywords)
                for group, before in zip(self.param_groups, rates, strict=True):
                    group["lr"] = before
                return result

            return step

        with replacing_steps(counted):
            yield

    around.outermost = True  # type: ignore[attr-defined]
    return around


@contextlib.contextmanager
def _clipping_by(clip: Callable[[Callable[[list[torch.Tensor]], Any], list[torch.Tensor]], Any]) -> Iterator[None]:
    """Inside the block `clip(original, parameters)` takes the calls of torch's functions that clip gradients.

    `original` clips what it is given as the call asks for.
    """

    def taking(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def taken(parameters: Any, *arguments: Any, **keywords: Any) -> Any:
            held = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
            return clip(lambda given: original(given, *arguments, **keywords), held)

        return taken

    with contextlib.ExitStack() as stack:
        for function in (torch.nn.utils.clip_grad_norm_, torch.nn.utils.clip_grad_value_):
            stack.enter_context(replaced_everywhere(function, taking(function)))
        yield


Given = tuple[str, torch.Tensor, torch.Tensor | None, dict[str, Any]]
"""A parameter with its name, its gradient before loop or hooks clipped it, and the settings of its own group."""


def _noting_unclipped(unclipped: dict[int, torch.Tensor]) -> contextlib.AbstractContextManager[None]:
    """Inside the block, put gradients as they are before torch's functions clip them under the parameters' ids."""

    def clip(original: Callable[[list[torch.Tensor]], Any], parameters: list[torch.Tensor]) -> Any:
        for parameter in parameters:
            if parameter.grad is not None:
                unclipped.setdefault(id(parameter), parameter.grad.clone())
        return original(parameters)

    return _clipping_by(clip)


def taking_steps(
    take: Callable[[int, Any, list[Given]], None], make: Callable[[Any, Any], Any], outermost: bool
) -> Around:
    """Let `take(number, optimizer, parameters)` make the steps of each optimizer, or of what `make(model, it)` returns.

    What torch calls before steps has been called then. While `take` does, it is not called again, and each parameter
    has a group of its own. If `outermost`, hooks on the training record the step that is made, else the one that the
    loop asks for. The loop's groups and gradients are as they were when the step ends.
    """

    @contextlib.contextmanager
    def around(model: Any) -> Iterator[None]:
        unclipped: dict[int, torch.Tensor] = {}
        made: dict[int, tuple[Any, Iterator[int]]] = {}
        inside: list[Any] = []

        def taken(optimizer: Any) -> None:
            if id(optimizer) not in made:
                made[id(optimizer)] = make(model, optimizer), itertools.count()
            used, numbers = made[id(optimizer)]
            groups = used.param_groups
            group_of = {id(p): {**group, "params": [p]} for group in groups for p in group["params"]}
            named = [(name, p) for name, p in model.named_parameters() if id(p) in group_of]
            gradients = [p.grad for _, p in named]
            given = [(name, p, unclipped.get(id(p), p.grad), group_of[id(p)]) for name, p in named]
            used.param_groups = [group for *_, group in given]
            take(next(numbers), used, given)
            used.param_groups = groups
            for (_, parameter), gradient in zip(named, gradients, strict=True):
                parameter.grad = gradient

        def behind_hooks(optimizer: Any) -> None:
            if pre_hooks(optimizer):
                held = itertools.chain.from_iterable(group["params"] for group in optimizer.param_groups)
                before = [(p, p.grad.clone()) for p in held if p.grad is not None and id(p) not in unclipped]
                run_pre_hooks(optimizer)
                unclipped.update((id(p), raw) for p, raw in before if p.grad is None or not torch.equal(p.grad, raw))
            with torch.no_grad(), without_pre_hooks(optimizer):
                taken(optimizer)

        def stepping(original: Callable[..., Any]) -> Callable[..., Any]:
            def step(self: Any, *arguments: Any, **keywords: Any) -> Any:
                if inside or arguments or keywords:  # a closure makes the gradients within the step
                    return original(self, *arguments, **keywords)
                inside.append(self)
                try:
                    behind_hooks(self)
                finally:
                    inside.clear()
                    unclipped.clear()
                return None

            return step

        with _noting_unclipped(unclipped), replacing_steps(stepping):
            yield

    around.outermost = outermost  # type: ignore[attr-defined]
    return around


@contextlib.contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Inside the block the model stays in evaluation mode; behind it each layer has its mode again."""
    modes = [(layer, layer.training) for layer in model.modules()]
    model.eval()
    try:
        with replaced(model, "train", lambda mode=True: model):
            yield
    finally:
        for layer, mode in modes:  # one model serves several trainings, and a loop need not set its mode
            layer.training = mode


@contextlib.contextmanager
def gradients_kept(model: Any) -> Iterator[None]:
    """Inside the block nothing clears gradients."""
    with (
        replaced(torch.optim.Optimizer, "zero_grad", lambda *_, **__: None),
        replaced(model, "zero_grad", lambda *_, **__: None),
    ):
        yield


@contextlib.contextmanager
def unclipped_gradients_kept(model: Any) -> Iterator[None]:
    """Inside the block nothing clears gradients, and clipping is forgotten after each step, as if that had done it."""
    unclipped: dict[int, torch.Tensor] = {}

    def stepping(original: Callable[..., Any]) -> Callable[..., Any]:
        def step(self: Any, *arguments: Any, **keywords: Any) -> Any:
            held = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
            before = {id(p): unclipped.get(id(p), p.grad.clone()) for p in held}  # what hooks clip, they clip from here
            result = original(self, *arguments, **keywords)
            for parameter in held:
                parameter.grad = before[id(parameter)]
            unclipped.clear()
            return result

        return step

    with gradients_kept(model), _noting_unclipped(unclipped), replacing_steps(stepping):
        yield


def at_rates(rates: Sequence[float]) -> Around:
    """Make every step at its learning rate in `rates`; parameter groups keep their proportions."""

    @contextlib.contextmanager
    def around(model: Any) -> Iterator[None]:
        kept: list[tuple[dict[str, Any], float]] = []
        numbers: dict[int, int] = {}

        def before(optimizer: Any) -> None:
            number = numbers[id(optimizer)] = numbers.get(id(optimizer), -1) + 1
            kept[:] = [(group, group["lr"]) for group in optimizer.param_groups]
            of = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
            first = next((of[id(p)] for p in model.parameters() if id(p) in of), kept[0][1])  # as it is recorded
            for group, rate in kept:
                wanted = rates[min(number, len(rates) - 1)]
                group["lr"] = wanted * (rate / first if first else 1.0)

        def after(optimizer: Any) -> None:
            for group, rate in kept:
                group["lr"] = rate

        with watching_steps(before, after):
            yield

    return around


def make_optimizer(kind: str, parameters: list[torch.Tensor], **settings: Any) -> torch.optim.Optimizer:
    """One of torch's own optimizers by the name of its class."""
    made: torch.optim.Optimizer = getattr(torch.optim, kind)(parameters, **settings)
    return made


def clipping_each_pass(summed: bool) -> Around:
    """Clip gradients after each backward pass, not once before a step: what is `summed` by then, or each pass's own."""

    @contextlib.contextmanager
    def around(model: Any) -> Iterator[None]:
        after: list[dict[int, torch.Tensor]] = []
        backward = torch.autograd.backward

        def noted(*arguments: Any, **keywords: Any) -> None:
            backward(*arguments, **keywords)
            after.append({id(p): p.grad.clone() for p in model.parameters() if p.grad is not None})

        def clip(original: Callable[[list[torch.Tensor]], Any], parameters: list[torch.Tensor]) -> Any:
            held = [p for p in parameters if p.grad is not None]
            sums, result = [torch.zeros_like(p) for p in held], None
            for before, now in itertools.pairwise([{}, *after]):
                for p, total in zip(held, sums, strict=True):
                    own = now.get(id(p), torch.zeros_like(p)) - before.get(id(p), 0.0)
                    p.grad = total + own if summed else own
                result = original(held)
                sums = [p.grad if summed else total + p.grad for p, total in zip(held, sums, strict=True)]
            for p, total in zip(held, sums, strict=True):
                p.grad = total
            after.clear()
            return result

        with replaced(torch.autograd, "backward", noted), _clipping_by(clip):
            yield

    return around


@contextlib.contextmanager
def clipping_last(model: Any) -> Iterator[None]:
    """Clip gradients once, right before a step, not after each backward pass."""
    asked: list[Callable[[], Any]] = []

    def clip(original: Callable[[list[torch.Tensor]], Any], parameters: list[torch.Tensor]) -> Any:
        asked[:] = [functools.partial(original, parameters)]
        return torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])

    def stepping(original: Callable[..., Any]) -> Callable[..., Any]:
        def step(self: Any, *arguments: Any, **keywords: Any) -> Any:
            for clipped in asked:
                clipped()
            asked.clear()
            return original(self, *arguments, **keywords)

        return step

    with replacing_steps(stepping), _clipping_by(clip):
        yield


clipping_last.outermost = True  # type: ignore[attr-defined]
