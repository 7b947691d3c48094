"""Mixup, CutMix and label smoothing of a batch, as `moco_common.training.mixing` draws them."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from moco_common.training.mixing import MixingDraws


@dataclass(frozen=True)
class Mixing(MixingDraws):
    """Mixes and smooths batches."""

    def __call__(self, views: Tensor, labels: Tensor, epoch: int, iteration: int) -> tuple[Tensor, Tensor]:
        """Return mixed views, `[N, 3, H, W]`, and the share of every class in each, `[N, classes]`, as the views' type.

        Args:
            views: `[N, 3, H, W]`, on the labels' device.
            labels: integers `[N]`.
            epoch, iteration: the address of the draws.
        """
        share, (top, bottom, left, right) = self.draw(*views.shape[-2:], epoch, iteration)
        targets = F.one_hot(labels, self.classes).to(views.dtype)
        targets = targets * (1 - self.smoothing) + self.smoothing / self.classes
        if share == 1.0:
            return views, targets
        targets = targets * share + targets.flip(0) * (1 - share)
        others = views.flip(0)
        if bottom == 0:
            return views * share + others * (1 - share), targets
        views = views.clone()
        views[:, :, top:bottom, left:right] = others[:, :, top:bottom, left:right]
        return views, targets


def build_mixing(args: argparse.Namespace, classes: int) -> Mixing | None:
    """Return the mixing that the options ask for, or None.

    Raises:
        ValueError: an option is out of its range.
    """
    mixing = Mixing(
        classes, args.mixup, args.cutmix, args.mixup_prob, args.mixup_switch_prob, args.smoothing, args.seed
    )
    return mixing if mixing.mixup or mixing.cutmix or mixing.smoothing else None
