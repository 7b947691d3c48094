"""MoCo v3 (arXiv 2104.02057) in paddle; the twin package has the same files, definitions and names."""

from __future__ import annotations

import os
from pathlib import Path

from .builder import ARCHITECTURES, MoCo, build_encoder, build_moco
from .optimizer import LARS, build_optimizer
from .schedule import adjust_learning_rate, adjust_moco_momentum

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
    """Make paddle's MKL take its AVX2 kernels on a processor of another maker; an own setting is left alone."""
    # diff: the MKL inside paddle's wheel is of 2019 and takes its slowest kernels where it does not know the maker:
    # on an AMD EPYC a matrix product takes 2.7 times as long. It reads this variable at its first product.
    cpu = Path("/proc/cpuinfo")
    text = cpu.read_text(encoding="utf-8", errors="replace") if cpu.is_file() else ""
    if "AuthenticAMD" in text and " avx2 " in text:
        os.environ.setdefault("MKL_DEBUG_CPU_TYPE", "5")


_name_the_cpu_to_mkl()
