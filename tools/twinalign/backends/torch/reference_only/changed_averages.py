"""Change how a moving average of trained parameters is updated in the reference's training."""

import contextlib
import itertools
from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch

from twinalign.backends.torch.reference_only.steps import watching_steps
from twinalign.backends.torch.reference_only.written_averages import averaging_buffers_too
from twinalign.patching import Around, replaced


class _Averages:
    """Untrained parameters that follow trained ones of the same name in another part of a model, or in a copy of it."""

    def __init__(
        self,
        model: torch.nn.Module,
        momentum: Callable[[int, float], float],
        buffers: bool,
        left_out: Collection[str],
        seen: list[dict[str, tuple[float, float]]],
    ) -> None:
        self._model, self._momentum, self._buffers = model, momentum, buffers
        self._left_out, self._seen = left_out, seen
        self._kept: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._buffer_pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._buffers_before: list[torch.Tensor] = []
        self._copies: list[torch.nn.Module] = []
        self._names: list[str] = []
        self._before: list[torch.Tensor] = []
        self._first: list[torch.Tensor] = []
        self._optimizer: Any = None
        self._steps = 0

    def begin_step(self, optimizer: Any) -> None:
        if self._optimizer is None:
            self._find({id(parameter) for group in optimizer.param_groups for parameter in group["params"]})
            self._optimizer = optimizer if self._pairs else None
        self.settle()

    @torch.no_grad()
    def end_step(self, optimizer: Any) -> None:
        if optimizer is not self._optimizer:
            return
        self._steps += 1
        self._buffers_before = [average.clone() for average, _ in self._buffer_pairs]
        known = {**dict(self._model.named_parameters()), **dict(self._model.named_buffers())}
        self._kept = [(tensor, tensor.detach().clone()) for name, tensor in known.items() if name in self._left_out]
        rows = zip(self._names, self._pairs, self._first, strict=True)
        apart = {name: ((p - first).norm(), (p - average).norm()) for name, (average, p), first in rows}
        self._seen.append({name: (float(one), float(other)) for name, (one, other) in apart.items()})

    def _find(self, held: set[int]) -> None:
        named = list(self._model.named_parameters())
        names = {id(p): name for name, p in named}
        trained = {name: p for name, p in named if p.requires_grad and id(p) in held}
        # An optimizer may hold what it does not train.
        left = sorted(((n, p) for n, p in named if n not in trained), key=lambda one: not one[1].requires_grad)
        averaged = {name.partition(".")[2]: p for name, p in left}  # of one name, what no gradient reaches
        self._pairs = [
            (average, p)
            for name, p in trained.items()
            if (average := averaged.get(name.partition(".")[2])) is not None and average.shape == p.shape
        ]
        if self._pairs:
            self._buffer_pairs = self._buffers_of_parts()
        else:
            names |= self._find_copy({name: tuple(p.shape) for name, p in named}, trained)
        self._names = [names[id(average)] for average, _ in self._pairs]
        self._first = self._before = [average.clone() for average, _ in self._pairs]

    def _find_copy(self, shapes: dict[str, tuple[int, ...]], trained: dict[str, torch.Tensor]) -> dict[int, str]:
        """The averages in the first copy of the model that the training has made; returns their names."""
        for copy in self._copies:
            averages = dict(copy.named_parameters())
            if copy is not self._model and {name: tuple(p.shape) for name, p in averages.items()} == shapes:
                self._pairs = [(averages[name], p) for name, p in trained.items()]
                self._buffer_pairs = _buffers_of(copy, self._model)
                copy.register_forward_pre_hook(self.settle)
                return {id(average): name for name, average in averages.items()}
        return {}

    @contextlib.contextmanager
    def watching_copies(self) -> Iterator[None]:
        """Notice what modules are copied, or loaded with the state of another, inside the block."""
        kind = torch.nn.Module
        own, load = kind.__setstate__, kind.load_state_dict

        def made(module: torch.nn.Module, state: Any) -> None:
            own(module, state)
            self._copies.append(module)

        def loaded(module: torch.nn.Module, *arguments: Any, **options: Any) -> Any:
            self._copies.append(module)
            return load(module, *arguments, **options)

        with replaced(kind, "__setstate__", made), replaced(kind, "load_state_dict", loaded):
            yield

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
            for (average, given), before in zip(self._buffer_pairs, self._buffers_before, strict=True):
                average.copy_(before * m + given * (1.0 - m))
        for tensor, old in self._kept:
            tensor.copy_(old)
        self._before = [average.clone() for average, _ in self._pairs]

    def _buffers_of_parts(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Buffers of the model's parts that hold averages, with those of the same name in trained parts."""
        held = [{id(p) for p in part.parameters()} for part in self._model.children()]
        parts = list(zip(self._model.children(), held, strict=True))
        averaged = [part for part, inside in parts if any(id(average) in inside for average, _ in self._pairs)]
        trained = [part for part, inside in parts if any(id(p) in inside for _, p in self._pairs)]
        return [pair for theirs, ours in itertools.product(trained, averaged) for pair in _buffers_of(ours, theirs)]


def _buffers_of(averaged: torch.nn.Module, trained: torch.nn.Module) -> list[tuple[torch.Tensor, torch.Tensor]]:
    given = dict(trained.named_buffers())
    return [(b, given[name]) for name, b in averaged.named_buffers() if b.is_floating_point() and name in given]


def averaging(
    momentum: Callable[[int, float], float] = lambda step, own: own,
    buffers: bool = False,
    left_out: Collection[str] = (),
    seen: list[dict[str, tuple[float, float]]] | None = None,
) -> Around:
    """Let the moving average of trained parameters have the momentum `momentum(step, own)` in each update.

    Whatever loop or method updates it: an update shows in the averages, and nothing trains between it and the next
    step or the next call of the model. With `buffers` it moves the averaged part's buffers as well, and the model's
    where the average is kept elsewhere and written into it; `left_out` are the names of averages, and of buffers, that
    it leaves alone. `seen` receives for each step of the optimizer, by the average's name, how far the parameter is
    from where its average began, and from the average.
    """

    @contextlib.contextmanager
    def around(model: Any) -> Iterator[None]:
        made = _Averages(model, momentum, buffers, left_out, [] if seen is None else seen)
        with contextlib.ExitStack() as stack:
            for layer in (model, *model.children()):
                stack.callback(layer.register_forward_pre_hook(made.settle).remove)
            stack.enter_context(made.watching_copies())
            if buffers:
                stack.enter_context(averaging_buffers_too(model))
            stack.enter_context(watching_steps(made.begin_step, made.end_step))
            yield
            made.settle()

    return around
