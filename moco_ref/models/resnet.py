"""ResNet, ResNeXt and Wide ResNet with torchvision's state-dict names.

He et al. (arXiv 1512.03385) with the stride in the 3x3 convolution, Xie et al. (arXiv 1611.05431) and Zagoruyko and
Komodakis (arXiv 1605.07146) for the grouped and the wide ones. The last batch norm of every block starts at zero
(Goyal et al., arXiv 1706.02677), as MoCo v3's recipe has it.
"""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn

from moco_ref.models import initialization
from moco_ref.models.drop_path import build_drop_path, drop_path_rates, dropped
from moco_ref.models.normalization import BatchNorm2d


class BasicBlock(nn.Module):
    """Two 3x3 convolutions on a residual path."""

    expansion = 1

    def __init__(
        self,
        input_channels: int,
        channels: int,
        stride: int,
        groups: int,
        base_width: int,
        downsample: nn.Module | None,
        drop_path: float = 0.0,
    ) -> None:
        super().__init__()
        if groups != 1 or base_width != 64:
            raise ValueError("BasicBlock has neither groups nor another base width than 64")
        self.conv1 = nn.Conv2d(input_channels, channels, 3, stride=stride, padding=1, bias=False)
        self.bn1 = BatchNorm2d(channels)
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = BatchNorm2d(channels)
        self.downsample = downsample
        self.drop_path = build_drop_path(drop_path)
        initialization.constant_(self.bn2.weight, 0)

    def forward(self, x: Tensor) -> Tensor:
        """Map `[N, input_channels, H, W]` to `[N, channels, H/stride, W/stride]`."""
        identity = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = dropped(self.drop_path, self.bn2(self.conv2(x)))
        return self.relu(x + identity)


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions on a residual path; the 3x3 one has the stride, the groups and the width."""

    expansion = 4

    def __init__(
        self,
        input_channels: int,
        channels: int,
        stride: int,
        groups: int,
        base_width: int,
        downsample: nn.Module | None,
        drop_path: float = 0.0,
    ) -> None:
        super().__init__()
        width = channels * base_width // 64 * groups
        output_channels = channels * self.expansion
        self.conv1 = nn.Conv2d(input_channels, width, 1, bias=False)
        self.bn1 = BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, groups=groups, bias=False)
        self.bn2 = BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, output_channels, 1, bias=False)
        self.bn3 = BatchNorm2d(output_channels)
        self.relu = nn.ReLU()
        self.downsample = downsample
        self.drop_path = build_drop_path(drop_path)
        initialization.constant_(self.bn3.weight, 0)

    def forward(self, x: Tensor) -> Tensor:
        """Map `[N, input_channels, H, W]` to `[N, 4 * channels, H/stride, W/stride]`."""
        identity = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        x = dropped(self.drop_path, self.bn3(self.conv3(x)))
        return self.relu(x + identity)


class ResNet(nn.Module):
    """Residual network; `fc` is a Linear classifier, or what MoCo puts in its place.

    `drop_path` is the chance that the last block's branch is left out in training; the first block's never is.
    """

    head_name = "fc"
    default_temperature = 1.0
    image_size = 224
    """The image size that it is trained on; it accepts others."""

    def __init__(
        self,
        block: type[BasicBlock | Bottleneck],
        depths: tuple[int, int, int, int],
        groups: int = 1,
        base_width: int = 64,
        num_classes: int = 1000,
        drop_path: float = 0.0,
    ) -> None:
        super().__init__()
        self.num_features = 512 * block.expansion
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = BatchNorm2d(64)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        input_channels, rates = 64, drop_path_rates(drop_path, sum(depths))
        for index, depth in enumerate(depths):
            channels, stride = 64 * 2**index, 1 if index == 0 else 2
            before = sum(depths[:index])
            stage_rates = rates[before : before + depth]
            stage = _build_stage(block, input_channels, channels, stage_rates, stride, groups, base_width)
            setattr(self, f"layer{index + 1}", stage)
            input_channels = channels * block.expansion
        self.fc = initialization.linear(self.num_features, num_classes)
        initialization.torch_default_(self.fc)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                initialization.kaiming_normal_fan_out_(layer)

    def forward_features(self, x: Tensor) -> Tensor:
        """Return the pooled features, `[N, num_features]`, of images `[N, 3, H, W]`."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return x.mean(dim=(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        """Return `fc` of the features: logits `[N, num_classes]`, or projections under MoCo."""
        return self.fc(self.forward_features(x))


def _build_stage(
    block: type[BasicBlock | Bottleneck],
    input_channels: int,
    channels: int,
    drop_paths: list[float],
    stride: int,
    groups: int,
    base_width: int,
) -> nn.Sequential:
    """Build a block for each rate; the first has the stride and, where shapes change, a projection as its shortcut."""
    output_channels = channels * block.expansion
    downsample = None
    if stride != 1 or input_channels != output_channels:
        downsample = nn.Sequential(
            nn.Conv2d(input_channels, output_channels, 1, stride=stride, bias=False), BatchNorm2d(output_channels)
        )
    blocks = [block(input_channels, channels, stride, groups, base_width, downsample, drop_paths[0])]
    blocks += [block(output_channels, channels, 1, groups, base_width, None, rate) for rate in drop_paths[1:]]
    return nn.Sequential(*blocks)


ARCHITECTURES = {
    "resnet18": partial(ResNet, BasicBlock, (2, 2, 2, 2)),
    "resnet34": partial(ResNet, BasicBlock, (3, 4, 6, 3)),
    "resnet50": partial(ResNet, Bottleneck, (3, 4, 6, 3)),
    "resnet101": partial(ResNet, Bottleneck, (3, 4, 23, 3)),
    "resnet152": partial(ResNet, Bottleneck, (3, 8, 36, 3)),
    "resnext50_32x4d": partial(ResNet, Bottleneck, (3, 4, 6, 3), groups=32, base_width=4),
    "resnext101_32x8d": partial(ResNet, Bottleneck, (3, 4, 23, 3), groups=32, base_width=8),
    "resnext101_64x4d": partial(ResNet, Bottleneck, (3, 4, 23, 3), groups=64, base_width=4),
    "wide_resnet50_2": partial(ResNet, Bottleneck, (3, 4, 6, 3), base_width=128),
    "wide_resnet101_2": partial(ResNet, Bottleneck, (3, 4, 23, 3), base_width=128),
}
