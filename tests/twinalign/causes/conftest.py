"""What the tests of causes share: none of them knows what another has proven in this process."""

from collections.abc import Iterator

import pytest

from twinalign.replay.proven_before import forget_proven


@pytest.fixture(autouse=True)
def _nothing_proven() -> Iterator[None]:
    forget_proven(None)
    yield
    forget_proven(None)
