from __future__ import annotations

import gc

import pytest


@pytest.fixture(scope="module", autouse=True)
def _searched() -> None:
    """Objects are found by what refers to them: those of a test that made a `Worker` in this process are frozen."""
    gc.unfreeze()
