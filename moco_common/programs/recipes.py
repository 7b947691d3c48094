"""The published recipes as presets of the programs' options, for ImageNet-1k on as many devices as the batch takes.

Chen, Xie, He (arXiv 2104.02057), section 5 and appendix, and the reference setups of the official release. Anything
that a recipe does not set keeps the program's default: batch 4096 and LARS for pre-training, batch 1024 and SGD for the
linear classifier. The published accuracies are in docs/moco-v3.md.
"""

from __future__ import annotations

import argparse
from typing import Any

_VIT: dict[str, Any] = {
    "optimizer": "adamw",
    "lr": 1.5e-4,
    "weight_decay": 0.1,
    "epochs": 300,
    "warmup_epochs": 40,
    "stop_grad_conv1": True,
    "moco_m_cos": True,
    "moco_t": 0.2,
}
_RESNET_50: dict[str, Any] = {"arch": "resnet50", "moco_m_cos": True, "crop_min": 0.2}

PRETRAINING: dict[str, dict[str, Any]] = {
    "r50-100ep": _RESNET_50,
    "r50-300ep": {**_RESNET_50, "lr": 0.3, "epochs": 300},
    "r50-1000ep": {**_RESNET_50, "lr": 0.3, "weight_decay": 1.5e-6, "epochs": 1000, "moco_m": 0.996},
    "vit-s-300ep": {**_VIT, "arch": "vit_small"},
    "vit-b-300ep": {**_VIT, "arch": "vit_base"},
}
LINEAR: dict[str, dict[str, Any]] = {
    "r50-linear": {"arch": "resnet50"},
    "vit-s-linear": {"arch": "vit_small", "lr": 3.0},
    "vit-b-linear": {"arch": "vit_base", "lr": 3.0},
}


def parse_with_recipe(
    parser: argparse.ArgumentParser, recipes: dict[str, dict[str, Any]], argv: list[str] | None
) -> argparse.Namespace:
    """Parse `argv`, with the options that `--recipe` names in place of the defaults; an option that is given wins."""
    args = parser.parse_args(argv)
    if args.recipe is not None:
        parser.set_defaults(**recipes[args.recipe])
        args = parser.parse_args(argv)
    return args
