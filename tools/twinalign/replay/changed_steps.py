"""Steps of the reference's optimizer that are taken again, with something about them changed."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from twinalign.patching import replaced

_ALIKE = 1e-9


@dataclasses.dataclass
class Moment:
    """One parameter in one step.

    Attributes:
        step: from 0.
        name: of the parameter, in the reference.
        parameter: the tensor itself; it may be changed in place through `.data`.
        gradient: what the step is given; changing it in place does not reach other runs.
        group: settings of the parameter's group.
        state: the optimizer's state of the parameter, empty before the first step.
        before: values of the parameter before the step.
        kept: what a change keeps of the parameter from step to step.
        observed: state, by the name that both frameworks share, that is not as the optimizer has it.
    """

    step: int
    name: str
    parameter: Any
    gradient: Any
    group: dict[str, Any]
    state: dict[str, Any]
    before: Any
    kept: dict[str, Any]
    observed: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class StepChange:
    """How steps are made wrong; what is None stays as it is.

    Attributes:
        gradient: returns the gradient that the optimizer is given.
        settings: returns entries of the group that differ.
        before, after: change the parameter in place, before and after the step.
        step: takes the step, given the optimizer and the moments of all parameters.
        make: returns another optimizer over the trainable parameters.
        unclipped: whether the reference's own clipping of gradients is left out.
        missing_as_zero: whether parameters without a gradient are given zeros.
    """

    gradient: Callable[[Moment], Any] | None = None
    settings: Callable[[Moment], Mapping[str, Any]] | None = None
    before: Callable[[Moment], None] | None = None
    after: Callable[[Moment], None] | None = None
    step: Callable[[Any, list[Moment]], Any] | None = None
    make: Callable[[Any], Any] | None = None
    missing_as_zero: bool = False
    unclipped: bool = False


class ChangedSteps:
    """An optimizer's steps with a change.

    Attributes:
        change: how steps are made wrong at present.
        parameters: of the model, by their names.
    """

    change: StepChange
    parameters: dict[str, Any]

    @functools.cached_property
    def settings(self) -> list[dict[str, dict[str, Any]]]:
        """Settings of each parameter's group in each step, as the schedule leaves them."""
        raise NotImplementedError

    def make_optimizer(self) -> Any:
        """The optimizer as the case makes it."""
        raise NotImplementedError

    def schedule(self, moments: Iterable[Moment]) -> None:
        """Give the groups the settings that the reference's schedule gives them.

        What is switched on or off, such as a decay beside the gradient, is what makes another optimizer another one.
        """
        for moment in moments:
            own = self.settings[moment.step][moment.name].items()
            of_kind = {k for k, value in own if self.change.make and isinstance(value, bool)}
            moment.group.update({k: v for k, v in own if k in moment.group and k not in of_kind})

    def take_step(self, optimizer: Any, moments: list[Moment]) -> None:
        """Let an optimizer of which each parameter has a group of its own make a step, with the present change."""
        for moment in moments:
            self._set_up(moment, optimizer)
        plain = self.plain_step if self.change.unclipped else None
        if self.change.step:
            self.change.step(optimizer, moments)
        elif plain:
            plain(optimizer)
        else:
            with self._whole_gradient(optimizer, moments):
                optimizer.step()
        for moment in moments:
            moment.state = optimizer.state.get(moment.parameter, {})
            if self.change.after and moment.gradient is not None:  # without one no optimizer makes a step
                self.change.after(moment)

    @functools.cached_property
    def plain_step(self) -> Callable[[Any], Any] | None:
        """torch's own step of the optimizer, where the case puts something around or before it; else None."""
        from twinalign.backends.torch.reference_only.steps import pre_hooks, without_pre_hooks

        optimizer = self.make_optimizer()
        own = next(
            (k for k in type(optimizer).__mro__ if k.__module__.startswith("torch.") and "step" in vars(k)), None
        )
        around = "step" in vars(optimizer) or ("step" in vars(type(optimizer)) and own is not type(optimizer))
        plain = own.step if own is not None and own.__name__ != "Optimizer" and around else None  # type: ignore[attr-defined]
        if not pre_hooks(optimizer):
            return plain

        def behind_hooks(used: Any) -> Any:
            with without_pre_hooks(used):
                return plain(used) if plain else used.step()

        return behind_hooks

    @functools.cached_property
    def scales_gradients_alike(self) -> bool:
        """Whether what the case puts around its step gives all gradients of a step one factor, as one norm does."""
        shares: dict[int, list[float]] = {}
        alike: list[bool] = []

        def after(moment: Moment) -> None:
            given, left = self.gradient(moment.name, moment.step), moment.parameter.grad
            if left is not None and float(given.norm()):
                share = float((left * given).sum() / (given * given).sum())
                alike.append(float((left - share * given).norm()) <= _ALIKE * float(given.norm()))
                shares.setdefault(moment.step, []).append(share)

        with replaced(self, "change", StepChange(after=after)):
            self.run()
        return all(alike) and all(max(of) - min(of) <= _ALIKE * abs(max(of)) for of in shares.values())

    def run(self) -> Any:
        """Take the steps with the present change."""
        raise NotImplementedError

    def gradient(self, name: str, step: int) -> Any:
        """The gradient of a parameter in a step."""
        raise NotImplementedError

    @contextlib.contextmanager
    def _whole_gradient(self, optimizer: Any, moments: list[Moment]) -> Iterator[None]:
        """Inside the block the parameters that make no step have their gradients too, if hooks may clip by them all."""
        from twinalign.backends.torch.reference_only.steps import pre_hooks

        others = {}
        if moments and pre_hooks(optimizer):
            others = {name: self.parameters[name] for name in self.parameters.keys() - {m.name for m in moments}}
        for name, parameter in others.items():
            parameter.grad = self.gradient(name, moments[0].step)
        try:
            yield
        finally:
            for parameter in others.values():
                parameter.grad = None

    def _set_up(self, moment: Moment, optimizer: Any) -> None:
        moment.state = optimizer.state.get(moment.parameter, {})
        moment.before = moment.parameter.detach().clone()
        if self.change.settings:
            moment.group.update(self.change.settings(moment))
        if moment.gradient is None and self.change.missing_as_zero:
            moment.gradient = moment.before * 0.0
        if self.change.gradient and moment.gradient is not None:
            moment.gradient = self.change.gradient(moment)
        if self.change.before:
            self.change.before(moment)
        moment.parameter.grad = moment.gradient
