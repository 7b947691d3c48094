"""Changes every value in a bundle's JSON alone: `python tests/attacks/json_values.py [BUNDLE]`.

Prints the places where a change goes unnoticed; docs/how-to/submit-for-review.md lists them as what nobody judges by.
"""

from __future__ import annotations

import copy
import fnmatch
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.twinalign.bundle.forging import Forgery
from twinalign.bundle.verifying import verify_bundle
from twinalign.errors import InputError

Place = tuple[str | int, ...]
Value = tuple[str, Place]
"""Member and place."""

# Where a change alone goes unnoticed, as patterns: docs/how-to/submit-for-review.md says the same in words.
UNJUDGED = (
    # What nobody compares: the wording, the machine, the time and memory that a recording took.
    "manifest.json twinalign",
    "* environment flags *",
    "* environment platform",
    "* environment processors",
    "* peak_memory_bytes",
    "* peak_device_memory_bytes",
    "* seconds",
    # What has no effect here: of stages that are not in the bundle, of a side that is not repeated.
    "case.json description rename *",
    "case.json description float64_train_steps",
    "[*] draws",
    # The last digits of a number within a text.
    "summary.json stages * classic lines [*]",
    "summary.json stages * reason",
    "summary.json stages * text",
    # What a conversion says of itself and no recording shows.
    "weights/* entries [*] target",
    "weights/* entries [*] target_shape*",
    "weights/* entries [*] reason",
    "weights/* entries [*] dtype",
    "weights/* entries [*] matched_by",
    "weights/* entries [*] source [*]",
)


def is_listed(where: str) -> bool:
    """Whether a spot is among those that nobody judges by."""
    return any(fnmatch.fnmatchcase(where, pattern) for pattern in UNJUDGED)


def places(value: Any, at: Place = ()) -> Iterator[Place]:
    """Where the values lie that are no lists or objects, and the empty ones."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if not items:
        yield at
    for key, inner in items:
        yield from places(inner, (*at, key))


def changed(value: Any) -> Any:
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value * 1.5 + 1
    if isinstance(value, str):
        if re.fullmatch(r"[0-9a-f]{64}", value):
            return ("1" if value[0] == "0" else "0") + value[1:]
        return (
            re.sub(r"\d(?=\D*$)", lambda match: str((int(match[0]) + 1) % 10), value)
            if re.search(r"\d", value)
            else value + "x"
        )
    return {None: "x", (): ["x"]}.get(tuple(value) if value is not None else None, {"x": 1})


def spot(name: str, place: Place) -> str:
    """A place without what is particular to one tensor, layer or file."""
    name = re.sub(r"(float64/)?\w+_(ref|paddle)\.json|\w+(?=_ledger)", "*", name.removeprefix("result/"))
    parts = ["*" if isinstance(part, int) or re.search(r"[./]", part) else part for part in place]
    return " ".join([name, *parts])


def with_change(bundle: Path, name: str, place: Place, folder: Path) -> Path:
    """The bundle with one value changed and a manifest that fits."""
    forgery = Forgery(bundle)

    def alter(value: Any) -> None:
        *way, last = place
        for key in way:
            value = value[key]
        value[last] = changed(copy.deepcopy(value[last]))

    forgery.edit(name, alter)
    return forgery.write(folder / "changed.zip")


def outcome(bundle: Path, name: str, place: Place, folder: Path) -> str:
    """The verdict on such a bundle; `refused` where it is none."""
    try:
        return verify_bundle(with_change(bundle, name, place, folder)).verdict
    except InputError:
        return "refused"


def all_values(bundle: Path) -> list[Value]:
    """Every value of every JSON file of a bundle, except digests of its members, which are renewed."""
    members = Forgery(bundle).members
    found = [(name, place) for name in members if name.endswith(".json") for place in places(json.loads(members[name]))]
    return [(name, place) for name, place in found if place and place[0] != "members"]


def main(arguments: list[str]) -> int:
    """Change every value, print where that goes unnoticed, and return how many such places are not listed."""
    from tests.attacks.forgeries import record

    unnoticed: dict[str, tuple[int, str]] = {}
    with tempfile.TemporaryDirectory() as name:
        bundle = Path(arguments[0]) if arguments else record(Path(name))
        values = all_values(bundle)
        seen: dict[str, int] = {}
        for member, place in values:
            where = spot(member, place)
            seen[where] = seen.get(where, 0) + 1
            if seen[where] > 6 and where not in unnoticed:
                continue  # of a thousand alike, six say it
            if outcome(bundle, member, place, Path(name)) == "confirmed":
                unnoticed[where] = unnoticed.get(where, (0, ""))[0] + 1, f"{member} {place}"
    for where, (count, example) in unnoticed.items():
        print(f"{'listed' if is_listed(where) else 'NOT LISTED'}: {where}: {count} unnoticed, {example}")
    unlisted = [where for where in unnoticed if not is_listed(where)]
    print(f"{len(values)} values in {len(seen)} places; unnoticed in {len(unnoticed)}, not listed {len(unlisted)}")
    return len(unlisted)


if __name__ == "__main__":
    sys.exit(min(1, main(sys.argv[1:])))
