"""Where a forger alters an honest bundle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.twinalign.bundle.forging import Forgery

FORWARD, FORWARD64 = "result/forward_paddle.npy", "result/float64/forward_paddle.npy"
BACKWARD, BACKWARD64 = "result/losses_paddle.npy", "result/float64/losses_paddle.npy"
SUMMARY = "result/summary.json"
GRADIENT = "step0.gradient.base_encoder.blocks.0.mlp.fc1.weight"


def reference_of(name: str) -> str:
    return name.replace("_paddle", "_ref")


def metadata_of(name: str) -> str:
    return name.replace(".npy", ".json")


def tensor(summary: Any, stage: str, name: str) -> dict[str, Any]:
    return next(entry for entry in summary["stages"][stage]["tensors"] if entry["name"] == name)


def in_summary(change: Callable[[Any], Any]) -> Callable[[Forgery], None]:
    return lambda forgery: forgery.edit(SUMMARY, change)


def in_metadata(change: Callable[[Any], Any], name: str = FORWARD) -> Callable[[Forgery], None]:
    return lambda forgery: forgery.edit(metadata_of(name), change)


def wrong_element(forgery: Forgery) -> None:
    forgery.change_arrays(FORWARD, lambda arrays: arrays["q1"].__setitem__((3, 5), 7.0))
