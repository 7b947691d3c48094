"""A step of MoCo v3 built from timm's and torchvision's own modules, to compare with the torch twin's step.

The official release takes its encoders from these libraries; it is not part of this project (CC BY-NC). A step, as the
paper has it (algorithm 1), is the base encoder and the predictor on both views, the momentum encoder moved, its keys of
both views, and two cross entropies. Initialisation takes no time in a step and is left out, and so are checks.
"""

from __future__ import annotations

import copy
import itertools

import timm.optim
import torch
import torchvision
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torch.nn import functional as F

WIDTH, HIDDEN, TEMPERATURE = 256, 4096, 0.2


def perceptron(*widths: int, last_norm: bool) -> nn.Sequential:
    """Linear, batch norm, ReLU, ..., linear, and a last batch norm without parameters."""
    layers: list[nn.Module] = []
    for index, (before, behind) in enumerate(itertools.pairwise(widths)):
        layers.append(nn.Linear(before, behind, bias=False))
        if index < len(widths) - 2:
            layers += [nn.BatchNorm1d(behind), nn.ReLU(inplace=True)]
        elif last_norm:
            layers.append(nn.BatchNorm1d(behind, affine=False))
    return nn.Sequential(*layers)


class LibraryMoCo(nn.Module):
    """ViT-Small of timm with 12 heads, or ResNet-50 of torchvision, between projector and predictor."""

    def __init__(self, arch: str) -> None:
        super().__init__()
        if arch == "vit_small":
            self.encoder: nn.Module = VisionTransformer(embed_dim=384, depth=12, num_heads=12)
            self.encoder.head = perceptron(384, HIDDEN, HIDDEN, WIDTH, last_norm=True)
        else:
            self.encoder = getattr(torchvision.models, arch)(zero_init_residual=True)
            self.encoder.fc = perceptron(self.encoder.fc.in_features, HIDDEN, WIDTH, last_norm=True)
        self.predictor = perceptron(WIDTH, HIDDEN, WIDTH, last_norm=arch == "vit_small")
        self.momentum_encoder = copy.deepcopy(self.encoder).requires_grad_(False)

    def forward(self, view1: Tensor, view2: Tensor, momentum: float) -> Tensor:
        """The loss, a scalar, of two views `[N, 3, 224, 224]`."""
        queries = [self.predictor(self.encoder(view)) for view in (view1, view2)]
        with torch.no_grad():
            for own, moved in zip(self.encoder.parameters(), self.momentum_encoder.parameters(), strict=True):
                moved.mul_(momentum).add_(own, alpha=1 - momentum)
            keys = [self.momentum_encoder(view) for view in (view2, view1)]
        return sum((self._loss(q, k) for q, k in zip(queries, keys, strict=True)), torch.zeros(()))

    def _loss(self, query: Tensor, key: Tensor) -> Tensor:
        logits = F.normalize(query, dim=1) @ F.normalize(key, dim=1).T / TEMPERATURE
        return F.cross_entropy(logits, torch.arange(len(query))) * (2 * TEMPERATURE)


class LibraryStep:
    """One step, with torch's AdamW for a ViT and timm's LARS for a ResNet."""

    def __init__(self, arch: str) -> None:
        self.model = LibraryMoCo(arch).train()
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        kind = torch.optim.AdamW if arch == "vit_small" else timm.optim.Lars
        self.optimizer = kind(trained, lr=1e-4, weight_decay=0.1)

    def __call__(self, view1: Tensor, view2: Tensor) -> None:
        """Move the weights."""
        loss = self.model(view1, view2, 0.99)
        self.optimizer.zero_grad()
        loss.backward()
        loss.item()
        self.optimizer.step()
