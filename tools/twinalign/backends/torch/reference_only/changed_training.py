"""Change the reference's training inside a block, without changing its loop."""

import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

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


Given = tuple[str, torch.Tensor, torch.Tensor | None, dict[str, Any]]
"""A parameter with its name, its gradient before loop or hooks clipped it, and the settings of its own group."""


@contextlib.contextmanager
def _noting_unclipped(unclipped: dict[int, torch.Tensor]) -> Iterator[None]:
    """Inside the block, put gradients as they are before torch's functions clip them under the parameters' ids."""

    def clipping(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def clip(parameters: Any, *arguments: Any, **keywords: Any) -> Any:
            parameters = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
            for parameter in parameters:
                if parameter.grad is not None:
                    unclipped.setdefault(id(parameter), parameter.grad.clone())
            return original(parameters, *arguments, **keywords)

        return clip

    with contextlib.ExitStack() as stack:
        for clip in (torch.nn.utils.clip_grad_norm_, torch.nn.utils.clip_grad_value_):
            stack.enter_context(replaced_everywhere(clip, clipping(clip)))
        yield


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
            first = kept[0][1]
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


class _Averages:
    """Untrained parameters that follow trained ones of the same name in another part of a model."""

    def __init__(self, model: torch.nn.Module, momentum: Callable[[int, float], float], buffers: bool) -> None:
        self._model, self._momentum, self._buffers = model, momentum, buffers
        self._pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._before: list[torch.Tensor] = []
        self._optimizer: Any = None
        self._steps = 0

    def begin_step(self, optimizer: Any) -> None:
        if self._optimizer is None:
            self._find({id(parameter) for group in optimizer.param_groups for parameter in group["params"]})
            self._optimizer = optimizer if self._pairs else None
        self.settle()

    def end_step(self, optimizer: Any) -> None:
        self._steps += optimizer is self._optimizer

    def _find(self, held: set[int]) -> None:
        named = list(self._model.named_parameters())
        left = sorted(((n, p) for n, p in named if id(p) not in held), key=lambda one: not one[1].requires_grad)
        averaged = {name.partition(".")[2]: p for name, p in left}  # of one name, what no gradient reaches
        trained = {name: p for name, p in named if p.requires_grad and id(p) in held}
        self._pairs = [
            (average, p)
            for name, p in trained.items()
            if (average := averaged.get(name.partition(".")[2])) is not None and average.shape == p.shape
        ]
        self._before = [average.clone() for average, _ in self._pairs]

    @torch.no_grad()
    def settle(self, *_: Any) -> None:
        """Give the averages what another momentum makes of them, if they have been updated since."""
        if all(torch.equal(average, old) for (average, _), old in zip(self._pairs, self._before, strict=True)):
            return
        pairs = list(zip(self._pairs, self._before, strict=True))
        gap = torch.cat([(p - old).flatten() for (_, p), old in pairs])
        moved = torch.cat([(average - old).flatten() for (average, _), old in pairs])
        largest = gap.abs().argmax()
        m = 1.0 - float(moved[largest] / gap[largest])
        other = self._momentum(self._steps - 1, m)
        if other != m:
            for (average, p), old in pairs:
                average.copy_(old * other + p * (1.0 - other))
        if self._buffers:
            self._average_buffers(m)
        self._before = [average.clone() for average, _ in self._pairs]

    def _average_buffers(self, m: float) -> None:
        held = [{id(p) for p in part.parameters()} for part in self._model.children()]
        parts = list(zip(self._model.children(), held, strict=True))
        averaged = [part for part, inside in parts if any(id(average) in inside for average, _ in self._pairs)]
        trained = [part for part, inside in parts if any(id(p) in inside for _, p in self._pairs)]
        for theirs, ours in itertools.product(trained, averaged):
            given = dict(theirs.named_buffers())
            for name, buffer in ours.named_buffers():
                if buffer.is_floating_point() and name in given:
                    buffer.mul_(m).add_(given[name], alpha=1.0 - m)


def averaging(momentum: Callable[[int, float], float], buffers: bool = False) -> Around:
    """Let the moving average of trained parameters have the momentum `momentum(step, own)` in each update.

    Whatever loop or method updates it: an update shows in the averages, and nothing trains between it and the next
    step or the next call of the model. With `buffers` it moves the averaged part's buffers as well.
    """

    @contextlib.contextmanager
    def around(model: Any) -> Iterator[None]:
        made = _Averages(model, momentum, buffers)
        with contextlib.ExitStack() as stack:
            for layer in (model, *model.children()):
                stack.callback(layer.register_forward_pre_hook(made.settle).remove)
            stack.enter_context(watching_steps(made.begin_step, made.end_step))
            yield
            made.settle()

    return around


def clipping_each_pass(summed: bool) -> Around:
    """Clip gradients after each backward pass, not once before a step: what is `summed` by then, or each pass's own."""

    @contextlib.contextmanager
    def around(model: Any) -> Iterator[None]:
        after: list[dict[int, torch.Tensor]] = []
        backward = torch.autograd.backward

        def noted(*arguments: Any, **keywords: Any) -> None:
            backward(*arguments, **keywords)
            after.append({id(p): p.grad.clone() for p in model.parameters() if p.grad is not None})

        def clipping(original: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(original)
            def clip(parameters: Any, *arguments: Any, **keywords: Any) -> Any:
                held = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
                held = [p for p in held if p.grad is not None]
                sums, result = [torch.zeros_like(p) for p in held], None
                for before, now in itertools.pairwise([{}, *after]):
                    for p, total in zip(held, sums, strict=True):
                        own = now.get(id(p), torch.zeros_like(p)) - before.get(id(p), 0.0)
                        p.grad = total + own if summed else own
                    result = original(held, *arguments, **keywords)
                    sums = [p.grad if summed else total + p.grad for p, total in zip(held, sums, strict=True)]
                for p, total in zip(held, sums, strict=True):
                    p.grad = total
                after.clear()
                return result

            return clip

        with contextlib.ExitStack() as stack:
            stack.enter_context(replaced(torch.autograd, "backward", noted))
            for clip in (torch.nn.utils.clip_grad_norm_, torch.nn.utils.clip_grad_value_):
                stack.enter_context(replaced_everywhere(clip, clipping(clip)))
            yield

    return around


@contextlib.contextmanager
def clipping_last(model: Any) -> Iterator[None]:
    """Clip gradients once, right before a step, not after each backward pass."""
    asked: list[Callable[[], Any]] = []

    def clipping(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def clip(parameters: Any, *arguments: Any, **keywords: Any) -> Any:
            held = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
            asked[:] = [functools.partial(original, held, *arguments, **keywords)]
            return torch.nn.utils.get_total_norm([p.grad for p in held if p.grad is not None])

        return clip

    def stepping(original: Callable[..., Any]) -> Callable[..., Any]:
        def step(self: Any, *arguments: Any, **keywords: Any) -> Any:
            for clip in asked:
                clip()
            asked.clear()
            return original(self, *arguments, **keywords)

        return step

    with contextlib.ExitStack() as stack:
        stack.enter_context(replacing_steps(stepping))
        for clip in (torch.nn.utils.clip_grad_norm_, torch.nn.utils.clip_grad_value_):
            stack.enter_context(replaced_everywhere(clip, clipping(clip)))
        yield


clipping_last.outermost = True  # type: ignore[attr-defined]
