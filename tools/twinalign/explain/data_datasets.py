"""The reference's dataset as a whole under examination: order and number of samples, labels, settings of the case."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from twinalign.explain.component import Replaced, explain
from twinalign.explain.registry import Hypothesis, Variant, register
from twinalign.locate.data_steps import STAGE, sample_arrays

_MOST_SHIFT = 4


def sample_steps(worker: Any, split: str, name: str) -> Callable[[int, Any], np.ndarray]:
    """A function that reads one value of a sample anew: of its number, and whatever it is given."""

    def read(index: int, nothing: Any) -> np.ndarray:
        samples = iter(worker.fresh_case(STAGE).dataset(worker.framework, split))
        return sample_arrays(worker.backend, next(itertools.islice(samples, index, None)))[name]

    return read


class OrderSubject:
    """What hypotheses of the phase data are given when samples come in another order, or another number of them.

    Attributes:
        port, reference, floors: `order` → number of the reference's sample that comes at each place.
        judged: how many samples are compared.
        total: how many samples of the reference are known.
        ended: whether the reference has no more than those.
        batch: samples that come together.
        arrange: makes the order of all known samples another one.
    """

    def __init__(self, order: Sequence[int], judged: int, total: int, ended: bool, batch: int) -> None:
        """Examine this order."""
        self.impatient = False
        self.port = {"order": np.asarray(order)}
        self.reference = {"order": np.arange(judged)}
        self.floors: Mapping[str, float] = {"order": 0.0}
        self.judged, self.total, self.ended, self.batch = judged, total, ended, batch
        self.arrange: Callable[[np.ndarray], np.ndarray] = lambda order: order

    def run(self) -> dict[str, np.ndarray]:
        """The order as it is at present."""
        return {"order": np.asarray(self.arrange(np.arange(self.total)))[: self.judged]}

    def holds_everywhere(self) -> bool:
        """All samples are compared."""
        return True

    def arranged(self, detail: str, arrange: Callable[[np.ndarray], np.ndarray]) -> Replaced:
        """The variant with another order."""
        return Replaced(detail, self, {"arrange": arrange})


class LabelSubject:
    """What hypotheses of the phase data are given when only labels differ.

    Attributes:
        port, reference, floors: `labels` → of all compared samples, one after the other.
        known: labels of samples that come after them in the reference.
        change: makes the reference's labels, those that are known after them included, other ones.
    """

    def __init__(self, reference: Sequence[Sequence[int]], port: Sequence[Sequence[int]]) -> None:
        """Examine labels of samples, each with as many as its batch has."""
        self.impatient = False
        flat = np.array([label for labels in reference for label in labels])
        self.port = {"labels": np.array([label for labels in port for label in labels])}
        self.judged = len(self.port["labels"])
        self.known = flat
        self.reference = {"labels": flat[: self.judged]}
        self.floors: Mapping[str, float] = {"labels": 0.0}
        self.batch = len(reference[0])
        self.change: Callable[[np.ndarray], np.ndarray] = lambda labels: labels

    def run(self) -> dict[str, np.ndarray]:
        """The labels as they are at present."""
        return {"labels": np.asarray(self.change(self.known))[: self.judged]}

    def holds_everywhere(self) -> bool:
        """All labels are compared."""
        return True

    def changed(self, detail: str, change: Callable[[np.ndarray], np.ndarray]) -> Replaced:
        """The variant with other labels."""
        return Replaced(detail, self, {"change": change})


class _OrderHypothesis(Hypothesis):
    phase = "data"

    def variants(self, subject: Any) -> Iterable[Variant]:
        """None where it is not an order that is examined."""
        return self.of(subject) if isinstance(subject, OrderSubject) else ()

    def of(self, subject: OrderSubject) -> Iterable[Variant]:
        """The ways in which this can hold, the likeliest first."""
        raise NotImplementedError


class _LabelHypothesis(Hypothesis):
    phase = "data"

    def variants(self, subject: Any) -> Iterable[Variant]:
        """None where it is not labels that are examined."""
        return self.of(subject) if isinstance(subject, LabelSubject) else ()

    def of(self, subject: LabelSubject) -> Iterable[Variant]:
        """The ways in which this can hold, the likeliest first."""
        raise NotImplementedError


def explain_order(
    worker: Any, split: str, order: Sequence[int], judged: int, total: int, ended: bool, batch: int
) -> dict[str, Any]:
    """Why samples come in this order; called in the reference's process with the attributes of `OrderSubject`."""
    found = explain(OrderSubject(order, judged, total, ended, batch), None, "data")
    return {"explanation": found.to_json() if found else None}


def explain_labels(
    worker: Any, split: str, reference: Sequence[Sequence[int]], port: Sequence[Sequence[int]]
) -> dict[str, Any]:
    """Why labels differ; called in the reference's process.

    Args:
        worker: the recorder that calls.
        split: of the case.
        reference: labels of each sample that is known of the reference.
        port: labels of each sample of the port that is compared.

    Returns:
        `explanation`: of `Explanation.to_json`, or None.
    """
    found = explain(LabelSubject(reference, port), None, "data")
    return {"explanation": found.to_json() if found else None}


@register
class OrderShifted(_OrderHypothesis):
    """The first samples are lost."""

    id = "order_shifted"
    text = "samples at the beginning are left out"

    def of(self, subject: OrderSubject) -> Iterator[Variant]:
        """A few samples, or batches."""
        for count in dict.fromkeys([*range(1, _MOST_SHIFT + 1), subject.batch]):
            yield subject.arranged(f"{count}", lambda order, count=count: order[count:])  # type: ignore[misc]


@register
class DropLast(_OrderHypothesis):
    """drop_last on one side."""

    id = "drop_last"
    text = "samples at the end are dropped: the last batch, which is not full, is left out"
    difference = "dataloader_defaults"

    def of(self, subject: OrderSubject) -> Iterator[Variant]:
        """As many as the port lacks."""
        missing = subject.judged - len(subject.port["order"])
        if missing > 0:
            yield subject.arranged(f"{missing} missing", lambda order: order[: subject.judged - missing])


@register
class SampleRepeated(_OrderHypothesis):
    """A sample comes twice in a row."""

    id = "sample_repeated"
    text = "samples come twice"

    def of(self, subject: OrderSubject) -> Iterator[Variant]:
        """One of them, the first batch, all of them."""
        for place in range(min(subject.judged, 16)):
            yield subject.arranged(
                f"number {place}",
                lambda order, place=place: np.insert(order, place, order[place]),  # type: ignore[misc]
            )
        yield subject.arranged("the first batch", lambda order: np.concatenate([order[: subject.batch], order]))
        yield subject.arranged("each", lambda order: np.repeat(order, 2))


@register
class OrderReversed(_OrderHypothesis):
    """From the end."""

    id = "order_reversed"
    text = "the samples come from the last to the first"

    def of(self, subject: OrderSubject) -> Iterator[Variant]:
        """One way."""
        yield subject.arranged("", lambda order: order[::-1])


@register
class OrderSwapped(_OrderHypothesis):
    """Neighbours have changed places."""

    id = "order_swapped"
    text = "neighbouring samples have changed places"

    def of(self, subject: OrderSubject) -> Iterator[Variant]:
        """Samples, or batches."""
        for size in dict.fromkeys([1, subject.batch]):

            def arrange(order: np.ndarray, size: int = size) -> np.ndarray:
                pairs = [order[start : start + 2 * size] for start in range(0, len(order), 2 * size)]
                return np.concatenate([np.concatenate([pair[size:], pair[:size]]) for pair in pairs])

            yield subject.arranged("" if size == 1 else f"in batches of {size}", arrange)


@register
class Sharded(_OrderHypothesis):
    """Every n-th sample, as one rank of several gets them."""

    id = "sampler_shard"
    text = "the samples are those of one rank of several"
    difference = "dataloader_defaults"

    def of(self, subject: OrderSubject) -> Iterator[Variant]:
        """Every n-th, or a run of neighbours in each batch."""
        for world in (2, 3, 4, 8):
            for rank in range(world):
                yield subject.arranged(
                    f"rank {rank} of {world}",
                    lambda order, rank=rank, world=world: order[rank::world],  # type: ignore[misc]
                )


@register
class SamplerOrder(_OrderHypothesis):
    """The same samples, shuffled or not, or with another seed."""

    id = "sampler_order"
    text = "the samples are the reference's in another order: shuffled or not, or with another seed or epoch"
    difference = "random_sampler_rng"
    rank = 2

    def of(self, subject: OrderSubject) -> Iterator[Variant]:
        """Where every sample of the reference comes once."""
        order = subject.port["order"]
        if len(order) == subject.judged and len(set(order.tolist())) == len(order):
            listed = ", ".join(map(str, order[:8].tolist())) + ("…" if len(order) > 8 else "")
            yield subject.arranged(listed, lambda all_of_them: order)


@register
class SamplesMissing(_OrderHypothesis):
    """Some samples are left out or come again, anywhere."""

    id = "sample_missing"
    text = "samples are left out, or come again"
    rank = 2

    def of(self, subject: OrderSubject) -> Iterator[Variant]:
        """In the reference's order."""
        order = subject.port["order"]
        if len(order) and (np.diff(order) >= 0).all():
            yield subject.arranged(", ".join(map(str, order[:8].tolist())), lambda all_of_them: order)


@register
class LabelsShifted(_LabelHypothesis):
    """Counted from 1, or from 0."""

    id = "labels_shifted"
    text = "labels are shifted by a number"

    def of(self, subject: LabelSubject) -> Iterator[Variant]:
        """By one, up or down; by what the first label is off."""
        off = int(subject.port["labels"][0] - subject.reference["labels"][0])
        for shift in dict.fromkeys([1, -1, off]):
            if shift:
                yield subject.changed(f"{shift:+d}", lambda labels, shift=shift: labels + shift)  # type: ignore[misc]


@register
class LabelsOfNeighbours(_LabelHypothesis):
    """The sample before, or after."""

    id = "labels_of_neighbours"
    text = "samples have the labels of other samples beside them"

    def of(self, subject: LabelSubject) -> Iterator[Variant]:
        """By up to four places, in the batch or in the split."""
        for shift in (1, -1, 2, -2, 3, -3, 4, -4):
            yield subject.changed(f"{shift:+d}", lambda labels, shift=shift: np.roll(labels, shift))  # type: ignore[misc]
            yield subject.changed(
                f"{shift:+d}, among those that are compared",
                lambda labels, shift=shift: np.roll(labels[: subject.judged], shift),  # type: ignore[misc]
            )


@register
class ClassesRenumbered(_LabelHypothesis):
    """Folders sorted otherwise."""

    id = "classes_renumbered"
    text = "the classes are numbered in another order"
    difference = "imagefolder"
    rank = 1

    def of(self, subject: LabelSubject) -> Iterator[Variant]:
        """The numbering that the port has, where one number stands for one class."""
        pairs = set(zip(subject.reference["labels"].tolist(), subject.port["labels"].tolist(), strict=False))
        ours, theirs = {a for a, _ in pairs}, {b for _, b in pairs}
        if len(pairs) == len(ours) == len(theirs) > 1:
            number = dict(pairs)
            listed = ", ".join(f"{a}→{b}" for a, b in sorted(pairs)[:6])
            yield subject.changed(
                listed, lambda labels: np.array([number.get(label, label) for label in labels.tolist()])
            )
