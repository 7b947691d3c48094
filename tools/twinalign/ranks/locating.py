"""Locate what several ranks do wrong together: the part of a step, the ranks, and the proven cause.

Both sides' ranks make the first step once more, in float64. The first part that differs (inputs, weights, forward,
loss, gradient) is where the fault is. Causes are done to the reference's ranks, and one is stated where they then have
all that the port's ranks have, in every part, down to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from twinalign.case_allowances import allowances_for
from twinalign.explain.registry import hypotheses
from twinalign.locate.faults import Explanation, Fault
from twinalign.ranks.observing import PARTS
from twinalign.ranks.recordings import join_ranks, of_rank
from twinalign.recording import Recording
from twinalign.verdict import compare_arrays
from twinalign.verdict.results import DIVERGED

if TYPE_CHECKING:
    from twinalign.runner import Recorder
    from twinalign.verdict import Allowance

_FUNCTION = "twinalign.ranks.observing:{}".format
Arrays = Mapping[str, np.ndarray]


class RankSearch:
    """Searches the first step of a case.

    Args:
        recorder: whose processes are up.
        weights: by part, what each side is given of its weights.
        progress: told what is tried.
    """

    def __init__(
        self,
        recorder: Recorder,
        weights: Mapping[str, Mapping[str, Any]],
        progress: Callable[[str, str], None] = lambda side, text: None,
    ) -> None:
        """Observe nothing yet."""
        self._recorder, self._progress = recorder, progress
        stages = recorder.description["stages"]
        self._stage = next(stage for stage in ("backward", "loss") if stage in stages)
        """A case that has no optimizer has no backward stage."""
        self._weights = weights[recorder.description["parts"][self._stage]]
        self._folder = recorder.out / "locate" / "ranks"
        self._allowances: Sequence[Allowance | str] = ()
        self._reference: list[Arrays] = []
        self.ranks = recorder.settings.ranks

    def search(self, explain: bool = True) -> Fault | None:
        """The fault of the ranks, explained where a cause can be proven; None where the first step is right."""
        if not self._reference:  # it stays what it is while ports are spoiled
            self._reference = self._observe("ref", "reference")
        port = self._observe("paddle", "port")
        wrong = self._differences(self._reference, port)
        if not wrong:
            return None
        part = next(part for part in PARTS if any(part in found for found in wrong.values()))
        ranks = [rank for rank, found in wrong.items() if part in found]
        names = wrong[ranks[0]][part]
        where = f"rank {', '.join(map(str, ranks))} of {self.ranks}"
        evidence = {
            "ranks": ranks,
            "tensors": names[:20],
            "notes": [f"first differs in {_SAID[part]} of {where}: {len(names)} tensors, {names[0]} first"],
        }
        explanation = self._explain(port, part) if explain else None
        return Fault(f"ranks.{part}", f"ranks.{part}", "ranks", explanation, evidence)

    def _call(self, side: str, function: str, **values: Any) -> list[dict[str, Any]]:
        return self._recorder.group(side).request_all("call", function=_FUNCTION(function), stage=self._stage, **values)

    def _observe(self, side: str, name: str, **hypothesis: Any) -> list[Arrays]:
        path = self._folder / f"{name}.npy"
        answers = self._call(side, "observe", weights=self._weights[side], path=str(path), **hypothesis)
        if any(answer["failed"] for answer in answers):
            return []
        join_ranks(path, self.ranks)
        whole = Recording.load(path)
        if side == "paddle":
            self._allowances = allowances_for("backward", whole.metadata, self._recorder.description)
        return [of_rank(whole, rank).arrays for rank in range(self.ranks)]

    def _differences(self, reference: list[Arrays], port: list[Arrays]) -> dict[int, dict[str, list[str]]]:
        """rank -> part -> names of tensors that differ."""
        found: dict[int, dict[str, list[str]]] = {}
        for rank in range(self.ranks):
            for name in _diverged(reference[rank], port[rank], self._allowances):
                found.setdefault(rank, {}).setdefault(name.partition(".")[0], []).append(name)
        return found

    def _explain(self, port: list[Arrays], part: str) -> Explanation | None:
        given = self._folder / "port_weights.npz"
        if part == "weights":
            self._call("paddle", "keep_weights", weights=self._weights["paddle"], path=str(given))
        for hypothesis in hypotheses("ranks"):
            # What is wrong in a part shows there first.
            if hypothesis.part != part:  # type: ignore[attr-defined]
                continue
            asked = {"hypothesis": hypothesis.id, "given": str(given) if part == "weights" else ""}
            details = self._call("ref", "variants", **asked)[0]["details"]
            for variant, detail in enumerate(details):
                self._progress("ref", f"ranks: {hypothesis.id} {detail}".rstrip())
                found = self._observe("ref", "hypothesis", variant=variant, **asked)
                if found and not self._differences(found, port):
                    return self._proven(hypothesis, detail, found, port)
        return None

    def _proven(self, hypothesis: Any, detail: str, found: list[Arrays], port: list[Arrays]) -> Explanation:
        evidence = {
            "unexplained_error": max(_distance(*pair) for pair in zip(self._reference, port, strict=True)),
            "remaining_error": max(_distance(*pair) for pair in zip(found, port, strict=True)),
        }
        text = f"{hypothesis.text}, {detail}" if detail else hypothesis.text
        return Explanation(hypothesis.id, text, evidence=evidence)


_SAID = {
    "inputs": "the inputs",
    "weights": "the initial weights",
    "forward": "the model's outputs",
    "loss": "the loss",
    "gradient": "the gradients",
}


def _diverged(reference: Arrays, port: Arrays, allowances: Any) -> list[str]:
    """Names of tensors whose float64 values differ by more than rounding."""
    low = [
        {name: array.astype(np.float32) if array.dtype == np.float64 else array for name, array in side.items()}
        for side in (reference, port)
    ]
    comparison = compare_arrays(
        low[0],
        low[1],
        reference64=dict(reference),
        reproduced64=dict(port),
        allowances=allowances,
        everything=False,
        search=False,
    )
    return [tensor.name for tensor in comparison.tensors if tensor.verdict == DIVERGED]


def _distance(reference: Arrays, port: Arrays) -> float:
    """The greatest difference of any tensor of a rank, relative to the greatest value in it."""
    found = [0.0]
    for name, array in reference.items():
        other = port.get(name)
        if other is None or other.shape != array.shape or array.dtype.kind != "f" or not array.size:
            continue
        scale = max(float(np.abs(array).max()), 1e-12)
        found.append(float(np.abs(array - other).max()) / scale)
    return max(found)
