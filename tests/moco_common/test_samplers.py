"""Samplers: an addressed order, shared among ranks so that together they make one process's run."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import timm.data.distributed_sampler as oracle
from hypothesis import given, settings
from hypothesis import strategies as st

from moco_common.data import samplers

COMMON = settings(deadline=None, max_examples=50, derandomize=True)


def epoch_of(batches, epoch: int, start: int = 0) -> list[list[int]]:
    batches.set_epoch(epoch, start)
    addresses = list(batches)
    assert all(one_epoch == epoch for batch in addresses for one_epoch, _ in batch)
    return [[index for _, index in batch] for batch in addresses]


def test_order_is_a_permutation_that_seed_and_epoch_decide():
    base = samplers.epoch_order(500, 0, 0)
    assert sorted(base) == list(range(500))
    np.testing.assert_array_equal(base, samplers.epoch_order(500, 0, 0))
    for seed, epoch in ((0, 1), (1, 0)):
        other = samplers.epoch_order(500, seed, epoch)
        assert sorted(other) == list(range(500))
        assert (other == base).sum() < 10


def test_every_place_is_equally_likely():
    places = np.array([np.argsort(samplers.epoch_order(8, 0, epoch)) for epoch in range(4000)])
    for sample in range(8):
        counts = np.bincount(places[:, sample], minlength=8)
        assert ((counts - 500) ** 2 / 500).sum() < 30  # chi-square with 7 degrees of freedom, p = 1e-4


def test_order_stays_what_it_was():
    # Pinned: a resumed run must find the order that it left.
    assert samplers.epoch_order(10, 7, 3).tolist() == [2, 4, 7, 3, 5, 1, 8, 9, 0, 6]


@COMMON
@given(length=st.integers(1, 200), share=st.integers(1, 9), world=st.integers(1, 5), epoch=st.integers(0, 3))
def test_ranks_together_make_the_batches_of_one_process(length, share, world, epoch):
    batch = share * world
    if length < batch:
        return
    alone = samplers.PretrainingBatchSampler(length, batch, seed=1)
    ranks = [
        samplers.PretrainingBatchSampler(length, batch, seed=1, rank=rank, world_size=world) for rank in range(world)
    ]
    pieces = [epoch_of(one, epoch) for one in ranks]
    joined = [list(itertools.chain(*parts)) for parts in zip(*pieces, strict=True)]
    assert joined == epoch_of(alone, epoch)
    assert len(alone) == len(joined) == length // batch
    seen = list(itertools.chain(*joined))
    assert len(set(seen)) == len(seen) == length // batch * batch  # none twice, the incomplete batch left out


def test_an_epoch_resumes_in_its_middle():
    batches = samplers.PretrainingBatchSampler(50, 8, seed=2)
    whole = epoch_of(batches, 4)
    assert epoch_of(batches, 4, start=3) == whole[3:]
    assert epoch_of(batches, 4) == whole  # the start is forgotten with the next set_epoch
    assert len(batches) == 6


def test_the_samples_left_out_change_from_epoch_to_epoch():
    batches = samplers.PretrainingBatchSampler(10, 8, seed=0)
    left_out = {frozenset(range(10)) - frozenset(epoch_of(batches, epoch)[0]) for epoch in range(20)}
    assert len(left_out) > 10


@COMMON
@given(length=st.integers(0, 100), batch=st.integers(1, 12), world=st.integers(1, 7))
def test_evaluation_visits_every_sample_once_and_in_order(length, batch, world):
    ranks = [samplers.EvaluationBatchSampler(length, batch, rank, world) for rank in range(world)]
    assert [index for one in ranks for addresses in one for _, index in addresses] == list(range(length))
    sizes = [[len(addresses) for addresses in one] for one in ranks]
    assert [len(one) for one in ranks] == [len(of_rank) for of_rank in sizes]
    totals = [sum(of_rank) for of_rank in sizes]
    assert max(totals) - min(totals) <= 1
    for of_rank in sizes:  # only the last batch of a rank may be smaller
        assert all(size == batch for size in of_rank[:-1])
        assert all(0 < size <= batch for size in of_rank[-1:])


def training_epoch(length, batch, rank=0, world=1, repeats=1, epoch=0, start=0):
    batches = samplers.TrainingBatchSampler(length, batch, 1, rank, world, repeats)
    batches.set_epoch(epoch, start)
    found = list(batches)
    assert len(found) == len(batches) - start
    assert all(one_epoch == epoch for addresses in found for one_epoch, _, _ in addresses)
    return [[(index, repeat) for _, index, repeat in addresses] for addresses in found]


@COMMON
@given(length=st.integers(1, 200), batch=st.integers(1, 40), repeats=st.integers(1, 4), epoch=st.integers(0, 3))
def test_training_shows_as_many_pictures_as_there_are(length, batch, repeats, epoch):
    found = training_epoch(length, batch, repeats=repeats, epoch=epoch)
    assert [len(addresses) for addresses in found[:-1]] == [batch] * (len(found) - 1)
    seen = list(itertools.chain(*found))
    assert len(set(seen)) == len(seen) == length  # no copy twice
    order = samplers.epoch_order(length, 1, epoch)
    assert [index for index, _ in seen] == np.repeat(order, repeats)[:length].tolist()
    assert [repeat for _, repeat in seen] == [place % repeats for place in range(length)]
    assert (
        training_epoch(length, batch, repeats=repeats, epoch=epoch, start=len(found) // 2) == (found[len(found) // 2 :])
    )


@COMMON
@given(length=st.integers(1, 200), share=st.integers(1, 6), world=st.integers(2, 5), repeats=st.integers(1, 4))
def test_ranks_together_train_on_the_batches_of_one_process(length, share, world, repeats):
    batch, unit = 2 * share * world, 2 * world
    if length < unit:
        return
    alone = training_epoch(length // unit * unit, batch, repeats=repeats)
    # The order is the whole data set's: what cannot be shared is left out at its end.
    order, cut = samplers.epoch_order(length, 1, 0), samplers.epoch_order(length // unit * unit, 1, 0)
    translate = dict(zip(cut.tolist(), order.tolist(), strict=False))
    pieces = [training_epoch(length, batch, rank, world, repeats) for rank in range(world)]
    for whole, *parts in zip(alone, *pieces, strict=True):
        whole = [(translate[index], repeat) for index, repeat in whole]
        assert {len(part) for part in parts} == {len(whole) // world}
        assert sorted(itertools.chain(*parts)) == sorted(whole)
        for part in parts:  # a rank has with each picture the opposite one
            places = [whole.index(address) for address in part]
            assert [len(whole) - 1 - place for place in places] == places[::-1]


def test_copies_lie_on_different_ranks():
    pieces = [training_epoch(96, 24, rank, 3, repeats=3) for rank in range(3)]
    for parts in zip(*pieces, strict=True):
        ranks_of = {}
        for rank, part in enumerate(parts):
            for index, _ in part:
                ranks_of.setdefault(index, []).append(rank)
        assert sorted(ranks_of.values()) == [[0, 1, 2]] * 8


@pytest.mark.parametrize(("length", "world"), [(512, 1), (512, 2), (768, 4), (1024, 8)])
def test_repeats_are_those_of_deits_sampler(length, world):
    """Which pictures how often: the number of copies, the length of the epoch, and of each rank's."""
    ours, theirs = [], []
    for rank in range(world):
        own = list(itertools.chain(*training_epoch(length, 64, rank, world, repeats=3)))
        reference = oracle.RepeatAugSampler(range(length), num_replicas=world, rank=rank, num_repeats=3)
        assert len(own) == len(list(reference)) == length // world
        ours += [index for index, _ in own]
        theirs += list(reference)
    counts, expected = (sorted(np.unique(indices, return_counts=True)[1]) for indices in (ours, theirs))
    assert counts == expected
    assert set(counts[1:]) == {3}  # and the epoch's last picture as often as there was place


def test_wrong_options_are_refused_in_one_line():
    with pytest.raises(
        ValueError, match=r"^batch_size: 6 over all ranks cannot be shared equally by 4; give a multiple$"
    ):
        samplers.PretrainingBatchSampler(100, 6, rank=0, world_size=4)
    with pytest.raises(ValueError, match=r"^batch_size: 16 is more than the 10 samples; give at most 10$"):
        samplers.PretrainingBatchSampler(10, 16)
    with pytest.raises(ValueError, match=r"^rank: 2 is not one of the 2 of this run; give 0 to 1$"):
        samplers.PretrainingBatchSampler(10, 2, rank=2, world_size=2)
    with pytest.raises(ValueError, match=r"^batch_size: 0 is not a size; give 1 or more$"):
        samplers.EvaluationBatchSampler(10, 0)
    with pytest.raises(ValueError, match=r"^rank: -1 is not one of the 1 of this run; give 0 to 0$"):
        samplers.EvaluationBatchSampler(10, 1, rank=-1)
    with pytest.raises(ValueError, match=r"^batch_size: 6 is not shared by 2 ranks; give a multiple of 4$"):
        samplers.TrainingBatchSampler(100, 6, rank=0, world_size=2)
    with pytest.raises(ValueError, match=r"^3 samples are too few for 2 ranks; start fewer processes$"):
        samplers.TrainingBatchSampler(3, 4, rank=0, world_size=2)
    with pytest.raises(ValueError, match=r"^--repeats: must be 1 or more, got 0$"):
        samplers.TrainingBatchSampler(3, 4, repeats=0)
