"""MoCo v3 (arXiv 2104.02057) in paddle; the twin package has the same files, definitions and names."""

from __future__ import annotations

import os
from pathlib import Path

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


def _name_the_cpu_to_mkl() -> None:
    """Make paddle's MKL use its AVX2 kernels on processors not made by Intel, unless the user has set otherwise."""
    # diff: the MKL in paddle's wheel is from 2019 and uses its slowest kernels on processors of other makers:
    # on an AMD EPYC a matrix product takes 2.7 times as long. It reads this variable at its first product.
    cpu = Path("/proc/cpuinfo")
    text = cpu.read_text(encoding="utf-8", errors="replace") if cpu.is_file() else ""
    if "AuthenticAMD" in text and " avx2 " in text:
        os.environ.setdefault("MKL_DEBUG_CPU_TYPE", "5")


_name_the_cpu_to_mkl()
