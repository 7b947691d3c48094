"""Other ways in which the momentum of a moving average may run over the steps, from the one that was seen."""

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from twinalign.patching import Around, replaced

Momentum = Callable[[int, float], float]
"""Of the number of the step, from 0, and the momentum that was seen there."""
_USUAL = (0.9, 0.99, 0.996, 0.999, 0.9999)


def other_momenta(seen: Mapping[int, float]) -> Iterator[tuple[str, Momentum]]:
    """Those of the steps beside, constants and those that grow from a small one, with a description."""
    last = max(seen)
    yield "that of the next step", lambda step, m: seen.get(step + 1, seen[last])
    for first in (seen.get(1, 0.0), 0.0):  # a cosine is even, and others begin at 0
        yield "that of the step before", _before(seen, first)
    for most, add in itertools.product(dict.fromkeys((max(seen.values()), *_USUAL)), (None, 1, 2, 0)):
        text = f"always {most:.6g}" if add is None else f"min({most:.6g}, ({add} + t) / ({9 + add} + t))"
        yield text, _growing(most, add)


def _before(seen: Mapping[int, float], first: float) -> Momentum:
    return lambda step, m: seen.get(step - 1, first)


def _growing(most: float, add: int | None) -> Momentum:
    return lambda step, m: most if add is None else min(most, (add + step) / (9 + add + step))


def scaled(share: float, constant: float | None) -> Momentum:
    """So many times what the new values weigh in each step, or in that of a constant momentum."""
    return lambda step, m: 1.0 - share * (1.0 - (m if constant is None else constant))


def in_words(text: str, momentum: Momentum, seen: Mapping[int, float]) -> str:
    """A momentum with its first values and those that were seen."""
    first = list(seen.items())[:3]
    ours, theirs = (
        ", ".join(f"{m:.6g}" for m in one) for one in ([momentum(*p) for p in first], [m for _, m in first])
    )
    return f"{text}: {ours}, … in place of {theirs}, …"


def with_momenta(change: Callable[[float], float]) -> Around:
    """A training in which the momentum of each batch norm is what `change` makes of it."""

    @contextlib.contextmanager
    def around(model: Any) -> Iterator[None]:
        norms = [m for m in model.modules() if hasattr(m, "running_mean")]
        layers = [m for m in norms if isinstance(getattr(m, "momentum", None), float)]
        with contextlib.ExitStack() as stack:
            for layer in layers:
                stack.enter_context(replaced(layer, "momentum", change(layer.momentum)))
            yield

    return around
