"""Where each of several ranks leaves its part of a recording."""

from __future__ import annotations

from pathlib import Path


def rank_path(path: Path, rank: int) -> Path:
    """The file of one rank, beside the one that all of them make."""
    return path.with_name(f"{path.stem}.rank{rank}{path.suffix}")
