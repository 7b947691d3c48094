"""The samples of the reference under examination: their order, their number and their labels."""

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from twinalign.causes.component import Component, explain
from twinalign.causes.registry import Variant, cause

_MOST_SHIFT = 4


class _SampleSubject(Component):
    """Something that each sample has, under examination.

    Attributes:
        port, reference, floors: `name` → what each sample that is compared has, one after the other.
        known: what the reference's samples have, also those that come after the ones that are compared.
        judged: how many samples are compared.
        batch: samples that come together.
        change: makes what is known of the reference something else.
    """

    name: str

    def __init__(self, known: np.ndarray, judged: int, port: np.ndarray, batch: int) -> None:
        self.known, self.judged, self.batch = known, judged, batch
        self.port, self.reference = {self.name: port}, {self.name: known[:judged]}
        self.floors = {self.name: 0.0}
        self.change: Callable[[np.ndarray], np.ndarray] = lambda known: known

    def run(self) -> dict[str, np.ndarray]:
        return {self.name: np.asarray(self.change(self.known))[: self.judged]}


class OrderSubject(_SampleSubject):
    """What causes in the order and the number of samples are asked about: the number of each in the reference."""

    name = "order"

    def __init__(self, order: Sequence[int], judged: int, total: int, batch: int) -> None:
        super().__init__(np.arange(total), judged, np.asarray(order), batch)


class LabelSubject(_SampleSubject):
    """What causes in labels are asked about, where only those differ."""

    name = "labels"

    def __init__(self, reference: Sequence[Sequence[int]], port: Sequence[Sequence[int]]) -> None:
        known, compared = (np.array([label for labels in side for label in labels]) for side in (reference, port))
        super().__init__(known, len(compared), compared, len(reference[0]))


order_cause = functools.partial(cause, "data", OrderSubject)
label_cause = functools.partial(cause, "data", LabelSubject)


def explain_order(worker: Any, split: str, order: Sequence[int], judged: int, total: int, batch: int) -> dict[str, Any]:
    """Why samples come in this order: for each of the port's samples, the number of the same one in the reference.

    `judged` samples are compared, `total` of the reference are known, `batch` come together.
    """
    return explain(OrderSubject(order, judged, total, batch), "data")


def explain_labels(
    worker: Any, split: str, reference: Sequence[Sequence[int]], port: Sequence[Sequence[int]]
) -> dict[str, Any]:
    """Why labels differ, from the labels of each known sample of the reference and of each compared one of the port."""
    return explain(LabelSubject(reference, port), "data")


@order_cause()
def order_shifted(subject: OrderSubject) -> Iterator[Variant]:
    """Samples at the beginning are left out."""
    for count in dict.fromkeys([*range(1, _MOST_SHIFT + 1), subject.batch]):
        yield subject.variant(f"{count}", change=operator.itemgetter(slice(count, None)))


@order_cause(difference="dataloader_defaults")
def drop_last(subject: OrderSubject) -> Iterator[Variant]:
    """Samples at the end are dropped: the last batch, which is not full, is left out."""
    missing = subject.judged - len(subject.port["order"])
    if missing > 0:
        yield subject.variant(f"{missing} missing", change=lambda order: order[: subject.judged - missing])


@order_cause()
def sample_repeated(subject: OrderSubject) -> Iterator[Variant]:
    """Samples come twice."""
    for place in range(min(subject.judged, 16)):
        yield subject.variant(
            f"number {place}", change=lambda order, place=place: np.insert(order, place, order[place])
        )
    yield subject.variant("the first batch", change=lambda order: np.concatenate([order[: subject.batch], order]))
    yield subject.variant("each", change=lambda order: np.repeat(order, 2))


@order_cause()
def order_reversed(subject: OrderSubject) -> Iterator[Variant]:
    """The samples come from the last to the first."""
    yield subject.variant("", change=lambda order: order[::-1])


@order_cause()
def order_swapped(subject: OrderSubject) -> Iterator[Variant]:
    """Neighbouring samples have changed places."""
    for size in dict.fromkeys([1, subject.batch]):

        def arrange(order: np.ndarray, size: int = size) -> np.ndarray:
            pairs = [order[start : start + 2 * size] for start in range(0, len(order), 2 * size)]
            return np.concatenate([np.concatenate([pair[size:], pair[:size]]) for pair in pairs])

        yield subject.variant("" if size == 1 else f"in batches of {size}", change=arrange)


@order_cause(difference="dataloader_defaults")
def sampler_shard(subject: OrderSubject) -> Iterator[Variant]:
    """The samples are those of one rank of several."""
    for world in (2, 3, 4, 8):
        for rank in range(world):
            yield subject.variant(f"rank {rank} of {world}", change=operator.itemgetter(slice(rank, None, world)))


@order_cause(difference="random_sampler_rng", rank=2)
def sampler_order(subject: OrderSubject) -> Iterator[Variant]:
    """The samples are the reference's in another order: shuffled or not, or with another seed or epoch."""
    order = subject.port["order"]
    if len(order) == subject.judged and len(set(order.tolist())) == len(order):
        names = ", ".join(map(str, order[:8].tolist())) + ("…" if len(order) > 8 else "")
        yield subject.variant(names, change=lambda all_of_them: order)


@order_cause(rank=2)
def sample_missing(subject: OrderSubject) -> Iterator[Variant]:
    """Samples are left out, or come again."""
    order = subject.port["order"]
    if len(order) and (np.diff(order) >= 0).all():
        yield subject.variant(", ".join(map(str, order[:8].tolist())), change=lambda all_of_them: order)


@label_cause()
def labels_shifted(subject: LabelSubject) -> Iterator[Variant]:
    """Labels are shifted by a number."""
    off = int(subject.port["labels"][0] - subject.reference["labels"][0])
    for shift in filter(None, dict.fromkeys([1, -1, off])):
        yield subject.variant(f"{shift:+d}", change=functools.partial(np.add, shift))


@label_cause()
def labels_of_neighbours(subject: LabelSubject) -> Iterator[Variant]:
    """Samples have the labels of other samples beside them."""
    for shift in (1, -1, 2, -2, 3, -3, 4, -4):
        yield subject.variant(f"{shift:+d}", change=functools.partial(np.roll, shift=shift))
        yield subject.variant(
            f"{shift:+d}, among those that are compared",
            change=lambda labels, shift=shift: np.roll(labels[: subject.judged], shift),
        )


@label_cause(difference="imagefolder", rank=1)
def classes_renumbered(subject: LabelSubject) -> Iterator[Variant]:
    """The classes are numbered in another order."""
    pairs = set(zip(subject.reference["labels"].tolist(), subject.port["labels"].tolist(), strict=False))
    ours, theirs = {a for a, _ in pairs}, {b for _, b in pairs}
    if len(pairs) == len(ours) == len(theirs) > 1:
        number = dict(pairs)
        numbers = ", ".join(f"{a}→{b}" for a, b in sorted(pairs)[:6])
        yield subject.variant(
            numbers, change=lambda labels: np.array([number.get(label, label) for label in labels.tolist()])
        )
