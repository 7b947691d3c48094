"""Fine-tuning encoder and classifier: the program `python -m moco_ref finetune DATA --pretrained FILE`.

SGD or AdamW with linear warm-up and half a cosine per iteration; crops and flips and, where asked, what DeiT's recipe
(arXiv 2012.12877) adds, under timm's names: RandAugment, repeated augmentation, random erasing, mixup, CutMix, label
smoothing, drop path, clipped gradients, an average of the weights. Every draw depends on its address alone. Several
processes train as one would on the joined batch (`torchrun`, as `train`).
"""

from __future__ import annotations

from moco_common.programs.classification import build_fine_tuning_parser
from moco_common.programs.options import execute
from moco_ref.devices import default_device
from moco_ref.models.moco import ARCHITECTURES
from moco_ref.programs import classification


def main(argv: list[str] | None = None) -> int:
    """Run the program; return its exit code."""
    parser = build_fine_tuning_parser("moco_ref", ARCHITECTURES, default_device())
    return execute(lambda args: classification.run(args, frozen=False), parser.parse_args(argv))
