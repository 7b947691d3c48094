"""What goes wrong between ranks: each cause is done to the reference's own processes, which then record once more."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from twinalign.explain.registry import Hypothesis, register
from twinalign.patching import replaced

Around = contextlib.AbstractContextManager[Any]


@dataclasses.dataclass(frozen=True)
class RankSubject:
    """The reference on one rank.

    Attributes:
        case: whose methods are replaced.
        tools: `twinalign.backends.torch_ranks`.
        rank: of this process.
        ranks: how many there are.
        weights: parameters and buffers that the port has on this rank, where they are not rank 0's.
        batch_norms: paths of the batch norms of the model.
    """

    case: Any
    tools: ModuleType
    rank: int
    ranks: int
    weights: Mapping[str, np.ndarray]
    batch_norms: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class RankVariant:
    """One way in which the ranks' work is wrong."""

    detail: str
    around: Callable[[], Around]

    def apply(self) -> Around:
        """Within it the case is wrong in this way."""
        return self.around()


class RankHypothesis(Hypothesis):
    """Changes a method of the reference's case.

    Attributes:
        part: what of the ranks' work is at fault.
    """

    phase = "ranks"
    part = ""

    def variants(self, subject: RankSubject) -> Iterator[RankVariant]:
        """See `Hypothesis`."""
        raise NotImplementedError


def _method(subject: RankSubject, name: str, change: Callable[..., Any]) -> Callable[[], Around]:
    """Let `change(original, *arguments)` stand for a method of the case."""

    def around() -> Around:
        original = getattr(subject.case, name)
        return replaced(subject.case, name, lambda *arguments: change(original, *arguments))

    return around


def _within(context: Callable[[], Around]) -> Callable[..., Any]:
    def change(original: Callable[..., Any], *arguments: Any) -> Any:
        with context():
            return original(*arguments)

    return change


@register
class RankInputs(RankHypothesis):
    """Another cut of the batch."""

    id = "rank_inputs"
    part = "inputs"
    text = "the ranks are given other samples"

    def variants(self, subject: RankSubject) -> Iterator[RankVariant]:
        """The likeliest cuts."""
        ranks = subject.ranks

        def of(rank: Callable[[int], int]) -> Callable[..., Any]:
            return lambda original, inputs, own, count: original(inputs, rank(own), count)

        def in_turn(original: Callable[..., Any], inputs: Mapping[str, np.ndarray], own: int, count: int) -> Any:
            pieces = original(inputs, own, count)
            return {n: inputs[n][own::count] if v.shape != inputs[n].shape else v for n, v in pieces.items()}

        yield RankVariant("every rank has those of rank 0", _method(subject, "share", of(lambda own: 0)))
        yield RankVariant("they are dealt out in turn", _method(subject, "share", in_turn))
        yield RankVariant(
            "every rank has the whole batch", _method(subject, "share", lambda original, inputs, *_: inputs)
        )
        yield RankVariant(
            "the last rank has the first piece", _method(subject, "share", of(lambda own: ranks - 1 - own))
        )


@register
class RankWeights(RankHypothesis):
    """Every rank starts on its own: another seed, or weights made after the model was wrapped."""

    id = "rank_weights"
    part = "weights"
    text = "the ranks start from different weights"

    def variants(self, subject: RankSubject) -> Iterator[RankVariant]:
        """With the weights that the port has on this rank."""

        def change(original: Callable[..., Any], step: Any, framework: str) -> Any:
            made = original(step, framework)
            subject.tools.load_weights(step.model, subject.weights)
            return made

        yield RankVariant("", _method(subject, "distributed", change))


@register
class BatchNormAlone(RankHypothesis):
    """Statistics over a rank's own samples."""

    id = "rank_batch_norm"
    part = "forward"
    text = "batch normalisation is not synchronised over the ranks"

    def variants(self, subject: RankSubject) -> Iterator[RankVariant]:
        """All of them; those of one part of the model."""
        parts = list(dict.fromkeys(path.partition(".")[0] for path in subject.batch_norms))
        yield from ([self._of(subject, "")] if parts else [])
        yield from (self._of(subject, part) for part in parts if len(parts) > 1)

    def _of(self, subject: RankSubject, part: str) -> RankVariant:
        def change(original: Callable[..., Any], model: Any, *arguments: Any) -> Any:
            layers = subject.tools.batch_norms(model)
            chosen = {path: layer for path, layer in layers.items() if not part or path.partition(".")[0] == part}
            with subject.tools.normalising_alone(chosen):
                return original(model, *arguments)

        return RankVariant(f"in {part}" if part else "", _method(subject, "forward", change))


@register
class LabelsWithoutOffset(RankHypothesis):
    """Class labels that are places among the samples of all ranks."""

    id = "rank_labels"
    part = "loss"
    text = "labels are not offset by the rank"

    def variants(self, subject: RankSubject) -> Iterator[RankVariant]:
        """The one."""
        yield RankVariant(
            "", _method(subject, "loss", _within(lambda: subject.tools.labels_without_offset(subject.rank)))
        )


@register
class NotGathered(RankHypothesis):
    """Only the rank's own samples are compared with."""

    id = "rank_gather_missing"
    part = "loss"
    text = "the loss sees the samples of its own rank alone"

    def variants(self, subject: RankSubject) -> Iterator[RankVariant]:
        """The one."""
        yield RankVariant("", _method(subject, "loss", _within(subject.tools.alone)))


@register
class GatherWithGradient(RankHypothesis):
    """A gathering that the reference makes without gradient."""

    id = "rank_gather_gradient"
    part = "gradient"
    text = "what is gathered from the ranks carries a gradient"

    def variants(self, subject: RankSubject) -> Iterator[RankVariant]:
        """Of all ranks' losses, as an autograd gathering has it, or of the rank's own."""
        for of_all, detail in ((True, "of all ranks' losses"), (False, "of the rank's own loss")):
            yield RankVariant(detail, _called(subject, of_all))


def _called(subject: RankSubject, of_all: bool) -> Callable[[], Around]:
    def change(original: Callable[..., Any], step: Any, framework: str) -> Any:
        parallel = original(step, framework)

        def call(inputs: Mapping[str, Any]) -> Any:
            with subject.tools.gathering_with_gradient(of_all):
                return parallel(inputs)

        return call

    return _method(subject, "distributed", change)


@register
class GradientAverage(RankHypothesis):
    """Another factor before the sum over the ranks."""

    id = "rank_gradient_average"
    part = "gradient"
    text = "gradients are not averaged over the ranks"

    def variants(self, subject: RankSubject) -> Iterator[RankVariant]:
        """Summed, divided twice, or each rank's own."""
        yield RankVariant("but summed", self._scaled(subject, float(subject.ranks)))
        yield RankVariant("but divided by their number once more", self._scaled(subject, 1.0 / subject.ranks))

        def own(original: Callable[..., Any], step: Any, framework: str) -> Any:
            original(step, framework)  # for what else it does to the model
            return step

        yield RankVariant("but each rank's own", _method(subject, "distributed", own))

    def _scaled(self, subject: RankSubject, factor: float) -> Callable[[], Around]:
        def change(original: Callable[..., Any], step: Any, framework: str) -> Any:
            parallel = original(step, framework)
            return lambda inputs: subject.tools.with_gradient_times(parallel(inputs), factor)

        return _method(subject, "distributed", change)
