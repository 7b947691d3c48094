"""What fine-tuning does to a batch: mixup (arXiv 1710.09412), CutMix (1905.04899), label smoothing (1512.00567, 7).

Every picture is mixed with the one that stands as far from the batch's end as it from its beginning, all with the same
share, as timm does it and under its names. The draws are addressed by epoch and iteration, so that a run resumes.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass

from paddle import Tensor
from paddle.nn import functional as F

from .augmentation import addressed_uniforms

_VIEW = 3
"""Place among the views: an epoch's order is 0, views 1 and 2, erasing 4 and 5. An iteration stands for a sample."""
_WHETHER, _WHICH, _SHARE, _ROW, _COLUMN, _COUNT = range(6)


def add_mixing_options(parser: argparse.ArgumentParser) -> None:
    """Add the options, under timm's names; by default nothing is mixed or smoothed."""
    add = parser.add_argument
    add("--mixup", type=float, default=0.0, metavar="ALPHA", help="of mixup's Beta distribution; 0 for no mixup")
    add("--cutmix", type=float, default=0.0, metavar="ALPHA", help="of CutMix's Beta distribution; 0 for no CutMix")
    add("--mixup-prob", type=float, default=1.0, help="chance that a batch is mixed")
    add("--mixup-switch-prob", type=float, default=0.5, help="chance of CutMix where both are on")
    add("--smoothing", type=float, default=0.0, help="share of a label that is spread over all classes")


@dataclass(frozen=True)
class Mixing:
    """Mixes and smooths batches.

    Attributes:
        classes: how many there are.
        mixup, cutmix: alpha of the Beta distribution of the share that a picture keeps; 0 for none of the kind.
        mixup_prob: chance that a batch is mixed.
        mixup_switch_prob: chance that it is CutMix where both are on.
        smoothing: share of a label that is spread over all classes.
        seed: what the draws depend on, besides epoch and iteration.

    Raises:
        ValueError: an alpha is negative, or a chance or share is none.
    """

    classes: int
    mixup: float = 0.0
    cutmix: float = 0.0
    mixup_prob: float = 1.0
    mixup_switch_prob: float = 0.5
    smoothing: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("mixup", "cutmix"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"--{name}: must be 0 or more, got {getattr(self, name)}")
        for name in ("mixup_prob", "mixup_switch_prob", "smoothing"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"--{name.replace('_', '-')}: must be from 0 to 1, got {getattr(self, name)}")

    def draw(self, height: int, width: int, epoch: int, iteration: int) -> tuple[float, tuple[int, int, int, int]]:
        """Return the share that a picture keeps, and the box that is not its own: top, bottom, left, right.

        Without CutMix the box is empty; with it the share is what the box, cut off at the picture's edge, leaves.
        """
        uniforms = addressed_uniforms(self.seed, epoch, iteration, _VIEW, _COUNT)
        if uniforms[_WHETHER] >= self.mixup_prob or not (self.mixup or self.cutmix):
            return 1.0, (0, 0, 0, 0)
        is_cut = bool(self.cutmix) and (not self.mixup or uniforms[_WHICH] < self.mixup_switch_prob)
        share = _beta(self.cutmix if is_cut else self.mixup, uniforms[_SHARE])
        if not is_cut:
            return share, (0, 0, 0, 0)
        side = math.sqrt(1 - share)
        top, bottom = _interval(height, side, uniforms[_ROW])
        left, right = _interval(width, side, uniforms[_COLUMN])
        return 1 - (bottom - top) * (right - left) / (height * width), (top, bottom, left, right)

    def __call__(self, views: Tensor, labels: Tensor, epoch: int, iteration: int) -> tuple[Tensor, Tensor]:
        """Return mixed views, `[N, 3, H, W]`, and the share of every class in each, `[N, classes]`, as the views' type.

        Args:
            views: `[N, 3, H, W]`, on the labels' device.
            labels: integers `[N]`.
            epoch, iteration: the address of the draws.
        """
        share, (top, bottom, left, right) = self.draw(*views.shape[-2:], epoch, iteration)
        targets = F.one_hot(labels, self.classes).astype(views.dtype)
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
    """Return what the options ask for, None where it is nothing.

    Raises:
        ValueError: an option is out of its range.
    """
    mixing = Mixing(
        classes, args.mixup, args.cutmix, args.mixup_prob, args.mixup_switch_prob, args.smoothing, args.seed
    )
    return mixing if mixing.mixup or mixing.cutmix or mixing.smoothing else None


def _beta(alpha: float, uniform: float) -> float:
    """The number at `uniform` of the distribution Beta(alpha, alpha)."""
    from scipy.special import betaincinv

    return float(betaincinv(alpha, alpha, uniform))


def _interval(length: int, side: float, uniform: float) -> tuple[int, int]:
    """Begin and end of a stretch of `side` of the length, with its centre anywhere, cut off at the edges."""
    size, centre = int(length * side), int(uniform * length)
    return max(centre - size // 2, 0), min(centre + size // 2, length)
