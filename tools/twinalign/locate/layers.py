"""The parent's part of locating wrong layers: ask both sides in turn, match their calls, and collect the faults."""

from __future__ import annotations

import dataclasses
import itertools
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from twinalign.jobs import SIDES
from twinalign.locate.calls import FORWARD, LOSS, Call
from twinalign.locate.faults import Explanation, Fault
from twinalign.locate.matching import Matching, match_calls
from twinalign.recorder.process import RecorderProcess

_SIDES = "twinalign.locate.sides"
_SHOWN_PATH = {FORWARD: "", LOSS: "loss"}


@dataclasses.dataclass
class LayerFaults:
    """Wrong layers of one part of a case, and what is known of the others.

    Attributes:
        faults: in the order in which the layers run.
        matching: which calls belong together.
        inherited: port path → relative error of the layer's output where nothing is forced, which it may have
            inherited.
        bytes_on_disk: what the reference's values took at most.
        activation_bytes: of the values that its layers were given and returned, each counted once.
    """

    faults: list[Fault]
    matching: Matching
    inherited: dict[str, float]
    bytes_on_disk: int
    activation_bytes: int

    def to_json(self) -> dict[str, Any]:
        """Every layer that was called, with its partner, how that was found, and its error."""
        wrong: dict[str, list[str]] = {}
        for fault in self.faults:
            wrong.setdefault(fault.paddle_layer, []).append(fault.phase)
        layers = {
            port.path: {
                "reference_layer": ours.path,
                "paddle_layer": port.path,
                "class": port.layer,
                "matched_by": self.matching.how[ours.number],
                "inherited_error": _finite(self.inherited.get(port.path)),
                "wrong": wrong.get(port.path, []),
                "draws": [side for side, call in zip(SIDES, (ours, port), strict=True) if call.random],
            }
            for ours, port in self.matching.pairs
            if port.parent is not None
        }
        alone = {side: list(dict.fromkeys(call.path for call in calls)) for side, calls in self.matching.alone.items()}
        return {"layers": list(layers.values()), "without_partner": alone}


def locate_layers(
    processes: Mapping[str, RecorderProcess],
    stage: str,
    weights: Mapping[str, Any],
    folder: Path,
    *,
    gradients: Path | None = None,
    rename: Mapping[str, str],
    dtype: str = "float64",
    explain: bool = True,
    progress: Callable[[str, str], None] = lambda side, text: None,
) -> LayerFaults:
    """Find every wrong layer of the model that `stage` uses, and its cause.

    Args:
        processes: running recorder processes of `ref` and `paddle`.
        stage: names the part of the case.
        weights: what each side's recorder is given of the part's weights.
        folder: for the values on their way; removed afterwards.
        gradients: file (.npz) that receives the gradients of the reference's parameters, None where nobody wants them.
        rename: the case's rename rules for the part.
        dtype: of the passes.
        explain: whether causes are looked for.
        progress: told what is being done, and on which side.
    """
    try:
        return _Search(processes, stage, weights, folder, gradients, rename, dtype, progress).run(explain)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Search:
    def __init__(
        self,
        processes: Mapping[str, RecorderProcess],
        stage: str,
        weights: Mapping[str, Any],
        folder: Path,
        gradients: Path | None,
        rename: Mapping[str, str],
        dtype: str,
        progress: Callable[[str, str], None],
    ) -> None:
        self._processes, self._weights, self._folder = processes, weights, folder
        self._common = {"stage": stage, "folder": str(folder.resolve()), "dtype": dtype}
        self._rename, self._progress = rename, progress
        self._gradients = str(gradients.resolve()) if gradients is not None else None

    def run(self, explain: bool) -> LayerFaults:
        calls = self._call("ref", "reference_forward", "forward of the reference", weights=self._weights["ref"])
        self._calls = [Call.from_json(call) for call in calls["calls"]]
        given = {"weights": self._weights["paddle"], "calls": calls["calls"]}
        own = self._call("paddle", "port_own", "forward of the port", **given, rename=dict(self._rename))
        port_calls = [Call.from_json(call) for call in own["calls"]]
        matching = match_calls(self._calls, port_calls, own["names"])
        pairs = [(port.path, port.ordinal, ours.number) for ours, port in matching.pairs]
        self._call("paddle", "port_forced_forward", "each layer on the reference's input", **given, pairs=pairs)
        on_disk = _bytes_in(self._folder)
        back = self._ask("ref", "reference_backward", "backward of the reference", gradients=self._gradients)
        on_disk = max(on_disk, _bytes_in(self._folder))
        suspects = self._ask(
            "paddle",
            "port_forced_backward",
            "each layer on the reference's gradient",
            folder=self._common["folder"],
            gradients=back["gradients"],
            parameters=back["parameters"],
        )["suspects"]
        faults = self._faults(suspects, explain)
        inherited = {
            call.path: max((t.inherited for t in call.outputs if t.inherited is not None), default=0.0)
            for call in port_calls
            if any(t.inherited is not None for t in call.outputs)
        }
        for fault in faults:
            fault.evidence["inherited_error"] = _finite(inherited.get(fault.paddle_layer))
        return LayerFaults(faults, matching, inherited, on_disk, calls["bytes_written"])

    def _faults(self, suspects: Sequence[Mapping[str, Any]], explain: bool) -> list[Fault]:
        if not suspects:
            return []
        confirmed = self._ask(
            "ref", "reference_confirm", "what rounding does there", folder=self._common["folder"], suspects=suspects
        )
        suspects = [
            {**suspect, "differences": measured, "inside": inside}
            for suspect, measured, inside in zip(suspects, confirmed["differences"], confirmed["inside"], strict=True)
        ]
        found: dict[tuple[str, str], Fault] = {}
        for suspect, phases in zip(suspects, confirmed["phases"], strict=True):
            # Wrong outputs have wrong gradients and statistics; statistics that moved otherwise have not.
            for phase in phases[:1] if "forward" in phases else phases:
                fault = self._fault(suspect, phase)
                key = (fault.reference_layer, fault.phase)
                if key in found:  # another call of the same layer
                    found[key].evidence["calls"] += 1
                    continue
                if explain:
                    answer = self._ask(
                        "ref",
                        "reference_explain",
                        f"why {fault.paddle_layer or 'the model'} differs",
                        folder=self._common["folder"],
                        suspect=suspect,
                        phase=phase,
                    )["explanation"]
                    fault.explanation = Explanation(**answer) if answer else None
                found[key] = fault
        return list(found.values())

    def _fault(self, suspect: Mapping[str, Any], phase: str) -> Fault:
        from twinalign.locate.scenes import phase_of

        call = self._calls[suspect["call"]]
        values = {name: found for name, found in suspect["differences"].items() if phase_of(name) == phase}
        paths = [_SHOWN_PATH.get(path, path) for path in (call.path, suspect["path"])]
        moved = [name.removeprefix("state.") for name in values if name.startswith("state.")]
        if moved:  # code around the layers has moved their state otherwise: the layers are named, not the code
            paths = [_common_path(moved)] * 2
        evidence = {
            "reference_class": call.layer,
            "paddle_class": suspect["layer"],
            "calls": 1,
            "where": _where(call.path, values),
            "values": values,
        }
        if phase == "forward" and suspect["inside"] is not None:
            evidence["inside"] = suspect["inside"]
        if suspect["notes"]:
            evidence["notes"] = suspect["notes"]
        return Fault(paths[0], paths[1], phase, None, evidence)

    def _call(self, side: str, function: str, text: str, **arguments: Any) -> dict[str, Any]:
        return self._ask(side, function, text, **self._common, **arguments)

    def _ask(self, side: str, function: str, text: str, **arguments: Any) -> dict[str, Any]:
        self._progress(side, text)
        return self._processes[side].request("call", function=f"{_SIDES}:{function}", **arguments)


def _where(path: str, values: Mapping[str, Any]) -> str:
    """In words, where in the unit the first difference was seen; of its buffers, all that differ."""
    first = next(iter(values))
    kind, _, rest = first.partition(".")
    if kind == "input":
        return f"its own code, in what it hands to {rest.rpartition('#')[0]}"
    if first.startswith("gradient.child."):
        return f"its own code, in the gradient that it sends back to {rest.removeprefix('child.').rpartition('#')[0]}"
    if first.startswith("gradient.parameter."):
        return f"the gradient of {rest.removeprefix('parameter.')}"
    buffers = [name.removeprefix("buffer.") for name in values if name.startswith("buffer.")]
    return {
        "output": "what it returns",
        "eval": "what it returns in evaluation mode",
        "buffer": f"its buffer{'s' * (len(buffers) > 1)} {', '.join(buffers)}",
        "state": f"{len(values)} of the model's tensors that were moved",
        "gradient": "the gradient that it sends back",
    }[kind]


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _common_path(names: Sequence[str]) -> str:
    """The path that all of these state keys begin with."""
    parts = [name.split(".")[:-1] for name in names]
    same = itertools.takewhile(lambda level: len(set(level)) == 1, zip(*parts, strict=False))
    return ".".join(level[0] for level in same)


def _bytes_in(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
