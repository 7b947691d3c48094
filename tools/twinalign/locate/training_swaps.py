"""Which part of a training is at fault: something of the reference is put in its place, and the difference is gone.

The port trains its first steps in float64 once more, with the reference's batches, the reference's first weights, or
the reference's weights after each step. What is left with all three is the network's own: its forward pass, its loss,
and what it does to itself in there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinalign.errors import InputError
from twinalign.locate.training_curves import read_curves, wrong_curves

if TYPE_CHECKING:
    from twinalign.recorder.process import RecorderProcess

_RECORD = "twinalign.locate.training_curves:record_curves"
_GIVEN = {"data": ("data",), "init": ("init",), "updates": ("updates",), "network": ("data", "init", "updates")}
PARTS = {
    "data": "the batches",
    "init": "the initial weights",
    "updates": "the updates: optimizer, schedule, or what happens to gradients on their way",
    "network": "the network: its forward pass or its loss",
}
"""What is at fault where this swap removes the difference; `network`: where it does not."""
_MEASURED = ("loss", "gradient_norm")
"""Curves that are computed from weights and batches alone, the first that both sides have is asked; what is scheduled
stays the port's under every swap."""


@dataclasses.dataclass(frozen=True)
class Swaps:
    """What swapping parts has shown.

    Attributes:
        left: swap → curve → the first step at which it still differs; without any swap under the empty name.
        at_fault: the part that is named, None where nothing differs or several parts are at fault.
    """

    left: Mapping[str, Mapping[str, int]]
    at_fault: str | None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types."""
        removes = {swap: not left for swap, left in self.left.items() if swap}
        named = PARTS[self.at_fault] if self.at_fault else None
        without = dict(self.left[""])
        return {
            "without": without,
            "left": {swap: dict(left) for swap, left in self.left.items() if swap},
            "removes": removes if without else {},
            "at_fault": self.at_fault,
            "text": named,
        }


def swap_parts(
    processes: Mapping[str, RecorderProcess],
    weights: Mapping[str, Any],
    folder: Path,
    swaps: Sequence[str] = tuple(_GIVEN),
    progress: Callable[[str, str], None] = lambda side, text: None,
) -> Swaps | None:
    """Let the port train its first steps with parts of the reference; None where the case has no float64 training.

    Args:
        processes: both recorder processes, started.
        weights: side → what `Worker.build_model` takes.
        folder: for what the reference's training leaves; removed again.
        swaps: which to try.
        progress: told what is being done.

    Raises:
        InputError: the port has a tensor that the reference has none for, or the training never calls the model.
    """
    paths = {side: folder / f"curves_{side}.npz" for side in processes}
    kept = folder / "kept.npz"

    def train(side: str, **plan: Any) -> int:
        request = {"weights": weights[side], "path": str(paths[side]), "repeat": side == "ref", "plan": plan}
        return int(processes[side].request("call", function=_RECORD, **request)["steps"])

    try:
        progress("ref", "swaps: the reference's steps")
        if not train("ref", keep=str(kept)):
            return None
        curve = next((name for name in _MEASURED if name in read_curves(paths["ref"])[0]), _MEASURED[0])
        left: dict[str, dict[str, int]] = {}
        for swap in ("", *swaps):
            progress("paddle", f"swaps: {swap or 'none'}")
            train("paddle", **{given: str(kept) for given in _GIVEN.get(swap, ())})
            left[swap] = _measured(wrong_curves(paths), curve if swap else "")
        return Swaps(left, _at_fault(left, curve))
    finally:
        for path in (*paths.values(), kept):
            path.unlink(missing_ok=True)


def _measured(wrong: Mapping[str, Mapping[str, Any]], curve: str) -> dict[str, int]:
    return {name: int(found["first_step"]) for name, found in wrong.items() if curve in ("", name)}


def _at_fault(left: Mapping[str, Mapping[str, int]], curve: str) -> str | None:
    if curve not in left[""]:
        return None
    removing = [swap for swap in ("data", "init", "updates") if swap in left and not left[swap]]
    if removing:
        return removing[0]
    return "network" if left.get("network") else None


def try_swaps(
    processes: Mapping[str, RecorderProcess], weights: Mapping[str, Any], folder: Path
) -> dict[str, Any] | None:
    """As evidence for a fault; None where swaps cannot be made."""
    try:
        found = swap_parts(processes, weights, folder)
    except InputError:
        return None
    return found.to_json() if found is not None else None
