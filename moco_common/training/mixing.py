"""What fine-tuning does to a batch: mixup (arXiv 1710.09412), CutMix (1905.04899), label smoothing (1512.00567, 7).

Every picture is mixed with its mirror image in the batch, the first with the last and so on, all with the same share,
as in timm. The draws depend on epoch and iteration alone, so that a run can resume.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass

from moco_common.images.augmentation import addressed_uniforms

_VIEW = 3
"""View number of these draws (`images/training_augmentation.py` lists all); the iteration is used as the sample."""
_WHETHER, _WHICH, _SHARE, _ROW, _COLUMN, _COUNT = range(6)


def add_mixing_options(parser: argparse.ArgumentParser) -> None:
    """Add the options, under timm's names; by default nothing is mixed or smoothed."""
    add = parser.add_argument
    add("--mixup", type=float, default=0.0, metavar="ALPHA", help="of mixup's Beta distribution; 0 for no mixup")
    add("--cutmix", type=float, default=0.0, metavar="ALPHA", help="of CutMix's Beta distribution; 0 for no CutMix")
    add("--mixup-prob", type=float, default=1.0, help="chance that a batch is mixed")
    add("--mixup-switch-prob", type=float, default=0.5, help="chance of CutMix if both are on")
    add("--smoothing", type=float, default=0.0, help="share of a label that is spread over all classes")


@dataclass(frozen=True)
class MixingDraws:
    """How batches are mixed and smoothed.

    Attributes:
        classes: how many there are.
        mixup, cutmix: alpha of the Beta distribution of the share that a picture keeps; 0 for none of the kind.
        mixup_prob: chance that a batch is mixed.
        mixup_switch_prob: chance that it is CutMix if both are on.
        smoothing: share of a label that is spread over all classes.
        seed: what the draws depend on, besides epoch and iteration.

    Raises:
        ValueError: an alpha is negative, a chance or share is not from 0 to 1, or scipy is missing.
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
        if self.mixup or self.cutmix:
            _beta(1.0, 0.5)  # where scipy is missing, now and not at the first batch

    def draw(self, height: int, width: int, epoch: int, iteration: int) -> tuple[float, tuple[int, int, int, int]]:
        """Return the share that a picture keeps, and the box that comes from the other: top, bottom, left, right.

        Without CutMix the box is empty; with it, the share is the area outside the box, clipped to the picture.
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


def _beta(alpha: float, uniform: float) -> float:
    """The quantile `uniform` of the distribution Beta(alpha, alpha)."""
    try:
        from scipy.special import betaincinv
    except ImportError:
        raise ValueError("--mixup, --cutmix: the package scipy is missing; pip install 'twinalign[example]'") from None
    return float(betaincinv(alpha, alpha, uniform))


def _interval(length: int, side: float, uniform: float) -> tuple[int, int]:
    """Begin and end of an interval of relative length `side` with a random centre, clipped to `length`."""
    size, centre = int(length * side), int(uniform * length)
    return max(centre - size // 2, 0), min(centre + size // 2, length)
