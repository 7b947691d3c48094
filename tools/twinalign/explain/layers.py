"""Explain a wrong unit: try every hypothesis on the reference, and state the one that reproduces the port."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from twinalign.explain.proof import CONSTANTS, Proof, Target
from twinalign.explain.registry import Hypothesis, Variant, hypotheses
from twinalign.explain.scene import Scene
from twinalign.explain.subject import CallVariant, LayerSubject
from twinalign.locate.faults import Explanation
from twinalign.verdict.float32_constants import bound_of_classes

NAMES_OF_PHASE = {"forward": ("output.", "input.", "eval."), "backward": ("gradient.",), "state": ("buffer.", "state.")}
"""Which of the unit's values a phase is about."""
PHASES_TRIED = {"forward": ("forward",), "backward": ("backward", "forward"), "state": ("state",)}
"""A fault of the forward pass may show in gradients alone; one that moves buffers only is of the phase state."""
SECONDS = 60.0
"""No unit is examined longer than this, in time of the processor: what else runs must not decide what is found."""
ALMOST = 0.1
"""A variant that leaves at most this share of the difference is tried once more with constants kept in float32."""
CLOSER = 0.9
"""A variant that leaves at most this share of the distance may be one of two causes."""
FIRST_CAUSES = 3
"""On so many of the closest variants every other one is tried as the second cause."""


def explain(scene: Scene, first: Iterable[str] = (), seconds: float = SECONDS) -> Explanation | None:
    """The confirmed cause of what is wrong in `scene`, or None where no hypothesis reproduces the port.

    Args:
        scene: the unit.
        first: ids to try before all others, say the cause found in the unit's forward pass when its gradients are
            examined.
        seconds: the longest processor time to spend.
    """
    prefixes = NAMES_OF_PHASE[scene.phase]
    target = Target(_only(scene.port, prefixes), _only(scene.reference, prefixes))
    if not target.wrong():
        return None
    subject = LayerSubject(scene)
    if not target.reproduces_reference(subject.traced[0]):
        return None
    deadline = time.process_time() + seconds
    closest: list[tuple[float, Hypothesis, CallVariant]] = []
    start = target.prove(subject.traced[0]).distance
    excused: tuple[Hypothesis, Variant, Proof] | None = None
    for hypothesis, variant in _ordered_variants(subject, list(first)):
        if excused is not None and excused[0] is not hypothesis:
            break
        proof = _tried(subject, variant, target, _excuse([hypothesis], scene))
        if proof is not None and proof.exact:
            return _explanation([(hypothesis, variant)], proof)
        if proof is not None and proof.confirmed and (excused is None or proof.after < excused[2].after):
            # Another value of the same constant may be nearer.
            excused = hypothesis, variant, proof
        if proof is not None and proof.distance < CLOSER * start and isinstance(variant, CallVariant):
            closest.append((proof.distance, hypothesis, variant))
        if time.process_time() > deadline:
            break
    if excused is not None:
        return _explanation([excused[:2]], excused[2])
    return _explain_by_two(subject, target, sorted(closest, key=lambda item: item[0]), deadline)


def _only(values: Mapping[str, np.ndarray], prefixes: tuple[str, ...]) -> dict[str, np.ndarray]:
    return {name: value for name, value in values.items() if name.startswith(prefixes)}


def _ordered_variants(subject: LayerSubject, first: Sequence[str]) -> Iterator[tuple[Hypothesis, Variant]]:
    # What is wrong in this phase alone goes first: a fault of the forward pass would show there.
    tried = [item for phase in PHASES_TRIED[subject.scene.phase] for item in hypotheses(phase)]
    tried.sort(key=lambda item: item.id not in first)
    for hypothesis in tried:
        for variant in hypothesis.variants(subject):
            yield hypothesis, variant


def _excuse(causes: Sequence[Hypothesis], scene: Scene) -> float:
    """What constants kept in float32 may leave: those that all the causes are about, and those of the port's layer."""
    own = bound_of_classes([scene.port_class]) if scene.port_class else 0.0
    return CONSTANTS if all(cause.float32_constants for cause in causes) else min(own, CONSTANTS)


def _tried(subject: LayerSubject, variant: Variant, target: Target, constants: float) -> Proof | None:
    try:
        proof = target.prove(subject.run(variant), constants)
        if not proof.confirmed and proof.after < ALMOST * proof.before:
            # What is left may be what the port's framework makes of its constants by keeping them in float32.
            with subject.scene.constants_in_float32():
                again = target.prove(subject.run(variant), constants)
            return again if again.confirmed else proof
    except Exception:
        # A changed call may not run at all (a shape that does not fit): then it is not what the port does.
        return None
    return proof


def _explain_by_two(
    subject: LayerSubject,
    target: Target,
    closest: Sequence[tuple[float, Hypothesis, CallVariant]],
    deadline: float,
) -> Explanation | None:
    """Two causes in one unit: every second one on top of each of the hypotheses that came closest."""
    best: dict[str, tuple[Hypothesis, CallVariant]] = {}
    for _, hypothesis, variant in closest:
        best.setdefault(hypothesis.id, (hypothesis, variant))
    for first, one in list(best.values())[:FIRST_CAUSES]:
        for second, other in _ordered_variants(subject, ()):
            if time.process_time() > deadline:
                return None
            if second is first or not isinstance(other, CallVariant):
                continue
            for both in _together(one, other):
                proof = _tried(subject, both, target, _excuse([first, second], subject.scene))
                if proof is not None and proof.confirmed:
                    return _explanation([(first, one), (second, other)], proof)
    return None


def _together(one: CallVariant, other: CallVariant) -> list[CallVariant]:
    """Both at once; where they change one call, either way round: the inner one sees what the outer one hands on."""
    shared = one.changes.keys() & other.changes.keys()
    return [one.merged(other), other.merged(one)] if shared else [one.merged(other)]


def _explanation(causes: Sequence[tuple[Hypothesis, Variant]], proof: Proof) -> Explanation:
    causes = sorted(causes, key=lambda cause: cause[0].id)
    text = "; and ".join(_sentence(hypothesis.text, variant.detail) for hypothesis, variant in causes)
    evidence: dict[str, Any] = {"unexplained_error": proof.before, "remaining_error": proof.after}
    differences = [hypothesis.difference for hypothesis, _ in causes if hypothesis.difference]
    if differences:
        evidence["differences"] = differences
    return Explanation("+".join(hypothesis.id for hypothesis, _ in causes), text, evidence=evidence)


def _sentence(text: str, detail: str) -> str:
    return f"{text}: {detail}" if detail else text
