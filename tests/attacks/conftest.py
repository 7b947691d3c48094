"""The bundle that forgers start from."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.attacks.forgeries import record
from tests.conftest import ROOT
from tests.recorded_once import recorded_once


@pytest.fixture(scope="session")
def compact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An honest bundle of a small case, in which everything is that a forger may alter."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        return recorded_once(tmp_path_factory, "compact", record) / "bundle.zip"
