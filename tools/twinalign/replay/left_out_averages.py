"""Which parameters a moving average may leave out, from how far the averages are from what they follow."""

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from twinalign.files.curve_names import BUFFER_NORM, EMA_DISTANCE

_MOST_TRIED = 8
_SHOWN = 4
_DIGITS = 6
"""Groups that come as near are tried in their order: a gradient of zero moves no average."""
_PAIRS = 24
"""Of so many parameters any two are tried together as well."""
Curves = Mapping[str, np.ndarray]
Distances = Mapping[str, tuple[float, float]]
"""Name of an average → how far its parameter is, after a step, from where the average began, and from the average."""


def left_out(
    seen: Sequence[Distances], reference: Curves, port: Curves, floors: Mapping[str, float], wrong: Sequence[str]
) -> list[tuple[str, ...]]:
    """Names of averages, and of buffers beside them, that the port may leave out, the likeliest first.

    Args:
        seen: of the steps of the reference.
        reference, port, floors: curves by name, and what rounding may be of them.
        wrong: names of the curves that differ.
    """
    if not seen:
        return []
    averaged = {f"{name.partition('.')[0]}." for name in seen[0]}
    statistics = [name.removeprefix(BUFFER_NORM) for name in wrong if name.startswith(BUFFER_NORM)]
    buffers = tuple(name for name in statistics if name.startswith(tuple(averaged)))
    found = _parameters(seen, reference, port, floors) if EMA_DISTANCE in wrong else []
    return [*found, *([buffers, *((*names, *buffers) for names in found)] if buffers else [])]


def _parameters(
    seen: Sequence[Distances], reference: Curves, port: Curves, floors: Mapping[str, float]
) -> list[tuple[str, ...]]:
    theirs, ours = (curves.get(EMA_DISTANCE, np.zeros(0)) for curves in (reference, port))
    both = min(len(seen), len(theirs), len(ours))
    apart = np.flatnonzero(np.abs(theirs[:both] - ours[:both]) > floors.get(EMA_DISTANCE, 0.0))
    if not len(apart):
        return []
    at = int(apart[0])
    # Averages that stay where they began add this to the square of the whole distance.
    added = {name: began**2 - now**2 for name, (began, now) in seen[at].items()}
    wanted = float(ours[at] ** 2 - theirs[at] ** 2)
    misses = {names: abs(math.fsum(added[name] for name in names) - wanted) for names in _groups(list(added))}
    return sorted(misses, key=lambda names: round(misses[names] / abs(wanted), _DIGITS))[:_MOST_TRIED]


def _groups(names: Sequence[str]) -> list[tuple[str, ...]]:
    """The last ones and the first ones, those of a layer, those of a name, single ones and two of them; not all."""
    found = [tuple(names[at:]) for at in range(len(names) - 1, 0, -1)] + [
        tuple(names[:at]) for at in range(1, len(names))
    ]
    prefixes = {name.rsplit(".", count)[0] for name in names for count in range(1, name.count(".") + 1)}
    found += [tuple(name for name in names if name.startswith(f"{prefix}.")) for prefix in sorted(prefixes)]
    last = dict.fromkeys(name.rpartition(".")[2] for name in names)
    found += [tuple(name for name in names if name.rpartition(".")[2] == end) for end in last]
    found += [(name,) for name in names]
    found += itertools.combinations(names, 2) if len(names) <= _PAIRS else []
    return [group for group in dict.fromkeys(found) if 0 < len(group) < len(names)]


def listed(names: Sequence[str]) -> str:
    """The first of several names."""
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
