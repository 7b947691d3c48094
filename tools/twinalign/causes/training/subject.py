"""The reference's training, whose first steps can be taken again in float64 with something changed."""

import collections
import contextlib
import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from twinalign.causes.component import allowed_remainder, explain, remainder
from twinalign.causes.optimizer.subject import OptimizerSubject, Settings
from twinalign.causes.registry import cause
from twinalign.files.curve_names import GRADIENT_NORM, WEIGHT_NORM
from twinalign.patching import Around, replaced
from twinalign.replay.changed_steps import Moment, StepChange
from twinalign.replay.own_settings import Values, read_off, unseen_beside
from twinalign.replay.short_training import Followed, ShortTrainings, all_allowed
from twinalign.replay.training import STAGE, Curves, first_apart, floors_of, read_curves, steps_of, told_as


class TrainingSubject(OptimizerSubject):
    """The first steps of the reference's training, whose optimizer may step as causes of the phase `optimizer` say.

    Attributes:
        port, reference, floors: name of a curve → one value for each step.
        around: takes the model and returns the context in which it trains; None: the one that makes `change`.
        finish: changes the curves.
        until: name and step of the value that is asked for; the training ends with it.
        axes: parameter or buffer of the reference → its number of axes.
        wrong: parameters whose norms differ in the first step in which any does: their updates are wrong.
        first: that step, infinity where there is none.
        more_steps: how many more steps the port's optimizers make than the reference's.
    """

    fits = False

    def __init__(
        self, worker: Any, weights: Mapping[str, Any], reference: str, port: str, facts: Mapping[str, Any]
    ) -> None:
        self.worker, self.backend, self._weights, self.facts = worker, worker.backend, weights, facts
        self.told = [value for value in facts.values() if isinstance(value, float)]
        self.reference, moved = read_curves(reference)
        self.port, _ = read_curves(port)
        self.floors = floors_of(self.reference, moved)
        self.around: Around | None = None
        self.finish: Callable[[Curves], Curves] | None = None
        self.until: tuple[str, int] | None = None
        self._trainings = ShortTrainings(worker, weights, steps_of(self.reference))
        self.change = StepChange()
        self.plain_step, self.clips = None, False  # what a loop clips, it clips before the step
        self.case = worker.fresh_case(STAGE)
        self.whole_port = self.whole_reference = {}
        self.steps = len(self.reference.get(GRADIENT_NORM, ()))
        self.settings = []
        self.parameters: dict[str, Any] = {}
        self._optimizer: Any = None
        self._norms: list[dict[str, float]] = []
        self._rates: dict[str, list[float]] = {}
        self.judged: list[str] = []
        with np.load(weights["path"], allow_pickle=False) as stored:
            self.axes = {name: stored[name].ndim for name in stored}
        self._first_apart = functools.partial(first_apart, self.reference, self.port, self.floors)
        apart = {n.removeprefix(WEIGHT_NORM): self._first_apart(n) for n in self.port if n.startswith(WEIGHT_NORM)}
        self.first = min(apart.values(), default=np.inf)
        self.wrong = sorted(n for n, step in apart.items() if step == self.first < np.inf)
        lengths = [{len(c) for n, c in one.items() if n.startswith(WEIGHT_NORM)} for one in (self.port, self.reference)]
        self.more_steps = max(lengths[0], default=0) - max(lengths[1], default=0)

    def tries(self, phase: str) -> bool:
        return phase != "optimizer" or bool(self.settings)  # nothing is known of an optimizer of the training's own

    def run(self) -> Curves:
        """Of several optimizers the change is that of the first to be wrong, if this gives the port, else of all."""
        if f"{GRADIENT_NORM}.2" in self.reference and self.around is None and self.change != StepChange():
            curves = self._train(set(self.wrong))
            if curves and remainder(self, curves).proven:
                return curves
        return self._train(None)

    def _train(self, wrong: Collection[str] | None) -> Curves:
        changed = self.around is not None or self.change != StepChange()
        if self.finish and not changed:
            return self.finish(self.reference)
        if changed and self.impatient and self._cannot_be:
            return {}
        self._rates.clear()
        finish = self.finish or (functools.partial(told_as, self.port, self._rates) if self.change.settings else None)
        followed = Followed(self.port, self._allowed if self.impatient else {}, finish, self.until)
        # A line of the port, which changes neither, may read and prepare batches.
        return self._trainings.run(self.around or self._stepping(self.change, wrong), followed, changed)

    def begins(self) -> Curves:
        return self._until(0)

    def _until(self, step: int) -> Curves:
        with replaced(self, "until", (next((n for n in self.reference if n.startswith(WEIGHT_NORM)), ""), step)):
            return self.run()

    def own_values(self, own: Values, values: Sequence[float], settings: Settings) -> Iterator[dict[str, float]]:
        """Read off the sizes after the first step in which one differs."""
        norms = {name: WEIGHT_NORM + name for name in own if WEIGHT_NORM + name in self.port.keys() & self.reference}
        if self.first == np.inf or self.gradients_apart or f"{GRADIENT_NORM}.2" in self.port | self.reference:
            return
        at = int(self.first)

        def left(given: Values) -> dict[str, float]:
            with self.changed("", settings=settings(given)).apply():
                curves = self._until(at)
            return {name: float(curves[norm][at] - self.port[norm][at]) for name, norm in norms.items()}

        wrong, allowed = [n for n in self.wrong if n in norms], {n: self.floors[norm] for n, norm in norms.items()}
        if wrong and (others := read_off(own, wrong, values, left, allowed)) is not None:
            yield from unseen_beside(own, others, self.dimensions)

    def holds_everywhere(self) -> bool:
        return True

    def dimensions(self, name: str) -> int:
        return self.axes.get(name, 0)

    def make_optimizer(self) -> Any:
        return self._optimizer

    def gradient_norm(self, step: int, names: Iterable[str] | None = None) -> float:
        norms = self._norms[step]
        return float(np.linalg.norm([norms.get(name, 0.0) for name in (norms if names is None else names)]))

    def _stepping(self, change: StepChange, wrong: Collection[str] | None) -> Around:
        """The training with such steps; a gradient that the port's optimizer is given otherwise is recorded so."""
        from twinalign.backends.torch.reference_only.changed_training import taking_steps

        kept: dict[str, dict[str, Any]] = collections.defaultdict(dict)
        right: list[Any] = []

        def make(model: Any, optimizer: Any) -> Any:
            self.parameters, self._optimizer = dict(model.named_parameters()), optimizer
            held = {id(p) for group in optimizer.param_groups for p in group["params"]}
            if wrong is not None and not any(id(self.parameters.get(name)) in held for name in wrong):
                right.append(optimizer)
            return change.make(self) if change.make and optimizer not in right else optimizer

        def take(step: int, optimizer: Any, given: Sequence[tuple[str, Any, Any, dict[str, Any]]]) -> None:
            if step == len(self.settings):  # the first training, where nothing is changed yet
                self.settings.append({})
                self._norms.append({})
            if not self.judged:
                self.clips = any(raw is not p.grad for _, p, raw, _ in given)
            for name, _, _, group in given:
                self.settings[step].setdefault(name, {key: v for key, v in group.items() if key != "params"})
            moments = [
                Moment(step, name, p, raw if change.unclipped else p.grad, group, {}, None, kept[name])
                for name, p, raw, group in given
            ]
            known = [moment for moment in moments if moment.gradient is not None]
            norms = self.backend.norms([moment.gradient for moment in known])
            self._norms[step] |= {moment.name: norm for moment, norm in zip(known, norms, strict=True)}
            self.judged, self.gradients = list(self.settings[0]), self._norms[0]
            if change.make:
                self.schedule(moments)
            with replaced(self, "change", StepChange()) if optimizer in right else contextlib.nullcontext():
                self.take_step(optimizer, moments)
            for moment in moments:
                self._rates.setdefault(moment.name, []).append(float(moment.group.get("lr", np.nan)))

        return taking_steps(take, make, outermost=change.make is not None or self.gradients_apart)

    @property
    def _cannot_be(self) -> bool:
        """Whether the present change leaves alone what is wrong first: the number of steps, or the gradients."""
        if self.more_steps:
            return not getattr(self.around, "outermost", False)
        if self.around is not None:
            return False
        return not (self.change.gradient or self.change.unclipped) if self.gradients_apart else self.change.unclipped

    @functools.cached_property
    def gradients_apart(self) -> bool:
        """Whether the optimizer is given another gradient before any parameter differs."""
        of_weights = [self._first_apart(name) for name in self.port if name.startswith(WEIGHT_NORM)]
        return self._first_apart(GRADIENT_NORM) <= min(of_weights, default=0.0)

    @property
    def _allowed(self) -> dict[str, float]:
        """How far a value of a curve may be from the port's, or from what stands in its place."""
        return all_allowed(self.reference, self.port, self.floors, allowed_remainder)


train_cause = functools.partial(cause, "train", TrainingSubject)
"""Decorator of causes in a training."""


def explain_training(
    worker: Any, weights: Mapping[str, Any], reference: str, port: str, facts: Mapping[str, Any]
) -> dict[str, Any]:
    """Why the port's curves differ from the reference's, from files of `record_curves`.

    `facts` are class and settings of the port's optimizer, in whose steps the cause may be as well.
    """
    return explain(TrainingSubject(worker, weights, reference, port, facts), "train", "optimizer")
