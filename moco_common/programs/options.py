"""Options that all programs share, and a program's exit."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from moco_common.distributed import LOST_RANK, LostRankError
from moco_common.training.interruption import StoppedError

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
"""The allowed values of options, as a test and in words."""


def add_common_options(
    parser: argparse.ArgumentParser, architectures: Iterable[str], device: str, batch_size: int
) -> None:
    """Add the options of every program that runs a model over pictures; `device` is the default one."""
    add = parser.add_argument
    add("-a", "--arch", default="resnet50", choices=list(architectures), metavar="ARCH")
    add("-j", "--workers", type=int, default=os.cpu_count(), help="processes that read and augment")
    add("-b", "--batch-size", type=int, default=batch_size)
    add("--image-size", type=int, help="in pixels; by default the architecture's own, mostly 224")
    add("--on-bad-image", default="refuse", choices=("refuse", "skip"))
    add("--device", choices=("cpu", "gpu"), default=device)


def encoder_options(args: argparse.Namespace) -> dict[str, int]:
    """Return the options of the encoder that follow from `args.arch` and `args.image_size`."""
    return {"image_size": args.image_size} if args.image_size and args.arch.startswith("vit") else {}


def check_positive(args: argparse.Namespace, *names: str) -> None:
    """Refuse numbers below 1.

    Raises:
        ValueError: one of the options is; None is allowed.
    """
    for name in names:
        if getattr(args, name) is not None and getattr(args, name) < 1:
            raise ValueError(f"--{name.replace('_', '-')}: must be 1 or more, got {getattr(args, name)}")


def check_ranges(args: argparse.Namespace) -> None:
    """Refuse values outside `RANGES` for the options that the program has.

    Raises:
        ValueError: an option has one; None is allowed.
    """
    for name, (is_possible, words) in RANGES.items():
        value = getattr(args, name, None)
        if value is not None and not is_possible(value):
            raise ValueError(f"--{name.replace('_', '-')}: must be {words}, got {value}")


def print_options(settings: dict[str, Any]) -> None:
    """Print the options that decide a run, recipe and defaults included, as one line."""
    print("options:", *(f"{name}={value}" for name, value in settings.items() if value is not None), flush=True)


def list_bad_images(paths: list[Path]) -> None:
    """List the pictures that were left out."""
    if paths:
        print(f"{len(paths)} pictures were left out:", file=sys.stderr)
    for path in paths:
        print(_in_one_line(f"left out, cannot be read: {path}"), file=sys.stderr)


def _in_one_line(text: str) -> str:
    """The text without what steers a terminal, as a newline in the name of a file does."""
    return "".join(character if character.isprintable() else "?" for character in text)


def execute(run: Callable[[argparse.Namespace], None], args: argparse.Namespace) -> int:
    """Run a program; return its exit code.

    0 done, 1 the loss was not finite, 2 wrong use, 3 another rank is gone, 128 and the signal's number where one ended
    it.
    """
    try:
        run(args)
    except FloatingPointError as error:
        print(_in_one_line(f"error: {error}"), file=sys.stderr)
        return 1
    except (ValueError, OSError) as error:
        print(_in_one_line(f"error: {error}"), file=sys.stderr)
        return 2
    except LostRankError as error:
        print(_in_one_line(f"error: {error}"), file=sys.stderr)
        return LOST_RANK
    except StoppedError as stopped:
        print(_in_one_line(str(stopped)), file=sys.stderr)
        return stopped.exit_code
    except KeyboardInterrupt:
        print("interrupted: --resume goes on from the last checkpoint", file=sys.stderr)
        return 130
    return 0
