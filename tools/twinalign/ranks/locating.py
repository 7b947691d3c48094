"""Locate what several ranks do wrong together: the part of a step, the ranks, and the proven cause.

Both sides' ranks make the first step once more, in float64. The first part that differs (inputs, weights, forward,
loss, gradient) is where the fault is. Causes are done to the reference's ranks, and one is stated where they then have
all that the port's ranks have, in every part, down to rounding.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from twinalign.explain.registry import hypotheses
from twinalign.locate.faults import Explanation, Fault
from twinalign.locate.measuring import root_mean_square
from twinalign.ranks.observing import PARTS
from twinalign.ranks.recordings import join_ranks, split_ranks
from twinalign.recording import Recording

if TYPE_CHECKING:
    from twinalign.runner import Recorder

_FUNCTION = "twinalign.ranks.observing:{}".format
Arrays = Mapping[str, np.ndarray]
_TOLERANCE = 1e-6
"""Of root mean squares in float64, relative: constants that a framework keeps in float32 leave up to 1e-7."""
_OF_THE_PART = 1e-3


class _DoesNotRunError(Exception):
    """The reference raises where a cause is done to it: so it is not that of the port, which runs."""


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
        self._reference: list[Arrays] = []
        self.ranks = recorder.settings.ranks

    def search(self, explain: bool = True) -> Fault | None:
        """The fault of the ranks, explained where a cause can be proven; None where the first step is right."""
        with concurrent.futures.ThreadPoolExecutor() as pool:
            of_port = pool.submit(self._observe, "paddle", "port")
            if not self._reference:  # it stays what it is while ports are spoiled
                self._reference = self._observe("ref", "reference")
            port = of_port.result()
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
        with join_ranks(path, self.ranks):
            answers = self._call(side, "observe", weights=self._weights[side], path=str(path), **hypothesis)
            if any(answer["failed"] for answer in answers):
                raise _DoesNotRunError
        whole = Recording.load(path)
        return [of_rank.arrays for of_rank in split_ranks(whole)]

    def _differences(self, reference: list[Arrays], port: list[Arrays]) -> dict[int, dict[str, list[str]]]:
        """rank -> part -> names of tensors that differ."""
        found: dict[int, dict[str, list[str]]] = {}
        for rank in range(self.ranks):
            for name in _differing(reference[rank], port[rank]):
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
                try:
                    found = self._observe("ref", "hypothesis", variant=variant, **asked)
                except _DoesNotRunError:
                    continue
                if not self._differences(found, port):
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


def _differing(reference: Arrays, port: Arrays) -> list[str]:
    """Names of tensors that are not the same in float64, in the order of the parts."""
    sizes: dict[str, float] = {}
    for name, array in reference.items():
        if array.dtype.kind == "f" and array.size:
            part = name.partition(".")[0]
            sizes[part] = max(sizes.get(part, 0.0), root_mean_square(array.astype(np.float64)))
    found = []
    for name, array in reference.items():
        other = port.get(name)
        if other is None or other.shape != array.shape:
            found.append(name)
        elif array.dtype.kind != "f":
            found += [name] if (array != other).any() else []
        else:
            # What is zero in exact arithmetic holds rounding alone: it is measured against its whole part.
            scale = max(root_mean_square(array.astype(np.float64)), _OF_THE_PART * sizes[name.partition(".")[0]])
            apart = root_mean_square(np.asarray(other, dtype=np.float64) - array)
            found += [name] if not apart <= _TOLERANCE * scale else []
    return [*found, *(name for name in port if name not in reference)]


def _distance(reference: Arrays, port: Arrays) -> float:
    """How far all gradients of a rank are apart, or the losses where there are none, relative, as root mean square."""
    part = "gradient" if any(name.startswith("gradient.") for name in reference) else "loss"
    pairs = [
        (array.reshape(-1), port[name].reshape(-1))
        for name, array in reference.items()
        if name.partition(".")[0] == part and port[name].shape == array.shape
    ]
    ours, theirs = (np.concatenate(side).astype(np.float64) for side in zip(*pairs, strict=True))
    scale = root_mean_square(ours)
    return root_mean_square(theirs - ours) / scale if scale else 0.0
