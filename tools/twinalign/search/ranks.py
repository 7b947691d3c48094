"""Locate what several ranks do wrong together: the part of a step, the ranks, and the proven cause.

Both sides' ranks make the first step once more, in float64. The first part that differs (inputs, weights, forward,
loss, gradient) is where the fault is. Causes are done to the reference's ranks, and one is stated where they then have
all that the port's ranks have, in every part, down to rounding.
"""

import concurrent.futures
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from twinalign.causes.proving import Candidate, Examined, Outcome, Wanted, every, prove
from twinalign.causes.rank_steps import PARTS, keep_weights, observe, variants
from twinalign.causes.ranks import RankCause
from twinalign.causes.registry import Cause, Explanation, known_causes
from twinalign.files.rank_recordings import join_ranks, split_ranks
from twinalign.files.recordings import Recording
from twinalign.recorder.recorder import Recorder
from twinalign.search.faults import Fault
from twinalign.verdict.array_difference import quick_root_mean_square

Arrays = Mapping[str, np.ndarray]
_TOLERANCE = 1e-6
"""Relative difference of root mean squares in float64; constants that a framework keeps in float32 leave up to 1e-7."""
_OF_THE_PART = 1e-3


class _DoesNotRunError(Exception):
    """The reference raises where a cause is done to it: so it is not that of the port, which runs."""


class RankSearch:
    """Searches the first step of a case; its recorder's processes are up."""

    def __init__(
        self,
        recorder: Recorder,
        weights: Mapping[str, Mapping[str, Any]],
        progress: Callable[[str, str], None] = lambda side, text: None,
    ) -> None:
        self._recorder, self._progress = recorder, progress
        stages = recorder.description["stages"]
        # A case that has no optimizer has no backward stage.
        self._stage = next(stage for stage in ("backward", "loss") if stage in stages)
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

    def _call(self, side: str, function: Callable[..., dict[str, Any]], **values: Any) -> list[dict[str, Any]]:
        return self._recorder.group(side).call(function, stage=self._stage, **values)

    def _observe(self, side: str, name: str, **request: Any) -> list[Arrays]:
        path = self._folder / f"{name}.npy"
        with join_ranks(path, self.ranks):
            answers = self._call(side, observe, weights=self._weights[side], path=str(path), **request)
            if any(answer["failed"] for answer in answers):
                raise _DoesNotRunError
        return [of_rank.arrays for of_rank in split_ranks(Recording.load(path))]

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
            self._call("paddle", keep_weights, weights=self._weights["paddle"], path=str(given))
        return prove(_ExaminedRanks(self, port, part, str(given) if part == "weights" else ""))


@dataclasses.dataclass(frozen=True)
class _NumberedVariant:
    detail: str
    number: int


class _ExaminedRanks(Examined):
    """The ranks of the reference, which live in processes of their own: a variant is known there by its number."""

    sentence = "{text}, {detail}"

    def __init__(self, search: RankSearch, port: list[Arrays], part: str, given: str) -> None:
        self._search, self._port, self._part, self._given = search, port, part, given

    def candidates(self, wanted: Wanted = every) -> Iterator[Candidate]:
        for cause in filter(wanted, known_causes("ranks")):
            # What is wrong in a part shows there first.
            if isinstance(cause, RankCause) and cause.part == self._part:
                answers = self._search._call("ref", variants, cause=cause.id, given=self._given)
                for number, detail in enumerate(answers[0]["details"]):
                    yield cause, _NumberedVariant(detail, number)

    def attempt(self, causes: Sequence[Cause], variant: _NumberedVariant) -> Outcome | None:
        search, (cause,) = self._search, causes
        search._progress("ref", f"ranks: {cause.id} {variant.detail}".rstrip())
        asked = {"cause": cause.id, "variant": variant.number, "given": self._given}
        try:
            found = search._observe("ref", "with_cause", **asked)
        except _DoesNotRunError:
            return None
        if search._differences(found, self._port):
            return None
        errors = {
            name: max(_distance(*pair) for pair in zip(reference, self._port, strict=True))
            for name, reference in (("unexplained_error", search._reference), ("remaining_error", found))
        }
        return Outcome(True, True, errors["remaining_error"], errors)


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
            sizes[part] = max(sizes.get(part, 0.0), quick_root_mean_square(array.astype(np.float64)))
    found = []
    for name, array in reference.items():
        other = port.get(name)
        if other is None or other.shape != array.shape:
            found.append(name)
        elif array.dtype.kind != "f":
            found += [name] if (array != other).any() else []
        else:
            # What is zero in exact arithmetic holds rounding alone: it is measured against its whole part.
            scale = max(quick_root_mean_square(array.astype(np.float64)), _OF_THE_PART * sizes[name.partition(".")[0]])
            apart = quick_root_mean_square(np.asarray(other, dtype=np.float64) - array)
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
    scale = quick_root_mean_square(ours)
    return quick_root_mean_square(theirs - ours) / scale if scale else 0.0
