"""Runs of the reference with lines of the port: what a line changes, and whether some give the port's values."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from twinalign.replay.port_lines import LinesVariant
from twinalign.replay.shared_values import leads_to_known
from twinalign.verdict.array_difference import Difference, difference

NOTHING = 1e-12
"""A line that changes less is spelled otherwise alone."""
_ROUNDING, _SHARE = 1e-6, 0.01
"""Numbers that paddle holds in float32 change less than the first; no less than this share of what is wrong counts."""
_CANCELLED, _LARGEST = 1e-13, 1e30
"""Relative to the greatest value, of those that hide nothing: what is left of values that cancel out."""
_MOST_DOUBTED = 6

Values = Mapping[str, Any]


class LineRuns:
    """What the reference gives with lines of the port.

    Args:
        run: runs the reference's unit under a variant.
        usual: what it gives without one.
        port: the port's values.
        wrong: those of them that differ.
    """

    def __init__(self, run: Callable[[Any], Values], usual: Values, port: Values, wrong: Values) -> None:
        self._run, self._usual = run, usual
        self._port = {name: value for name, value in port.items() if name in usual}
        sizes = [float(np.abs(value).max(initial=0.0)) for value in self._port.values() if value.dtype.kind == "f"]
        self._floor = _CANCELLED * min(max(sizes, default=0.0), _LARGEST)
        before = max(
            (difference(usual[name], wrong[name]).relative for name in wrong if name in usual), default=math.inf
        )
        self.rounding = max(NOTHING, min(_ROUNDING, _SHARE * before))
        """What lines may change or leave that does not count: next to nothing where what is wrong is small itself."""

    def change(self, variant: LinesVariant) -> float:
        """The greatest relative change of the values that a line makes; infinite where it does not run."""
        try:
            found = self._run(variant)
        except Exception:  # a line may need names that the reference's function does not have, or another line
            return math.inf
        usual = self._usual.items()
        return max((difference(found[n], v).relative if n in found else math.inf for n, v in usual), default=0.0)

    def gives_port(self, line: LinesVariant) -> bool:
        return self.hold([line])

    def hold(self, lines: Sequence[LinesVariant]) -> bool:
        return bool(self.give_port(lines))

    def right_lines(self, lines: Sequence[LinesVariant], changes: Mapping[int, float]) -> list[tuple[str, int, int]]:
        """File, first and last line of the port's lines that compute what the reference's do, as far as runs show.

        `changes`: what each line changes, by its id. Those of a function that change nothing together are right, though
        one may not run without another; so are all but one that change nothing without it.
        """
        functions: dict[int, list[LinesVariant]] = {}
        for one in lines:
            functions.setdefault(id(one.lines[0].theirs), []).append(one)
        found = list[LinesVariant]()
        for own in functions.values():
            doubted = [one for one in own if changes[id(one)] > self.rounding]
            without = [[one for one in own if one is not other] for other in doubted[:_MOST_DOUBTED]]
            right = next((some for some in (own, *without) if some and self._change_nothing(some)), None)
            alone = [one for one in own if one not in doubted and None not in (one.lines[0].old, one.lines[0].new)]
            found += alone if right is None else right
        return [place for one in found for place in one.lines_of_port]

    def _change_nothing(self, lines: Sequence[LinesVariant]) -> bool:
        return self.change(functools.reduce(LinesVariant.merged, lines)) <= self.rounding

    def give_port(self, lines: Sequence[LinesVariant]) -> bool | None:
        """Whether these lines at once give the port's values; None where they do not run together.

        If all lines of the port do not, what is wrong stands in none of them, and two together fit by chance.
        """
        try:
            found = self._run(functools.reduce(LinesVariant.merged, lines))
        except Exception:  # the code as a whole may need what some lines alone do not have
            return None
        wanted = self._port.items()
        return all(name in found and self._is_left(difference(found[name], value)) for name, value in wanted)

    def _is_left(self, apart: Difference) -> bool:
        """Whether this is what rounding leaves; all of it is where values cancel out: the mean of what a norm gives."""
        return apart.relative <= self.rounding or (not apart.text and apart.max_abs <= self._floor)


def lines_by_values(
    steps: Sequence[Mapping[str, Any]], unknown: Sequence[Any]
) -> tuple[set[tuple[str, int]], list[tuple[str, int]]]:
    """File and number of the port's lines of which the reference computes every value, and of the others, in order.

    Those of values that only the port computes on the way to values of both sides are among neither.

    Args:
        steps: of the port's code, as `code_lines.Step` in JSON.
        unknown: prints of the values that the reference does not compute.
    """
    lacking = [[list(shape), sample] for shape, sample in unknown]
    is_known = [[list(one["print"][0]), one["print"][1]] not in lacking for one in steps]
    places = [(one.get("file", ""), one.get("line", 0)) for one in steps]
    others = [place for place, known in zip(places, is_known, strict=True) if not known]
    wrong = [
        place for at, place in enumerate(places) if not is_known[at] and not leads_to_known(steps[at:], is_known[at:])
    ]
    return {*places} - {*others}, list(dict.fromkeys(wrong))
