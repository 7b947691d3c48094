"""Whether processes stand still: stopped by a signal, or without computing and reading anything for long."""

import os
import time
from collections.abc import Iterable
from pathlib import Path

POLL_SECONDS = 0.5
STOPPED_SECONDS = 15.0
IDLE_SECONDS = 45.0
_BETWEEN_LOOKS = 2.0
_LEAST_SECONDS = 0.2
"""Seconds of computing within `IDLE_SECONDS` that count as work; threads that only wait take less."""
_LEAST_BYTES = 1 << 16


class Stillness:
    """Looks at processes from time to time; where there is no /proc, it never finds that one stands still."""

    def __init__(self) -> None:
        self._looked = 0.0
        self._worked: dict[int, tuple[float, float, int]] = {}
        """When a process had last worked, and how much it had computed (s) and read or written (bytes) by then."""
        self._ran: dict[int, float] = {}
        """When a process was last not stopped."""

    def look(self, processes: Iterable[int]) -> dict[int, str]:
        """Those of the processes that stand still -> what is known of it."""
        now = time.monotonic()
        if now - self._looked < _BETWEEN_LOOKS:
            return {}
        self._looked = now
        found = {}
        for process in processes:
            state, seconds, moved = _activity(process)
            if state not in "Tt":
                self._ran[process] = now
            at, seconds_then, moved_then = self._worked.setdefault(process, (now, seconds, moved))
            if state == "D" or seconds - seconds_then >= _LEAST_SECONDS or moved - moved_then >= _LEAST_BYTES:
                self._worked[process] = now, seconds, moved
            if now - self._ran.setdefault(process, now) >= STOPPED_SECONDS:
                found[process] = "it was stopped by a signal"
            elif now - at >= IDLE_SECONDS and self._worked[process][0] == at:
                found[process] = f"it has neither computed nor read anything for {IDLE_SECONDS:g} s"
        return found


def _activity(process: int) -> tuple[str, float, int]:
    """State, seconds computed and bytes read and written of a process, the latter two with all that it started."""
    try:
        folder = Path(f"/proc/{process}")
        state, *fields = (folder / "stat").read_text().rpartition(")")[2].split()
        seconds = sum(int(field) for field in fields[10:14]) / os.sysconf("SC_CLK_TCK")
        moved = sum(int(line.split()[1]) for line in (folder / "io").read_text().splitlines()[:2])
        children = " ".join(path.read_text() for path in folder.glob("task/*/children")).split()
    except (OSError, ValueError, IndexError):
        return "D", 0.0, 0  # it has just ended, or nothing can be known
    for child in children:
        _, of_child, moved_by_child = _activity(int(child))
        seconds, moved = seconds + of_child, moved + moved_by_child
    return state, seconds, moved
