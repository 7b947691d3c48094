"""What a proven cause says of a call or of an optimizer, in the words of paddle."""

from collections.abc import Mapping, Sequence
from typing import Any

from twinalign.edits.paddle_calls import ARGUMENTS, GIVEN_BY_CAUSE, KINDS, OPTIMIZER_CAUSES, OPTIMIZER_SETTINGS

_ATTRIBUTES = {"weight_decay": ("regularization_coeff", "coeff")}
"""Keyword of paddle's optimizers → what they keep it as, where this has another name."""


def optimizer_values(fault: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords of paddle's optimizers and the reference's values of them, of what a fault's causes are about.

    Not those that the port's has already: there a group of parameters has another.
    """
    settings, held = (fault["evidence"].get(f"{side}_optimizer", {}) for side in ("reference", "port"))
    wanted = {k for cause in fault["explanation"]["id"].split("+") for k in OPTIMIZER_CAUSES.get(cause, ())}
    spelled = {keyword: name for known in OPTIMIZER_SETTINGS.values() for keyword, name in known.items()}
    values = {keyword: settings.get(spelled[keyword]) for keyword in sorted(wanted)}
    return {
        keyword: value
        for keyword, value in values.items()
        if isinstance(value, (bool, int, float))
        and all(held.get(name) != value for name in _ATTRIBUTES.get(keyword, (keyword,)))
    }


def called_function(call: Mapping[str, Any]) -> str:
    """The function that a call of the reference is; an activation layer goes by its function."""
    if call["name"] not in ("layer", "unit"):
        return str(call["name"])
    kind = str(call["arguments"].get("kind", "")).lower()
    return next((name for name in KINDS if name.replace("_", "") == kind), str(call["name"]))


def paddle_values(name: str, call: Mapping[str, Any], causes: Sequence[str], form: str) -> dict[str, Any]:
    """paddle's keywords and values that make a call as the reference makes it, of what the causes are about."""
    known = ARGUMENTS.get(name, {})
    wanted = [*call["changed"], *(argument for cause in causes for argument in GIVEN_BY_CAUSE.get(cause, ()))]
    if "gelu_form" in causes and not wanted:
        wanted = ["approximate"]
    values = {}
    for argument in dict.fromkeys(wanted):
        if argument in known:
            spelled = known[argument]
            given = call["arguments"].get(argument)
            given = spelled.default if given is None else given
            if given is not None:
                values[getattr(spelled, form)] = spelled.value(given)
    rank = len(call["shape"])
    if "axis" in values and isinstance(values["axis"], int) and values["axis"] == rank - 1:
        values["axis"] = -1
    return values
