"""What changed between two runs of a case: for `run --watch`, and `twinalign report A --against B`."""

import collections
from collections.abc import Iterator, Mapping
from typing import Any

from twinalign.errors import InputError
from twinalign.reports.language import Language, language
from twinalign.reports.shown_values import figure, legible, number, short_name
from twinalign.reports.summary import deciding, greatest

_FACTOR = 2.0
"""From this ratio on, a stage's greatest difference in float64 has changed."""


def compared(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every change from one `summary.json` to another as `kind`, `name`, `before` and `after`.

    Kinds: `verdict` (of the run, with an empty name, or of a stage), `tensors` (how many went from one verdict to
    another), `float64` (a stage's greatest difference), `mended` and `new` (causes), `setting` (of an environment).

    Raises:
        InputError: the two runs are of different cases.
    """
    if before["case"] != after["case"]:
        raise InputError(
            f"--against: that run is of the case {before['case']!r} and this one of {after['case']!r}; "
            "give two runs of one case"
        )
    return [dict(zip(("kind", "name", "before", "after"), change, strict=True)) for change in _changes(before, after)]


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[tuple[str, str, Any, Any]]:
    if before["verdict"] != after["verdict"]:
        yield "verdict", "", before["verdict"], after["verdict"]
    for name, stage in after["stages"].items():
        if name in before["stages"]:
            yield from _of_stage(name, before["stages"][name], stage)
    old, new = _faults(before), _faults(after)
    yield from (("mended", fault, True, False) for fault in old if fault not in new)
    yield from (("new", fault, False, True) for fault in new if fault not in old)
    settings = [dict(_settings("", found["environment"])) for found in (before, after)]
    for name in dict.fromkeys((*settings[0], *settings[1])):
        values = [found.get(name) for found in settings]
        if values[0] != values[1]:
            yield "setting", name, values[0], values[1]


def _of_stage(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[tuple[str, str, Any, Any]]:
    if before["verdict"] != after["verdict"]:
        yield "verdict", name, before["verdict"], after["verdict"]
    old = {tensor["name"]: tensor["verdict"] for tensor in before["tensors"]}
    moved: dict[tuple[str | None, str | None], list[str]] = collections.defaultdict(list)
    for tensor in after["tensors"]:
        moved[old.pop(tensor["name"], None), tensor["verdict"]].append(tensor["name"])
    for missing, verdict in old.items():
        moved[verdict, None].append(missing)
    for (was, now), names in moved.items():
        if was != now:
            more = f" (+{len(names) - 1})" if len(names) > 1 else ""
            yield "tensors", f"{name}: {short_name(names[0])}{more}", was, now
    values = [number(greatest(deciding(stage["tensors"]), "fp64_rel")) for stage in (before, after)]
    low, high = sorted(value or 0.0 for value in values)
    if None not in values and high > _FACTOR * low:
        yield "float64", name, values[0], values[1]


def _faults(found: Mapping[str, Any]) -> list[str]:
    return [
        f"{fault['paddle_layer'] or 'the model itself'} ({fault['phase']}): "
        f"{fault['explanation']['id'] if fault['explanation'] else 'unexplained'}"
        for fault in (found.get("located") or {}).get("faults", [])
    ]


def _settings(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        path = f"{prefix} {name}".strip()
        yield from _settings(path, value) if isinstance(value, Mapping) else [(path, value)]


def changes(before: Mapping[str, Any], after: Mapping[str, Any], say: Language | None = None) -> list[str]:
    """The same as lines; one line if nothing changed."""
    say = say or language("en")
    return [_line(change, say) for change in compared(before, after)] or [say("changes.nothing")]


def _line(change: Mapping[str, Any], say: Language) -> str:
    kind, name = change["kind"], legible(change["name"])
    if kind in ("mended", "new"):
        return say(f"changes.{kind}", fault=name)
    before, after = (_value(kind, change[side], say) for side in ("before", "after"))
    shown = say.known("stage", name) if kind in ("verdict", "float64") else name
    return say(f"changes.{kind}", name=shown or say("changes.whole"), before=before, after=after)


def _value(kind: str, value: Any, say: Language) -> str:
    if value is None:
        return say("changes.absent")
    return legible(say.known("verdict", value) if kind in ("verdict", "tensors") else figure(value))
