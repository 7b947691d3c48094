"""Causes in a training: what its loop records, clears, steps and averages, and its recipe of rates, decay and norms."""

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from twinalign.causes.component import enter_rows, wrong_names
from twinalign.causes.registry import Variant
from twinalign.causes.training.subject import TrainingSubject, train_cause
from twinalign.files.curve_names import BUFFER_NORM, EMA_DISTANCE, LEARNING_RATE, WEIGHT_NORM
from twinalign.patching import replaced
from twinalign.replay.fitting import factor_without
from twinalign.replay.left_out_averages import Distances, left_out, listed
from twinalign.replay.momenta import Momentum, in_words, other_momenta, scaled, with_momenta
from twinalign.replay.training import Curves, clearly_apart, moves_less, multiples, with_rates


def _changed() -> Any:
    """What a training of torch is changed by; imported where torch is."""
    from twinalign.backends.torch.reference_only import changed_training

    return changed_training


def _scaling(name: str, factor: float) -> Callable[[Curves], Curves]:
    return lambda curves: {n: curve * factor if n == name else curve for n, curve in curves.items()}


@train_cause(rank=1)
def training_rate(subject: TrainingSubject) -> Iterator[Variant]:
    """The optimizer uses another learning rate."""
    rated = functools.partial(_changed().stepping, lambda number: 1)
    for name, factor in _factors(subject):
        # The loop reports its own rate unchanged; the optimizer's recorded rate may change.
        for finish in (_scaling(name, factor), None):
            yield subject.variant(f"{factor:.6g} times, as {name} shows", around=rated(factor), finish=finish)

    trained = [name for name in subject.reference if name.startswith(WEIGHT_NORM)]
    begins_at_zero = not subject.reference.get(LEARNING_RATE, np.zeros(1))[:1].any()
    if len(subject.wrong) < len(trained) / 2 or (subject.first > 0 and not begins_at_zero):
        return  # another rate updates nearly all parameters differently, from the first step on

    def hidden(factor: float) -> Variant:
        return subject.variant(f"{factor:.6g} times, which no curve shows", around=rated(factor))

    apart = functools.partial(clearly_apart, subject.reference, subject.port, subject.floors, subject.first)
    clearest = max((WEIGHT_NORM + name for name in subject.wrong), key=apart, default="")
    yield from _fitting(subject, hidden, clearest or wrong_names(subject)[0])


def _fitting(subject: TrainingSubject, make: Callable[[float], Variant], name: str) -> Iterator[Variant]:
    """That of the factor with the first differing value of the port (secant method); later values are chaotic."""
    reference, port = subject.reference.get(name), subject.port[name]
    if reference is None or reference.shape != port.shape:
        return
    at = int(np.argmax(np.abs(reference - port) > subject.floors.get(name, 0.0)))

    def left(value: float) -> float:
        with make(value).apply(), replaced(subject, "until", (name, at)):
            return float(subject.run()[name][at] - port[at])

    if (found := factor_without(left, float(reference[at] - port[at]))) is not None:
        yield from (make(value) for value in dict.fromkeys((float(f"{found:.4g}"), found)))


def _factors(subject: TrainingSubject) -> list[tuple[str, float]]:
    return multiples(subject.reference, subject.port, wrong_names(subject))


def _leaving_out(period: int, *taken: int) -> Any:
    return _changed().stepping(lambda number: int(number % period in taken))


def _before_steps(subject: TrainingSubject) -> bool:
    """Whether what comes before an optimizer's step may be wrong: no parameter differs until a gradient does."""
    return not subject.wrong or subject.gradients_apart


enter_rows("train", TrainingSubject, "finish", (
    ("curve_scaled", "a curve differs by a factor alone, and the weights train the same", {},
     lambda s: {f"{name} times {factor:.6g}": _scaling(name, factor) for name, factor in _factors(s)}),
))  # fmt: skip
enter_rows("train", TrainingSubject, "around", (
    ("evaluation_mode", "the training runs in evaluation mode: batch norm and dropout do not train",
     {"where": _before_steps}, lambda s: {"": _changed().evaluating}),
    ("gradients_accumulate", "gradients are not cleared between steps, and add up",
     {"difference": "grad_accumulation", "where": lambda s: s.first > 0},
     lambda s: {"": _changed().gradients_kept, "before they are clipped": _changed().unclipped_gradients_kept}),
    ("step_skipped", "the optimizer leaves steps out", {"where": lambda s: moves_less(s.reference, s.port)},
     lambda s: {"every second one": _leaving_out(2, 0), "the first of two": _leaving_out(2, 1),
                "two of three": _leaving_out(3, 0), "the first two of three": _leaving_out(3, 2),
                "every third one": _leaving_out(3, 0, 1), "all of them": _leaving_out(1)}),
    ("step_twice", "the optimizer takes every step twice", {"where": lambda s: s.more_steps > 0},
     lambda s: {"": _changed().stepping(lambda number: 2)}),
    ("ema_inverted", "in training the moving average weighs old and new the other way round (m and 1 - m swapped)",
     {"difference": "ema_update_idioms", "where": _before_steps},
     lambda s: {"": _changed().averaging(lambda step, m: 1.0 - m)}),
    ("ema_momentum", "in training the moving average is updated differently", {"where": _before_steps},
     lambda s: {detail: _changed().averaging(momentum) for detail, momentum in (
         ("not at all", lambda _, m: 1.0), ("twice a step", lambda _, m: m * m), ("it is a copy", lambda _, m: 0.0))}),
    ("ema_first_copied", "in training the first update of the moving average copies, where the reference's averages",
     {"where": _before_steps}, lambda s: {"": _changed().averaging(lambda step, m: m if step > 0 else 0.0)}),
    ("ema_buffers", "in training the moving average covers the running statistics as well",
     {"difference": "bn_stats_are_parameters", "where": _before_steps},
     lambda s: {"": _changed().averaging(buffers=True)}),
    ("clipping_place", "gradients are clipped at another place of their accumulation", {"where": lambda s: s.clips},
     lambda s: {"after each backward pass, not once": _changed().clipping_each_pass(True),
                "those of each backward pass by themselves": _changed().clipping_each_pass(False),
                "once before the step, not after each backward pass": _changed().clipping_last}),
))  # fmt: skip


@train_cause(rank=1)
def ema_leaves_out(subject: TrainingSubject) -> Iterator[Variant]:
    """In training the moving average leaves out some of what it covers in the reference."""
    wrong, seen = wrong_names(subject), list[Distances]()
    if _before_steps(subject) and any(name.startswith((EMA_DISTANCE, BUFFER_NORM)) for name in wrong):
        with subject.variant("", around=_changed().averaging(seen=seen)).apply():
            subject.run()
    for names in left_out(seen, subject.reference, subject.port, subject.floors, wrong):
        yield subject.variant(listed(names), around=_changed().averaging(left_out=names))


@train_cause(rank=3)
def ema_schedule(subject: TrainingSubject) -> Iterator[Variant]:
    """In training the moving average has another coefficient, or another one in each step."""
    seen: dict[int, float] = {}
    if EMA_DISTANCE in wrong_names(subject) and _before_steps(subject):
        with subject.variant("", around=_changed().averaging(lambda step, m: seen.setdefault(step, m))).apply():
            subject.run()

    def having(text: str, momentum: Momentum) -> Variant:
        return subject.variant(in_words(text, momentum, seen), around=_changed().averaging(momentum))

    yield from itertools.starmap(having, other_momenta(seen) if seen else ())
    for text, one in (("the same in every step", seen.get(0)), ("1 - m is another multiple", None)) if seen else ():
        made = functools.partial(lambda text, one, share: having(text, scaled(share, one)), text, one)
        yield from _fitting(subject, made, EMA_DISTANCE)


def _rates(subject: TrainingSubject) -> tuple[np.ndarray, np.ndarray] | None:
    """The recorded learning rates of both sides' optimizers, if they differ."""
    reference, port = subject.reference.get(LEARNING_RATE), subject.port.get(LEARNING_RATE)
    if reference is None or port is None or reference.shape != port.shape:
        return None
    return (reference, port) if LEARNING_RATE in wrong_names(subject) else None


def _at_rates_of_port(subject: TrainingSubject, detail: str, reference: np.ndarray, port: np.ndarray) -> Variant:
    return subject.variant(detail, around=_changed().at_rates(port.tolist()), finish=with_rates(reference, port))


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
    # Where the schedule is stepped several times a step, the peak comes first as well.
    skipping = (reference[start::n] for n in (2, 3, 4) for start in range(len(reference) - n))
    if rises and falls and not any(np.allclose(port[: len(some)], some) for some in skipping):
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


def _wrong_statistics(subject: TrainingSubject) -> list[str]:
    wrong = wrong_names(subject)  # momenta change no weight
    return [] if any(n.startswith(WEIGHT_NORM) for n in wrong) else [n for n in wrong if n.startswith(BUFFER_NORM)]


enter_rows("train", TrainingSubject, "around", (
    ("training_batch_norm_momentum",
     "batch norms weigh old and new statistics by the other framework's convention (momentum m for 1 - m)",
     {"difference": "bn_momentum", "rank": -1, "where": _wrong_statistics},
     lambda s: {"": with_momenta(lambda momentum: 1.0 - momentum)}),
    ("training_batch_norm_other_momentum", "batch norms weigh new statistics by another momentum",
     {"rank": 1, "where": _wrong_statistics}, lambda s: _fitting(s, lambda factor: s.variant(
         f"{factor:.6g} times that of the reference", around=with_momenta(lambda momentum: factor * momentum),
     ), _wrong_statistics(s)[0])),
))  # fmt: skip
