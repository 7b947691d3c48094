"""Bounds for code that may run for ever, ask for more memory than there is, or change modules: with an edit in it."""

import contextlib
import functools
import resource
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

from twinalign.replay.module_containers import containers_kept

_SECONDS, _BYTES = 2.0, 1 << 30
LONGEST = 5.0
"""Seconds of processor time that a component with an edit in it may take, beside what it takes as it is."""
_BYTES_OF_COMPONENTS = 1 << 33
"""What a training of a large model may take; more than that would need more time as well."""
_AT_ONCE = 1e-3


@contextlib.contextmanager
def guarded(seconds: float = _SECONDS, more_bytes: int = _BYTES) -> Iterator[None]:
    """Inside the block more processor time than this raises TimeoutError, and more memory MemoryError.

    What is changed in containers of the user's modules is undone at its end.
    """

    def stop(*given: Any) -> None:
        raise TimeoutError

    is_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGVTALRM, stop) if is_main else None
    left = signal.getitimer(signal.ITIMER_VIRTUAL)[0] if is_main else 0.0  # of a block around this one
    most_seconds = min(seconds, left or seconds)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = _taken() + more_bytes
    if soft == resource.RLIM_INFINITY or most < soft:
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    try:
        if is_main:
            signal.setitimer(signal.ITIMER_VIRTUAL, most_seconds)
        with containers_kept():
            yield
    finally:
        if is_main:
            taken = most_seconds - signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)[0]
            signal.setitimer(signal.ITIMER_VIRTUAL, max(left - taken, _AT_ONCE) if left else 0.0)
            signal.signal(signal.SIGVTALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def bounded(function: Callable[[], Any], seconds: float) -> Callable[[], Any]:
    """The function, each call of which is `guarded`."""

    @functools.wraps(function)
    def called() -> Any:
        with guarded(seconds, _BYTES_OF_COMPONENTS):
            return function()

    return called


def _taken() -> int:
    """Bytes of address space that the process has."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()
