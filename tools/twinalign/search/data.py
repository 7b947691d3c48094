"""Finds faults of the input pipeline: order and number of samples, labels, or the step that makes pixels."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.causes.data.samples import explain_labels, explain_order
from twinalign.causes.data.subject import explain_chain, explain_samples, explain_step
from twinalign.errors import InputError
from twinalign.replay.data_pipeline import (
    MOST_RANKS,
    SAMPLE,
    STAGE,
    keep_pictures,
    read_items,
    read_samples,
    record_samples,
    record_steps,
    same,
    same_item,
    values_in_data,
)
from twinalign.replay.mended_components import data_mended
from twinalign.search.components import ComponentContext, Mended
from twinalign.search.elements_apart import elements_apart
from twinalign.search.faults import Fault
from twinalign.sides import SIDES

_MOST_SAMPLES = 3
_SPREAD = 3
_FEW_NUMBERS = 16


@dataclasses.dataclass(frozen=True)
class Samples:
    """What one side reads of a split: values by name, sample after sample."""

    items: list[dict[str, np.ndarray]]
    compared: int

    @classmethod
    def read(cls, path: Path, facts: Mapping[str, Any]) -> Samples:
        """Those in a file of `record_samples`, with what it says of them."""
        return cls(read_items(path, facts["count"]), facts["compared"])

    @property
    def judged(self) -> list[dict[str, np.ndarray]]:
        return self.items[: self.compared]


def rows(items: Sequence[Mapping[str, np.ndarray]]) -> list[dict[str, np.ndarray]]:
    """Samples that are batches split into their rows; others unchanged.

    A sample is a batch if all its values have equally many rows and there are several values, or one of images. Values
    of one dimension alone are rather one sequence, of whose places many are alike.
    """
    found: list[dict[str, np.ndarray]] = []
    for item in items:
        lengths = {array.shape[0] if array.ndim else -1 for array in item.values()}
        most = max((array.ndim for array in item.values()), default=0)
        is_batch = len(lengths) == 1 and -1 not in lengths and most > (1 if len(item) > 1 else 3)
        if not is_batch:
            return [dict(item) for item in items]
        found += [{name: array[row] for name, array in item.items()} for row in range(lengths.pop())]
    return found


def order_of(
    port: Sequence[Mapping[str, np.ndarray]], reference: Sequence[Mapping[str, np.ndarray]]
) -> list[int] | None:
    """For each of the port's samples the number of the equal one in the reference; None if one has no equal."""
    order = []
    for place, item in enumerate(port):
        near = sorted(range(len(reference)), key=lambda number: abs(number - place))
        number = next((number for number in near if same_item(reference[number], item)), None)
        if number is None:
            return None
        order.append(number)
    return order


def locate_data(context: ComponentContext) -> list[Fault]:
    """Faults of the input pipeline (components `dataset.SPLIT`); images of wrong steps stay in the folder."""
    if STAGE not in context.stages:
        return []
    folder = context.folder / "data"
    found = {side: process.call(record_samples, folder=str(folder)) for side, process in context.processes.items()}
    faults: list[Fault] = []
    splits = found["ref"]["splits"]
    files = {split: (str(folder / f"{split}_ref.npz"), facts["compared"]) for split, facts in splits.items()}
    for split in splits:
        sides = {}
        for side in SIDES:
            facts = found[side]["splits"].get(split, {"count": 0, "compared": 0})
            sides[side] = Samples.read(folder / f"{split}_{side}.npz", facts)
        faults += _Split(context, split, sides["ref"], sides["paddle"], files).faults()
    for split in splits:
        for side in SIDES:
            (folder / f"{split}_{side}.npz").unlink(missing_ok=True)
    return faults


@dataclasses.dataclass
class _Split:
    context: ComponentContext
    split: str
    reference: Samples
    port: Samples
    files: Mapping[str, tuple[str, int]]
    """Every split → the file of what the reference reads of it, and how many samples are compared."""

    def faults(self) -> list[Fault]:
        differing = [
            index
            for index, (one, other) in enumerate(zip(self.reference.judged, self.port.judged, strict=False))
            if not same_item(one, other)
        ]
        if not differing and len(self.reference.judged) == len(self.port.judged):
            return []
        order = self._order()
        if order is None and self._has_later_ones(differing):
            self.reference = self._read_on()
            order = self._order()
        if order is not None:
            return [self._order_fault(order)]
        if not differing:
            return [self._fault(None, {"kind": "number of samples", **self._counts()})]
        return self._label_fault(differing) or self._pixel_faults(differing)

    def _order(self) -> list[int] | None:
        return order_of(rows(self.port.judged), rows(self.reference.items))

    def _has_later_ones(self, differing: Sequence[int]) -> bool:
        """Whether the first of the port's samples that differ is one that the reference has further on."""
        return any(
            same_item(one, self.port.items[at]) for at in differing[:1] for one in self.reference.items[at + 1 :]
        )

    def _read_on(self) -> Samples:
        """More of the reference's samples: what one rank of several has lies far apart."""
        folder, asked = self.context.folder / "data", {"splits": [self.split], "times": MOST_RANKS}
        answer = self.context.processes["ref"].call(record_samples, folder=str(folder), **asked)
        return Samples.read(folder / f"{self.split}_ref.npz", answer["splits"][self.split])

    def _fault(self, explanation: Any, evidence: dict[str, Any]) -> Fault:
        name = f"dataset.{self.split}"
        return Fault(name, name, "data", explanation, evidence)

    def _counts(self) -> dict[str, int]:
        return {"reference_samples": len(self.reference.judged), "port_samples": len(self.port.judged)}

    def _explained(self, function: Callable[..., dict[str, Any]], **given: Any) -> Any:
        items = {"split": self.split, "count": self.reference.compared}
        read = {"split": self.split, "references": self.files}
        mended = Mended(
            data_mended, f"dataset.{self.split}", read, STAGE, "data", values=values_in_data, values_given=items
        )
        return self.context.explanation(function, mended=mended, split=self.split, **given)

    def _order_fault(self, order: list[int]) -> Fault:
        total, judged = len(rows(self.reference.items)), len(rows(self.reference.judged))
        explanation = self._explained(
            explain_order,
            order=order,
            judged=judged,
            total=total,
            batch=max(1, judged // max(1, len(self.reference.judged))),
        )
        wrong = [place for place, number in enumerate(order) if place != number]
        evidence = {"kind": "order", "order": order[:32], "first_wrong": wrong[0] if wrong else len(order)}
        return self._fault(explanation, {**evidence, **self._counts()})

    def _label_fault(self, differing: list[int]) -> list[Fault]:
        """The fault if only integers differ: then the labels are wrong, not the images."""
        pairs = [(self.reference.items[i], self.port.items[i]) for i in differing]
        wrong = sorted({n for one, other in pairs for n in one if n in other and not same(one[n], other[n])})
        if any(one.keys() != other.keys() for one, other in pairs):
            return []
        if not all(one[name].dtype.kind in "iu" and one[name].ndim <= 1 for one, _ in pairs for name in wrong):
            return []
        name = wrong[0]
        values = [
            [np.atleast_1d(item[name]).tolist() for item in items] for items in (self.reference.items, self.port.judged)
        ]
        explanation = self._explained(explain_labels, reference=values[0], port=values[1])
        explanation = explanation or self._samples_explained(name, differing)
        evidence = {"kind": "labels", "value": name, "sample": differing[0]}
        return [self._fault(explanation, {**evidence, "reference": values[0][:4], "port": values[1][:4]})]

    def _pixel_faults(self, differing: list[int]) -> list[Fault]:
        chosen = self._spread(differing)
        try:
            steps = {side: self._steps(side, chosen) for side in SIDES}
        except InputError as error:  # of a step that cannot be recorded
            fault = self._sample_fault(differing)
            fault.note(str(error))
            return [fault]
        shared = [key for key in steps["ref"] if key in steps["paddle"]]
        if not shared:
            return [self._sample_fault(differing)]
        names = {side: {key: [s["name"] for s in steps[side][key]] for key in shared} for side in steps}
        other_chain = [key for key in shared if names["ref"][key] != names["paddle"][key]]
        if other_chain:
            return [self._chain_fault(other_chain, names)]
        forced = self._steps("paddle", chosen, given=self._file("ref"))
        return self._step_faults(shared, steps["ref"], forced) or [self._sample_fault(differing)]

    def _spread(self, differing: list[int]) -> list[int]:
        """The first differing samples, and some from the whole range."""
        everywhere = differing[:: max(1, len(differing) // _SPREAD)]
        return sorted({*differing[:_MOST_SAMPLES], *everywhere[:_SPREAD]})

    def _file(self, side: str, suffix: str = "") -> str:
        return str(self.context.folder / "data" / f"{self.split}_steps_{side}{suffix}.npz")

    def _steps(self, side: str, indices: list[int], given: str | None = None) -> dict[str, list[dict[str, Any]]]:
        path = self._file(side, "_forced" if given else "")
        asked = {"split": self.split, "indices": indices, "path": path, "given": given}
        return dict(self.context.processes[side].call(record_steps, **asked)["steps"])

    def _step_faults(self, shared: list[str], reference: Mapping[str, Any], forced: Mapping[str, Any]) -> list[Fault]:
        """One fault for each step, by name, that returns something else for the reference's input."""
        wrong: dict[str, list[str]] = {}
        with (
            np.load(self._file("ref"), allow_pickle=False) as one,
            np.load(self._file("paddle", "_forced"), allow_pickle=False) as other,
        ):
            for key in shared:
                for number, step in enumerate(reference[key]):
                    place = f"{key}.{number}"
                    if place in one and (place not in other or not same(one[place], other[place])):
                        wrong.setdefault(step["name"], []).append(place)
            return [self._step_fault(name, places, one, other, reference, forced) for name, places in wrong.items()]

    def _step_fault(
        self,
        name: str,
        places: list[str],
        one: Mapping[str, np.ndarray],
        other: Mapping[str, np.ndarray],
        reference: Mapping[str, Any],
        forced: Mapping[str, Any],
    ) -> Fault:
        key, _, number = places[0].rpartition(".")
        ours, theirs = _step_at(reference, places[0]), _step_at(forced, places[0])
        explanation = self._explained(
            explain_step,
            name=name,
            places=places,
            reference=self._file("ref"),
            port=self._file("paddle", "_forced"),
            arguments={place: _step_at(forced, place).get("arguments", {}) for place in places},
        )
        evidence: dict[str, Any] = {"kind": "step", "step": name, "step_number": int(number), "image": key}
        evidence |= {"sample": int(key.partition(".")[0]), "images_wrong": len(places)}
        evidence |= {"arguments": {"reference": ours["arguments"], "port": theirs.get("arguments", {})}}
        if theirs.get("error"):
            evidence["error"] = theirs["error"]
        if places[0] in other:
            evidence |= elements_apart(one[places[0]], other[places[0]])
            evidence |= self._pictures(name, one[places[0]], other[places[0]])
        return self._fault(explanation, evidence)

    def _chain_fault(self, keys: list[str], names: Mapping[str, Mapping[str, list[str]]]) -> Fault:
        """The fault that the port's steps have other names than the reference's."""
        key = keys[0]
        ours, theirs = names["ref"][key], names["paddle"][key]
        place = next(
            (n for n, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs))
        )
        explanation = self._explained(
            explain_chain, keys=keys, reference=self._file("ref"), port=self._file("paddle"), names=names["paddle"]
        )
        evidence: dict[str, Any] = {"kind": "steps", "image": key, "sample": int(key.partition(".")[0])}
        evidence |= {"reference_steps": ours, "port_steps": theirs, "step_number": place}
        evidence |= {"step": (ours if place < len(ours) else theirs)[place]}
        with np.load(self._file("ref")) as one, np.load(self._file("paddle")) as other:
            last = [f"{key}.{len(ours) - 1}", f"{key}.{len(theirs) - 1}"]
            if last[0] in one and last[1] in other:
                evidence |= elements_apart(one[last[0]], other[last[1]])
                evidence |= self._pictures("result", one[last[0]], other[last[1]])
        return self._fault(explanation, evidence)

    def _sample_fault(self, differing: list[int]) -> Fault:
        """The fault in the samples themselves, when no step is wrong or the steps are not known."""
        index = differing[0]
        one, other = self.reference.items[index], self.port.items[index]
        wrong = [name for name in one if name in other and not same(one[name], other[name])]
        evidence: dict[str, Any] = {"kind": "sample", "step": SAMPLE, "sample": index, "values": wrong}
        if not wrong:
            evidence |= {"reference_values": sorted(one), "port_values": sorted(other)}
            return self._fault(None, evidence)
        name = wrong[0]
        evidence["value"] = name
        explanation = self._samples_explained(name, differing)
        evidence |= elements_apart(one[name], other[name]) | self._pictures(name, one[name], other[name])
        return self._fault(explanation, evidence)

    def _samples_explained(self, name: str, differing: Sequence[int]) -> Any:
        """The cause, from the first samples whose value of this name differs and from the code that makes them."""
        right = self._right_ones(name, differing)
        chosen = sorted({*differing[:_MOST_SAMPLES], *right})
        paths = {}
        for side, samples in (("ref", self.reference), ("paddle", self.port)):
            kept = {str(i): samples.items[i][name] for i in chosen if name in samples.items[i]}
            paths[side] = self._file(side, "_samples")
            np.savez(paths[side], **kept)  # type: ignore[arg-type]
        self.context.processes["paddle"].call(read_samples, split=self.split, count=differing[0] + 1)
        given = {"reference": paths["ref"], "port": paths["paddle"], "indices": chosen}
        return self._explained(explain_samples, name=name, **given)

    def _right_ones(self, name: str, differing: Sequence[int]) -> list[int]:
        """Some samples whose value of this name is right, which a cause must leave so: one wrong number fits many."""
        if sum(self.port.items[i][name].size for i in differing if name in self.port.items[i]) > _FEW_NUMBERS:
            return []
        both = range(min(len(self.reference.judged), len(self.port.judged)))
        others = (
            i
            for i in both
            if i not in set(differing) and name in self.reference.items[i] and name in self.port.items[i]
        )
        alike = (i for i in others if same(self.reference.items[i][name], self.port.items[i][name]))
        return list(itertools.islice(alike, _MOST_SAMPLES))

    def _pictures(self, name: str, one: np.ndarray, other: np.ndarray) -> dict[str, Any]:
        """Keep both images as arrays and as pictures; returns their paths."""
        stem = self.context.folder / "data" / f"{self.split}_{name.strip('()').replace('/', '_')}"
        paths = [f"{stem}_{side}.npy" for side in SIDES]
        for path, array in zip(paths, (one, other), strict=True):
            np.save(path, array, allow_pickle=False)
        answer = self.context.processes["ref"].call(keep_pictures, arrays=paths, stem=str(stem))
        return {**answer, "arrays": paths}


def _step_at(steps: Mapping[str, Any], place: str) -> dict[str, Any]:
    """The step of `SAMPLE.IMAGE.STEP`; empty if the steps end before it."""
    key, _, number = place.rpartition(".")
    return dict(steps[key][int(number)]) if int(number) < len(steps[key]) else {}
