"""Which samples of a batch a rank is given."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np


def piece(inputs: Mapping[str, np.ndarray], rank: int, ranks: int) -> dict[str, np.ndarray]:
    """Cut the batch into one piece a rank, in order, and return that of `rank`.

    Args:
        inputs: name -> array; the first axis of the first one is the batch. Arrays whose first axis has another length
            are given whole.
        rank: from 0.
        ranks: how many there are.

    Raises:
        ValueError: the batch cannot be cut into pieces of one size.
    """
    name, first = next(iter(inputs.items()))
    batch = first.shape[0] if first.ndim else 0
    if batch == 0 or batch % ranks:
        raise ValueError(
            f"inputs(rng) gives {name} of shape {list(first.shape)}, which cannot be cut into {ranks} equal pieces; "
            f"give a batch that is a multiple of {ranks}, or define share(inputs, rank, ranks)"
        )
    size = batch // ranks
    return {
        name: array[rank * size : (rank + 1) * size] if array.ndim and array.shape[0] == batch else array
        for name, array in inputs.items()
    }
