"""Why moving averages of weights differ between two attached trainers: how far they move, when, or never."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from twinalign.verdict.attached_evidence import Sides, alike, cause_of, fitted, norm, same
from twinalign.verdict.attached_steps import Step

_ROUNDING = 2.0**-22
"""Of the average's own size: what storing it in float32 leaves of its small movement."""


def averages(sides: Sides) -> Iterator[dict[str, Any]]:
    """Parameters that no optimizer holds follow trained ones of the same names otherwise."""
    seen = [(now[0].number, *found) for then, now in sides.following() if (found := _ways(then, now)) is not None]
    moving = [(number, name, ways) for number, name, ways in seen if any(ways[0])]
    if moving and not any(any(ways[1]) for _, _, ways in seen):
        number, name, _ = moving[0]
        text = f"the port's average {name} never moves, the reference's follows the trained weights"
        yield cause_of("average_never_moves", number, "untrained", text)
    for number, _, ((late, early), (our_late, our_early)) in moving:
        if late and our_early:
            text = "the port's average takes the weights before the optimizer's step, the reference's those after it"
            yield cause_of("average_before_update", number, "untrained", text)
        elif early and our_late:
            text = "the port's average takes the weights after the optimizer's step, the reference's those before it"
            yield cause_of("average_after_update", number, "untrained", text)
        elif (our_late or our_early) and not same(late + early, our_late + our_early, 1e-2):
            kept = [1 - late - early, 1 - our_late - our_early]
            text = f"the port's average keeps {kept[1]:.4g} of itself in a step, the reference's {kept[0]:.4g}"
            yield cause_of("average_decay", number, "untrained", text, reference=kept[0], port=kept[1])
    resting = [number for number, _, ways in moving if not any(ways[1])]
    if resting and moving and len(resting) < len(moving):
        text = (
            f"the port's average rests in {len(resting)} of {len(moving)} steps in which the reference's moves: it is "
            "taken less often"
        )
        yield cause_of("average_interval", resting[0], "untrained", text, steps=resting)


def average_of_statistics(sides: Sides) -> Iterator[dict[str, Any]]:
    """Running statistics of an average are averaged, copied or left alone otherwise than on the other side."""
    seen: dict[tuple[str, str], list[tuple[int, float | None, float | None]]] = {}
    for then, now in sides.following():
        models = {name.rpartition(":")[0] for name in then[0].named("untrained")}
        after = [step.named("buffer") for step in now]
        own = [name for name in after[0] if name.rpartition(":")[0] in models and name in after[1]]
        trained = {name: array for name, array in then[0].named("buffer").items() if name not in own}
        for name, source in _partners(own, trained).items():
            theirs, ours = (_taken(*steps, name, source) for steps in zip(then, now, strict=True))
            seen.setdefault((name, source), []).append((now[0].number, theirs, ours))
    for (name, source), shares in seen.items():
        # One side may move it a step before the other, when one of several optimizers steps.
        most = [
            max((s for s in of_side if s is not None), default=None) for of_side in list(zip(*shares, strict=True))[1:]
        ]
        if most[0] is not None and most[1] is not None and not same(most[0], most[1], 1e-2):
            text = f"in a step the port's {name} takes {most[1]:.4g} of {source}, the reference's takes {most[0]:.4g}"
            first = next(n for n, a, b in shares if a is None or b is None or not same(a, b, 1e-2))
            yield cause_of("average_of_statistics", first, "buffer", text, reference=most[0], port=most[1])


def _taken(then: Step, now: Step, name: str, source: str) -> float | None:
    """The share of the way to its source that an average went; None where it went elsewhere."""
    before, after = then.named("buffer"), now.named("buffer").get(name)
    if after is None or not {name, source} <= before.keys() or before[name].shape != before[source].shape:
        return None
    start = before[name].astype(np.float64)
    way = before[source] - start
    return _share(start, after - start, way) if way.any() else None


def _share(start: np.ndarray, moved: np.ndarray, way: np.ndarray) -> float | None:
    """The share of a way that something moved from its start; None where that was another way."""
    if not moved.any():
        return 0.0
    left = 1e-2 + _ROUNDING * norm({"": start}) / norm({"": moved})
    found = fitted([way], moved, left) if way.any() else None
    return float(found[0]) if found is not None and 0 < found[0] <= 1.001 else None


Way = tuple[float, float]
"""Shares of the way to the weights after and before the update that an average went in a step."""


def _ways(then: tuple[Step, Step], now: tuple[Step, Step]) -> tuple[str, tuple[Way, Way]] | None:
    """A wrong average's name, and how those of both sides moved; None where all are right or something is unknown."""
    after = [step.named("untrained") for step in now]
    partners = _partners(list(after[0]), then[0].named("updated"))
    wrong = [name for name in partners if not alike(after[0][name], after[1].get(name), 1e-6)]
    if not wrong:
        return None
    theirs, ours = (_way(*steps, partners) for steps in zip(then, now, strict=True))
    return (wrong[0], (theirs, ours)) if theirs is not None and ours is not None else None


def _partners(names: list[str], trained: Mapping[str, np.ndarray]) -> dict[str, str]:
    """Averaged parameter -> the trained one whose name has the longest end in common with it."""
    found = {}
    for name in names:
        scores = {other: _common_end(name, other) for other in trained}
        best = max(scores, key=lambda other: scores[other], default="")
        if best and scores[best]:
            found[name] = best
    return found


def _common_end(name: str, other: str) -> int:
    parts = [text.replace(":", ".").split(".")[::-1] for text in (name, other)]
    return next((place for place, (a, b) in enumerate(zip(*parts, strict=False)) if a != b), min(map(len, parts)))


def _way(then: Step, now: Step, partners: Mapping[str, str]) -> Way | None:
    before, after = then.named("untrained"), now.named("untrained")
    updated, weights = then.named("updated"), then.named("weights")
    known = [
        (name, other)
        for name, other in partners.items()
        if name in before and name in after and other in updated and before[name].shape == updated[other].shape
    ]
    if not known:
        return None

    def joined(of: Mapping[str, np.ndarray], place: int) -> np.ndarray:
        return np.concatenate([of[pair[place]].astype(np.float64).reshape(-1) for pair in known])

    start = joined(before, 0)
    moved = joined(after, 0) - start
    late, early = (_share(start, moved, joined(of, 1) - start) for of in (updated, weights))
    return (late, 0.0) if late is not None else (0.0, early) if early is not None else None
