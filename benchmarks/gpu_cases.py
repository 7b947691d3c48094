"""A case for benchmarks/gpu.py that computes less precisely on a GPU than twinalign asks for."""

from __future__ import annotations

from typing import Any

from benchmarks.zoo_cases import MobileNetV3Small


class WithTF32(MobileNetV3Small):
    """Switches TF32 on after twinalign has switched it off."""

    name = "mobilenet_v3_small"

    def reference(self) -> Any:
        """torchvision's model, with tensor cores that keep ten bits of the fraction."""
        import torch

        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.allow_tf32 = True
        return super().reference()
