"""Bounds for code with an edit in it, which may run or wait for ever, ask for more memory or processes than there are,
or change modules.
"""

import contextlib
import functools
import gc
import multiprocessing
import os
import resource
import signal
import threading
from collections.abc import Callable, Collection, Iterator
from typing import Any

from twinalign.patching import replaced
from twinalign.replay.module_containers import containers_kept

_SECONDS, _BYTES = 2.0, 1 << 30
LONGEST = 5.0
"""Seconds of processor time that a component with an edit in it may take, beside what it takes as it is."""
_BYTES_OF_COMPONENTS = 1 << 33
"""What a training of a large model may take; more than that would need more time as well."""
_AT_ONCE = 1e-3
_TIMES_AS_LONG, _WAITED = 10, 5.0
"""So much longer by the clock, on a busy machine, and so many seconds more; who waits takes no processor time."""
_MOST_PROCESSES = 16


@contextlib.contextmanager
def guarded(seconds: float = _SECONDS, more_bytes: int = _BYTES) -> Iterator[None]:
    """Inside the block more processor time than this raises TimeoutError, and more memory MemoryError.

    So does waiting much longer than that, and BlockingIOError what starts more than a few processes, and RuntimeError
    what ends the process. What is changed in containers of the user's modules is undone at its end, and processes that
    are left are killed.
    """

    def stop(*given: Any) -> None:
        raise TimeoutError

    is_main = threading.current_thread() is threading.main_thread()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = _taken() + more_bytes
    if soft == resource.RLIM_INFINITY or most < soft:
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    try:
        with contextlib.ExitStack() as stack:
            if is_main:
                longest = _TIMES_AS_LONG * seconds + _WAITED
                stack.enter_context(_timed(signal.ITIMER_REAL, signal.SIGALRM, longest, stop))
                stack.enter_context(_timed(signal.ITIMER_VIRTUAL, signal.SIGVTALRM, seconds, stop))
            stack.enter_context(_uncollected())
            stack.enter_context(_few_processes())
            stack.enter_context(containers_kept())
            yield
    except SystemExit as error:  # as of a parser of arguments that is given others
        raise RuntimeError(f"the code ends its process with {error.code!r}") from error
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Inside the block no garbage is collected: that of all the process holds is none of the edit's time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextlib.contextmanager
def _timed(timer: int, number: int, seconds: float, stop: Callable[..., None]) -> Iterator[None]:
    """Inside the block `stop` is called when the timer has run out, this one or that of a block around it."""
    before = signal.signal(number, stop)
    left = signal.getitimer(timer)[0]
    most = min(seconds, left or seconds)
    try:
        signal.setitimer(timer, most)
        yield
    finally:
        taken = most - signal.setitimer(timer, 0.0)[0]
        signal.setitimer(timer, max(left - taken, _AT_ONCE) if left else 0.0)
        signal.signal(number, before)


@contextlib.contextmanager
def _few_processes() -> Iterator[None]:
    """Let loaders start a few workers: a wrong number of them may be hundreds, each as large as this process."""
    started, before, fork = 0, set(multiprocessing.active_children()), os.fork

    def counted() -> int:
        nonlocal started
        started += 1
        if started > _MOST_PROCESSES:
            raise BlockingIOError("an edit starts too many processes")
        return fork()

    with replaced(os, "fork", counted):
        try:
            yield
        finally:
            _kill(set(multiprocessing.active_children()) - before)


def _kill(children: Collection[Any]) -> None:
    """Kill processes that are left, unseen by paddle, which ends this one if a loader's worker is killed."""
    if not children:
        return
    is_main = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGCHLD, signal.SIG_DFL) if is_main else None
    for child in children:
        child.kill()
    for child in children:
        child.join()
    if is_main:
        signal.signal(signal.SIGCHLD, handler)


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
