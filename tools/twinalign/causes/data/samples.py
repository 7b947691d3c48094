"""The samples of the reference under examination: their order, their number and their labels."""

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from twinalign.causes.component import Component, enter_rows, explain

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


Change = Callable[[np.ndarray], np.ndarray]


def _swapped(order: np.ndarray, size: int) -> np.ndarray:
    pairs = [order[start : start + 2 * size] for start in range(0, len(order), 2 * size)]
    return np.concatenate([np.concatenate([pair[size:], pair[:size]]) for pair in pairs])


def _dropped(subject: OrderSubject) -> dict[str, Change]:
    missing = subject.judged - len(subject.port["order"])
    return {f"{missing} missing": lambda order: order[: subject.judged - missing]} if missing > 0 else {}


def _as_the_port(subject: OrderSubject, holds: bool) -> dict[str, Change]:
    order = subject.port["order"]
    names = ", ".join(map(str, order[:8].tolist())) + ("…" if len(order) > 8 else "")
    return {names: lambda known: order} if holds else {}


def _numbered(subject: LabelSubject) -> dict[str, Change]:
    pairs = set(zip(subject.reference["labels"].tolist(), subject.port["labels"].tolist(), strict=False))
    number = dict(pairs)
    others = [b for _, b in sorted(pairs)]
    # What keeps its order, such as lengths, is counted otherwise.
    if not len(pairs) == len(number) == len({*others}) > 1 or others == sorted(others):
        return {}
    numbers = ", ".join(f"{a}→{b}" for a, b in sorted(pairs)[:6])
    return {numbers: lambda labels: np.array([number.get(label, label) for label in labels.tolist()])}


enter_rows("data", OrderSubject, "change", (
    ("order_shifted", "samples at the beginning are left out", {},
     lambda s: {f"{n}": operator.itemgetter(slice(n, None)) for n in (*range(1, _MOST_SHIFT + 1), s.batch)}),
    ("drop_last", "samples at the end are dropped: the last batch, which is not full, is left out",
     {"difference": "dataloader_defaults"}, _dropped),
    ("sample_repeated", "samples come twice", {},
     lambda s: {**{f"number {at}": functools.partial(lambda at, order: np.insert(order, at, order[at]), at)
                   for at in range(min(s.judged, 16))},
                "the first batch": lambda order: np.concatenate([order[: s.batch], order]),
                "each": lambda order: np.repeat(order, 2)}),
    ("order_reversed", "the samples come from the last to the first", {}, lambda s: {"": lambda order: order[::-1]}),
    ("order_swapped", "neighbouring samples have changed places", {},
     lambda s: {"" if size == 1 else f"in batches of {size}": functools.partial(_swapped, size=size)
                for size in (1, s.batch)}),
    ("sampler_shard", "the samples are those of one rank of several", {"difference": "dataloader_defaults"},
     lambda s: {f"rank {rank} of {world}": operator.itemgetter(slice(rank, None, world))
                for world in (2, 3, 4, 8) for rank in range(world)}),
    ("sampler_order",
     "the samples are the reference's in another order: shuffled or not, or with another seed or epoch",
     {"difference": "random_sampler_rng", "rank": 2},
     lambda s: _as_the_port(s, len(s.port["order"]) == s.judged == len(set(s.port["order"].tolist())))),
    ("sample_missing", "samples are left out, or come again", {"rank": 2},
     lambda s: _as_the_port(s, len(s.port["order"]) > 0 and bool((np.diff(s.port["order"]) >= 0).all()))),
))  # fmt: skip

enter_rows("data", LabelSubject, "change", (
    ("labels_shifted", "labels are shifted by a number", {},
     lambda s: {f"{shift:+d}": functools.partial(np.add, shift)
                for shift in (1, -1, int(s.port["labels"][0] - s.reference["labels"][0])) if shift}),
    ("labels_of_neighbours", "samples have the labels of other samples beside them", {},
     lambda s: {f"{by:+d}{among}": lambda labels, by=by, to=to: np.roll(labels[:to], by)
                for by in (1, -1, 2, -2, 3, -3, 4, -4)
                for to, among in ((None, ""), (s.judged, ", among those that are compared"))}),
    ("classes_renumbered", "the classes are numbered in another order", {"difference": "imagefolder", "rank": 1},
     _numbered),
))  # fmt: skip
