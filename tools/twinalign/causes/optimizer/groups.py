"""Settings that parameters have in the port and other groups in the reference, such as decays that are exchanged.

All parameters take steps with the value of every group; with which of them the steps of a kind of parameters are the
port's is what the port gives these.
"""

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from twinalign.causes.component import is_refuted
from twinalign.causes.optimizer.subject import OptimizerSubject, listed
from twinalign.replay.changed_steps import Moment, StepChange

_MOST_VALUES = 8


def _values(subject: OptimizerSubject, key: str, further: Iterable[float]) -> dict[float, Callable[[int], float]]:
    """Each value that a group has in the last step, with the value of that group by the step; then `further` ones."""

    def in_step(name: str, step: int) -> float:
        return float(subject.settings[step][name][key])

    found = {float(own[key]): functools.partial(in_step, name) for name, own in subject.group_of.items() if key in own}
    return {**{float(value): functools.partial(lambda value, _: value, value) for value in further}, **found}


def of_other_groups(
    subject: OptimizerSubject, key: str, exchanged: bool, further: Iterable[float] = ()
) -> Iterator[tuple[str, StepChange]]:
    """What the port gives its parameters for a setting, if two values have changed places, or else if they have not.

    None if no value gives the steps of some parameters: then something else is wrong; and none of a training, whose
    curves tell of no parameter alone. `further` are values that no group of the reference needs to have.
    """

    def kind(name: str) -> tuple[Any, ...]:
        return (*subject.kind(name), float(subject.group_of.get(name, {}).get(key, 0.0)))

    values, fitting = _values(subject, key, further), {kind(n): list[float]() for n in getattr(subject, "names", ())}
    for value, at in values.items() if fitting and 1 < len(values) <= _MOST_VALUES else ():
        with subject.changed("", settings=lambda moment, at=at: {key: at(moment.step)}).apply():
            taken = subject.run()
        wrong = {kind(name.split(".", 2)[2]) for name, array in taken.items() if is_refuted(subject, {name: array})}
        for one in fitting.keys() - wrong:
            fitting[one].append(value)
    others = {one: fits[0] for one, fits in fitting.items() if fits and one[-1] not in fits}
    pairs = {(one[-1], value) for one, value in others.items()}
    swapped = len(pairs) == 2 and pairs == {(new, old) for old, new in pairs}
    if not others or not all(fitting.values()) or exchanged != swapped:
        return
    said = []
    for old, new in sorted(pairs):
        names = [n for n in subject.judged if (k := kind(n)) in others and (k[-1], others[k]) == (old, new)]
        said.append(f"{new:g} in place of {old:g} for {listed(names)}")

    def settings(moment: Moment) -> dict[str, float]:
        own = kind(moment.name)
        return {key: values[others[own]](moment.step)} if own in others else {}

    yield "; ".join(said), StepChange(settings=settings)
