"""Trainings with another recipe: learning rates, decay of the wrong parameters, batch norms that remember otherwise."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from twinalign.explain.component import Replaced, wrong_names
from twinalign.explain.optimizer_decay import USUAL, choices
from twinalign.explain.registry import Variant, register
from twinalign.explain.training import TrainingHypothesis, TrainingSubject
from twinalign.locate.training_curves import Curves
from twinalign.stages.watching import BUFFER_NORM, LEARNING_RATE


class _OtherRates(TrainingHypothesis):
    """The reference's optimizer at the port's learning rates, as the port's optimizer was seen to have them."""

    rank = -1

    def of(self, subject: TrainingSubject) -> Iterator[Variant]:
        """One way, where the port's rates are of this form."""
        reference, port = subject.reference.get(LEARNING_RATE), subject.port.get(LEARNING_RATE)
        if (
            reference is None
            or port is None
            or reference.shape != port.shape
            or LEARNING_RATE not in wrong_names(subject)
        ):
            return
        detail = self.form(reference, port)
        if detail is None:
            return
        from twinalign.backends.torch_training import at_rates

        values = {"around": at_rates(port.tolist()), "finish": _with_rates(reference, port)}
        yield Replaced(detail, subject, values)

    def form(self, reference: np.ndarray, port: np.ndarray) -> str | None:
        """What is to be said of the port's rates, None where they are not of this form."""
        raise NotImplementedError


def _with_rates(reference: np.ndarray, port: np.ndarray) -> Callable[[Curves], Curves]:
    """The rates that the reference's loop says that it sets are not those that it is made to step at."""
    return lambda curves: {
        name: port if points.shape == reference.shape and np.array_equal(points, reference) else points
        for name, points in curves.items()
    }


@register
class WarmupMissing(_OtherRates):
    """The peak from the first step on."""

    id = "warmup_missing"
    text = "the learning rate has no warm-up"

    def form(self, reference: np.ndarray, port: np.ndarray) -> str | None:
        """The reference's rises from next to nothing, the port's begins at its greatest."""
        peak = int(reference.argmax())
        rises = peak >= 2 and bool((np.diff(reference[: peak + 1]) > 0).all()) and reference[0] < 0.5 * reference[peak]
        falls = bool((np.diff(port) <= 0).all()) and port[0] > 0.9 * reference[peak]
        if not (rises and falls):
            return None
        return f"it begins at {port[0]:.6g}, where the reference's rises from {reference[0]:.6g}"


@register
class OtherRates(_OtherRates):
    """Whatever else the schedule does."""

    id = "training_rates"
    text = "the schedule gives other learning rates, and nothing else is wrong"
    rank = 3

    def form(self, reference: np.ndarray, port: np.ndarray) -> str | None:
        """The first of them that differs."""
        floor = 1e-6 * np.abs(reference).max()
        at = int(np.argmax(np.abs(port - reference) > floor))
        return f"{port[at]:.6g} for {reference[at]:.6g} at step {at}"


_MOST_COEFFICIENTS = 6


class _Named:
    """What `choices` asks of a subject: the number of axes of a parameter."""

    def __init__(self, axes: Mapping[str, int]) -> None:
        self._axes = axes

    def dimensions(self, name: str) -> int:
        return self._axes.get(name, 0)


class _Decay(TrainingHypothesis):
    """Decay that reaches other parameters, taken away from or added to every step of the reference."""

    rank = -1
    added: bool

    def of(self, subject: TrainingSubject) -> Iterator[Variant]:
        """For each set of parameters that recipes treat apart and that holds all whose sizes part first."""
        first = subject.first_to_part
        if not first:
            return
        from twinalign.backends.torch_training import decaying

        axes = subject.axes
        sets: dict[str, Callable[[str], bool]] = choices(_Named(axes))  # type: ignore[arg-type]
        sets["biases and normalisation layers"] = lambda name: axes.get(name, 0) <= 1
        for text in sorted(sets, key=lambda text: text != "biases and normalisation layers"):
            chosen = frozenset(name for name in axes if sets[text](name))
            if not first <= chosen:
                continue
            if not self.added:
                yield subject.trained(f"{text}, {_some(first)}", decaying(chosen, None))
                continue
            for coefficient in (0.0, *USUAL[:_MOST_COEFFICIENTS]):  # 0: what the other parameters have
                detail = f"{text}, {_some(first)}" + (f", of {coefficient:g}" if coefficient else "")
                yield subject.trained(detail, decaying(chosen, coefficient))


def _some(names: Iterable[str]) -> str:
    found = sorted(names)
    return ", ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")


@register
class TrainingDecayMissing(_Decay):
    """Exempted in the port alone."""

    id = "training_decay_missing"
    text = "in training weight decay does not reach some parameters"
    difference = "param_group_sticky"
    added = False


@register
class TrainingDecayExtra(_Decay):
    """Exempted in the reference alone."""

    id = "training_decay_extra"
    text = "in training weight decay reaches parameters that the reference exempts"
    difference = "param_group_sticky"
    added = True


@register
class BatchNormRemembers(TrainingHypothesis):
    """Paddle's momentum weighs the old statistics, torch's the new ones."""

    id = "training_batch_norm_momentum"
    text = "batch norms weigh old and new statistics by the other framework's convention (momentum m for 1 - m)"
    difference = "bn_momentum"
    rank = -1

    def of(self, subject: TrainingSubject) -> Iterator[Variant]:
        """All of them."""
        if not any(name.startswith(BUFFER_NORM) for name in wrong_names(subject)):
            return
        yield subject.trained("", _inverted_momentum)


@contextlib.contextmanager
def _inverted_momentum(model: Any) -> Iterator[None]:
    layers = [
        m for m in model.modules() if hasattr(m, "running_mean") and isinstance(getattr(m, "momentum", None), float)
    ]
    if not layers:
        raise ValueError("the model has no batch norm with a momentum")
    for layer in layers:
        layer.momentum = 1.0 - layer.momentum
    try:
        yield
    finally:
        for layer in layers:
            layer.momentum = 1.0 - layer.momentum
