"""Clipping of gradients: by which norm, to what, at all."""

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from twinalign.causes.component import fitted
from twinalign.causes.optimizer.rates_and_gradients import scaled
from twinalign.causes.optimizer.subject import Moment, OptimizerSubject, step_cause
from twinalign.causes.registry import Variant

_CLIP_NORMS = (1.0, 5.0, 10.0, 0.1, 3.0, 2.0, 0.5, 0.25, 0.3, 0.02, 0.01, 20.0, 40.0, 100.0)


def _bounds(subject: OptimizerSubject) -> Iterable[float]:
    own = [subject.facts.get(name) for name in ("clip_norm", "max", "clip_value")]
    return dict.fromkeys([*(float(value) for value in own if isinstance(value, (int, float))), *_CLIP_NORMS])


def _clipped(subject: OptimizerSubject, bound: float, moment: Moment) -> Any:
    """The gradient clipped by the norm of all gradients together."""
    return _to_norm(moment, bound, subject.gradient_norm(moment.step))


@step_cause()
def gradient_clip_missing(subject: OptimizerSubject) -> Iterator[Variant]:
    """The reference's own clipping of gradients is missing or differs."""
    plain = plain_step(subject)
    if plain is None:
        return
    yield subject.changed("missing", step=plain)

    def variant(bound: float) -> Variant:
        return subject.changed(f"to {bound:.6g}", gradient=functools.partial(_clipped, subject, bound), step=plain)

    yield from map(variant, _bounds(subject))
    yield from fitted(subject, variant, subject.gradient_norm(0) * 0.5)


@step_cause(difference="clip_global_norm_formula")
def gradient_clipped(subject: OptimizerSubject) -> Iterator[Variant]:
    """Gradients are clipped by their global norm, and the reference does not clip them."""
    norms = [subject.gradient_norm(step) for step in range(subject.steps)]

    def variant(bound: float) -> Variant:
        return subject.changed(f"to {bound:.6g}", gradient=functools.partial(_clipped, subject, bound))

    yield from (variant(bound) for bound in _bounds(subject) if bound < max(norms))
    yield from fitted(subject, variant, min(norms) * 0.5)


@step_cause(difference="clip_by_norm_value")
def gradient_clipped_each(subject: OptimizerSubject) -> Iterator[Variant]:
    """Every gradient is clipped by its own norm, not by the norm of all together."""
    # This is paddle's ClipGradByNorm, whose name is that of torch's global clipping.
    yield from _to_each_bound(subject, lambda bound, moment: _to_norm(moment, bound, float(moment.gradient.norm())))


@step_cause(difference="clip_by_norm_value")
def gradient_clipped_by_value(subject: OptimizerSubject) -> Iterator[Variant]:
    """Gradients are clipped element by element."""
    yield from _to_each_bound(subject, lambda bound, moment: moment.gradient.clamp(-bound, bound))


@step_cause(difference="clip_global_norm_per_group")
def gradient_clipped_per_group(subject: OptimizerSubject) -> Iterator[Variant]:
    """Gradients are clipped by the norm of each parameter group, not of all parameters."""
    members = subject.group_members
    if len(set(members.values())) < 2:
        return

    def clip(bound: float, moment: Moment) -> Any:
        return _to_norm(moment, bound, subject.gradient_norm(moment.step, members[moment.name]))

    yield from _to_each_bound(subject, clip)


def _to_norm(moment: Moment, bound: float, norm: float) -> Any:
    return scaled(moment, bound / max(norm, bound))


def _to_each_bound(subject: OptimizerSubject, clip: Callable[[float, Moment], Any]) -> Iterator[Variant]:
    """Gradients clipped to each likely bound, beside the reference's own clipping if it has one, and in its stead."""
    plain = plain_step(subject)
    for bound in _bounds(subject):
        for step in dict.fromkeys([None, plain]):
            yield subject.changed(f"to {bound:.6g}", gradient=functools.partial(clip, bound), step=step)


def plain_step(subject: OptimizerSubject) -> Callable[[Any, list[Moment]], None] | None:
    """torch's own step of the optimizer, where the case puts something around it; None where it does not."""
    optimizer = subject.make_optimizer()
    own = next((k for k in type(optimizer).__mro__ if k.__module__.startswith("torch.") and "step" in vars(k)), None)
    around = "step" in vars(optimizer) or ("step" in vars(type(optimizer)) and own is not type(optimizer))
    if own is None or own.__name__ == "Optimizer" or not around:
        return None
    return lambda given, moments: own.step(given)  # type: ignore[attr-defined]
