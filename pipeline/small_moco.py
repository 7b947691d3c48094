"""MoCo v3 in sizes that run in seconds on a CPU, with every weight changed from its initial value; for selftest."""

from __future__ import annotations

from typing import Any

from pipeline.digits import DigitsTraining
from pipeline.moco_v3 import MoCoV3ViTSmall
from pipeline.official import ResNetClassifier
from pipeline.twins import twin
from twinalign import Case


class ShortTraining(DigitsTraining):
    """One epoch of a small MoCo v3 on handwritten digits."""

    epochs = 1
    warmup_epochs = 0
    batch = 128
    dim = 16
    mlp_dim = 32
    float64_train_steps = 4


class SmallMoCoViT(MoCoV3ViTSmall):
    """The ViT twins with a few thousand weights, through all six stages."""

    name = "small_moco_vit"
    arch = "vit_digits"
    image_size = 32
    batch = 8
    dim = 16
    mlp_dim = 32

    def reference(self) -> Any:
        """MoCo in torch, with other weights than the zeros and ones of its initialisation, which would hide faults."""
        import torch

        model = super().reference()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.05 * torch.randn_like(parameter)
            for name, buffer in model.named_buffers():
                if name.endswith("running_mean"):
                    buffer += 0.1 * torch.randn_like(buffer)
                elif name.endswith("running_var"):
                    buffer *= torch.exp(0.1 * torch.randn_like(buffer))
        return model

    def part(self, stage: str) -> Case:
        """The whole case's classifier, and a training of one epoch."""
        if stage != "train":
            return super().part(stage)
        training = ShortTraining()
        training.name, training.data = f"{self.name}_train", self.data
        return training


class SmallMoCoResNet(SmallMoCoViT):
    """The ResNet twins, with LARS."""

    name = "small_moco_resnet"
    arch = "resnet18"
    optimizer_name = "lars"
    lr = 0.3
    weight_decay = 1e-4

    def _build(self, framework: str) -> Any:
        return twin(framework, "models.moco").build_moco(self.arch, dim=self.dim, mlp_dim=self.mlp_dim)

    def part(self, stage: str) -> Case:
        """The classifier on top of a ResNet; the training stays that of the small ViT."""
        if stage != "metric":
            return super().part(stage)
        classifier = ResNetClassifier()
        classifier.name, classifier.data = f"{self.name}_metric", self.data
        classifier.configure(self)
        return classifier
