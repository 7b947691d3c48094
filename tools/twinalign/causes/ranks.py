"""Causes of wrong ranks: each changes a method of the case in the reference's processes, which then record again."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from twinalign.causes.registry import Cause, Variant, Within, enter
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


def _within(context: Callable[[], Around]) -> Callable[..., Any]:
    def change(original: Callable[..., Any], *arguments: Any) -> Any:
        with context():
            return original(*arguments)

    return change


def _of_rank(rank: Callable[[int], int]) -> Callable[..., Any]:
    return lambda original, inputs, own, count: original(inputs, rank(own), count)


def _in_turn(original: Callable[..., Any], inputs: Mapping[str, np.ndarray], own: int, count: int) -> Any:
    pieces = original(inputs, own, count)
    return {n: inputs[n][own::count] if v.shape != inputs[n].shape else v for n, v in pieces.items()}


def _with_weights(subject: RankSubject, original: Callable[..., Any], step: Any, framework: str) -> Any:
    made = original(step, framework)
    subject.tools.load_weights(step.model, subject.weights)
    return made


def _not_synchronised(subject: RankSubject) -> Iterator[tuple[str, Callable[..., Any]]]:
    parts = list(dict.fromkeys(path.partition(".")[0] for path in subject.batch_norms))
    for part in ["", *(parts if len(parts) > 1 else [])] if parts else []:
        yield f"in {part}" if part else "", functools.partial(_normalising_alone, subject, part)


def _normalising_alone(subject: RankSubject, part: str, original: Callable[..., Any], model: Any, *given: Any) -> Any:
    layers = subject.tools.batch_norms(model)
    chosen = {path: layer for path, layer in layers.items() if not part or path.partition(".")[0] == part}
    with subject.tools.normalising_alone(chosen):
        return original(model, *given)


def _gathering(subject: RankSubject, of_all: bool, original: Callable[..., Any], step: Any, framework: str) -> Any:
    parallel = original(step, framework)
    return lambda inputs: _within(lambda: subject.tools.gathering_with_gradient(of_all))(parallel, inputs)


def _scaled(subject: RankSubject, factor: float, original: Callable[..., Any], step: Any, framework: str) -> Any:
    parallel = original(step, framework)
    return lambda inputs: subject.tools.with_gradient_times(parallel(inputs), factor)


def _own(original: Callable[..., Any], step: Any, framework: str) -> Any:
    original(step, framework)  # for its other effects on the model
    return step


def _enter(identifier: str, text: str, part: str, method: str, changes: Callable[[RankSubject], Iterable[Any]]) -> None:
    """Enter a cause: `change(original, *arguments)` replaces a method of the case, by the detail of the variant."""

    def find(subject: RankSubject) -> Iterator[Variant]:
        for detail, change in changes(subject):
            replacement = functools.partial(change, getattr(subject.case, method))
            yield Within(detail, functools.partial(replaced, subject.case, method, replacement))

    enter(RankCause(identifier, "ranks", text, RankSubject, find, part=part))


for _row in (
    ("rank_inputs", "the ranks get other samples", "inputs", "share",
     lambda s: [("every rank has those of rank 0", _of_rank(lambda own: 0)), ("they are dealt out in turn", _in_turn),
                ("every rank has the whole batch", lambda original, inputs, *_: inputs),
                ("the last rank has the first piece", _of_rank(lambda own: s.ranks - 1 - own))]),
    ("rank_weights", "the ranks start from different weights", "weights", "distributed",
     lambda s: [("", functools.partial(_with_weights, s))]),
    ("rank_batch_norm", "batch normalisation is not synchronised over the ranks", "forward", "forward",
     _not_synchronised),
    ("rank_labels", "labels are not offset by the rank", "loss", "loss",
     lambda s: [("", _within(lambda: s.tools.LabelsWithoutOffset(s.rank)))]),
    ("rank_gather_missing", "the loss sees only the samples of its own rank", "loss", "loss",
     lambda s: [("", _within(s.tools.alone))]),
    ("rank_gather_gradient", "tensors that are gathered from the ranks carry a gradient", "gradient", "distributed",
     lambda s: [("of all ranks' losses", functools.partial(_gathering, s, True)),
                ("of the rank's own loss", functools.partial(_gathering, s, False))]),
    ("rank_gradient_average", "gradients are not averaged over the ranks", "gradient", "distributed",
     lambda s: [("but summed", functools.partial(_scaled, s, float(s.ranks))),
                ("but divided by their number once more", functools.partial(_scaled, s, 1.0 / s.ranks)),
                ("but each rank's own", _own)]),
):  # fmt: skip
    _enter(*_row)
