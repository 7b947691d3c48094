"""The time that a search for causes may take, kept by the process that tries them."""

import contextlib
import math
import time
from collections.abc import Iterator
from typing import Any

SECONDS_OF_ONE, OF_ALL = 20.0, 60.0
"""One layer, or another component, takes no longer, if so many seconds are there for all; with more, as much longer."""
SHARE_OF_ONE = 0.5
"""Nor more than this share of the time that is left: what is tried for it must not leave others without."""


class Budget:
    """Seconds of processor time that are shared by all places whose cause is looked for.

    Processor time, unlike time by the clock, proves the same causes on a busy machine as on an idle one.
    """

    def __init__(self, seconds: float = math.inf) -> None:
        self._from, self._until = 0.0, math.inf
        self.begin(seconds)

    def begin(self, seconds: float) -> None:
        self.seconds = self.left = seconds
        self.of_next = math.inf
        """Seconds for the next cause, at most."""

    @contextlib.contextmanager
    def of_one(self) -> Iterator[None]:
        """What runs within is the search for one cause."""
        self._from = time.process_time()
        longer = max(1.0, self.seconds / OF_ALL) if math.isfinite(self.seconds) else 1.0
        self._until = self._from + min(SECONDS_OF_ONE * longer, self.left * SHARE_OF_ONE, self.of_next)
        try:
            yield
        finally:
            self.left = max(0.0, self.left - (time.process_time() - self._from))
            self._until = math.inf

    @property
    def is_spent(self) -> bool:
        return time.process_time() >= self._until

    def stopped(self, not_tried: str) -> str | None:
        """In words, that a search was given up within `of_one`; None if it was not."""
        if not not_tried:
            return None
        took = f"{time.process_time() - self._from:.0f} s had gone into it"
        more = 2 * max(self.seconds, OF_ALL)
        return f"not tried: {not_tried}; {took}, and --explain-seconds {more:g} gives it more"


BUDGET = Budget()
"""That of this process; without a limit until `set_budget` is called."""


def set_budget(worker: Any, seconds: float) -> dict[str, Any]:
    """Begin anew with so many seconds for the causes that this process is asked for next."""
    BUDGET.begin(seconds)
    return {}


def set_budget_of_next(worker: Any, seconds: float) -> dict[str, Any]:
    """Look for the next causes for so many seconds each, at most."""
    BUDGET.of_next = seconds
    return {}
