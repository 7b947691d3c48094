"""Trainings that end as soon as they have shown what they are made for."""

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

import numpy as np

from twinalign.files.curve_names import BATCH_RMS, BATCH_SIZE
from twinalign.patching import Around
from twinalign.replay.training import OF_HOOKS, Curves, floors_of, read_curves, steps_of, train, wrong_among
from twinalign.verdict.array_difference import distance, root_mean_square
from twinalign.verdict.call_order import part_in_other_order
from twinalign.verdict.rates_elsewhere import are_rates


class RefutedError(Exception):
    """A curve is not the port's; its arguments are name and step."""


class EnoughError(Exception):
    """The value for which a training was made is there."""


class Followed:
    """The curves of a training, judged as they come: a hypothesis that is wrong shows it in a step or two.

    Attributes:
        curves: as far as they are known, before `finish`.
        finish: changes curves; None: nothing does.
    """

    def __init__(
        self,
        port: Mapping[str, np.ndarray],
        allowed: Mapping[str, float],
        finish: Callable[[Curves], Curves] | None,
        until: tuple[str, int] | None,
    ) -> None:
        """Judge by the curves in `allowed`: how far one value may be from the port's.

        `until`: the value with which the training ends, by its curve and step.
        """
        self._port, self._allowed, self.finish, self._until = port, allowed, finish, until
        self.curves: dict[str, list[float]] = {}

    def at_once(self, curves: Mapping[str, Sequence[float]]) -> None:
        """What is known when a step ends, as `run_training` tells it."""
        self.curves |= {name: list(points) for name, points in curves.items() if name.startswith(OF_HOOKS)}
        self._judge()

    def on_step(self, step: int, values: Mapping[str, float]) -> None:
        """What is known of a step when the next one begins."""
        for name, value in values.items():
            points = self.curves.setdefault(name, [])
            if len(points) == step - 1:
                points.append(value)
        self._judge()

    def finished(self) -> Curves:
        curves = {name: np.asarray(points) for name, points in self.curves.items()}
        return self.finish(curves) if self.finish else curves

    def _judge(self) -> None:
        curves = self.finished()
        if self._until is not None and len(curves.get(self._until[0], ())) > self._until[1]:
            raise EnoughError
        for name, allowed in self._allowed.items():
            port, points = self._port[name], curves.get(name, ())
            both = min(len(points), len(port))
            apart = np.flatnonzero(~(np.abs(points[:both] - port[:both]) <= allowed))
            if len(apart) or len(points) > len(port):
                raise RefutedError(name, int(apart[0]) if len(apart) else both)


class ShortTrainings:
    """The reference's trainings, of so many steps at `most`, on batches that are read once."""

    def __init__(self, worker: Any, weights: Mapping[str, Any], most: int) -> None:
        from twinalign.backends.torch.reference_only.kept_batches import KeptBatches

        self._batches = KeptBatches()
        self._train = functools.partial(train, worker, weights, most=most)
        self._are_read = False

    def run(self, begin: Around, followed: Followed, same_batches: bool) -> Curves:
        """The curves of a training within `begin`, up to the value that is asked for; none if one is not the port's.

        `same_batches`: whether it reads and prepares its batches as the first training does, which is the reference's.
        """
        serving = self._batches.serving() if same_batches or not self._are_read else contextlib.nullcontext()
        try:
            with serving:
                curves = self._train(begin=begin, on_step=followed.on_step, at_once=followed.at_once)
        except RefutedError:
            return {}
        except EnoughError:
            return followed.finished()
        self._are_read = True
        return followed.finish(curves) if followed.finish else curves


class _AsTheyCome:
    """The beginnings of curves, as a training tells them while it runs."""

    def __init__(self) -> None:
        self._first: dict[str, list[float]] = {}

    def __call__(self, curves: Mapping[str, Sequence[float]]) -> None:
        for name, points in curves.items():
            self._first.setdefault(name, list(points))

    def leads_to(self, curves: Mapping[str, np.ndarray]) -> Callable[[str], bool]:
        """Whether a curve begins as it was told at first."""
        return lambda name: list(curves[name][: len(self._first.get(name, ()))]) == self._first.get(name, [])


class PortTraining:
    """The port's training beside a file of the reference's, whose curves are `right`."""

    def __init__(
        self, train: Callable[..., Curves], reference: str, allowances: Sequence[str], first: Mapping[str, int]
    ) -> None:
        self.right, self._moved = read_curves(reference)
        self._first, self._allowances = first, allowances
        self._train = functools.partial(train, most=steps_of(self.right))
        as_they_come = _AsTheyCome()
        plain, floors = self._train(at_once=as_they_come), floors_of(self.right, self._moved)
        names = self.right.keys() & plain.keys() if not allowances else set[str]()
        if part_in_other_order(self.right, plain):
            names -= {BATCH_SIZE, BATCH_RMS}
        # Curves of several optimizers, or of calls, may come in another order, which is known at the end alone.
        names = {name for name in names if self._begins_rightly(name, plain[name], floors.get(name, 0.0))}
        # A port may keep a part of its rate elsewhere, which is known to be right once all parameters are.
        names = {name for name in names if not are_rates([name])}
        known = sorted(filter(as_they_come.leads_to(plain), names), key=first.__contains__)
        self._allowed = {name: floors.get(name, 0.0) * len(self.right[name]) ** 0.5 for name in known}

    def _begins_rightly(self, name: str, curve: np.ndarray, floor: float) -> bool:
        """Whether a curve of the port as it is departs from the reference's in no step before it is known to."""
        right = self.right[name]
        steps = int(min(self._first.get(name, np.inf), len(curve), len(right)))
        return bool(np.all(np.abs(curve[:steps] - right[:steps]) <= floor * len(right) ** 0.5))

    def wrong(self) -> Set[Any]:
        """Names of what is wrong; with its step what is right in the port as it is."""
        followed = Followed(self.right, self._allowed, None, None)
        try:
            curves = self._train(on_step=followed.on_step, at_once=followed.at_once)
        except RefutedError as refuted:
            name, step = refuted.args
            return {name if step >= self._first.get(name, np.inf) else (name, step)}
        return wrong_among(self.right, self._moved, curves, self._allowances).keys()


def all_allowed(
    reference: Mapping[str, np.ndarray],
    port: Mapping[str, np.ndarray],
    floors: Mapping[str, float],
    remainder: Callable[[float, float], float],
) -> dict[str, float]:
    """How far one value of each curve may be from the port's.

    `remainder` says what may remain of a difference above a floor, both as root mean squares.
    """
    found = {}
    for name, curve in port.items():
        before, floor = distance(reference.get(name), curve), floors.get(name, 0.0)
        if not np.isfinite(before):  # the reference's has another length
            before = root_mean_square(curve)
        found[name] = (floor if before <= floor else remainder(before, floor)) * len(curve) ** 0.5
    return found
