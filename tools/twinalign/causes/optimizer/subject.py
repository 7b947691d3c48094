"""The reference's optimizer under examination: its steps taken again, with something about them changed.

The optimizer is the case's own, torch's or the user's. Each parameter gets a group of its own, so that whatever a group
holds can be changed for some of them; gradients are changed before the step, parameters before and after it.
"""

from __future__ import annotations

import functools
import itertools
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.causes.component import Component, explain, is_refuted, remainder, repeats, wrong_names
from twinalign.causes.registry import Variant, cause
from twinalign.files.recordings import Recording, sample
from twinalign.patching import replaced
from twinalign.replay.changed_steps import ChangedSteps, Moment, StepChange
from twinalign.replay.optimizer import STAGE, GradientsOfSteps, floors_of, quantities, start
from twinalign.replay.own_settings import MOST_VALUES, Values, of_kinds

_TRIED_SIZE = 200_000
_TRIED_OF_A_KIND, _FEW_SETTINGS = 2, 4
Settings = Callable[[Values], Callable[[Moment], Mapping[str, Any]]]


class OptimizerSubject(ChangedSteps, Component):
    """What causes in the optimizer's steps are asked about.

    Attributes:
        port, reference, floors: `STEP.QUANTITY.PARAMETER` → sampled values, of the parameters that are tried.
        facts: class and numbers of the port's optimizer.
        whole_port, whole_reference: likewise of all parameters that are judged.
        judged: those parameters.
        names: parameters that are tried: a few small ones of each kind, right and wrong.
        wrong: all parameters whose update or state differs.
        clips: whether the reference may clip gradients in a way that can be left out.
        change: how steps are made wrong at present.
    """

    def __init__(
        self,
        worker: Any,
        weights: Mapping[str, Any],
        gradients: Mapping[str, Any],
        recordings: tuple[Mapping[str, np.ndarray], Mapping[str, np.ndarray]],
        rates: Sequence[float],
        facts: Mapping[str, Any],
    ) -> None:
        self.worker, self.backend = worker, worker.backend
        self.gradients: Any = GradientsOfSteps(gradients)
        self.facts, self.rates, self.steps = facts, rates, len(rates)
        self.case = worker.fresh_case(STAGE)
        _, self.parameters, _ = start(worker, self.case, weights)
        theirs = [value for group in self.settings[-1].values() for value in group.values()]
        self.told = [value for value in (*facts.values(), *theirs) if isinstance(value, float)]
        self.change: StepChange = StepChange()
        self.whole_reference, self.whole_port = (quantities(recording) for recording in recordings)
        self._all_floors = floors_of(self.whole_reference, recordings[0])
        self._initial = np.load(weights["path"], allow_pickle=False)
        self._look_at([name for name, parameter in self.parameters.items() if self.backend.trainable(parameter)])
        self.wrong = list(dict.fromkeys(name.split(".", 2)[2] for name in wrong_names(self)))
        self.judged, self.clips = self.names, self.plain_step is not None
        self._look_at(self._chosen())
        self._together = not repeats(self)  # a step that clips by the norm of all gradients needs all of them
        self._look_at(self.judged if self._together else self.names)

    def trainable(self) -> list[Any]:
        return [p for p in self.parameters.values() if self.backend.trainable(p)]

    def make_optimizer(self) -> Any:
        return self.case.optimizer(self.trainable(), "torch")

    def _groups(self, optimizer: Any) -> Iterator[tuple[dict[str, Any], tuple[str, ...]]]:
        name_of = {id(parameter): name for name, parameter in self.parameters.items()}
        for group in optimizer.param_groups:
            yield group, tuple(name_of[id(p)] for p in group["params"] if id(p) in name_of)

    @functools.cached_property
    def settings(self) -> list[dict[str, dict[str, Any]]]:
        case, found = self.worker.fresh_case(STAGE), list[dict[str, dict[str, Any]]]()
        optimizer = case.optimizer(self.trainable(), "torch")  # `optimizer` may keep what `schedule` needs on the case
        for step in range(self.steps):
            case.schedule(optimizer, step, "torch")
            groups = self._groups(optimizer)
            found.append({n: {k: v for k, v in own.items() if k != "params"} for own, names in groups for n in names})
        return found

    @functools.cached_property
    def group_members(self) -> dict[str, tuple[str, ...]]:
        """Names of the parameters in the group of each parameter, as the case makes the groups."""
        groups = [names for _, names in self._groups(self.make_optimizer())]
        return {name: tuple(one for one in names if one in self.judged) for names in groups for name in names}

    @property
    def group_of(self) -> dict[str, dict[str, Any]]:
        """Group settings of each parameter in the last step, where the rate is not that of a warm-up's start."""
        return self.settings[-1]

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.parameters[name].shape)

    def kind(self, name: str) -> tuple[int, str, bool]:
        """What tells parameters apart: their axes, the last part of their names, and being wrong or not."""
        return self.dimensions(name), name.rpartition(".")[2], name in self.wrong

    def dimensions(self, name: str) -> int:
        return len(self.shape(name))

    def gradient_norm(self, step: int, names: Iterable[str] | None = None) -> float:
        """Euclidean norm of the gradients of all parameters, or of these, in a step."""
        chosen = tuple(self.judged if names is None else names)
        return float(np.sqrt(sum(self._squares(step, name) for name in chosen)))

    @functools.cache  # noqa: B019 - lives as long as one explanation
    def _squares(self, step: int, name: str) -> float:
        return float(np.square(self.gradients.of_step(name, step)).sum()) if name in self.gradients else 0.0

    def changed(self, detail: str, **change: Any) -> Variant:
        return self.variant(detail, change=StepChange(**change))

    def own_values(self, own: Values, values: Sequence[float], settings: Settings) -> Iterator[dict[str, float]]:
        """The port's values of a setting that is `own` in the reference, of the parameters that have other ones."""
        kinds = {name: (*self.kind(name), own.get(name)) for name in self.names}

        def refuted(value: float) -> set[str]:
            with self.changed("", settings=settings(dict.fromkeys(own, value))).apply():
                taken = self.run()
            return {name.split(".", 2)[2] for name, array in taken.items() if is_refuted(self, {name: array})}

        fitting = of_kinds(kinds, values, refuted) if 1 < len(values) <= MOST_VALUES else {}
        others = {kind: fits[0] for kind, fits in fitting.items() if fits and kind[-1] not in fits}
        if others and all(fitting.values()):
            all_kinds = {name: (*self.kind(name), own.get(name)) for name in self.judged}
            yield {name: others[kind] for name, kind in all_kinds.items() if kind in others}

    def run(self) -> dict[str, np.ndarray]:
        with self.backend.no_grad():
            tensors = {name: self.parameters[name] for name in self.names}
            for name, tensor in tensors.items():
                self.backend.assign(tensor, self._start(name))
            optimizer = self.change.make(self) if self.change.make else self.make_optimizer()
            if self.change != StepChange():
                return self._take_steps(optimizer, tensors)
            own = vars(OptimizerSubject)["settings"].func(self)  # with a line of the port they may be others
            with replaced(self, "settings", own):
                return self._take_steps(optimizer, tensors)

    def _take_steps(self, optimizer: Any, tensors: Mapping[str, Any]) -> dict[str, np.ndarray]:
        template = {id(p): group for group in optimizer.param_groups for p in group["params"]}
        groups = {name: {**template.get(id(t), {}), "params": [t]} for name, t in tensors.items() if id(t) in template}
        optimizer.param_groups = list(groups.values())
        kept: dict[str, dict[str, Any]] = {name: {} for name in tensors}
        found: dict[str, np.ndarray] = {}
        for step in range(self.steps):
            moments = [
                Moment(step, name, tensors[name], self.gradient(name, step), group, {}, None, kept[name])
                for name, group in groups.items()
            ]
            self.schedule(moments)
            self.take_step(optimizer, moments)
            observed = self._observe(step, moments, tensors, optimizer)
            found |= observed
            if self.impatient and is_refuted(self, observed):
                break
        for tensor in tensors.values():
            tensor.grad = None
        return found

    def _observe(
        self, step: int, moments: list[Moment], tensors: Mapping[str, Any], optimizer: Any
    ) -> dict[str, np.ndarray]:
        found: dict[str, np.ndarray] = {}
        before = {moment.name: moment.before for moment in moments}
        for name, tensor in tensors.items():
            update = tensor.detach() - before[name] if name in before else tensor.detach() * 0.0
            found[f"{step}.update.{name}"] = _sample_of(self.backend.to_array(update))
        # A model with nothing but these parameters.
        only = types.SimpleNamespace(named_parameters=lambda: [(name, self.parameters[name]) for name in tensors])
        for quantity, name, array in self.backend.optimizer_items(only, optimizer):
            found[f"{step}.{quantity}.{name}"] = _sample_of(array)
        for moment in moments:
            for quantity, tensor in moment.observed.items():
                found[f"{step}.{quantity}.{moment.name}"] = _sample_of(self.backend.to_array(tensor))
        return found

    def holds_everywhere(self) -> bool:
        """Whether the change at present reproduces all parameters, a few at a time, and not the chosen ones alone."""
        chosen = self.names
        try:
            for names in () if self._together else self._portions():
                self._look_at(names)
                if not remainder(self, self.run()).proven:
                    return False
            return True
        finally:
            self._look_at(chosen)

    def _portions(self) -> Iterator[list[str]]:
        before = itertools.accumulate(map(self._size, self.judged), initial=0)
        portion_of = dict(zip(self.judged, (size // (20 * _TRIED_SIZE) for size in before), strict=False))
        for _, names in itertools.groupby(self.judged, key=portion_of.__getitem__):
            yield list(names)

    def _look_at(self, names: Sequence[str]) -> None:
        self.names: list[str] = list(names)
        self._starts: dict[str, np.ndarray] = {}
        chosen = set(names)

        def of_chosen(part: Mapping[str, Any]) -> dict[str, Any]:
            return {key: value for key, value in part.items() if key.split(".", 2)[2] in chosen}

        self.reference: dict[str, np.ndarray] = of_chosen(self.whole_reference)
        self.port: dict[str, np.ndarray] = of_chosen(self.whole_port)
        self.floors: dict[str, float] = of_chosen(self._all_floors)

    def _chosen(self) -> list[str]:
        """The smallest parameters of each kind, and of each with one rate and decay if these are few."""
        settings = {name: (own["lr"], own.get("weight_decay")) for name, own in self.group_of.items()}
        few = len(set(settings.values())) <= _FEW_SETTINGS
        kinds: dict[Any, list[str]] = {}
        for name in self.judged:
            kinds.setdefault((self.kind(name), settings.get(name) if few else None), []).append(name)
        chosen = {n for names in kinds.values() for n in sorted(names, key=self._size)[:_TRIED_OF_A_KIND]}
        smallest = sorted(self.judged, key=self._size)
        room = _TRIED_SIZE - sum(self._size(name) for name in chosen)
        for name in smallest[: 4 * _TRIED_OF_A_KIND]:
            room -= self._size(name)
            if room > 0:
                chosen.add(name)
        return [name for name in self.judged if name in chosen]

    def _size(self, name: str) -> int:
        return int(self.parameters[name].numel())

    def _start(self, name: str) -> np.ndarray:
        if name not in self._starts:
            self._starts[name] = self._initial[name]
        return self._starts[name]

    def gradient(self, name: str, step: int) -> Any:
        found = self.gradients.of_step(name, step) if name in self.gradients else None
        return None if found is None else self.backend.to_tensor(found, "float64", self.worker.device)


step_cause = functools.partial(cause, "optimizer", OptimizerSubject)
"""Decorator of causes in the optimizer's steps."""


def _sample_of(array: np.ndarray) -> np.ndarray:
    return np.asarray(sample(array), dtype=np.float64)


def listed(names: Sequence[str]) -> str:
    """The first of several parameters, as they are named in a variant."""
    return ", ".join(names[:4]) + (" and others" if len(names) > 4 else "")


def explain_steps(
    worker: Any,
    weights: Mapping[str, Any],
    gradients: str,
    recordings: Sequence[str],
    rates: list[float],
    facts: Mapping[str, Any],
) -> dict[str, Any]:
    """Why the port's optimizer steps differ from the reference's.

    `gradients` is the `.npz` file that both sides were given, `recordings` are the reference's and the port's files of
    `record_steps`, `rates` those of each step, `facts` class and settings of the port's optimizer.
    """
    arrays = tuple(Recording.load(Path(path)).arrays for path in recordings)
    with worker.backend.default_dtype("float64"), np.load(gradients, allow_pickle=False) as given:
        return explain(OptimizerSubject(worker, weights, given, (arrays[0], arrays[1]), rates, facts), "optimizer")
