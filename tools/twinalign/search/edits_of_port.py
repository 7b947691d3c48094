"""Looks for the edit of the port's own code that mends a layer, where no cause in the reference gives what it gives."""

import ast
import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from twinalign.causes.registry import Explanation, known_causes
from twinalign.processes.side_process import ChildError
from twinalign.recorder.tables_without_partner import other_tables
from twinalign.replay.case_run import PLAIN, REDRAWN
from twinalign.replay.construction_places import reference_code
from twinalign.replay.layer_calls import Call
from twinalign.replay.layers import (
    reference_forgets,
    reference_second_backward,
    reference_second_forward,
    reference_values,
)
from twinalign.replay.mended_constants import constants_mended, values_in_construction
from twinalign.replay.mended_port import NOT_ON_DRAW, port_mended
from twinalign.replay.mended_tables import tables_mended
from twinalign.search.causes_of_layers import leave_out_right_lines
from twinalign.search.faults import Fault

_LINE = "line_of_port"
_RATES = "training_rates"
_NO_LINE = "edited_program", _RATES
"""Causes that are proven and leave open which line of the port is wrong."""
_WEAK = 4
"""Causes of such a rank, and above, fit any code: by chance, too."""
_STOPPED = "gradient_stopped"
"""A gradient that flows nowhere in the reference may come of one that the port does not stop."""
_SECONDS, _SECONDS_IF_PROVEN, _SECONDS_IF_NAMED = 10.0, 4.0, 2.0
"""For the edits of one layer or component; if a cause is proven, only the port's line is to be found, which says little
more where the cause has a name."""
_MANY_LINES, _LONGEST_NOTE = 3, 300
_LEFT_OUT = "left out"
"""What sentences say of a step that the port lacks."""
_OPERATIONS = ast.Call | ast.BinOp | ast.UnaryOp
_PASSES = "edited", "edited again"
"""Under which the reference keeps its passes on each draw."""


@dataclasses.dataclass(frozen=True)
class PortEdits:
    """The search for edits of the port in one part of a case.

    Attributes:
        ask: calls a function in a side's process: side, function, text for the reader, arguments.
        revive: begins the port's process once more that an edit has ended.
        stage, weights: of the part; the port's weights as its recorder takes them.
        folder: what the sides exchange.
        pairs: path in the port, ordinal, number of the reference's call.
        calls: the reference's.
        alone: paths of the reference's layers that the port has no counterpart of.
        faults: how many there are.
    """

    ask: Callable[..., dict[str, Any]]
    revive: Callable[[], bool]
    stage: str
    weights: Mapping[str, Any]
    folder: Path
    pairs: Sequence[tuple[str, int, int]]
    calls: Sequence[Call]
    alone: Sequence[str]
    faults: int

    def of_faults(
        self, faults: list[Fault], asked: Sequence[tuple[Fault, Mapping[str, Any]]], left: float
    ) -> list[Fault]:
        """The faults with their edits, as far as they are found in the time that is left.

        Where all is right with one edit, what else is unexplained follows: right layers may run in another order. What
        has the same cause in other layers has it in the same line.
        """
        found = self._with_edits(faults, asked, left)
        for fault in found:
            if fault.explanation is not None and says_too_much(fault.explanation):
                fault.note(f"gives the port's values: {fault.explanation.text}"[:_LONGEST_NOTE])
                fault.explanation = None
        return found

    def _with_edits(
        self, faults: list[Fault], asked: Sequence[tuple[Fault, Mapping[str, Any]]], left: float
    ) -> list[Fault]:
        in_vain: list[Any] = []
        for fault, suspect in asked:
            code = suspect["layer"], suspect["functions"], fault.phase
            if fault not in faults or not self.is_open(fault) or code in in_vain:
                continue
            before = fault.explanation
            seconds, mends_all = self.explain(fault, suspect, left)
            left -= seconds
            in_vain += [code] if self.is_open(fault) else []
            if before is not None and fault.explanation is not None and before.text in fault.explanation.text:
                for other in faults:
                    if other.explanation is not None and other.explanation.text == before.text:
                        other.explanation = fault.explanation
            if mends_all:
                for other in faults:  # another layer of the class runs the same line
                    alike = [(one.phase, one.evidence.get("paddle_class")) for one in (other, fault)]
                    if alike[0] == alike[1] and other.explanation is not None:  # which fits there by chance
                        other.explanation = fault.explanation
                return [one for one in faults if one is fault or one.explanation or one.phase != fault.phase]
        return faults

    def explain(self, fault: Fault, suspect: Mapping[str, Any], left: float) -> tuple[float, bool]:
        """Look for the edit that mends a fault, in at most `left` seconds.

        Returns:
            How many seconds it took, and whether with the edit that is found all that the port computes is right.
        """
        own = self._constants(fault)
        if fault.phase not in ("forward", "backward", "state") or not (suspect["functions"] or own) or left <= 0.0:
            return 0.0, False
        begun = time.monotonic()
        try:
            search = self._constants_mended if own else self._mended
            answer = self._tables_mended(fault, suspect, min(_SECONDS, left))
            answer = answer or search(fault, suspect, min(seconds_for(fault.explanation), left))
        except ChildError as error:  # a user's code may not run once more
            if error.died and not self.revive():
                raise
            answer = {}
            fault.note(f"edits of the port were not all tried: {error}")
        finally:
            self.ask("ref", reference_forgets, "values of further passes", keys=list(_PASSES))
        if "text" in answer:
            _tell(fault, answer)
        elif fault.explanation is None:
            fault.evidence["near_lines"] = answer.get("near", [])
        return time.monotonic() - begun, not own and bool(answer.get("mends_all"))

    def is_open(self, fault: Fault) -> bool:
        """Whether a cause of a fault leaves open which line is wrong; one of a table does without an edit."""
        known = fault.explanation
        is_table = known is not None and "helper_edit" not in known.evidence and bool(self._constants(fault))
        # The line of a layer of paddle's own is the call that builds it, which is known.
        of_library = str(fault.evidence["paddle_class"]).startswith("paddle.")
        return is_table or (is_open(known) if of_library else lacks_line(known))

    def _constants(self, fault: Fault) -> list[str]:
        """The port's names of constant buffers that a wrong layer holds, which are not the reference's."""
        layer = fault.paddle_layer
        return [name for name in self.weights.get("own_buffers", ()) if name.rpartition(".")[0] == layer]

    def _constants_mended(self, fault: Fault, suspect: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """What `constants_mended` answers."""
        return self.ask(
            "paddle",
            constants_mended,
            f"edits of the constructor of {fault.paddle_layer or 'the model'}",
            stage=self.stage,
            layer=fault.paddle_layer,
            reference=self.weights["constants"],
            keys=self._constants(fault),
            theirs=self._theirs([fault.reference_layer], values_in_construction, stage=self.stage),
            seconds=seconds,
        )

    def _tables_mended(self, fault: Fault, suspect: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """What `tables_mended` answers, where a wrong layer holds a table that the reference has in no arrangement."""
        if fault.phase != "forward" or "tables" not in self.weights:
            return {}
        given = {"stage": self.stage, "tables": self.weights["tables"]}
        keys = self.ask("paddle", other_tables, "tables of the port", paired=self.weights["paired"], **given)["keys"]
        own = [key for key in keys if key.rpartition(".")[0] == fault.paddle_layer]
        if not own:
            return {}
        return self.ask(
            "paddle",
            tables_mended,
            f"edits of the constructor of {fault.paddle_layer or 'the model'}",
            layer=fault.paddle_layer,
            keys=own,
            unit=self._unit(fault, suspect, (REDRAWN, PLAIN)),
            theirs=self._theirs([fault.reference_layer], values_in_construction, stage=self.stage),
            seconds=seconds,
            **given,
        )

    def _theirs(self, paths: Sequence[str], values_in: Callable[..., dict[str, Any]], **given: Any) -> dict[str, Any]:
        """What a search in the port is told of the reference: the code of these layers, and the values in it."""
        code = self.ask("ref", reference_code, "the reference's code", stage=self.stage, paths=paths)
        path = str(self.folder / "values_in_code.npy")
        values = self.ask("ref", values_in, "the values in the reference's code", path=path, **given)
        return {"code": [place for places in code.values() for place in places], "values": values}

    def _mended(self, fault: Fault, suspect: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """What `port_mended` answers."""
        inside = f"{fault.reference_layer}." if fault.reference_layer else ""
        paths = [fault.reference_layer, *(path for path in self.alone if path.startswith(inside))]
        for others in (REDRAWN, PLAIN), (PLAIN,):
            answer = self.ask(
                "paddle",
                port_mended,
                f"edits of the port in {fault.paddle_layer or 'the model'}",
                stage=self.stage,
                **self._unit(fault, suspect, others),
                theirs=self._theirs(paths, reference_values),
                inside=suspect.get("inside"),
                right=fault.evidence.get("right_lines", ()),
                seconds=seconds,
            )
            if answer != NOT_ON_DRAW:  # whole numbers that are drawn anew may be no graph
                break
        return answer

    def _unit(self, fault: Fault, suspect: Mapping[str, Any], others: Sequence[int]) -> dict[str, Any]:
        """What `PortUnit` takes of a wrong layer, on the case's inputs and on one of the others."""
        return {
            "weights": self.weights,
            "number": suspect["call"],
            "names": list(suspect["differences"]),
            "draws": self._draws(suspect["call"], fault.phase, others),
            "phase": fault.phase,
            "is_alone": self.faults == 1,
            "pairs": self.pairs,
        }

    def _draws(self, number: int, phase: str, others: Sequence[int]) -> list[dict[str, Any]]:
        """The reference's values on the case's inputs, and on the first of others on which it runs.

        Of the latter the gradients are only taken where they decide.
        """
        found, inside = [], {number}
        for call in self.calls[number + 1 :]:
            inside |= {call.number} if call.parent in inside else set()
        given = {"wanted": sorted({0, number}), "opened": sorted(inside)}
        with_gradients = phase != "state", phase == "backward"
        for key, gradients, draws in zip(_PASSES, with_gradients, ((0,), others), strict=True):
            folder = self.folder / key
            for draw in draws:
                made = {**given, "draw": draw, "gradients": gradients, "key": key, "folder": str(folder)}
                calls = self.ask("ref", reference_second_forward, "forward once more", **made)
                if "unlike" in calls:
                    continue
                file = str(folder / "gradients.npz") if gradients else ""
                if gradients:
                    self.ask("ref", reference_second_backward, "backward once more", key=key, gradients=file)
                moved = list(calls["state"])
                found.append(
                    {"folder": str(folder), "draw": draw, "calls": calls["calls"], "moved": moved, "gradients": file}
                )
                break
        return found


def _tell(fault: Fault, found: Mapping[str, Any]) -> None:
    """Put the edit into the fault."""
    fault.explanation = with_edit(fault.explanation, found, "forward", "{}: {}")
    for name in ("right_lines", "fits_here"):  # what was known without the cause
        fault.evidence.pop(name, None)
    leave_out_right_lines(fault, fault.explanation.evidence)


def with_edit(known: Explanation | None, found: Mapping[str, Any], phase: str, form: str) -> Explanation:
    """The cause that an edit proves; `form`: of sentence and edit.

    What is known in the reference's words is left out where it may be one way of many to say it.
    """
    proof = {"lines_of_port": found["lines_of_port"], "helper_edit": found["edit"]}
    if known is not None and "is_place" in found:  # which says less
        return dataclasses.replace(known, evidence={"lines_of_port": found["lines_of_port"]} | known.evidence)
    is_named = known is not None and (known.id == _RATES or not is_open(known))
    if known is not None and is_named and not (_LEFT_OUT in known.text and _exchanges(found["edit"])):
        return Explanation(known.id, f"{known.text}; in the port {found['text']}", evidence={**known.evidence, **proof})
    said = next(cause.text for cause in known_causes(phase) if cause.id == _LINE)
    return Explanation(_LINE, form.format(said, found["text"]), evidence=proof)


def seconds_for(known: Explanation | None) -> float:
    """How long to look for an edit, at most."""
    if known is None or known.id in _NO_LINE or known.id.startswith(_LINE):
        return _SECONDS
    return _SECONDS_IF_PROVEN if is_open(known) or _LEFT_OUT in known.text else _SECONDS_IF_NAMED


def lacks_line(known: Explanation | None) -> bool:
    """Whether a line of the port is to be sought, beside a cause with a name as well.

    What a cause says is left out may be there, in another form with the same effect.
    """
    return is_open(known) or (
        known is not None and (not known.evidence.get("lines_of_port") or _LEFT_OUT in known.text)
    )


def lacks_edit(known: Explanation | None) -> bool:
    """Whether nothing says what to write in a line of the port, or no line is known."""
    return lacks_line(known) or not (known is None or "helper_edit" in known.evidence or known.id.startswith(_LINE))


def _exchanges(edit: Mapping[str, Any]) -> bool:
    """Whether the port has as many operations there as with the edit, so that it leaves none out."""
    try:
        ours, theirs = (ast.walk(ast.parse(str(edit[key]).strip())) for key in ("before", "after"))
    except (KeyError, SyntaxError):
        return False
    return sum(isinstance(one, _OPERATIONS) for one in ours) >= sum(isinstance(one, _OPERATIONS) for one in theirs)


def says_too_much(known: Explanation) -> bool:
    """Whether a cause names so many lines, of which any may be wrong, that it is none."""
    lines = known.evidence.get("lines_of_port", ())
    return known.id.startswith(_LINE) and "helper_edit" not in known.evidence and len(lines) >= _MANY_LINES


def is_open(known: Explanation | None) -> bool:
    """Whether no cause is known, or one that leaves open which line of the port is wrong."""
    if known is None or "helper_edit" in known.evidence:
        return known is None
    lines = sum(last - first + 1 for _, first, last in known.evidence.get("lines_of_port", ()))
    is_weak = any(one.rank >= _WEAK for one in known_causes("forward") if one.id == known.id)
    is_elsewhere = lines > 1 or any(known.evidence.get(fact) for fact in ("calls_own_code", "is_given_other_values"))
    of_lines = known.id.startswith(_LINE) and is_elsewhere  # or buffers
    return is_weak or known.id in (*_NO_LINE, _STOPPED) or of_lines
