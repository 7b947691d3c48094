"""Faults of several ranks, planted into every process of the port; its functions are called by `RankGroup.call`.

A fault is one function with a decorator that says in which stage and part it must show and which cause
explains it. It changes methods of a case that was just loaded, in the process of one rank.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from twinalign.case.definition import Case
from twinalign.patching import replaced
from twinalign.planted_faults.fault_sites import CaseSite


@dataclasses.dataclass(frozen=True)
class RankFault:
    """One fault.

    Attributes:
        id: the function's name.
        text: its first line: what is wrong in the port, in one sentence.
        stage: the first stage that must diverge.
        part: of a step, in which it must be located.
        cause: id of the cause that explains it.
        spoil: changes the case of one rank.
        kind: always `ranks`, where other faults have one of `catalogue.KINDS`.
    """

    id: str
    text: str
    stage: str
    part: str
    cause: str
    spoil: Callable[[RankPlace], None]
    kind: str = "ranks"


@dataclasses.dataclass
class RankPlace(CaseSite):
    """The case of one rank of the port."""

    rank: int
    ranks: int

    def answered(self, answers: Mapping[str, Any], original: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function while functions of `paddle.distributed` give fixed answers."""
        with contextlib.ExitStack() as stack:
            for name, value in answers.items():
                stack.enter_context(replaced(self.paddle.distributed, name, lambda *_, _value=value, **__: _value))
            return original(*arguments)


_registered: dict[str, RankFault] = {}


def _fault(stage: str, part: str, cause: str) -> Callable[[Callable[[RankPlace], None]], Callable[[RankPlace], None]]:
    def decorate(function: Callable[[RankPlace], None]) -> Callable[[RankPlace], None]:
        text = (function.__doc__ or "").strip().splitlines()[0].rstrip(".")
        _registered[function.__name__] = RankFault(function.__name__, text, stage, part, cause, function)
        return function

    return decorate


def rank_faults() -> Mapping[str, RankFault]:
    """Every fault by id."""
    return _registered


@_fault("loss", "inputs", "rank_inputs")
def rank_same_samples(place: RankPlace) -> None:
    """Every rank is given the samples of rank 0."""
    place.around("share", lambda original, inputs, rank, ranks: original(inputs, 0, ranks))


@_fault("loss", "weights", "rank_weights")
def rank_own_weights(place: RankPlace) -> None:
    """Every rank draws its initial weights from a seed of its own."""

    def run(original: Callable[..., Any], step: Any, framework: str) -> Any:
        parallel = original(step, framework)
        noise = np.random.default_rng(place.rank)
        for parameter in step.model.parameters() if place.rank else ():
            array = parameter.numpy()
            parameter.set_value((array + 0.02 * noise.standard_normal(array.shape)).astype(array.dtype))
        return parallel

    place.around("distributed", run)


@_fault("loss", "forward", "rank_batch_norm")
def rank_batch_norm_alone(place: RankPlace) -> None:
    """Batch normalisation takes its statistics over the rank's own samples."""

    def run(original: Callable[..., Any], model: Any, *arguments: Any) -> Any:
        with contextlib.ExitStack() as stack:
            for layer in model.sublayers():
                if "BatchNorm" in "".join(kind.__name__ for kind in type(layer).__mro__):
                    alone = functools.partial(place.answered, {"get_world_size": 1}, layer.forward)
                    stack.enter_context(replaced(layer, "forward", alone))
            return original(model, *arguments)

    place.around("forward", run)


@_fault("loss", "loss", "rank_labels")
def rank_labels_not_offset(place: RankPlace) -> None:
    """The labels count from the rank's own first sample, not from that of rank 0."""
    place.around("loss", functools.partial(place.answered, {"get_rank": 0}))


@_fault("backward", "gradient", "rank_gradient_average")
def rank_gradients_summed(place: RankPlace) -> None:
    """Gradients are summed over the ranks, not averaged."""

    def run(parallel: Callable[..., Any], inputs: Any) -> Any:
        loss = parallel(inputs)
        return loss * place.ranks - (loss * (place.ranks - 1)).detach()

    place.result("distributed", lambda parallel: functools.partial(run, parallel))


@_fault("backward", "gradient", "rank_gather_gradient")
def rank_gather_with_gradient(place: RankPlace) -> None:
    """What is gathered from the ranks carries a gradient."""
    paddle, gather = place.paddle, place.paddle.distributed.all_gather

    class Gathered(paddle.autograd.PyLayer):  # type: ignore[name-defined]
        """All ranks' tensors, with the gradient of all ranks' losses."""

        @staticmethod
        def forward(context: Any, own: Any) -> Any:
            found: list[Any] = []
            gather(found, own)
            return paddle.concat(found)

        @staticmethod
        def backward(context: Any, gradient: Any) -> Any:
            gradient = gradient.clone()
            paddle.distributed.all_reduce(gradient)
            return paddle.split(gradient, place.ranks)[place.rank]

    def all_gather(found: list[Any], own: Any, *_: Any, **__: Any) -> None:
        found.extend(paddle.split(Gathered.apply(own), place.ranks))

    def run(parallel: Callable[..., Any], inputs: Any) -> Any:
        with replaced(paddle.distributed, "all_gather", all_gather):
            return parallel(inputs)

    place.result("distributed", lambda parallel: functools.partial(run, parallel))


@dataclasses.dataclass(frozen=True)
class PlantedInRank:
    """Spoils every case of a part that a rank's worker loads."""

    fault: RankFault
    home: str
    paddle: Any
    rank: int
    ranks: int

    def spoil_case(self, case: Case) -> None:
        """Change the methods of a case that was just loaded."""
        if (case.name or type(case).__name__) == self.home:
            self.fault.spoil(RankPlace(self.paddle, case, self.rank, self.ranks))

    def spoil_model(self, case: Case, model: Any) -> None:
        """A model is left as it is."""

    spoil_weights = spoil_model


def plant(worker: Any, fault: str, stage: str) -> dict[str, Any]:
    """Spoil every case of the part that defines `stage` from now on; an empty `fault` takes it out again."""
    worker.forget_model()
    worker.planted = None
    if fault:
        home, paddle = worker.part_key(stage), worker.backend.paddle
        worker.planted = PlantedInRank(rank_faults()[fault], home, paddle, worker.rank, worker.ranks)
    return {}
