"""What both twins' files share: errors, the check of a resuming run's settings, keys of weights, atomic writes."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

WRAPPER = "module."
"""What DistributedDataParallel puts before every key."""
ENCODER = "base_encoder."


class CheckpointError(ValueError):
    """A checkpoint that cannot be read or belongs to another run; the message is one line that names the remedy."""


class UnreadableError(ValueError):
    """A file that cannot be read for a known reason; the message follows the file's name."""


class WeightsError(ValueError):
    """A file that cannot be read or holds another model's weights; the message is one line that names the remedy."""


def check_settings(path: str | Path, saved: dict[str, Any], current: dict[str, Any]) -> None:
    """Refuse to go on under other options; a checkpoint that records none (the official program's) is taken as it is.

    Raises:
        CheckpointError: they differ; the message names the first that does.
    """
    if not saved:
        return
    # Checkpoints of earlier versions do not name their program.
    programs = [settings.get("program") for settings in (saved, current)]
    if None not in programs and programs[0] != programs[1]:
        raise CheckpointError(
            f"{path}: was written by {programs[0]}, this is {programs[1]}; give a checkpoint of {programs[1]}"
        )
    # They also record an option that may now change.
    for name in sorted((saved.keys() | current.keys()) - {"program", "on_bad_image"}):
        if saved.get(name) != current.get(name):
            raise CheckpointError(
                f"{path}: was written with {name} = {saved.get(name)!r}, this run has {current.get(name)!r}; "
                "resume with the same options"
            )


def make_output_folder(folder: Path) -> None:
    """Make the folder of a run's checkpoints, where there is none, and make sure before the run that it takes files.

    What killed runs left half-written there is removed.

    Raises:
        OSError: it does not; the message is one line.
    """
    probe = folder / f".probe.{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise OSError(f"{folder}: cannot be written to ({error.strerror}); give another --output") from error
    for partial in folder.glob(".*.partial"):
        # Its writer holds a lock on it as long as it lives.
        with suppress(OSError), partial.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            partial.unlink()


@contextmanager
def written_beside(path: str | Path) -> Iterator[Path]:
    """Give a file beside `path` to write to; it takes the place of `path` at the end, and is removed after an error.

    Raises:
        OSError: the folder is missing or cannot be written to, or the disk is full; the message is one line.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        held = open(temporary, "wb")  # noqa: SIM115  (an error here is the folder's, one in the block below is not)
    except OSError as error:
        raise OSError(f"{path.parent}: cannot be written to ({error.strerror}); make it, or name another") from error
    try:
        with held:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield temporary
            with open(temporary, "rb+") as file:
                os.fsync(file.fileno())
            os.replace(temporary, path)
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(temporary)):  # it names what it is about
            raise
        raise OSError(f"{path}: cannot be written ({error.strerror})") from error
    finally:
        temporary.unlink(missing_ok=True)


def without_prefix(weights: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Return the weights with the prefix taken off, where every key has it; else as they are."""
    if all(key.startswith(prefix) for key in weights):
        return {key.removeprefix(prefix): value for key, value in weights.items()}
    return weights


def encoder_weights(weights: dict[str, Any], head_name: str) -> dict[str, Any]:
    """Return the base encoder's weights below its head, under the encoder's own keys."""
    if any(key.startswith(ENCODER) for key in weights):
        weights = {key.removeprefix(ENCODER): value for key, value in weights.items() if key.startswith(ENCODER)}
    return {key: value for key, value in weights.items() if not key.startswith(f"{head_name}.")}


def number_of_classes(weights: dict[str, Any]) -> int | None:
    """Return the number of classes of a trained classifier's weights; None for an encoder without one."""
    bias = weights.get("head.bias", weights.get("fc.bias"))
    return None if bias is None else int(bias.shape[0])


def check_fit(own: dict[str, Any], weights: dict[str, Any], path: str | Path, values: dict[str, Any]) -> None:
    """Make sure that the weights of a file are those of a model, key by key and shape by shape.

    Args:
        own, weights: what the model has and what the file has, by key.
        path: the file.
        values: the plain values beside the weights.

    Raises:
        WeightsError: they are not.
    """
    problems = [f"no {key}" for key in own if key not in weights]
    problems += [f"{key} that the model lacks" for key in weights if key not in own]
    problems += [
        f"{key} of shape {list(weights[key].shape)} and not {list(own[key].shape)}"
        for key in own
        if key in weights and list(weights[key].shape) != list(own[key].shape)
    ]
    if problems:
        more = f" and {len(problems) - 1} more" if len(problems) > 1 else ""
        arch = f", of {values['arch']}" if "arch" in values else ""
        raise WeightsError(f"{path}: other weights than the model's{arch}: {problems[0]}{more}; give the file's --arch")
