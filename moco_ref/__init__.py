"""MoCo v3 (arXiv 2104.02057) in torch; the twin package has the same files, definitions and names."""

from __future__ import annotations

from .models.moco import ARCHITECTURES, MoCo, build_encoder, build_moco
from .training.optimizer import LARS, build_optimizer
from .training.schedule import adjust_learning_rate, adjust_moco_momentum

__all__ = [
    "ARCHITECTURES",
    "LARS",
    "MoCo",
    "adjust_learning_rate",
    "adjust_moco_momentum",
    "build_encoder",
    "build_moco",
    "build_optimizer",
]
