"""Describe where two models begin to differ, and which settings of their layers differ there."""

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any

from twinalign.conversion.fingerprints import all_agree
from twinalign.conversion.layers_to_match import Matchable
from twinalign.conversion.remote_model import Run, outputs_agree

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
    """One text per difference, e.g. `padding (default in features.0, 1 in _conv)`.

    Calls are those of a `Run`: `path` and `layer`, the class with its settings in parentheses. A layer is compared with
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
    """The layer's kind, the same in both frameworks, and its settings, of `Conv2d(3, 4, padding=(1, 1))`."""
    name, _, inside = description.partition("(")
    settings = {
        _ALIASES.get(key, key): _plain(value.strip()) for key, value in _SETTING.findall(inside.removesuffix(")"))
    }
    return re.sub(r"\d?d$", "", name.lower()), settings


def _plain(text: str) -> Any:
    """Parse a value; a tuple of equal numbers becomes that number."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    if isinstance(value, (list, tuple)):
        value = tuple(value)
        return value[0] if len(set(value)) == 1 else value
    return value


def where_they_part(runs: tuple[Run, Run], reference: Sequence[Matchable], paddle: Sequence[Matchable]) -> str:
    """The first layer, in the reference's order, whose inputs no layer of paddle's receives, and what each model runs
    after the last layer on which both agree.
    """
    mine, theirs = _leaves(runs[0].calls, reference), _leaves(runs[1].calls, paddle)
    weighted = {matchable.path for matchable in reference}, {matchable.path for matchable in paddle}
    before, start, place = -1, -1, len(mine)
    for number, call in enumerate(mine):
        if call["path"] not in weighted[0]:
            continue
        partners = [
            (not all_agree(call["outputs"], other["outputs"]), i)
            for i, other in enumerate(theirs)
            if other["path"] in weighted[1] and all_agree(call["inputs"], other["inputs"])
        ]
        if not partners:
            place = number
            break
        # Among several with the same inputs, take one with the same outputs.
        before, start = number, min(partners)[1]
    says = "give the same outputs in another way" if outputs_agree(runs) else "compute different things"
    return f"the two models {says}: {_between(mine, theirs, before, place, start, weighted[1])}"


def _between(
    mine: Sequence[dict[str, Any]],
    theirs: Sequence[dict[str, Any]],
    before: int,
    place: int,
    start: int,
    weighted: set[str],
) -> str:
    since = f"from {mine[before]['path']!r} (paddle: {theirs[start]['path']!r}) on" if before >= 0 else "from the start"
    stop = next((i for i in range(start + 1, len(theirs)) if theirs[i]["path"] in weighted), len(theirs))
    steps = mine[max(before, 0) : place + 1], theirs[max(start, 0) : stop + 1]
    differing = differing_settings(*steps)
    named = f"they differ in {', '.join(differing)}: " if differing else ""
    return f"{named}{since} the reference runs {_shown(steps[0])}; paddle runs {_shown(steps[1])}"


def _shown(calls: Sequence[Mapping[str, Any]]) -> str:
    names = [f"{call['path']} {call['layer']} on {_shapes(call['inputs'])}" for call in calls[:6]]
    return ", ".join(names) or "no further layer"


def _leaves(calls: Sequence[dict[str, Any]], matchables: Sequence[Matchable]) -> list[dict[str, Any]]:
    """Calls of the matchables and of layers without layers below them, in order."""
    kept = {matchable.path for matchable in matchables if matchable.path}
    paths = {call["path"] for call in calls}
    inner = {path[:i] for path in paths for i, character in enumerate(path) if character == "."} | {""}
    inside = tuple(f"{path}." for path in kept)
    return [
        call
        for call in calls
        if call["path"] in kept or (call["path"] not in inner and not call["path"].startswith(inside))
    ]


def _shapes(fingerprints: Sequence[Mapping[str, Any]]) -> str:
    return " and ".join("×".join(map(str, given["shape"])) for given in fingerprints) or "nothing"
