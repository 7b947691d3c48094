"""Causes of wrong ranks: each changes a method of the case in the reference's processes, which then record again."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from twinalign.causes.registry import Cause, Find, Variant, Within, enter, sentence_of
from twinalign.patching import replaced

Around = contextlib.AbstractContextManager[Any]


@dataclasses.dataclass(frozen=True)
class RankSubject:
    """The reference on one rank.

    Attributes:
        case: the case whose methods are replaced.
        tools: `twinalign.backends.torch.reference_only.rank_mistakes`.
        rank, ranks: rank of this process, and the number of ranks.
        weights: the port's parameters and buffers on this rank, if they differ from rank 0's.
        batch_norms: paths of the batch norms of the model.
    """

    case: Any
    tools: ModuleType
    rank: int
    ranks: int
    weights: Mapping[str, np.ndarray]
    batch_norms: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class RankCause(Cause):
    """A cause that changes a method of the reference's case; it shows first in `part`, one of `rank_steps.PARTS`."""

    part: str = ""


def rank_cause(part: str) -> Callable[[Find], Find]:
    """Decorator of causes that show first in a part of a step, one of `rank_steps.PARTS`."""

    def entered(find: Find) -> Find:
        enter(RankCause(find.__name__, "ranks", sentence_of(find), RankSubject, find, part=part))
        return find

    return entered


def _variant(subject: RankSubject, detail: str, name: str, change: Callable[..., Any]) -> Variant:
    """The variant in which `change(original, *arguments)` replaces a method of the case."""

    def around() -> Around:
        original = getattr(subject.case, name)
        return replaced(subject.case, name, lambda *arguments: change(original, *arguments))

    return Within(detail, around)


def _within(context: Callable[[], Around]) -> Callable[..., Any]:
    def change(original: Callable[..., Any], *arguments: Any) -> Any:
        with context():
            return original(*arguments)

    return change


@rank_cause("inputs")
def rank_inputs(subject: RankSubject) -> Iterator[Variant]:
    """The ranks get other samples."""

    def of(rank: Callable[[int], int]) -> Callable[..., Any]:
        return lambda original, inputs, own, count: original(inputs, rank(own), count)

    def in_turn(original: Callable[..., Any], inputs: Mapping[str, np.ndarray], own: int, count: int) -> Any:
        pieces = original(inputs, own, count)
        return {n: inputs[n][own::count] if v.shape != inputs[n].shape else v for n, v in pieces.items()}

    for detail, change in (
        ("every rank has those of rank 0", of(lambda own: 0)),
        ("they are dealt out in turn", in_turn),
        ("every rank has the whole batch", lambda original, inputs, *_: inputs),
        ("the last rank has the first piece", of(lambda own: subject.ranks - 1 - own)),
    ):
        yield _variant(subject, detail, "share", change)


@rank_cause("weights")
def rank_weights(subject: RankSubject) -> Iterator[Variant]:
    """The ranks start from different weights."""

    def change(original: Callable[..., Any], step: Any, framework: str) -> Any:
        made = original(step, framework)
        subject.tools.load_weights(step.model, subject.weights)
        return made

    yield _variant(subject, "", "distributed", change)


@rank_cause("forward")
def rank_batch_norm(subject: RankSubject) -> Iterator[Variant]:
    """Batch normalisation is not synchronised over the ranks."""
    parts = list(dict.fromkeys(path.partition(".")[0] for path in subject.batch_norms))
    for part in ["", *(parts if len(parts) > 1 else [])] if parts else []:

        def change(original: Callable[..., Any], model: Any, *arguments: Any, part: str = part) -> Any:
            layers = subject.tools.batch_norms(model)
            chosen = {path: layer for path, layer in layers.items() if not part or path.partition(".")[0] == part}
            with subject.tools.normalising_alone(chosen):
                return original(model, *arguments)

        yield _variant(subject, f"in {part}" if part else "", "forward", change)


@rank_cause("loss")
def rank_labels(subject: RankSubject) -> Iterator[Variant]:
    """Labels are not offset by the rank."""
    yield _variant(subject, "", "loss", _within(lambda: subject.tools.LabelsWithoutOffset(subject.rank)))


@rank_cause("loss")
def rank_gather_missing(subject: RankSubject) -> Iterator[Variant]:
    """The loss sees only the samples of its own rank."""
    yield _variant(subject, "", "loss", _within(subject.tools.alone))


@rank_cause("gradient")
def rank_gather_gradient(subject: RankSubject) -> Iterator[Variant]:
    """Tensors that are gathered from the ranks carry a gradient."""
    for of_all, detail in ((True, "of all ranks' losses"), (False, "of the rank's own loss")):

        def change(original: Callable[..., Any], step: Any, framework: str, of_all: bool = of_all) -> Any:
            parallel = original(step, framework)
            return lambda inputs: _within(lambda: subject.tools.gathering_with_gradient(of_all))(parallel, inputs)

        yield _variant(subject, detail, "distributed", change)


@rank_cause("gradient")
def rank_gradient_average(subject: RankSubject) -> Iterator[Variant]:
    """Gradients are not averaged over the ranks."""

    def scaled(factor: float) -> Callable[..., Any]:
        def change(original: Callable[..., Any], step: Any, framework: str) -> Any:
            parallel = original(step, framework)
            return lambda inputs: subject.tools.with_gradient_times(parallel(inputs), factor)

        return change

    def own(original: Callable[..., Any], step: Any, framework: str) -> Any:
        original(step, framework)  # for its other effects on the model
        return step

    yield _variant(subject, "but summed", "distributed", scaled(float(subject.ranks)))
    divided_again = scaled(1.0 / subject.ranks)
    yield _variant(subject, "but divided by their number once more", "distributed", divided_again)
    yield _variant(subject, "but each rank's own", "distributed", own)
