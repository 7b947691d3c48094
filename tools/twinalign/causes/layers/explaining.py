"""Explain a wrong unit of layers: every cause is tried on the reference's unit, alone and then with a second one."""

import contextlib
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.backends.torch.reference_only.operations import LAYER, Change, FunctionCall
from twinalign.causes.layers.activation_behind import activation_behind, behind
from twinalign.causes.layers.changed_calls import Changing, calls_of_reference
from twinalign.causes.layers.mended import MENDS, Mend
from twinalign.causes.layers.subject import NAMES_OF_PHASE, CallVariant, LayerSubject
from twinalign.causes.layers.target import CONSTANTS, Proof, Target
from twinalign.causes.proving import AND, Candidate, Examined, Outcome, Wanted, again, every, prove
from twinalign.causes.registry import Cause, Explanation, Variant, known_causes
from twinalign.replay.budget import BUDGET
from twinalign.replay.edits_in_lines import proof_of, told_inside
from twinalign.replay.layers import KEPT, SECOND
from twinalign.replay.port_lines import LinesVariant
from twinalign.replay.repeating import not_repeated
from twinalign.replay.rerun_unit import RerunUnit
from twinalign.replay.unit_program import matching
from twinalign.replay.wrong_unit import WrongUnit, constants_in_float32, rewriting
from twinalign.verdict.case_allowances import bound_of_classes

Known = Sequence[Mapping[str, Any]]
"""Explanations of other units, as `Explanation.to_json`."""
PHASES_TRIED = {"forward": ("forward",), "backward": ("backward", "forward"), "state": ("state",)}
"""A fault of the forward pass may show in gradients alone; one that moves buffers only is of the phase state."""
SECOND_DRAW = "second_draw"
"""Folder of what the port computes on a second draw of the case's inputs, in that of the search."""
MOST_REFUTED = 3
DRAWS = (0.3, 1.0, 3.0)
"""Relative sizes of what further draws of inputs are moved by: near the recorded ones, and far, with other signs."""
TO_ROUNDING = 1e-10
"""Relative to the values: at most this is left by an edit of the program that is accepted."""
ALMOST = 0.1
"""A variant that leaves at most this share of the difference is tried once more with constants kept in float32."""
_FACTOR = re.compile(r"\b(?:by|times) (-?\d*\.?\d+)")
"""A factor in a cause's detail, which is no shift by whole numbers."""
CLOSER = 0.9
"""A variant that leaves at most this share of the distance, or of the wrong elements, may be one of two causes."""
ARRIVED = 0.01
"""So much nearer than another counts a variant whose last call gives what only the port was seen to compute."""


def examined_unit(unit: WrongUnit, known: Known = (), second: WrongUnit | None = None) -> "_ExaminedUnit | None":
    """A unit for `prove`; None if it is right, or if it does not give the same when it runs again.

    The explanations in `known`, of other units, are tried first, and `second` is the unit on other inputs.
    """
    subject, target = _of(unit)
    if not target.wrong() or not target.reproduces_reference(subject.traced[0]):
        return None
    return _ExaminedUnit(subject, target, known, _of(second) if second is not None else None)


def _of(unit: WrongUnit) -> tuple[LayerSubject, Target]:
    prefixes, values = NAMES_OF_PHASE[unit.phase], (unit.port, unit.reference)
    return LayerSubject(unit), Target(*({n: v for n, v in one.items() if n.startswith(prefixes)} for one in values))


class _ExaminedUnit(Examined):
    within_one_cause = True
    has_other_inputs = True
    """Another value of the same constant may be nearer than one that only float32 excuses."""

    def __init__(
        self, subject: LayerSubject, target: Target, known: Known, second: tuple[LayerSubject, Target] | None
    ) -> None:
        self._subject, self._target, self._known, self.right_lines = subject, target, known, subject.right_lines
        # What moves a model's values stands inside the functions that a line calls, where named causes find it.
        self.lines_first = subject.unit.phase != "state"
        self._start = target.prove(subject.traced[0])
        self._second = second if second and second[1].reproduces_reference(second[0].run()) else None
        self.doubted: list[tuple[list[Candidate], Outcome]] = []
        self.refuted: list[str] = []
        """Causes that give the port on the first draw of inputs, but not on the second."""

    def candidates(self, wanted: Wanted = every) -> Iterator[Candidate]:
        later, first = list[Candidate](), {site.key for site in self._subject.tried_first}
        leading = self._subject.program.leading
        for cause in filter(wanted, self._causes):
            for variant in cause.variants(self._subject):
                if not isinstance(variant, CallVariant) or not (first or leading).isdisjoint(variant.changes):
                    yield cause, variant
                elif not leading.isdisjoint(variant.changes):
                    later.append((cause, variant))
        yield from later

    def candidates_beside(self, variant: Variant, wanted: Wanted) -> Iterator[Candidate]:
        subject = LayerSubject(self._subject.unit, variant if isinstance(variant, CallVariant) else None)
        left = {site.key for site in (subject.sites if subject.backward else subject.program.frontier())}
        for cause in filter(wanted, self._causes):
            # A call that is made otherwise may return what a cause does not expect of it: it has no variants then.
            with contextlib.suppress(Exception):
                for other in cause.variants(subject):
                    if not isinstance(other, CallVariant) or not left.isdisjoint(other.changes):
                        yield cause, other

    @property
    def _causes(self) -> list[Cause]:
        # What is wrong in this phase alone goes first: a fault of the forward pass would show there.
        known = [item for phase in PHASES_TRIED[self._subject.unit.phase] for item in known_causes(phase)]
        # With other weights any cause would fit by chance, but for one that brings the port's.
        own = getattr(self._subject.unit, "of_own_weights", False)
        return [item for item in known if item.id == "layer_with_own_weights"] if own else known

    def known(self) -> Iterator[tuple[Sequence[Candidate], Variant]]:
        for explanation in self._known:
            found = again(self, explanation)
            if found is None or len(found) > 2:
                continue
            variants = [variant for _, variant in found]
            for both in variants if len(found) == 1 else self.together(*variants):
                yield found, both

    def narrowed(self, candidate: Candidate, outcome: Outcome) -> tuple[Candidate, Outcome]:
        """One of the calls that a cause changes if that is enough, with its outcome; else what is given."""
        cause, variant = candidate
        changed = variant.changes.keys() if isinstance(variant, CallVariant) else set()
        if len({site.line for site in self._subject.sites if site.key in changed}) > 1:
            for part in cause.variants(self._subject):
                fits = isinstance(part, CallVariant) and part.changes.keys() < changed
                if fits and (found := self.attempt([cause], part)) is not None and found.exact:
                    return (cause, part), found
        return candidate, outcome

    def attempt(self, causes: Sequence[Cause], variant: Variant) -> Outcome | None:
        excuse, arrived = self._excuse(causes), list[bool]()
        changed = () if self._subject.differs_in_floats else getattr(variant, "changes", ())
        if any(site.output.floating for site in self._subject.sites if site.key in changed):
            return None  # many changes of floating point end in the same whole numbers
        try:
            proof = _proof(self._subject, self._target, self._noting(variant, arrived), excuse, self.only_exact)
        except Exception:
            # A changed call may not run at all (a shape that does not fit): then it is not what the port does.
            return None
        if proof is None:
            return None
        if proof.confirmed and not self._fits_second_draw(variant, excuse):
            if len(self.refuted) < MOST_REFUTED:
                texts = AND.join(cause.text for cause in causes)
                self.refuted.append(f"{texts}: {variant.detail}" if variant.detail else texts)
            return None
        evidence: dict[str, Any] = {"unexplained_error": proof.before, "remaining_error": proof.after}
        if differences := [one.difference for one in sorted(causes, key=lambda one: one.id) if one.difference]:
            evidence["differences"] = differences
        if proof.confirmed and isinstance(variant, CallVariant):
            evidence["reference_calls"] = calls_of_reference(self._subject, variant)
        evidence |= proof_of(variant) if proof.confirmed else {}
        nearer = proof.distance < CLOSER * self._start.distance or proof.wrong < CLOSER * self._start.wrong
        close = isinstance(variant, CallVariant) and (nearer or any(arrived[-1:]))
        distance = proof.distance * proof.wrong * (ARRIVED if any(arrived[-1:]) else 1.0)
        # A search over many edits needs more: what is left must be rounding, whatever the difference was.
        exact = proof.exact and (proof.after <= TO_ROUNDING or not any(cause.alone for cause in causes))
        exact &= len(causes) == 1 or self._second is not None or self._subject.unit.phase == "state"  # two fit one draw
        remaining = 0.0 if exact else proof.after
        outcome = Outcome(proof.confirmed, exact, remaining, evidence, distance if close else None)
        if proof.confirmed and len(causes) == 1 and not causes[0].alone and self._is_contradicted(variant):
            self.doubted.append(([(causes[0], variant)], outcome))
            return None
        return outcome

    def _noting(self, variant: Variant, arrived: list[bool]) -> Variant:
        """The variant; after a run `arrived` says which of its calls give what only the port was seen to compute."""
        if not isinstance(variant, CallVariant) or not getattr(self._subject.unit, "steps", ()):
            return variant

        def noting(change: Change, call: FunctionCall) -> Any:
            after = change(call)
            arrived.append(bool(matching(self._subject.lacking, after)))
            return after

        return variant.watched(noting)

    def _is_contradicted(self, variant: Variant) -> bool:
        """Whether values are put in another order only, and the port's own code has the first and not the second."""
        unit = self._subject.unit
        steps = self._subject.prints[: len(getattr(unit, "steps", ()))]
        if not steps or not isinstance(variant, CallVariant) or unit.phase != "forward":
            return False
        pairs: list[tuple[bool, bool]] = []

        def noting(change: Change, call: FunctionCall) -> Any:
            before, after = call.result, change(call)
            # What its layers return the port has, though its code may not give it a name.
            seen = call.name == LAYER or bool(matching(steps, before))
            pairs.append((seen and _is_rearranged(before, after), bool(matching(self._subject.prints, after))))
            return after

        self._subject.run(variant.watched(noting))
        return bool(pairs) and all(before and not after for before, after in pairs)

    def _fits_second_draw(self, variant: Variant, excuse: float) -> bool:
        if self._second is None:
            return True
        subject, target = self._second
        try:
            if not target.wrong():  # there the port is right
                return target.reproduces_reference(subject.run(variant))
            proof = _proof(subject, target, variant, excuse, brief=True)
            return proof is not None and proof.confirmed
        except Exception:  # what runs in the port on both draws runs here on both, if the cause is right
            return False

    def told_inside(self, found: Explanation) -> Explanation:
        """The explanation with the line inside of the port's own function that a wrong line calls, if it is known."""
        if self.line is not None or not isinstance(self.applied, LinesVariant):
            return found
        told = told_inside(found.text, found.evidence, self.applied, self._subject.run)
        return Explanation(found.id, told[0], evidence=told[1]) if told else found

    def same(self, one: Variant, other: Variant, share: float = 1e-9) -> bool:
        return all(self._same_in(one, other, draw, share) for draw in DRAWS)

    def _same_in(self, one: Variant, other: Variant, draw: float, share: float) -> bool:
        try:
            first, second = (self._subject.run(variant, draw) for variant in (one, other))
        except Exception:  # on other values a changed call may not run
            return False
        return first.keys() == second.keys() and all(_alike(first[name], second[name], share) for name in first)

    def may_name(self, line: Any, variant: Variant) -> bool:
        """Whether what changes are calls in the reference's line that the port's takes the place of.

        A call with other arguments is no name for a line that makes fewer calls, nor is a factor one for a line
        that has one number in place of another, or none like it: there it is what all of it makes.
        """
        factor = _FACTOR.search(variant.detail) if isinstance(variant, CallVariant) else None
        if factor and (line.exchanges_numbers or not line.has_number(float(factor[1]))):
            return False
        if not line.spans or not isinstance(variant, CallVariant):
            return True
        if line.drops_calls and all(isinstance(change, Changing) for change in variant.changes.values()):
            return False
        return all(line.stands_in([site.line]) for site in self._subject.sites if site.key in variant.changes)

    def holds(self, variant: Variant) -> bool:
        """Whether the gradients are the port's as well, where they differ."""
        if self._backward is None:
            return True
        subject, target = self._backward
        try:
            return target.prove(subject.run(variant)).confirmed
        except Exception:  # gradients of an output that has another shape
            return False

    @functools.cached_property
    def _backward(self) -> tuple[LayerSubject, Target] | None:
        find = getattr(self._subject.unit, "in_phase", None)
        unit = find("backward") if find and self._subject.unit.phase == "forward" else None
        if unit is None:
            return None
        unit.hold_what_agrees()
        subject, target = _of(unit)
        # Where the pass with gradients does not repeat what was recorded, it decides nothing.
        return (subject, target) if target.wrong() and target.reproduces_reference(subject.run()) else None

    def together(self, one: Variant, other: Variant) -> list[CallVariant]:
        """Both at once; where they change one call, either way round: the inner one sees what the outer hands on."""
        if not isinstance(one, CallVariant) or not isinstance(other, CallVariant):
            return []
        shared = one.changes.keys() & other.changes.keys()
        return [one.merged(other), other.merged(one)] if shared else [one.merged(other)]

    def _excuse(self, causes: Sequence[Cause]) -> float:
        """What constants kept in float32 may leave: those that all causes are about, and those of the port's layer."""
        kind = self._subject.unit.port_class
        own = bound_of_classes([kind]) if kind else 0.0
        return CONSTANTS if all(cause.float32_constants for cause in causes) else min(own, CONSTANTS)


def _alike(one: np.ndarray, other: np.ndarray, share: float) -> bool:
    apart = share * max(1.0, np.abs(one).max(initial=0.0))
    return one.shape == other.shape and np.allclose(one, other, rtol=0.0, atol=apart, equal_nan=True)


def _is_rearranged(before: Any, after: Any) -> bool:
    if not (rewriting().is_tensor(before) and rewriting().is_tensor(after)) or before.numel() != after.numel():
        return False
    return bool((before.flatten().sort().values == after.flatten().sort().values).all())


def _proof(subject: LayerSubject, target: Target, variant: Variant, constants: float, brief: bool) -> Proof | None:
    """What a variant proves; if `brief`, None where a sample shows that it is nothing."""
    values = subject.run(variant)
    if brief and target.is_far(values, constants, ALMOST):
        return None
    proof = target.prove(values, constants)
    if not proof.confirmed and proof.after < ALMOST * proof.before:
        # What is left may be what the port's framework makes of its constants by keeping them in float32.
        with constants_in_float32():
            again = target.prove(subject.run(variant), constants)
        return again if again.confirmed else proof
    return proof


def reference_explain(
    worker: Any,
    folder: str,
    suspect: Mapping[str, Any],
    phase: str,
    known: Known,
    second: Mapping[str, Any] | None = None,
    own: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Look for the cause of one suspect in one phase by trying every cause on the reference.

    Args:
        known: explanations of other units, which are tried first.
        second: the same suspect on the second draw of inputs, which a cause must fit, too, with the `phase` in which it
            differs there: parameters that are moved may show in values what shows in gradients alone.
        own: arguments for `activation_behind`.

    Returns:
        `right`: whether the unit is, but for an activation that the port calls behind it; `explanation`; `left`: the
        seconds that are left for others; `stopped`: what was not tried and why, None if everything was; `refuted`:
        causes that fit the first draw alone, in words; `right_lines`: of the port.
    """
    found, stopped, examined, right = None, None, None, False
    try:
        with BUDGET.of_one():
            unit = RerunUnit(worker.kept[KEPT], suspect, Path(folder), phase)
            unit.hold_what_agrees()
            # What a pass moves in the model would have to be put back before a second draw: one draw decides there.
            second = None if phase == "state" else second
            second_phase = second["phase"] if second else ""
            other = RerunUnit(worker.kept[SECOND], second, Path(folder) / SECOND_DRAW, second_phase) if second else None
            activation = activation_behind(unit, **own) if own else None
            if activation is not None:
                for one in filter(None, (unit, other)):
                    one.port = behind(activation, one.port)
            examined = examined_unit(unit, known, other)
            right = activation is not None and not _of(unit)[1].wrong()
            if examined is not None:
                found, stopped = prove(examined, BUDGET), BUDGET.stopped(examined.not_tried)
                found = examined.told_inside(found) if found is not None else None
            elif not right:
                stopped = not_repeated(RerunUnit(worker.kept[KEPT], suspect, Path(folder), phase)) or None
        if found is not None and examined is not None:
            line = None if examined.line is None else (examined.line[0], examined.line[1].to_json())
            mend = Mend(suspect, phase, examined.applied, line, activation is not None)
            worker.kept.setdefault(MENDS, {})[suspect["call"], phase] = mend
    except Exception as error:  # a user's code may not run twice
        stopped = f"no cause was tried: {type(error).__name__}: {error}"
    return {
        "right": right,
        "explanation": found.to_json() if found is not None else None,
        "left": BUDGET.left,
        "stopped": stopped,
        "refuted": examined.refuted if examined is not None else [],
        "right_lines": examined.right_lines if examined is not None else [],
    }
