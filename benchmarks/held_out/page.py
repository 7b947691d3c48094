"""The page of `benchmarks/held_out_faults.py`, and the lot that divides its faults."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import faults
import looked_at

_DRAWN = {"encoder": faults.ENCODER, "pyramid": faults.PYRAMID, "graph": faults.GRAPH}
_LOOKED_AT = {"window": looked_at.WINDOW, "decoder": looked_at.DECODER, "series": looked_at.SERIES}
FAULTS = {**_DRAWN, **_LOOKED_AT}
SEED = 23
SEEN = ("encoder-43", "pyramid-9")
"""Looked at while causes were written: no longer held out, whatever half the lot gave them."""
_COUNTED = {
    "located": "located",
    "proven": "a cause proven",
    "elsewhere": "a cause stated for a layer that is right",
}
_HEAD = """# Faults that the causes were not written for

Written by `python benchmarks/held_out_faults.py`.

Each fault is one line of a small port that computes something else: {total} in six ports. Those of encoder, pyramid and
graph ([list](../benchmarks/held_out/faults.py)) are divided by lot into two halves: A may be looked at while causes are
written; B is counted, and what was found in it is not shown, so that it stays unseen. Those of window, decoder and
series ([list](../benchmarks/held_out/looked_at.py)) were all looked at: they are in half A. {seen} were looked at
before, and are no longer held out: they are in neither half. Faults that change no recorded number do not
count either ({without}). A change of rounding counts: `encoder-7` and `decoder-31` (rotary positions are relative) and
`encoder-22` (what differs is masked behind it) change nothing else, and are the three of half A that are not located.

- *Located*: `locate` names the layer that is wrong, within the stages forward, loss and backward.
- *A cause proven*: each place that is named rightly has one.
- *Asked*: located at least 98 %, proven at least 90 %, and no cause stated for a layer that is right.

All rows are of one state of the sources, the tree `{state}` of `tools/twinalign`. A search is limited by processor
time, not by the clock, and finds the same on a busy machine.
"""


def halves() -> dict[str, str]:
    """Name of each fault → the half that it was drawn into; `seen` for those that are no longer held out."""
    names, others = _names(_DRAWN), _names(_LOOKED_AT)
    random.Random(SEED).shuffle(names)
    drawn = {name: "seen" if name in SEEN else "AB"[at % 2] for at, name in enumerate(names)}
    return drawn | dict.fromkeys(others, "A")


def _names(ports: Mapping[str, Sequence[Any]]) -> list[str]:
    return [f"{port}-{number}" for port, found in ports.items() for number in range(len(found))]


def document(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """The page of the rows of all faults.

    Raises:
        ValueError: a fault was not measured, or not on the state of the others.
    """
    of = halves()
    states = {row["state"] for row in rows.values()}
    if rows.keys() != of.keys() or len(states) != 1:
        raise ValueError(f"{len(rows)} of {len(of)} faults measured, on {len(states)} states of the sources")
    counted = {name: rows[name] for name in of if rows[name]["effect"] and of[name] != "seen"}
    text = _HEAD.format(
        total=len(of),
        seen=" and ".join(f"`{name}`" for name in SEEN),
        without=sum(not row["effect"] for row in rows.values()),
        state=states.pop(),
    )
    found = {half: [row for name, row in counted.items() if of[name] == half] for half in "AB"}
    lines = ["| | half A | half B |", "| --- | --- | --- |"]
    lines.append(f"| faults | {len(found['A'])} | {len(found['B'])} |")
    lines += [
        f"| {words} | " + " | ".join(_share(found[half], key) for half in "AB") + " |"
        for key, words in _COUNTED.items()
    ]
    lines += [
        "",
        "## Half A",
        "",
        "| fault | change | located | cause proven | elsewhere | cause |",
        "|" + " --- |" * 6,
    ]
    lines += [_row(name, counted[name]) for name in _names(FAULTS) if name in counted and of[name] == "A"]
    return text + "\n" + "\n".join(lines) + "\n"


def _share(found: list[Mapping[str, Any]], key: str) -> str:
    number = sum(row[key] for row in found)
    return str(number) if key == "elsewhere" else f"{number} ({number / max(1, len(found)):.1%})".replace("%", " %")


def _row(name: str, row: Mapping[str, Any]) -> str:
    texts = "; ".join(dict.fromkeys(_words(one["text"] or "–") for one in row["named"])) or "–"
    change = f"`{row['before']}` → `{row['after']}`"
    words = ["yes" if row[key] else "**no**" for key in ("located", "proven")]
    cells = [name, change, *words, "**yes**" if row["elsewhere"] else "no", texts]
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _words(text: str) -> str:
    """A cause with its brackets outside of code marked: `[:, None]` is no link."""
    return "`".join(part if at % 2 else part.replace("[", "\\[") for at, part in enumerate(text.split("`")))
