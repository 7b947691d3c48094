"""Finds the part of a training that is at fault: replacing it with the reference's makes the difference disappear.

The port trains its first steps in float64 again, with the reference's batches, the reference's initial weights, or the
reference's weights after each step. A difference that remains with all three comes from the network itself: its forward
pass or its loss.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from twinalign.errors import InputError
from twinalign.processes.side_process import SideProcess
from twinalign.replay.training import read_curves, record_curves, wrong_curves

_GIVEN = {"data": ("data",), "init": ("init",), "updates": ("updates",), "network": ("data", "init", "updates")}
PARTS = {
    "data": "the batches",
    "init": "the initial weights",
    "updates": "the updates: optimizer, schedule, or a change to the gradients before the step",
    "network": "the network: its forward pass or its loss",
}
"""The part at fault if this swap removes the difference; `network`: if it does not."""
_MEASURED = ("loss", "gradient_norm")
"""Curves that follow from weights and batches alone; the first that the reference has is compared. Scheduled values
stay the port's under every swap."""


@dataclasses.dataclass(frozen=True)
class Swaps:
    """What swapping parts has shown.

    Attributes:
        left: swap → curve → the first step at which it still differs; `""` is the training without a swap.
        at_fault: the part at fault, None if nothing differs or several parts are at fault.
    """

    left: Mapping[str, Mapping[str, int]]
    at_fault: str | None

    def to_json(self) -> dict[str, Any]:
        without = dict(self.left[""])
        left = {swap: dict(found) for swap, found in self.left.items() if swap}
        return {
            "without": without,
            "left": left,
            "removes": {swap: not found for swap, found in left.items()} if without else {},
            "at_fault": self.at_fault,
            "text": PARTS[self.at_fault] if self.at_fault else None,
        }


def swap_parts(
    processes: Mapping[str, SideProcess],
    weights: Mapping[str, Any],
    folder: Path,
    swaps: Sequence[str] = tuple(_GIVEN),
    progress: Callable[[str, str], None] = lambda side, text: None,
) -> Swaps | None:
    """Train the port's first steps with parts of the reference; None if the case has no float64 training.

    Args:
        weights: side → what `Worker.build_model` takes.
        folder: for files that are removed again.

    Raises:
        InputError: the port has a tensor without a counterpart, or the training never calls the model.
    """
    paths = {side: folder / f"curves_{side}.npz" for side in processes}
    kept = folder / "kept.npz"

    def train(side: str, **plan: Any) -> int:
        request = {"weights": weights[side], "path": str(paths[side]), "repeat": side == "ref", "plan": plan}
        return int(processes[side].call(record_curves, **request)["steps"])

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


def try_swaps(processes: Mapping[str, SideProcess], weights: Mapping[str, Any], folder: Path) -> dict[str, Any] | None:
    """The swaps as evidence for a fault; None if they cannot be made."""
    try:
        found = swap_parts(processes, weights, folder)
    except InputError:
        return None
    return found.to_json() if found is not None else None
