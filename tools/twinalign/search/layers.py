"""Finds wrong layers: asks both sides in turn, matches their calls and collects the faults."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.causes.layers.mended import reference_whole
from twinalign.causes.registry import Explanation
from twinalign.processes.side_process import ChildError, SideProcess
from twinalign.replay.layer_calls import FORWARD, LOSS, Call
from twinalign.replay.layers import (
    port_forced_backward,
    reference_backward,
    reference_confirm,
    reference_forward,
)
from twinalign.replay.path_names import path_around
from twinalign.replay.port_passes import (
    port_by_names,
    port_forced_forward,
    port_own,
    port_past_its_crash,
    port_whole,
)
from twinalign.replay.tensor_store import remove_stores
from twinalign.replay.unfinished_pass import port_unfinished
from twinalign.replay.wrong_unit import phase_of
from twinalign.search.accepted import are_accepted
from twinalign.search.causes_of_layers import CauseSearch, place_of
from twinalign.search.edits_of_port import PortEdits
from twinalign.search.faults import Fault, shows_more, some_are_rounded, where_in_unit
from twinalign.search.layer_faults import LayerFaults, finite
from twinalign.search.matching import Matching, by_known_names, match_calls
from twinalign.sides import FOUND
from twinalign.verdict.array_difference import OF_SHAPES
from twinalign.verdict.excuses import accepted_as

_MOST_NAMED = 10
_OWN_WEIGHTS = "it has weights of its own: none of the reference's were proven to be its"
_CALLS_OWN_WEIGHTS = "it calls layers that keep initial values of their own, since the reference has no counterpart"
_CRASHES = "the port crashes at {}, and was judged with the reference's values in its layers"
_ROUNDING = 1e-9
"""Relative difference of samples of what a whole port returns, which no fault leaves."""
_SHOWN_PATH = {FORWARD: "", LOSS: "loss"}


def locate_layers(
    processes: Mapping[str, SideProcess],
    stage: str,
    weights: Mapping[str, Any],
    folder: Path,
    *,
    backward: bool = True,
    gradients: Path | None = None,
    rename: Mapping[str, str],
    accept: Sequence[str] = (),
    explain: bool = True,
    unless_rounded: bool = False,
    progress: Callable[[str, str], None] = lambda side, text: None,
) -> LayerFaults:
    """Find every wrong layer of the model that `stage` uses, and its cause.

    Args:
        weights: side → the part's weights, as its recorder takes them.
        folder: for values that the sides exchange; removed afterwards.
        backward: whether gradients are judged as well.
        gradients: `.npz` file to write with the gradients of the reference's parameters, if wanted.
        rename: the case's rename rules for the part.
        accept: `ID` or `ID=PATTERN` of the conventions that the case accepts: what they cover is not looked into.
        unless_rounded: look for no cause where `some_are_rounded` holds.
    """
    try:
        given = processes, stage, weights, folder.resolve(), gradients, rename, accept, progress, unless_rounded
        search = _Search(*given)
        return search.run(explain, backward)
    finally:
        remove_stores(folder)


@dataclasses.dataclass
class _Search:
    processes: Mapping[str, SideProcess]
    stage: str
    weights: Mapping[str, Any]
    folder: Path
    gradients: Path | None
    rename: Mapping[str, str]
    accept: Sequence[str]
    progress: Callable[[str, str], None]
    unless_rounded: bool
    _crash: ChildError | None = None
    """What the port's own pass raises, if it does not run to its end: then the whole decides nothing."""

    def run(self, explain: bool, backward: bool) -> LayerFaults:
        calls = self._call("ref", reference_forward, "forward of the reference", weights=self.weights["ref"])
        self._calls = [Call.from_json(call) for call in calls["calls"]]
        by_names, own = self._port_passes(calls)
        port_calls = self._port_calls = [Call.from_json(call) for call in own["calls"]]
        if self._crash is None:
            matching = match_calls(self._calls, port_calls, own["names"], self._converted)
        else:
            matching = by_known_names(self._calls, port_calls, own["pairs"])
        self._alone = matching.alone["reference"]
        self._pairs = [(port.path, port.ordinal, ours.number) for ours, port in matching.pairs]
        times = [Counter(call.path for call in calls) for calls in (self._calls, port_calls)]
        self._uneven = sorted({p.path for o, p in matching.pairs if times[0][o.path] != times[1][p.path]})
        same = by_names.get("pairs") == [list(pair) for pair in self._pairs]
        forced = by_names if same else self._forced_forward(calls, self.folder)
        self._opened = forced["opened"]
        self._left_out = forced["left_out"] | {port.path: _OWN_WEIGHTS for _, port in self._of_own_weights(matching)}
        self._callers = self._callers_of_own_weights(matching)
        on_disk = _bytes_in(self.folder)
        back: dict[str, Any] = {"gradients": {}, "parameters": {}}
        if backward:
            kept = str(self.gradients.resolve()) if self.gradients else None
            back = self._ask("ref", reference_backward, "backward of the reference", gradients=kept)
        on_disk = max(on_disk, _bytes_in(self.folder))
        answer = self._forced_backward(back, self.folder)
        self._left_out |= answer["left_out"]
        suspects, of_own_weights = self._not_accepted(answer["suspects"])
        # What only hands layers other slices is looked into where nothing else is wrong, and something is.
        doubtful = [one for one in suspects if self._crash is None and _only_takes_others(one["differences"])]
        faults = self._faults([one for one in suspects if one not in doubtful], explain)
        if not faults and doubtful and not self._is_right_alone:
            faults = self._faults(doubtful, explain)
        if of_own_weights and all(are_accepted(faults, self.accept)):
            self._left_out = {path: text for path, text in self._left_out.items() if text != _OWN_WEIGHTS}
            faults += self._faults(of_own_weights, explain)
        if self._crash is not None:
            if not faults:
                raise self._crash
            faults[0].note(_CRASHES.format(self._crash.place))
        inherited = {
            call.path: max((t.inherited for t in call.outputs if t.inherited is not None), default=0.0)
            for call in port_calls
            if any(t.inherited is not None for t in call.outputs)
        }
        for fault in faults:
            fault.evidence["inherited_error"] = finite(inherited.get(fault.paddle_layer))
        judged, written = set(forced["judged"]), calls["bytes_written"]
        return LayerFaults(faults, matching, inherited, judged, self._left_out, self._accepted, on_disk, written)

    def _port_passes(self, calls: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The answers of `port_by_names` and, if that is empty, of `port_own`."""
        given = {"weights": self.weights["paddle"], "calls": calls["calls"], "rename": dict(self.rename)}
        try:
            by_names = self._call("paddle", port_by_names, "forward of the port", **given, moved=list(calls["state"]))
            return by_names, by_names or self._call("paddle", port_own, "forward of the port", **given)
        except ChildError as error:
            if error.died:
                raise
            text = "shapes until the port crashes"
            error.other_shape = self._call("paddle", port_unfinished, text, **given)["other_shape"]
            forced = self._past(error, given | {"moved": list(calls["state"])}) if error.other_shape else {}
            if not forced.get("pairs"):
                raise
            self._crash = error
            return forced, forced

    def _past(self, error: ChildError, given: Mapping[str, Any]) -> dict[str, Any]:
        """The answer of `port_past_its_crash`; nothing if that fails as well."""
        try:
            return self._call("paddle", port_past_its_crash, "layers of the same name past the crash", **given)
        except ChildError as other:
            if other.died:
                raise
            return {}

    def _forced_forward(self, calls: Mapping[str, Any], folder: Path, **more: Any) -> dict[str, Any]:
        """The port on the values of a pass of the reference, which are in this folder."""
        return self._ask(
            "paddle",
            port_forced_forward,
            "each layer on the reference's input",
            stage=self.stage,
            weights=self.weights["paddle"],
            folder=str(folder),
            calls=calls["calls"],
            pairs=self._pairs,
            moved=list(calls["state"]),
            **more,
        )

    def _forced_backward(self, back: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        text = "each layer on the reference's gradient"
        return self._ask("paddle", port_forced_backward, text, folder=str(folder), uneven=self._uneven, **back)

    def _of_own_weights(self, matching: Matching) -> list[tuple[Call, Call]]:
        """Pairs of layers that both have weights, of which the conversion has matched none."""
        ours = {key.rpartition(".")[0] for key in self.weights["ref"].get("left_out", ())}
        theirs = self._with_initial_values
        return [(mine, port) for mine, port in matching.pairs if mine.path in ours and port.path in theirs]

    def _callers_of_own_weights(self, matching: Matching) -> set[str]:
        """Paths of the port's layers whose own code takes what layers return that have no counterpart, where the
        reference has such layers as well: else the port has one too many."""
        theirs = self._with_initial_values if self.weights["ref"].get("left_out") else set()
        callers = {call.parent for call in matching.alone["paddle"] if call.path in theirs}
        return {port.path for _, port in matching.pairs if port.number in callers}

    @property
    def _with_initial_values(self) -> set[str]:
        """Paths of the port's layers that keep their own initial values, for the conversion has none for them."""
        return {key.rpartition(".")[0] for key in self.weights["paddle"].get("kept", ())} - self._converted

    @property
    def _converted(self) -> set[str]:
        """Paths of the port's layers that have weights of the reference's."""
        return {key.rpartition(".")[0] for key in self.weights["paddle"].get("canonical") or ()}

    def _not_accepted(self, suspects: Sequence[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], ...]:
        """Suspects without those that cannot be judged or that the case accepts; those with weights of their own apart.

        The latter are suspects where nothing else is: a wrong norm can be why its weights were not proven to be the
        reference's.
        """
        self._accepted: dict[str, list[str]] = {}
        left: list[Mapping[str, Any]] = []
        of_own_weights: list[Mapping[str, Any]] = []
        for suspect in suspects:
            if self._left_out.get(suspect["path"]) == _OWN_WEIGHTS:
                notes = [*suspect["notes"], _OWN_WEIGHTS]
                of_own_weights.append({**suspect, "notes": notes, "of_own_weights": True})
                continue
            path = self._calls[suspect["call"]].path
            rounding = _rounding_of_momentum(suspect["facts"])
            found = [
                accepted_as(_name_of_state(path, name), self.accept)
                for name, difference in suspect["differences"].items()
                if not (name.startswith("buffer.") and (difference["relative"] or np.inf) <= rounding)
            ]
            if found and all(found):
                for identifier in dict.fromkeys(map(str, found)):
                    self._accepted.setdefault(identifier, []).append(suspect["path"])
            else:
                left.append(suspect)
        return left, of_own_weights

    @property
    def _is_right_alone(self) -> bool:
        """Whether the port returns what the reference does where no layer is given the reference's values."""
        apart = [t.inherited for call in self._port_calls if call.path == FORWARD for t in call.outputs]
        return bool(apart) and all(one is not None and one <= _ROUNDING for one in apart)

    def _faults(self, suspects: Sequence[Mapping[str, Any]], explain: bool) -> list[Fault]:
        if not suspects:
            return []
        confirmed = self._ask(
            "ref", reference_confirm, "how much rounding changes there", folder=str(self.folder), suspects=suspects
        )
        found: dict[tuple[str, str], Fault] = {}
        judged: list[tuple[int, tuple[str, str]]] = []
        asked: dict[tuple[str, str], tuple[Fault, Mapping[str, Any]]] = {}
        for reported, answer in zip(suspects, confirmed["answers"], strict=True):
            if "left_out" in answer:
                self._left_out[reported["path"]] = answer["left_out"]
                continue
            suspect, phases = {**reported, **answer}, answer["phases"]
            # Wrong outputs lead to wrong gradients and statistics; wrong statistics lead to neither.
            for phase in phases[:1] if "forward" in phases else phases:
                fault = self._fault(suspect, phase)
                judged.append((suspect["call"], key := (fault.reference_layer, fault.phase)))
                before = found.get(key)  # for another call of the same layer
                fault.evidence["calls"] += before.evidence["calls"] if before else 0
                if before is None or shows_more(fault, before):
                    found[key], asked[key] = fault, (fault, suspect)
                    judged.insert(0, judged.pop())
                else:
                    before.evidence["calls"] += 1
        if asked:
            places = ", ".join(map(place_of, [*found.values()][:_MOST_NAMED]))
            more = f" and {len(asked) - _MOST_NAMED} more" if len(asked) > _MOST_NAMED else ""
            self.progress(FOUND, f"differences in {places}{more}")
        if not explain or (self.unless_rounded and some_are_rounded(found.values())):
            return [fault for fault in found.values() if fault.paddle_layer not in self._callers]
        search = CauseSearch(
            self._ask,
            self._forced_forward,
            self._forced_backward,
            self.folder,
            self._pairs,
            self._port_calls,
            self._opened,
        )
        for key in search.explain(list(asked.values())):
            del found[key]
            del asked[key]
        faults = self._decided(found, [(number, key) for number, key in judged if key in found])
        decided = [fault for fault in faults if fault.explanation or fault.paddle_layer not in self._callers]
        self._left_out |= {fault.paddle_layer: _CALLS_OWN_WEIGHTS for fault in faults if fault not in decided}
        return self._edited(decided, list(asked.values()), search.left)

    def _edited(
        self, faults: list[Fault], asked: Sequence[tuple[Fault, Mapping[str, Any]]], left: float
    ) -> list[Fault]:
        """The faults, with edits of the port where no cause says which line is wrong, as far as time is left."""
        if self._crash is not None:
            return faults
        given = (
            self._ask,
            self.processes["paddle"].revive,
            self.stage,
            self.weights["paddle"],
            self.folder,
            self._pairs,
            self._calls,
        )
        return PortEdits(*given, [call.path for call in self._alone], len(faults)).of_faults(faults, asked, left)

    def _decided(
        self, found: Mapping[tuple[str, str], Fault], judged: Sequence[tuple[int, tuple[str, str]]]
    ) -> list[Fault]:
        """The faults that the whole bears out: with all causes the reference must give what the port gives.

        `judged` are the calls that are wrong, with the keys of their faults.
        """
        calls: dict[tuple[str, str], int] = {key: number for number, key in reversed(judged)}
        proven = [key for key, fault in found.items() if fault.explanation and fault.phase in ("forward", "state")]
        if self._crash is not None or not any(phase == "forward" for _, phase in proven):
            return list(found.values())
        unexplained = [number for number, key in judged if key[1] == "forward" and not found[key].explanation]
        wrong = {*unexplained, *(calls[key] for key in proven)}
        units = [(path, ordinal, number) for path, ordinal, number in self._pairs if number in wrong]
        self._call("paddle", port_whole, "the whole port once more", weights=self.weights["paddle"], units=units)
        answer = self._ask(
            "ref",
            reference_whole,
            "the whole reference with all causes",
            folder=str(self.folder),
            mends=[(calls[key], key[1]) for key in proven],
            unexplained=unexplained,
        )
        needless = [tuple(item) for item in answer["needless"]]
        lines = {number: Explanation(**line) for number, line in answer["lines"]}
        for key in proven:
            fault = found[key]
            if key[1] == "forward":
                fault.explanation = lines.get(calls[key], fault.explanation)
            if calls[key] in answer["refuted"] and fault.phase == "forward" and fault.explanation:
                fault.note(f"fits these values, but not those of the port's own pass: {fault.explanation.text}")
                fault.evidence["fits_here"] = fault.explanation.text
                fault.explanation = None
            elif fault.phase == "forward":
                fault.evidence["whole_reproduced"] = answer["reproduces"]
        return [fault for key, fault in found.items() if (calls[key], key[1]) not in needless]

    def _fault(self, suspect: Mapping[str, Any], phase: str) -> Fault:
        call = self._calls[suspect["call"]]
        values = {name: found for name, found in suspect["differences"].items() if phase_of(name) == phase}
        paths = [_SHOWN_PATH.get(path, path) for path in (call.path, suspect["path"])]
        moved = [name.removeprefix("state.") for name in values if name.startswith("state.")]
        if moved:  # code around the layers has changed their state differently: name the layers
            paths = [path_around([name.rpartition(".")[0] for name in moved])] * 2
        evidence = {
            "reference_class": call.layer,
            "paddle_class": suspect["layer"],
            "calls": 1,
            "where": where_in_unit(call.path, values),
            "places": {f"output.{number}": place for number, place in enumerate(call.places)},
            "values": values,
        }
        if phase == "forward" and suspect["inside"] is not None:
            evidence["inside"] = suspect["inside"]
        if suspect["notes"]:
            evidence["notes"] = suspect["notes"]
        return Fault(paths[0], paths[1], phase, None, evidence)

    def _call(self, side: str, function: Callable[..., dict[str, Any]], text: str, **arguments: Any) -> dict[str, Any]:
        return self._ask(side, function, text, stage=self.stage, folder=str(self.folder), **arguments)

    def _ask(self, side: str, function: Callable[..., dict[str, Any]], text: str, **arguments: Any) -> dict[str, Any]:
        self.progress(side, text)
        return self.processes[side].call(function, **arguments)


def _only_takes_others(differences: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether a unit returns what the reference's does, and only hands layers inside tensors of other shapes: the first
    of all places before a layer that treats each place alike, in place of behind it.
    """
    return all(name.startswith("input.") and one["text"].startswith(OF_SHAPES) for name, one in differences.items())


def _rounding_of_momentum(facts: Mapping[str, Any]) -> float:
    """What of a running statistic a momentum in float32 changes, which paddle takes from 1 to weigh the new values."""
    momentum = facts.get("momentum", 0.0)
    return abs(float(np.float32(momentum)) - momentum) / abs(1.0 - momentum) * 1.01 if 0.0 < momentum < 1.0 else 0.0


def _name_of_state(path: str, name: str) -> str:
    """The name that a value of a unit, which is a buffer or other state, has in a recording; empty for other values."""
    kind, _, rest = name.partition(".")
    return {"buffer": f"{path}.{rest}", "state": rest}.get(kind, "")


def _bytes_in(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
