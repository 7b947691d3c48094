from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def causes_page() -> ModuleType:
    """docs/regenerate_causes.py, which is no part of a package."""
    spec = importlib.util.spec_from_file_location("regenerate_causes", ROOT / "docs" / "regenerate_causes.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
