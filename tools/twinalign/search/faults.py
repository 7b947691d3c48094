"""What `twinalign locate` finds: faults, each with its place and, if one is proven, its cause."""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from twinalign.causes.registry import Explanation
from twinalign.verdict.results import plain

LATER_STEP = "step_of_inputs"
"""Key of the evidence: the step whose inputs show a fault that those of the steps before do not."""
_OF_FLOAT32 = 1e-6
"""Relative: what float32 leaves of a constant that a constructor has made, in the values computed with it."""
_AS_A_WHOLE = ", as a whole "
"""What is said of a function that differs somewhere."""
_CLEARLY_MORE = 1e3
_LINE = "line_of_port"
_FROZEN, _LEFT_OUT = "parameters_frozen", "parameters_left_out"
"""Causes in a layer and in the optimizer, of which the latter shows the former."""

_NO_BRACKETS = str.maketrans("", "", ":()")


@dataclasses.dataclass
class Fault:
    """A fault of the port at one place.

    Attributes:
        reference_layer: path of the layer in the reference (`""` is the model itself), or a component: `loss`,
            `optimizer`, `schedule`, `dataset.SPLIT`, `metric`, `train`, `ranks.PART` with one of `rank_steps.PARTS`.
        paddle_layer: the same in the port.
        phase: one of `PHASES`.
        explanation: the proven cause, None if no cause reproduces the port.
        evidence: which tensors differ, how far, layer classes, inherited error.
    """

    reference_layer: str
    paddle_layer: str
    phase: str
    explanation: Explanation | None = None
    evidence: dict[str, Any] = dataclasses.field(default_factory=dict)
    edit: dict[str, Any] | None = None
    """The likeliest edit of the port's source, as `edits.source.Edit.to_json`; None where none is known."""
    further_edits: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    """Other edits that may be meant, the likelier first."""
    reference_edits: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    """Edits that make the port's code what the reference's has in its place; unproven, for `fix` to try."""
    case_edits: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    """Edits of how the case converts weights; unproven, for `fix` to try."""
    suggestion: str = ""
    """What to write, in words; empty where it is accepted or was not looked for."""

    def note(self, *texts: str) -> None:
        """Add to the notes in the evidence, which terminal and report show."""
        self.evidence["notes"] = [*self.evidence.get("notes", ()), *texts]

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = plain(dataclasses.asdict(self))
        return found


def in_one_line(fault: Fault) -> str:
    """What is told of a component's fault while the search goes on."""
    return f"wrong in {fault.reference_layer}" + (f": {fault.explanation.text}" if fault.explanation else "")


def some_are_rounded(faults: Iterable[Fault]) -> bool:
    """Whether there is a fault that is as small as what float32 leaves of a constant, be it beside others."""
    sizes = ([found["relative"] for found in fault.evidence["values"].values()] for fault in faults)
    return any(bool(of) and all(size is not None and size <= _OF_FLOAT32 for size in of) for of in sizes)


def where_in_unit(path: str, values: Mapping[str, Any]) -> str:
    """In words, where in the unit the first difference is; for buffers, all that differ."""
    first = next(iter(values))
    kind, _, rest = first.partition(".")
    if kind == "input":
        return f"its own code, in the input of {rest.rpartition('#')[0]}"
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


def telling(faults: Iterable[Fault], counted: Sequence[Fault], new: Iterable[Fault] | None = None) -> list[Fault]:
    """Faults without those that only show another: a training beside them counts with a cause of its own alone.

    `new`: of which some are wanted; None for all.
    """
    beside = any(fault.phase != "train" for fault in counted)
    found = each_once(fault for fault in faults if not beside or fault.phase != "train" or fault.explanation)
    wanted = {id(fault) for fault in (found if new is None else new)}
    return [fault for fault in found if id(fault) in wanted]


def each_once(faults: Iterable[Fault]) -> list[Fault]:
    """Faults without those of training, metric and schedule that repeat another, which takes over their cause.

    One line may make both what an optimizer does and its rate.
    """
    kept = list(faults)
    repeating = [fault for phase in ("train", "metric") for fault in kept if fault.phase == phase]
    repeating += [fault for fault in kept if fault.reference_layer == "schedule"]
    for fault in [fault for fault in repeating if fault.explanation is not None]:
        same = next((other for other in kept if other is not fault and _shows_there(other, fault)), None)
        if same is not None:
            same.explanation = same.explanation or fault.explanation
            kept.remove(fault)
    frozen = {name for fault in kept for name in _frozen(fault)}
    return [fault for fault in kept if not (_leaves_out(fault) and frozen.issuperset(fault.evidence["parameters"]))]


def _frozen(fault: Fault) -> set[str]:
    """The reference's names of parameters that a layer of the port gives no gradient."""
    if fault.explanation is None or _FROZEN not in fault.explanation.id.split("+"):
        return set()
    parameters = (name.partition("gradient.parameter.")[2] for name in fault.evidence["values"])
    return {f"{fault.reference_layer}.{name}".removeprefix(".") for name in parameters if name}


def _leaves_out(fault: Fault) -> bool:
    """Whether an optimizer is wrong in nothing but that some parameters stay as they are."""
    return fault.explanation is not None and fault.explanation.id == _LEFT_OUT


def _shows_there(other: Fault, fault: Fault) -> bool:
    """Whether a fault found elsewhere is the cause of this wrong training or evaluation."""
    cause = fault.explanation.id if fault.explanation else ""
    if fault.explanation is not None and other.explanation is not None:
        # The same is said of a layer with its detail behind a colon, of a training with it in brackets.
        here, there = (one.text.translate(_NO_BRACKETS) for one in (fault.explanation, other.explanation))
        if here == there and cause == other.explanation.id:
            return True
        if (lines := _lines_of(fault)) and lines <= _lines_of(other):
            return True
        if other.phase == "optimizer" and cause == other.explanation.id and not cause.startswith(_LINE):
            return True  # which says the same of its own steps
        if _AS_A_WHOLE in fault.explanation.text and other.phase == "optimizer" and lines & _functions_of(other):
            return True
    if cause == "training_batch_norm_momentum":
        return other.explanation is not None and "batch_norm_momentum" in other.explanation.id.split("+")
    return cause in ("training_rates", "training_rate", "warmup_missing") and other.reference_layer == "schedule"


def _functions_of(fault: Fault) -> set[tuple[str, int]]:
    """File name and first line of the port's functions that a component runs, once they are known."""
    return {(Path(file).name, first) for file, first, _ in fault.evidence.get("source", ())}


def _lines_of(fault: Fault) -> set[tuple[str, int]]:
    """File name and number of the port's lines that are proven to be wrong."""
    proven = fault.explanation.evidence.get("lines_of_port", ()) if fault.explanation is not None else ()
    return {(Path(file).name, line) for file, first, last in proven for line in range(first, last + 1)}


def shows_more(fault: Fault, other: Fault) -> bool:
    """Whether a call differs by so much more than another of its layer that this one may only round constants."""
    return _greatest(fault) > _CLEARLY_MORE * _greatest(other)


def _greatest(fault: Fault) -> float:
    """The greatest relative difference of its values; infinite where some cannot be compared."""
    sizes = (found["relative"] for found in fault.evidence["values"].values())
    return max((math.inf if size is None else size for size in sizes), default=0.0)
