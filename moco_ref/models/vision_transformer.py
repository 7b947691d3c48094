"""Vision Transformer as MoCo v3 uses it, with plain patch embedding or with a convolutional stem.

Dosovitskiy et al. (arXiv 2010.11929) for the network, Chen, Xie, He (arXiv 2104.02057) for the fixed position
embedding and the initialisation, Xiao et al. (arXiv 2106.14881) for the stem. State-dict names are timm 0.4.9's.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from moco_ref.models import initialization
from moco_ref.models.drop_path import build_drop_path, drop_path_rates, dropped
from moco_ref.models.normalization import BatchNorm2d


def sincos_position_embedding(height: int, width: int, dim: int, temperature: float = 10000.0) -> Tensor:
    """Fixed 2-D position embedding, float32 `[1, 1 + height * width, dim]`; row 0 is the class token's and zero.

    Four quarters: sine and cosine of the row index, sine and cosine of the column index, at dim/4 frequencies.
    (The official recipe names its first two quarters after the width, yet indexes its grid "ij": they follow the row.)

    Raises:
        ValueError: where `dim` is no multiple of 4.
    """
    if dim % 4 != 0:
        raise ValueError(f"dim must be a multiple of 4 for a 2-D sin-cos position embedding, got {dim}")
    frequency = 1.0 / temperature ** (torch.arange(dim // 4, dtype=torch.float32) / (dim // 4))
    row = torch.arange(height, dtype=torch.float32).repeat_interleave(width)
    column = torch.arange(width, dtype=torch.float32).repeat(height)
    row, column = row[:, None] * frequency, column[:, None] * frequency
    embedding = torch.cat([row.sin(), row.cos(), column.sin(), column.cos()], dim=1)
    return torch.cat([torch.zeros(1, dim), embedding], dim=0)[None]


class PatchEmbedding(nn.Module):
    """Image `[N, 3, H, W]` to tokens `[N, H/patch * W/patch, dim]` by one convolution over disjoint patches."""

    def __init__(self, patch_size: int, dim: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, dim, patch_size, stride=patch_size)
        # Initialised as a linear layer, which this convolution is: Xavier's bound from its two widths.
        initialization.uniform_(self.proj.weight, math.sqrt(6 / (3 * patch_size**2 + dim)))
        initialization.constant_(self.proj.bias, 0)

    def forward(self, x: Tensor) -> Tensor:
        """Return the patches' tokens, row by row."""
        return self.proj(x).flatten(2).transpose(1, 2)


class ConvStem(nn.Module):
    """The same tokens by log2(patch) strided 3x3 convolutions, channels doubling up to `dim`, and a 1x1 convolution."""

    def __init__(self, patch_size: int, dim: int) -> None:
        super().__init__()
        num_stages = int(math.log2(patch_size))
        layers, input_channels = [], 3
        for stage in range(num_stages):
            output_channels = dim // 2 ** (num_stages - 1 - stage)
            layers += [
                nn.Conv2d(input_channels, output_channels, 3, stride=2, padding=1, bias=False),
                BatchNorm2d(output_channels),
                nn.ReLU(),
            ]
            input_channels = output_channels
        layers.append(nn.Conv2d(dim, dim, 1))
        for layer in layers:
            if isinstance(layer, nn.Conv2d):
                initialization.torch_default_(layer)
        self.proj = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """Return the patches' tokens, row by row."""
        return self.proj(x).flatten(2).transpose(1, 2)


class Attention(nn.Module):
    """Multi-head self-attention; queries, keys and values come from one stacked Linear."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv = initialization.linear(dim, dim * 3)
        self.proj = initialization.linear(dim, dim)
        initialization.xavier_uniform_linear_(self.qkv, matrices=3)
        initialization.xavier_uniform_linear_(self.proj)

    def forward(self, x: Tensor) -> Tensor:
        """Attend over the tokens of `x`, `[N, tokens, dim]`."""
        batch_size, tokens, dim = x.shape
        qkv = self.qkv(x).reshape(batch_size, tokens, 3, self.num_heads, dim // self.num_heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        x = F.scaled_dot_product_attention(q, k, v)
        return self.proj(x.transpose(1, 2).reshape(batch_size, tokens, dim))


class MultilayerPerceptron(nn.Module):
    """Linear, GELU (by the error function, not its tanh form), Linear."""

    def __init__(self, dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.fc1 = initialization.linear(dim, hidden_dim)
        self.act = nn.GELU()
        self.fc2 = initialization.linear(hidden_dim, dim)
        initialization.xavier_uniform_linear_(self.fc1)
        initialization.xavier_uniform_linear_(self.fc2)

    def forward(self, x: Tensor) -> Tensor:
        """Map every token of `x`, `[N, tokens, dim]`, by itself."""
        return self.fc2(self.act(self.fc1(x)))


class Block(nn.Module):
    """Pre-norm transformer block: attention and perceptron, each on top of a residual path."""

    def __init__(self, dim: int, num_heads: int, mlp_ratio: int = 4, drop_path: float = 0.0) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=1e-6)
        self.attn = Attention(dim, num_heads)
        self.norm2 = nn.LayerNorm(dim, eps=1e-6)
        self.mlp = MultilayerPerceptron(dim, mlp_ratio * dim)
        self.drop_path1, self.drop_path2 = build_drop_path(drop_path), build_drop_path(drop_path)

    def forward(self, x: Tensor) -> Tensor:
        """Return tokens of the same shape, `[N, tokens, dim]`."""
        x = x + dropped(self.drop_path1, self.attn(self.norm1(x)))
        return x + dropped(self.drop_path2, self.mlp(self.norm2(x)))


class VisionTransformer(nn.Module):
    """ViT encoder with a class token; `head` is a Linear classifier, or what MoCo puts in its place.

    `drop_path` is the chance that the last block's branches are left out in training; the first block's never are.
    """

    head_name = "head"
    default_temperature = 0.2

    def __init__(
        self,
        dim: int,
        depth: int,
        num_heads: int,
        patch_size: int = 16,
        image_size: int = 224,
        stem: type[nn.Module] = PatchEmbedding,
        num_classes: int = 1000,
        stop_grad_conv1: bool = False,
        drop_path: float = 0.0,
    ) -> None:
        super().__init__()
        if image_size % patch_size != 0:
            raise ValueError(f"image_size must be a multiple of the patch size {patch_size}, got {image_size}")
        self.image_size = image_size
        self.num_features = dim
        side = image_size // patch_size
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        initialization.normal_(self.cls_token, std=1e-6)
        self.pos_embed = nn.Parameter(sincos_position_embedding(side, side, dim), requires_grad=False)
        self.patch_embed = stem(patch_size, dim)
        rates = drop_path_rates(drop_path, depth)
        self.blocks = nn.Sequential(*[Block(dim, num_heads, drop_path=rate) for rate in rates])
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.head = initialization.linear(dim, num_classes)
        initialization.xavier_uniform_linear_(self.head)
        # The paper's section 4.2: a patch projection that stays random trains more stably. Stems are trained.
        if stop_grad_conv1 and isinstance(self.patch_embed, PatchEmbedding):
            for parameter in self.patch_embed.parameters():
                parameter.requires_grad = False

    def forward_features(self, x: Tensor) -> Tensor:
        """Return the class token's features, `[N, dim]`, of images `[N, 3, image_size, image_size]`.

        Raises:
            ValueError: for images of another size (the position embedding is made for one).
        """
        if tuple(x.shape[-2:]) != (self.image_size, self.image_size):
            raise ValueError(
                f"images must be {self.image_size} x {self.image_size} pixels for this encoder, "
                f"got {x.shape[-2]} x {x.shape[-1]}: resize them or build it with image_size={x.shape[-1]}"
            )
        x = self.patch_embed(x)
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1)
        x = self.blocks(x + self.pos_embed)
        # LayerNorm works token by token, so that only the class token needs it.
        return self.norm(x[:, 0])

    def forward(self, x: Tensor) -> Tensor:
        """Return `head` of the features: logits `[N, num_classes]`, or projections under MoCo."""
        return self.head(self.forward_features(x))


ARCHITECTURES = {
    # 12 heads also for the small one, where DeiT has 6 (the paper's section 5).
    "vit_small": partial(VisionTransformer, dim=384, depth=12, num_heads=12),
    "vit_base": partial(VisionTransformer, dim=768, depth=12, num_heads=12),
    # One block fewer makes up for the stem.
    "vit_conv_small": partial(VisionTransformer, dim=384, depth=11, num_heads=12, stem=ConvStem),
    "vit_conv_base": partial(VisionTransformer, dim=768, depth=11, num_heads=12, stem=ConvStem),
    # Not in the paper: small enough to be trained on 32-pixel digits in a minute.
    "vit_digits": partial(VisionTransformer, dim=64, depth=2, num_heads=2, patch_size=4, image_size=32),
}
