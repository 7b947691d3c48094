"""Batches that a training has read are served to those that take the same ones."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from twinalign.backends.torch.reference_only.kept_batches import KeptBatches


class Samples(Dataset[Any]):
    """Six samples, with a draw beside each if asked."""

    def __init__(self, drawn: bool = False) -> None:
        self.drawn, self.read = drawn, 0

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> torch.Tensor:
        self.read += 1
        return torch.tensor([float(index), float(torch.rand(())) if self.drawn else 0.0])


def _epoch(samples: Samples, kept: KeptBatches, seed: int = 0) -> tuple[torch.Tensor, float]:
    """An epoch's batches, which the loop changes in place, and what is drawn after it."""
    torch.manual_seed(seed)
    seen = []
    with kept.serving():
        for batch in DataLoader(samples, batch_size=2):
            seen.append(batch.clone())
            batch += 1.0
    return torch.cat(seen), float(torch.rand(()))


def test_they_are_read_once() -> None:
    samples, kept = Samples(drawn=True), KeptBatches()
    first, drawn = _epoch(samples, kept)
    again, drawn_again = _epoch(samples, kept)
    assert samples.read == 6
    assert torch.equal(first, again)
    assert drawn == drawn_again


def test_what_would_be_drawn_otherwise_is_read_anew() -> None:
    samples, kept = Samples(drawn=True), KeptBatches()
    _epoch(samples, kept)
    other, _ = _epoch(samples, kept, seed=1)
    assert samples.read == 12
    assert torch.equal(other, _epoch(Samples(drawn=True), KeptBatches(), seed=1)[0])


def test_what_draws_nothing_is_served_in_any_state_of_the_generators() -> None:
    samples, kept = Samples(), KeptBatches()
    _epoch(samples, kept)
    _epoch(samples, kept, seed=1)
    assert samples.read == 6


def test_other_samples_are_read() -> None:
    samples, kept = Samples(), KeptBatches()
    _epoch(samples, kept)
    with kept.serving():
        (batch, *_) = DataLoader(samples, batch_size=3)
    assert batch[:, 0].tolist() == [0.0, 1.0, 2.0]
