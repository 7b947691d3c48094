"""Hypotheses about the clipping of gradients: by which norm, to what, at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from twinalign.explain.component import fitted
from twinalign.explain.optimizer import Moment, OptimizerSubject, StepChange, StepHypothesis
from twinalign.explain.optimizer_gradients import scaled
from twinalign.explain.registry import Variant, register

_CLIP_NORMS = (1.0, 5.0, 10.0, 0.1, 3.0, 2.0, 0.5, 0.25, 0.3, 0.02, 0.01, 20.0, 40.0, 100.0)


@register
class ClipMissing(StepHypothesis):
    """The reference clips, the port does not, or to another norm."""

    id = "gradient_clip_missing"
    text = "the reference's own clipping of gradients is missing or another one"

    def of(self, subject: OptimizerSubject) -> Iterator[Variant]:
        """None at all, and other norms."""
        plain = plain_step(subject)
        if plain is None:
            return
        yield subject.changed("missing", StepChange(step=plain))

        def variant(bound: float) -> Variant:
            change = StepChange(
                gradient=lambda moment: moment.gradient * (bound / max(subject.gradient_norm(moment.step), bound)),
                step=plain,
            )
            return subject.changed(f"to {bound:.6g}", change)

        yield from map(variant, _bounds(subject))
        yield from fitted(subject, variant, subject.gradient_norm(0) * 0.5)


@register
class ClippedByNorm(StepHypothesis):
    """A clipping that the reference does not have, by the norm of all gradients together."""

    id = "gradient_clipped"
    text = "gradients are clipped by their global norm, and the reference does not clip them"
    difference = "clip_global_norm_formula"

    def of(self, subject: OptimizerSubject) -> Iterator[Variant]:
        """Norms by the port's own number, usual ones, and the one that fits."""
        greatest = max(subject.gradient_norm(step) for step in range(subject.steps))

        def variant(bound: float) -> Variant:
            def factor(moment: Moment) -> float:
                norm = subject.gradient_norm(moment.step)
                return bound / max(norm, bound)

            return subject.changed(f"to {bound:.6g}", scaled(factor))

        yield from (variant(bound) for bound in _bounds(subject) if bound < greatest)
        yield from fitted(subject, variant, min(subject.gradient_norm(step) for step in range(subject.steps)) * 0.5)


def _bounds(subject: OptimizerSubject) -> Iterable[float]:
    own = [subject.facts.get(name) for name in ("clip_norm", "max", "clip_value")]
    return dict.fromkeys([*(float(value) for value in own if isinstance(value, (int, float))), *_CLIP_NORMS])


@register
class ClippedEach(StepHypothesis):
    """paddle's ClipGradByNorm, whose name is that of torch's global clipping."""

    id = "gradient_clipped_each"
    text = "every gradient is clipped by its own norm, not by the norm of all together"
    difference = "clip_by_norm_value"

    def of(self, subject: OptimizerSubject) -> Iterator[Variant]:
        """Beside the reference's own clipping if it has one, and in its stead."""
        for bound in _bounds(subject):

            def factor(moment: Moment, bound: float = bound) -> float:
                return bound / max(float(moment.gradient.norm()), bound)

            yield from _with_plain_steps(subject, f"to {bound:.6g}", scaled(factor))


@register
class ClippedByValue(StepHypothesis):
    """Element by element."""

    id = "gradient_clipped_by_value"
    text = "gradients are clipped element by element"
    difference = "clip_by_norm_value"

    def of(self, subject: OptimizerSubject) -> Iterator[Variant]:
        """Beside the reference's own clipping if it has one, and in its stead."""
        for bound in _bounds(subject):
            change = StepChange(gradient=lambda moment, bound=bound: moment.gradient.clamp(-bound, bound))  # type: ignore[misc]
            yield from _with_plain_steps(subject, f"to {bound:.6g}", change)


@register
class ClippedPerGroup(StepHypothesis):
    """paddle clips the norm of each parameter group by itself."""

    id = "gradient_clipped_per_group"
    text = "gradients are clipped by the norm of each parameter group, not of all parameters"
    difference = "clip_global_norm_per_group"

    def of(self, subject: OptimizerSubject) -> Iterator[Variant]:
        """In the stead of the reference's own clipping."""
        members = subject.group_members
        if len(set(map(tuple, members.values()))) < 2:
            return
        for bound in _bounds(subject):

            def factor(moment: Moment, bound: float = bound) -> float:
                return bound / max(subject.gradient_norm(moment.step, members[moment.name]), bound)

            yield from _with_plain_steps(subject, f"to {bound:.6g}", scaled(factor))


def plain_step(subject: OptimizerSubject) -> Callable[[Any, list[Moment]], None] | None:
    """torch's own step of the optimizer, where the case puts something around it; None where it does not."""
    optimizer = subject.make_optimizer()
    own = next((k for k in type(optimizer).__mro__ if k.__module__.startswith("torch.") and "step" in vars(k)), None)
    around = "step" in vars(optimizer) or "step" in vars(type(optimizer))
    if (
        own is None
        or own.__name__ == "Optimizer"
        or not around
        or (own is type(optimizer) and "step" not in vars(optimizer))
    ):
        return None
    return lambda given, moments: own.step(given)  # type: ignore[attr-defined]


def _with_plain_steps(subject: OptimizerSubject, detail: str, change: StepChange) -> Iterator[Variant]:
    yield subject.changed(detail, change)
    plain = plain_step(subject)
    if plain is not None:
        yield subject.changed(detail, StepChange(gradient=change.gradient, step=plain))
