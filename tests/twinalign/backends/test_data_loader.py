"""What a dataset raises in paddle's loader, which alone would wait for ever: the user reads the error itself."""

from typing import Any

import numpy as np
import pytest


def test_what_a_dataset_raises_reaches_who_reads_it() -> None:
    paddle = pytest.importorskip("paddle")
    from twinalign.backends.paddle.port_only.data_loader import raise_errors_of_datasets

    class Samples(paddle.io.Dataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> Any:
            if index == 5:
                raise LookupError("no label")
            return np.float32(index)

    raise_errors_of_datasets()
    loader, read = paddle.io.DataLoader(Samples(), batch_size=2), []
    with pytest.raises(LookupError, match="no label"):
        read.extend(batch.tolist() for batch in loader)
    assert read == [[0.0, 1.0], [2.0, 3.0]]  # what comes before can still be read
    assert len(list(paddle.io.DataLoader(Samples(), batch_sampler=[[0, 1], [6, 7]]))) == 2
