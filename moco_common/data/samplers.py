"""Which samples a batch holds: a function of seed, epoch and rank alone.

Together the ranks' pieces of a global batch are the batch that one process would have had. Samplers yield lists of
(epoch, index) or (epoch, index, repeat), the address that the dataset draws from, so that workers need not know the
epoch.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from moco_common.images.augmentation import addressed_uniforms

ORDER_VIEW = 0
"""The views are numbers 1 and 2; the order of an epoch has the address of view 0 of sample 0."""


def epoch_order(length: int, seed: int, epoch: int) -> np.ndarray:
    """The order in which an epoch visits the samples.

    Returns:
        (length,) int64, a permutation: the ranks of random keys, every order equally likely.
    """
    return np.argsort(addressed_uniforms(seed, epoch, 0, ORDER_VIEW, length), kind="stable").astype(np.int64)


def check_rank(rank: int, world_size: int) -> None:
    """Refuse a rank outside the world.

    Raises:
        ValueError: it is.
    """
    if not 0 <= rank < world_size:
        raise ValueError(f"rank: {rank} is not one of the {world_size} of this run; give 0 to {world_size - 1}")


class PretrainingBatchSampler:
    """Shuffled batches of this rank; samples that do not fill a batch are left out, different ones each epoch.

    A global batch is cut into one piece a rank, in order.

    Args:
        length: number of samples of the dataset.
        batch_size: size of the global batch, over all ranks.
        seed: what the order depends on, besides the epoch.
        rank, world_size: this process and how many there are.

    Raises:
        ValueError: the batch cannot be shared among the ranks, or is larger than the dataset.
    """

    def __init__(self, length: int, batch_size: int, seed: int = 0, rank: int = 0, world_size: int = 1) -> None:
        check_rank(rank, world_size)
        if batch_size < 1 or batch_size % world_size:
            raise ValueError(
                f"batch_size: {batch_size} over all ranks cannot be shared equally by {world_size}; give a multiple"
            )
        if length < batch_size:
            raise ValueError(f"batch_size: {batch_size} is more than the {length} samples; give at most {length}")
        self.length = length
        self.batch_size = batch_size
        self.seed = seed
        self.rank = rank
        self.world_size = world_size
        self.epoch = 0
        self.start = 0

    def set_epoch(self, epoch: int, start: int = 0) -> None:
        self.epoch = epoch
        self.start = start

    def __len__(self) -> int:
        return self.length // self.batch_size

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        """The batches of the chosen epoch: lists of `batch_size / world_size` addresses (epoch, index)."""
        order = epoch_order(self.length, self.seed, self.epoch)
        share = self.batch_size // self.world_size
        for iteration in range(self.start, len(self)):
            first = iteration * self.batch_size + self.rank * share
            yield [(self.epoch, int(index)) for index in order[first : first + share]]


def places_of_rank(size: int, rank: int, world_size: int) -> np.ndarray:
    """A rank's indices, (size / world_size,) int64, in a batch that is dealt out like cards, forth and back.

    Neighbours lie on different ranks (but the two in the middle), as copies of a sample should; opposite places lie on
    the same, so that mixing the batch with itself reversed needs no other rank. `size` is a multiple of twice the ranks
    where there are several.
    """
    places = np.arange(size)
    return places[np.minimum(places, size - 1 - places) % world_size == rank]


class TrainingBatchSampler:
    """Shuffled batches of this rank for training a classifier; the last is smaller where samples are left.

    A sample may come `repeats` times in a row, each time with other draws (repeated augmentation: Hoffer et al., arXiv
    1901.09335; DeiT's is arXiv 2012.12877). An epoch then visits so many fewer samples, others each epoch, and its
    length stays. A batch is dealt out as `places_of_rank` says. Several ranks have equal shares of the last batch too:
    fewer samples than twice the ranks may be left out.

    Args:
        length: number of samples of the dataset.
        batch_size: size of the global batch, over all ranks.
        seed: what the order depends on, besides the epoch.
        rank, world_size: this process and how many there are.
        repeats: how often a sample comes.

    Raises:
        ValueError: the batch or an epoch cannot be shared among the ranks, or `repeats` is not positive.
    """

    def __init__(
        self, length: int, batch_size: int, seed: int = 0, rank: int = 0, world_size: int = 1, repeats: int = 1
    ) -> None:
        check_rank(rank, world_size)
        self._unit = 2 * world_size if world_size > 1 else 1
        if batch_size < 1 or batch_size % self._unit:
            raise ValueError(
                f"batch_size: {batch_size} is not shared by {world_size} ranks; give a multiple of {self._unit}"
            )
        if length < self._unit:
            raise ValueError(f"{length} samples are too few for {world_size} ranks; start fewer processes")
        if repeats < 1:
            raise ValueError(f"--repeats: must be 1 or more, got {repeats}")
        self.length = length
        self.batch_size = batch_size
        self.seed = seed
        self.rank = rank
        self.world_size = world_size
        self.repeats = repeats
        self.epoch = 0
        self.start = 0

    def set_epoch(self, epoch: int, start: int = 0) -> None:
        self.epoch = epoch
        self.start = start

    def __len__(self) -> int:
        return -(-(self.length // self._unit * self._unit) // self.batch_size)

    def __iter__(self) -> Iterator[list[tuple[int, int, int]]]:
        """The batches of the chosen epoch: lists of addresses (epoch, index, repeat), as many on every rank."""
        order = epoch_order(self.length, self.seed, self.epoch)
        end = self.length // self._unit * self._unit
        for iteration in range(self.start, len(self)):
            first = iteration * self.batch_size
            places = first + places_of_rank(min(self.batch_size, end - first), self.rank, self.world_size)
            yield [(self.epoch, int(order[place // self.repeats]), int(place % self.repeats)) for place in places]


class EvaluationBatchSampler:
    """Batches of this rank in the dataset's order: every sample once over all ranks, none twice.

    The dataset is cut into one run of neighbours a rank, whose lengths differ by one at most, and each run into
    batches, whose last may be smaller. Joining the ranks' results in order gives those of one process. Ranks may have
    different numbers of batches: gather after the loop, not within.

    Args:
        length: number of samples of the dataset.
        batch_size: size of this rank's batches.
        rank, world_size: this process and how many there are.

    Raises:
        ValueError: the batch size is not positive, or the rank is not one of the world's.
    """

    def __init__(self, length: int, batch_size: int, rank: int = 0, world_size: int = 1) -> None:
        check_rank(rank, world_size)
        if batch_size < 1:
            raise ValueError(f"batch_size: {batch_size} is not a size; give 1 or more")
        self.batch_size = batch_size
        self.first = length * rank // world_size
        self.last = length * (rank + 1) // world_size

    def __len__(self) -> int:
        return -(-(self.last - self.first) // self.batch_size)

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        """This rank's batches: lists of at most `batch_size` addresses (0, index)."""
        for first in range(self.first, self.last, self.batch_size):
            yield [(0, index) for index in range(first, min(first + self.batch_size, self.last))]
