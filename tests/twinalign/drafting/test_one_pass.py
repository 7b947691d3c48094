"""A pass of a model that is drafted: what it runs, and on which inputs."""

import numpy as np
import torch

from twinalign.backends import load_backend
from twinalign.drafting.one_pass import run_once


class Embedding(torch.nn.Embedding):
    """Keeps the words that it is given; a sentence of nothing but the first two words it refuses, if told to."""

    def __init__(self, refuses: bool) -> None:
        super().__init__(50, 4)
        self.refuses = refuses
        self.seen: list[np.ndarray] = []

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        self.seen.append(words.numpy())
        if self.refuses and words.max() < 2:
            raise ValueError("nothing is said")
        return super().forward(words)


def _outputs(model: Embedding) -> list[np.ndarray]:
    return list(run_once(load_backend("torch"), model, [["words", (3, 8), "int64", 50]]))


def test_the_least_and_the_greatest_integers_are_given_to_a_model_as_well() -> None:
    model = Embedding(refuses=False)
    assert len(_outputs(model)) == 4
    least, greatest, *both = model.seen
    assert set(least.flat) == {0, 1}
    assert set(greatest.flat) == {48, 49}
    assert all(set(words.flat) > {3, 30} for words in both)


def test_a_model_that_refuses_them_runs_on_the_others() -> None:
    model = Embedding(refuses=True)
    assert len(_outputs(model)) == 3
    assert len(model.seen) == 4
