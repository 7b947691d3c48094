"""The encoder in the form that DeiT's and timm's programs load: `python -m moco_ref export CHECKPOINT OUTPUT`.

A pre-training checkpoint gives its base encoder without the projector, a trained classifier goes whole. Names and
layouts are torch's from either twin, so that both write the same arrays, but for torch's `num_batches_tracked` of batch
norms, which paddle does not count.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from .builder import ARCHITECTURES
from .checkpoint import write_file, written_beside
from .program import execute
from .weights import encoder_weights, number_of_classes, read_weights

FORMS = ("deit", "timm")

TIMM_HEADS = {"vit_small": ("vit_small_patch16_224", 12)}
"""Where timm's model of the same name has other heads, that name and the heads here: the same weights fit both."""


def build_parser() -> argparse.ArgumentParser:
    """Return the program's options."""
    parser = argparse.ArgumentParser(prog=f"python -m {__package__} export", description="hand the encoder on")
    add = parser.add_argument
    add("checkpoint", type=Path, metavar="CHECKPOINT", help="of pre-training or of a trained classifier")
    add("output", type=Path, metavar="OUTPUT", help=".pth or .safetensors")
    add("--form", default="deit", choices=FORMS, help='deit: {"model": …}, timm: bare; .safetensors is bare always')
    add("--use-ema", action="store_true", help="take the average that --model-ema kept")
    add("-a", "--arch", choices=list(ARCHITECTURES), metavar="ARCH", help="where the checkpoint does not name it")
    return parser


def run(args: argparse.Namespace) -> None:
    """Write the file.

    Raises:
        ValueError, OSError: the checkpoint or the output's suffix is wrong; the message is one line.
    """
    if args.output.suffix not in (".pth", ".safetensors"):
        raise ValueError(f"{args.output}: is written as .pth or .safetensors; give one of these suffixes")
    weights, values = read_weights(args.checkpoint, args.use_ema)
    arch = args.arch or values.get("arch")
    if arch not in ARCHITECTURES:
        raise ValueError(f"{args.checkpoint}: does not name its architecture; give --arch")
    exported = exported_weights(weights, arch)
    if not exported:
        raise ValueError(f"{args.checkpoint}: holds no encoder to export")
    if args.output.suffix == ".safetensors":
        with written_beside(args.output) as temporary:
            temporary.write_bytes(save(exported))
    else:
        write_file({"model": exported} if args.form == "deit" else exported, args.output)
    print(f"{args.output}: {len(exported)} arrays of {arch}")
    if arch in TIMM_HEADS:
        name, heads = TIMM_HEADS[arch]
        call = f'timm.create_model("{name}", num_heads={heads}, num_classes={number_of_classes(exported) or 0})'
        print(f"timm's {name} has another number of heads, into which these weights load as well; build it as {call}")


def exported_weights(weights: dict[str, Any], arch: str) -> dict[str, Tensor]:
    """Return the encoder's entries by torch's names and in torch's layouts, a classifier's head among them."""
    if number_of_classes(weights) is None:
        weights = encoder_weights(weights, ARCHITECTURES[arch].func.head_name)
    return {key: value.contiguous() for key, value in weights.items()}


def main(argv: list[str] | None = None) -> int:
    """Run the program; return its exit code."""
    return execute(run, build_parser().parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
