"""Settings that differ between the layers which two networks run in the same place, read off their descriptions."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any

_SETTING = re.compile(r"(\w+)=(\([^)]*\)|\[[^\]]*\]|[^,]+)")
_ALIASES = {"epsilon": "eps"}
# What both frameworks take where a layer is told nothing; many layers do not show such values.
_DEFAULTS: dict[str, Any] = {
    "padding": 0,
    "stride": 1,
    "dilation": 1,
    "groups": 1,
    "ceil_mode": False,
    "eps": 1e-5,
    "mode": "upscale_in_train",
    "negative_slope": 0.01,
    "approximate": "none",
}
# The others are counted differently in the two frameworks (momentum), or change no number.
_COMPARED = (*_DEFAULTS, "kernel_size", "output_size", "p", "normalized_shape", "num_groups")


def differing_settings(reference: Sequence[Mapping[str, Any]], paddle: Sequence[Mapping[str, Any]]) -> list[str]:
    """One text a difference, e.g. `padding (default in features.0, 1 in _conv)`.

    Calls are those of a `Run`: `path` and `layer`, the class with its settings in parentheses. A layer is held against
    the next one of its kind.
    """
    found = []
    left = list(paddle)
    for call in reference:
        kind, mine = _parsed(call["layer"])
        partner = next((other for other in left if _parsed(other["layer"])[0] == kind), None)
        if partner is None:
            continue
        left.remove(partner)
        theirs = _parsed(partner["layer"])[1]
        for name in _COMPARED:
            if mine.get(name, _DEFAULTS.get(name)) == theirs.get(name, _DEFAULTS.get(name)):
                continue
            if name in _DEFAULTS or (name in mine and name in theirs):
                shown = [str(settings.get(name, "default")) for settings in (mine, theirs)]
                found.append(f"{name} ({shown[0]} in {call['path']}, {shown[1]} in {partner['path']})")
    return found


def _parsed(description: str) -> tuple[str, dict[str, Any]]:
    """Kind of the layer, the same in both frameworks, and its settings: `Conv2d(3, 4, padding=(1, 1))`."""
    name, _, inside = description.partition("(")
    settings = {
        _ALIASES.get(key, key): _plain(value.strip()) for key, value in _SETTING.findall(inside.removesuffix(")"))
    }
    return re.sub(r"\d?d$", "", name.lower()), settings


def _plain(text: str) -> Any:
    """The value; a pair of equal numbers is that number."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    if isinstance(value, (list, tuple)):
        value = tuple(value)
        return value[0] if len(set(value)) == 1 else value
    return value
