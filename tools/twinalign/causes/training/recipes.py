"""Causes in the recipe of a training: learning rates, weight decay of the wrong parameters, batch norm momentum."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from twinalign.causes.component import wrong_names
from twinalign.causes.optimizer.decay import USUAL, choices
from twinalign.causes.registry import Variant
from twinalign.causes.training.subject import TrainingSubject, train_cause
from twinalign.files.curve_names import BUFFER_NORM, LEARNING_RATE
from twinalign.patching import replaced
from twinalign.replay.training import Curves

_MOST_COEFFICIENTS = 6


def _rates(subject: TrainingSubject) -> tuple[np.ndarray, np.ndarray] | None:
    """The recorded learning rates of both sides' optimizers, if they differ."""
    reference, port = subject.reference.get(LEARNING_RATE), subject.port.get(LEARNING_RATE)
    if reference is None or port is None or reference.shape != port.shape:
        return None
    return (reference, port) if LEARNING_RATE in wrong_names(subject) else None


def _at_rates_of_port(subject: TrainingSubject, detail: str, reference: np.ndarray, port: np.ndarray) -> Variant:
    from twinalign.backends.torch.reference_only.changed_training import at_rates

    return subject.variant(detail, around=at_rates(port.tolist()), finish=_with_rates(reference, port))


def _with_rates(reference: np.ndarray, port: np.ndarray) -> Callable[[Curves], Curves]:
    """Replace the recorded rates: the reference's loop reports the rates that it sets, not those that it steps at."""
    return lambda curves: {
        name: port if points.shape == reference.shape and np.array_equal(points, reference) else points
        for name, points in curves.items()
    }


@train_cause(rank=-1)
def warmup_missing(subject: TrainingSubject) -> Iterator[Variant]:
    """The learning rate has no warm-up."""
    rates = _rates(subject)
    if rates is None:
        return
    reference, port = rates
    peak = int(reference.argmax())
    rises = peak >= 2 and bool((np.diff(reference[: peak + 1]) > 0).all()) and reference[0] < 0.5 * reference[peak]
    falls = bool((np.diff(port) <= 0).all()) and port[0] > 0.9 * reference[peak]
    if rises and falls:
        detail = f"it begins at {port[0]:.6g}, where the reference's rises from {reference[0]:.6g}"
        yield _at_rates_of_port(subject, detail, reference, port)


@train_cause(rank=3)
def training_rates(subject: TrainingSubject) -> Iterator[Variant]:
    """The schedule gives other learning rates, and nothing else is wrong."""
    rates = _rates(subject)
    if rates is not None:
        reference, port = rates
        at = int(np.argmax(np.abs(port - reference) > 1e-6 * np.abs(reference).max()))
        yield _at_rates_of_port(subject, f"{port[at]:.6g} for {reference[at]:.6g} at step {at}", reference, port)


def _decayed_apart(subject: TrainingSubject) -> Iterator[tuple[str, frozenset[str]]]:
    """Each usual set of parameters that contains all those whose norms differ first."""
    first, axes = subject.first_to_part, subject.axes
    sets: dict[str, Callable[[str], bool]] = {
        "biases and normalisation layers": lambda name: axes.get(name, 0) <= 1,
        **choices(lambda name: axes.get(name, 0)),
    }
    for text, holds in sets.items():
        chosen = frozenset(name for name in axes if holds(name))
        if first and first <= chosen:
            yield f"{text}, {_some(first)}", chosen


def _some(names: Iterable[str]) -> str:
    found = sorted(names)
    return ", ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")


@train_cause(difference="param_group_sticky", rank=-1)
def training_decay_missing(subject: TrainingSubject) -> Iterator[Variant]:
    """In training weight decay does not reach some parameters."""
    from twinalign.backends.torch.reference_only.changed_training import decaying

    for text, chosen in _decayed_apart(subject):
        yield subject.variant(text, around=decaying(chosen, None))


@train_cause(difference="param_group_sticky", rank=-1)
def training_decay_extra(subject: TrainingSubject) -> Iterator[Variant]:
    """In training weight decay reaches parameters that the reference exempts."""
    from twinalign.backends.torch.reference_only.changed_training import decaying

    for text, chosen in _decayed_apart(subject):
        for coefficient in (0.0, *USUAL[:_MOST_COEFFICIENTS]):  # 0: what the other parameters have
            detail = f"{text}, of {coefficient:g}" if coefficient else text
            yield subject.variant(detail, around=decaying(chosen, coefficient))


@train_cause(difference="bn_momentum", rank=-1)
def training_batch_norm_momentum(subject: TrainingSubject) -> Iterator[Variant]:
    """Batch norms weigh old and new statistics by the other framework's convention (momentum m for 1 - m)."""
    if any(name.startswith(BUFFER_NORM) for name in wrong_names(subject)):
        yield subject.variant("", around=_inverted_momentum)


@contextlib.contextmanager
def _inverted_momentum(model: Any) -> Iterator[None]:
    layers = [
        m for m in model.modules() if hasattr(m, "running_mean") and isinstance(getattr(m, "momentum", None), float)
    ]
    if not layers:
        raise ValueError("the model has no batch norm with a momentum")
    with contextlib.ExitStack() as stack:
        for layer in layers:
            stack.enter_context(replaced(layer, "momentum", 1.0 - layer.momentum))
        yield
