"""Cases for benchmarks/gpu.py."""

from __future__ import annotations

from typing import Any

from benchmarks.zoo_cases import MobileNetV3Small
from pipeline.small_moco import SmallMoCoViT
from twinalign import Case


class SettledMoCoViT(SmallMoCoViT):
    """The small ViT, trained in float64 for as many steps as in float32, so that two recordings settle its curves."""

    def part(self, stage: str) -> Case:
        """The case of a stage."""
        found = super().part(stage)
        if stage == "train":
            found.float64_train_steps = 10
        return found


class WithTF32(MobileNetV3Small):
    """Allows TF32, which twinalign has forbidden."""

    def reference(self) -> Any:
        """torchvision's model, with tensor cores that keep ten bits of the fraction."""
        import torch

        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.allow_tf32 = True
        return super().reference()
