"""What the programs share: options that mean the same everywhere, and how a program ends."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import paddle
from paddle import nn

from .builder import ARCHITECTURES
from .distributed import is_launched, number_of_gpus, require_gpu
from .interruption import StoppedError
from .watch import LOST_RANK, LostRankError

RANGES: dict[str, tuple[Callable[[float], bool], str]] = {
    "lr": (lambda value: 0 <= value < math.inf, "0 or more and finite"),
    "weight_decay": (lambda value: 0 <= value < math.inf, "0 or more and finite"),
    "momentum": (lambda value: 0 <= value < 1, "from 0 to below 1"),
    "moco_m": (lambda value: 0 <= value <= 1, "from 0 to 1"),
    "moco_t": (lambda value: 0 < value < math.inf, "more than 0 and finite"),
    "workers": (lambda value: value >= 0, "0 or more"),
    "seed": (lambda value: 0 <= value < 2**63, "from 0 to below 2**63"),
    "rank_timeout": (lambda value: value > 0, "more than 0"),
    "model_ema_decay": (lambda value: 0 <= value <= 1, "from 0 to 1"),
    "crop_min": (lambda value: 0 < value <= 1, "more than 0 and at most 1"),
    "temperature": (lambda value: 0 < value < math.inf, "more than 0 and finite"),
}
"""What the values of options have to be, for the test and in words."""


def add_common_options(parser: argparse.ArgumentParser, batch_size: int) -> None:
    """Add the options of every program that runs a model over pictures."""
    add = parser.add_argument
    add("-a", "--arch", default="resnet50", choices=list(ARCHITECTURES), metavar="ARCH")
    add("-j", "--workers", type=int, default=os.cpu_count(), help="processes that read and augment")
    add("-b", "--batch-size", type=int, default=batch_size)
    add("--image-size", type=int, help="in pixels; by default the architecture's own, mostly 224")
    add("--on-bad-image", default="refuse", choices=("refuse", "skip"))
    add("--device", choices=("cpu", "gpu"), default=default_device())


def default_device() -> str:
    """Return "gpu" where there is one, else "cpu"."""
    return "gpu" if number_of_gpus() else "cpu"


def set_device(name: str) -> str:
    """Make the device "cpu" or "gpu" the current one, on which models and tensors are built; return its name.

    Raises:
        ValueError: there is no GPU.
    """
    if name == "gpu":
        require_gpu()
    paddle.set_device(name)
    return name


def on_device(model: nn.Layer, device: str) -> nn.Layer:
    """Return the model on the device that `set_device` named."""
    # diff: it was built on the current device.
    return model


def seed_everything(seed: int) -> None:
    """Seed what the initialisation of a model draws from."""
    paddle.seed(seed)


def encoder_options(args: argparse.Namespace) -> dict[str, int]:
    """Return the options of the encoder that follow from `args.arch` and `args.image_size`."""
    return {"image_size": args.image_size} if args.image_size and args.arch.startswith("vit") else {}


def check_positive(args: argparse.Namespace, *names: str) -> None:
    """Refuse numbers below 1.

    Raises:
        ValueError: one of the options is; None is let through.
    """
    for name in names:
        if getattr(args, name) is not None and getattr(args, name) < 1:
            raise ValueError(f"--{name.replace('_', '-')}: must be 1 or more, got {getattr(args, name)}")


def check_ranges(args: argparse.Namespace) -> None:
    """Refuse values that no run can have, of those options of `RANGES` that the program has.

    Raises:
        ValueError: an option has one; None is let through.
    """
    for name, (is_possible, words) in RANGES.items():
        value = getattr(args, name, None)
        if value is not None and not is_possible(value):
            raise ValueError(f"--{name.replace('_', '-')}: must be {words}, got {value}")


def print_options(settings: dict[str, Any]) -> None:
    """Print what decides a run, recipe and defaults among it, as one line."""
    print("options:", *(f"{name}={value}" for name, value in settings.items() if value is not None), flush=True)


def check_one_process() -> None:
    """Refuse to be one of several processes.

    Raises:
        ValueError: a launcher started several.
    """
    if is_launched():
        raise ValueError("several processes were started, this program is for one; start it without a launcher")


def list_bad_images(paths: list[Path]) -> None:
    """Say how many pictures were left out, and which."""
    if paths:
        print(f"{len(paths)} pictures were left out:", file=sys.stderr)
    for path in paths:
        print(f"left out, cannot be read: {path}", file=sys.stderr)


def execute(run: Callable[[argparse.Namespace], None], args: argparse.Namespace) -> int:
    """Run a program; return its exit code.

    0 done, 1 the loss was not finite, 2 wrong use, 3 another rank is gone, 128 and the signal's number where one ended
    it.
    """
    try:
        run(args)
    except FloatingPointError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except LostRankError as error:
        print(f"error: {error}", file=sys.stderr)
        return LOST_RANK
    except StoppedError as stopped:
        print(stopped, file=sys.stderr)
        return stopped.exit_code
    except KeyboardInterrupt:
        print("interrupted: --resume goes on from the last checkpoint", file=sys.stderr)
        return 130
    return 0
