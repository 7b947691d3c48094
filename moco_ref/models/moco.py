"""MoCo v3: two encoders, a predictor and the symmetrised contrastive loss (arXiv 2104.02057, algorithm 1)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from moco_ref.distributed import gather_over_ranks, rank
from moco_ref.models import initialization, resnet, vision_transformer

from .normalization import BatchNorm1d

ARCHITECTURES = {**vision_transformer.ARCHITECTURES, **resnet.ARCHITECTURES}


def build_encoder(arch: str, num_classes: int = 1000, **options: Any) -> nn.Module:
    """Build the encoder called `arch` with a linear classifier of `num_classes` on top.

    `options` go to the encoder's class: `image_size`, `stop_grad_conv1` (ViT).

    Raises:
        ValueError: where there is no such architecture.
    """
    if arch not in ARCHITECTURES:
        raise ValueError(f"no architecture is called {arch!r}; there are {', '.join(ARCHITECTURES)}")
    return ARCHITECTURES[arch](num_classes=num_classes, **options)


def default_image_size(arch: str) -> int:
    """Return the image size that the architecture is trained on, in pixels."""
    return ARCHITECTURES[arch].keywords.get("image_size", 224)


def build_moco(
    arch: str,
    dim: int = 256,
    mlp_dim: int = 4096,
    temperature: float | None = None,
    stop_grad_conv1: bool = False,
    **encoder_options: Any,
) -> MoCo:
    """Build MoCo v3 around the encoder called `arch`.

    Args:
        arch: a key of `ARCHITECTURES`.
        dim: width of the embeddings that are compared.
        mlp_dim: width of the hidden layers of projector and predictor.
        temperature: softmax temperature; None for the paper's, 0.2 for a ViT and 1.0 for a ResNet.
        stop_grad_conv1: keep the patch projection of a ViT at its random initialisation.
        encoder_options: passed on to the encoder.

    Raises:
        ValueError: where there is no such architecture, or it has no patch projection to keep fixed.
    """
    is_vit = arch in vision_transformer.ARCHITECTURES
    if is_vit:
        encoder_options["stop_grad_conv1"] = stop_grad_conv1
    elif stop_grad_conv1 and arch in ARCHITECTURES:
        raise ValueError(f"stop_grad_conv1 is for the ViT architectures, {arch!r} is none")
    base_encoder, momentum_encoder = (build_encoder(arch, num_classes=1, **encoder_options) for _ in range(2))
    for encoder in (base_encoder, momentum_encoder):
        projector = projection_mlp(encoder.num_features, mlp_dim, dim, num_layers=3 if is_vit else 2)
        setattr(encoder, encoder.head_name, projector)
    predictor = projection_mlp(dim, mlp_dim, dim, num_layers=2, last_batch_norm=is_vit)
    if temperature is None:
        temperature = base_encoder.default_temperature
    return MoCo(base_encoder, momentum_encoder, predictor, temperature)


def projection_mlp(
    input_dim: int, hidden_dim: int, output_dim: int, num_layers: int, last_batch_norm: bool = True
) -> nn.Sequential:
    """Build Linear-BatchNorm-ReLU, ..., Linear-BatchNorm: no biases, and no affine part in the last batch norm."""
    layers: list[nn.Module] = []
    for index in range(num_layers):
        is_last = index == num_layers - 1
        input_size, output_size = input_dim if index == 0 else hidden_dim, output_dim if is_last else hidden_dim
        linear = initialization.linear(input_size, output_size, bias=False)
        initialization.torch_default_(linear)
        layers.append(linear)
        if not is_last:
            layers += [BatchNorm1d(hidden_dim), nn.ReLU()]
        elif last_batch_norm:
            layers.append(BatchNorm1d(output_dim, affine=False))
    return nn.Sequential(*layers)


class MoCo(nn.Module):
    """Base encoder with predictor, and the momentum encoder that follows it; calling the model gives the loss."""

    def __init__(
        self, base_encoder: nn.Module, momentum_encoder: nn.Module, predictor: nn.Module, temperature: float
    ) -> None:
        super().__init__()
        self.temperature = temperature
        self.base_encoder = base_encoder
        self.momentum_encoder = momentum_encoder
        self.predictor = predictor
        for parameter in self.momentum_encoder.parameters():
            parameter.requires_grad = False
        self.momentum_encoder.load_state_dict(self.base_encoder.state_dict())

    def forward(self, x1: Tensor, x2: Tensor, m: float) -> Tensor:
        """Return the loss, a scalar, of two views `[N, 3, H, W]` of the same images; `m` moves the momentum encoder."""
        q1, q2, k1, k2 = self.embed(x1, x2, m)
        return self.contrastive_loss(q1, k2) + self.contrastive_loss(q2, k1)

    def embed(self, x1: Tensor, x2: Tensor, m: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return (q1, q2, k1, k2), each `[N, dim]`; the momentum encoder moves after the queries, before the keys."""
        q1 = self.predictor(self.base_encoder(x1))
        q2 = self.predictor(self.base_encoder(x2))
        with torch.no_grad():
            self.update_momentum_encoder(m)
            k1 = self.momentum_encoder(x1)
            k2 = self.momentum_encoder(x2)
        return q1, q2, k1, k2

    @torch.no_grad()
    def update_momentum_encoder(self, m: float) -> None:
        """Move every parameter of the momentum encoder: `k = m * k + (1 - m) * q`. No buffer is moved."""
        for q, k in zip(self.base_encoder.parameters(), self.momentum_encoder.parameters(), strict=True):
            k.mul_(m).add_(q, alpha=1 - m)

    def contrastive_loss(self, q: Tensor, k: Tensor) -> Tensor:
        """Return the InfoNCE loss, times 2T, of queries and keys `[N, dim]`; the keys of all ranks are candidates."""
        q = F.normalize(q, dim=1)
        k = gather_over_ranks(F.normalize(k, dim=1))
        logits = q @ k.T / self.temperature
        labels = torch.arange(q.shape[0], device=q.device) + q.shape[0] * rank()
        return F.cross_entropy(logits, labels) * (2 * self.temperature)
