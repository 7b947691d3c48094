"""Looks for the causes of wrong layers: asks the reference's process, one layer after the other."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from twinalign.causes.layers.explaining import SECOND_DRAW, reference_explain
from twinalign.causes.registry import Explanation
from twinalign.processes.side_process import ChildError
from twinalign.replay.case_run import MOVED, PLAIN, REDRAWN
from twinalign.replay.layer_calls import Call
from twinalign.replay.layers import reference_second_backward, reference_second_forward
from twinalign.replay.wrong_unit import phase_of
from twinalign.search.faults import Fault

_MOST_KNOWN = 6
_NO_TIME = "not searched in the reference: its code is that of {}, for whose causes the time did not suffice"
_MOST_SEEN = 12
"""So many tensors behind a layer are looked at."""


@dataclasses.dataclass
class CauseSearch:
    """The search for causes in one part of a case.

    Attributes:
        ask: calls a function in a side's process: side, function, text for the reader, arguments.
        forced_forward, forced_backward: the port on the values of a pass of the reference, which are in a folder.
        folder: what the sides exchange.
        pairs: path in the port, ordinal, number of the reference's call.
        port_calls: those of the port's own pass.
        opened: numbers of the reference's calls that the port makes without their pairs.
        left: seconds that are left for causes, once some were looked for.
    """

    ask: Callable[..., dict[str, Any]]
    forced_forward: Callable[..., dict[str, Any]]
    forced_backward: Callable[..., dict[str, Any]]
    folder: Path
    pairs: Sequence[tuple[str, int, int]]
    port_calls: Sequence[Call]
    opened: Sequence[int]
    left: float = math.inf

    def explain(self, asked: Sequence[tuple[Fault, Mapping[str, Any]]]) -> list[tuple[str, str]]:
        """Look for the cause of each fault; with each comes what was reported of its unit.

        Returns layer and phase of those that are none.
        """
        proven: list[tuple[str, dict[str, Any]]] = []
        searched: list[tuple[Fault, Mapping[str, Any]]] = []
        right: list[tuple[str, str]] = []
        left, second = "", self._second_draw(asked)
        given_up: dict[tuple[str, str], str] = {}
        for number, (fault, suspect) in enumerate(asked, start=1):
            code = suspect["layer"], fault.phase
            if code in given_up and suspect.get("functions"):  # an edit of that code may mend all of them
                fault.note(_NO_TIME.format(given_up[code]))
                searched.append((fault, suspect))
                continue
            answer = self.ask(
                "ref",
                reference_explain,
                f"why {place_of(fault)} differs, {number} of {len(asked)}{left}",
                folder=str(self.folder),
                suspect=suspect,
                phase=fault.phase,
                known=_likeliest(proven, suspect["layer"]),
                second=second.get(suspect["call"]),
                own=self._own(suspect) if fault.phase == "forward" else None,
            )
            if answer["right"]:
                right.append((fault.reference_layer, fault.phase))
            self.left = answer["left"]
            left = f"; {self.left:.0f} s left for causes"
            if answer["explanation"]:
                proven.append((suspect["layer"], _as_tried(answer["explanation"])))
                fault.explanation = Explanation(**answer["explanation"])
                leave_out_right_lines(fault, answer["explanation"]["evidence"])
            else:
                texts = (f"fits these inputs, but not a second draw of them: {text}" for text in answer["refuted"])
                fault.note(*texts, *filter(None, [answer["stopped"]]))
                fault.note(*_of_same_code(fault, suspect, searched))
                if answer["right_lines"]:
                    fault.evidence["right_lines"] = answer["right_lines"]
                if answer["stopped"]:
                    given_up[code] = place_of(fault)
            searched.append((fault, suspect))
        return right

    def _own(self, suspect: Mapping[str, Any]) -> dict[str, Any] | None:
        """What the port's unit returns in the port's own pass, if one tensor, and what is given to others behind it."""
        place = next((pair[:2] for pair in self.pairs if pair[2] == suspect["call"]), None)
        call = next((call for call in self.port_calls if (call.path, call.ordinal) == place), None)
        if call is None or len(call.outputs) != 1:
            return None
        behind = (tensor for other in self.port_calls[call.number + 1 :] for tensor in other.inputs)
        seen = [tensor.sample for tensor in behind if tensor.shape == call.outputs[0].shape]
        return {"output": call.outputs[0].sample, "seen": seen[:_MOST_SEEN]}

    def _second_draw(
        self, asked: Sequence[tuple[Fault, Mapping[str, Any]]], everything: bool = False, draw: int | None = None
    ) -> dict[int, Mapping[str, Any]]:
        """What the port's units compute on a second draw of inputs, which a cause must give as well, by their calls.

        Faults whose causes stand on one draw alone, since the two passes are unlike, get a note. `everything`: whether
        all units run, and not the wrong ones alone. A mask that is the same on both draws tells nothing of what reads
        it apart: such inputs are drawn anew. Where gradients alone differ, parameters that begin with one value are
        moved, too: what is done with zeros shows in no output. Where a side does not run on that, it runs on less.
        """
        asked = [(fault, suspect) for fault, suspect in asked if fault.phase != "state"]
        if not asked:  # in that phase one draw decides
            return {}
        folder = self.folder / SECOND_DRAW
        wanted = [(suspect["call"], list(suspect["differences"])) for _, suspect in asked]
        of_gradients = {suspect["call"] for fault, suspect in asked if fault.phase == "backward"}
        gradients = everything or bool(of_gradients)
        draw = draw or (MOVED if of_gradients else REDRAWN)
        given = {"folder": str(folder), "gradients": gradients, "opened": self.opened, "draw": draw}
        given["wanted"] = None if gradients else [number for number, _ in wanted]
        calls = self.ask("ref", reference_second_forward, "forward on other inputs", **given)
        if "unlike" in calls:
            if draw > PLAIN:
                return self._second_draw(asked, everything, draw - 1)
            for fault, _ in asked:
                fault.note(f"tried on one draw of inputs alone: on a second one {calls['unlike']}")
            return {}
        try:
            if "lacking" in self.forced_forward(calls, folder, wanted=wanted, gradients=gradients, draw=draw):
                return self._second_draw(asked, everything=True, draw=draw)
            back: dict[str, Any] = {"gradients": {}, "parameters": {}}
            if gradients:
                back = self.ask("ref", reference_second_backward, "backward on other inputs")
            found = self.forced_backward(back, folder)["suspects"]
        except ChildError as error:
            if error.died:
                raise
            return self._second_draw(asked, everything, draw - 1) if draw > PLAIN else {}
        first = {suspect["call"]: suspect for _, suspect in asked}
        return {
            other["call"]: _drawn_again(first[other["call"]], other, other["call"] in of_gradients)
            for other in found
            if other["call"] in first and other["children"] == first[other["call"]]["children"]
        }


def _as_tried(explanation: dict[str, Any]) -> dict[str, Any]:
    """An explanation in the words of what was tried, by which it is known again in other layers."""
    inside = explanation["evidence"].get("helper_edit", {})
    return {**explanation, "text": inside.get("of", explanation["text"])}


def leave_out_right_lines(fault: Fault, proof: Mapping[str, Any]) -> None:
    """Where the wrong lines are proven, the first value that the reference lacks is told only if it stands in one."""
    inside, lines = fault.evidence.get("inside"), proof.get("lines_of_port")
    if inside is None or lines is None:
        return
    at = inside["unknown"]
    if not any(Path(file).name == at["file"] and first <= at["line"] <= last for file, first, last in lines):
        del fault.evidence["inside"]


def _drawn_again(first: Mapping[str, Any], second: Mapping[str, Any], of_gradients: bool) -> Mapping[str, Any]:
    """A suspect on the second draw, with the `phase` in which it differs there.

    Parameters that are moved may show in values what shows in gradients alone; then these decide.
    """
    found = {**first, "facts": second["facts"], "phase": "forward"}
    if not of_gradients:
        return found
    values = {name: one for name, one in second["differences"].items() if phase_of(name) == "forward"}
    return {**found, "phase": "forward" if values else "backward", "differences": first["differences"] | values}


def _of_same_code(
    fault: Fault, suspect: Mapping[str, Any], searched: Sequence[tuple[Fault, Mapping[str, Any]]]
) -> list[str]:
    """In words, the cause of a layer with the same code and settings, such as the student's of a teacher's copy."""
    for other, unit in searched:
        cause, alike = other.explanation, all(unit.get(name) == suspect.get(name) for name in _CODE)
        if cause is not None and alike and suspect.get("functions") and other.phase == fault.phase:
            return [f"same code as {other.paddle_layer}, whose cause does not suffice here: {cause.text}"]
    return []


_CODE = ("layer", "functions", "facts")


def place_of(fault: Fault) -> str:
    """A fault in words."""
    return f"{fault.paddle_layer or 'the model'} ({fault.phase})"


def _likeliest(proven: Sequence[tuple[str, dict[str, Any]]], layer: str) -> list[dict[str, Any]]:
    """Explanations of other units, each once: those of the same class first, the latest first."""
    latest = proven[::-1]
    ordered = [item for same in (True, False) for item in latest if (item[0] == layer) == same]
    return list({found["text"]: found for _, found in ordered}.values())[:_MOST_KNOWN]
