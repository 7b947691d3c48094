"""Settings that parameters have in the port and not in the reference, such as decays that groups have exchanged."""

import functools
from collections.abc import Iterable, Iterator, Mapping

from twinalign.causes.optimizer.subject import OptimizerSubject, listed
from twinalign.replay.changed_steps import Moment, StepChange
from twinalign.replay.own_settings import in_groups

_MOST_PAIRS = 12


def _settings(subject: OptimizerSubject, key: str, others: Mapping[str, float], moment: Moment) -> dict[str, float]:
    """A setting with its value of the last step: that of the group that has it then, or in proportion to the own."""
    if moment.name not in others:
        return {}
    value, now, last = others[moment.name], subject.settings[moment.step], subject.group_of
    own = float(last[moment.name].get(key, 0.0))
    same = next((name for name, group in last.items() if group.get(key) == value), None)
    if same is not None:
        return {key: float(now[same][key])}
    return {key: float(now[moment.name][key]) * value / own if own else value}


def of_other_groups(
    subject: OptimizerSubject, key: str, exchanged: bool, further: Iterable[float] = ()
) -> Iterator[tuple[str, StepChange]]:
    """What the port gives its parameters for a setting, if two values have changed places, or else if they have not.

    None if no value gives the steps of some parameters: then something else is wrong. `further` are values that no
    group of the reference needs to have.
    """
    own = {name: float(group[key]) for name, group in subject.group_of.items() if key in group}
    values = list(dict.fromkeys([*map(float, further), *own.values()]))
    for others in subject.own_values(own, values, functools.partial(functools.partial, _settings, subject, key)):
        pairs = in_groups(own, others)
        swapped = len(pairs) == 2 and pairs.keys() == {(new, old) for old, new in pairs}
        if pairs and exchanged == swapped and len(pairs) <= _MOST_PAIRS:
            said = (f"{new:.6g} in place of {old:.6g} for {listed(names)}" for (old, new), names in pairs.items())
            yield "; ".join(said), StepChange(settings=functools.partial(_settings, subject, key, others))
