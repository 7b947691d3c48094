"""The other official MoCo v3 models as cases for all six stages, each with its recipe's optimizer."""

from __future__ import annotations

from typing import Any

from moco_common.data.folders import ImageFolder
from pipeline.moco_v3 import LinearClassifier, MoCoV3ViTSmall, twin
from twinalign import Case


class MoCoV3ViTBase(MoCoV3ViTSmall):
    """ViT-Base."""

    name = "moco_v3_vit_base"
    arch = "vit_base"


class MoCoV3ViTConvSmall(MoCoV3ViTSmall):
    """ViT-Small with the convolutional stem."""

    name = "moco_v3_vit_conv_small"
    arch = "vit_conv_small"


class MoCoV3ViTConvBase(MoCoV3ViTSmall):
    """ViT-Base with the convolutional stem."""

    name = "moco_v3_vit_conv_base"
    arch = "vit_conv_base"


class ResNetClassifier(LinearClassifier):
    """The metric stage's encoder, which takes images of any size."""

    def _build(self, framework: str) -> Any:
        classes = len(ImageFolder(self.folder(self.dataset_name, "train")).classes)
        return twin(framework, "models.moco").build_encoder(self.arch, num_classes=classes)

    def classifier(self, model: Any) -> Any:
        """A ResNet's last layer has torchvision's name."""
        return model.fc


class MoCoV3ResNet50(MoCoV3ViTSmall):
    """ResNet-50 with LARS, at the rate and the decay of the 100-epoch recipe."""

    name = "moco_v3_resnet50"
    arch = "resnet50"
    optimizer_name = "lars"
    lr = 0.6
    weight_decay = 1e-6

    def _build(self, framework: str) -> Any:
        return twin(framework, "models.moco").build_moco(self.arch, dim=self.dim, mlp_dim=self.mlp_dim)

    def part(self, stage: str) -> Case:
        """The classifier for metric is a ResNet's."""
        if stage != "metric":
            return super().part(stage)
        part = ResNetClassifier()
        part.name, part.data = f"{self.name}_{stage}", self.data
        part.configure(self)
        return part


class MoCoV3ResNet18(MoCoV3ResNet50):
    """ResNet-18 with LARS."""

    name = "moco_v3_resnet18"
    arch = "resnet18"
