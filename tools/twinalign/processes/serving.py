"""The child's end: requests arrive as JSON lines, events are returned as JSON lines.

Run as `python -m twinalign.processes.serving`. Standard output carries only events; everything that a framework or the
user's code prints goes to standard error.

With the argument `--forks` the first request prepares this process, by importing a framework say, and all others are
served by a fork of it. The request `{"again": true}` ends that fork and begins another one, in which nothing is left of
what the last one imported, drew or set.
"""

import contextlib
import gc
import importlib
import json
import operator
import os
import select
import signal
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any, NoReturn

from twinalign.errors import InputError, has_no_room, unwritten
from twinalign.processes import tracebacks


def end_with_parent(or_input: bool = False) -> None:
    """End this process once its parent is gone, which may be killed without notice.

    `or_input`: also once nobody holds the other end of standard input, as in a fork whose parent stays.
    """
    parent = os.getppid()
    hung_up = select.poll()
    if or_input:
        hung_up.register(0, 0)  # no event is asked for: a closed pipe is always reported

    def watch() -> None:
        while os.getppid() == parent and not hung_up.poll(1000):
            pass
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextlib.contextmanager
def imported_for_good() -> Iterator[None]:
    """What is imported here is left out of every later search for garbage, which takes a second for a framework."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()


def serve(requests: Iterable[str], events: IO[str]) -> bool:
    """Answer each line of `requests` with events.

    A request names a function of this package and its arguments. A request with `starts` names a service: the object
    that it makes becomes the first argument of every later call. Without a service, functions get only the arguments.

    Returns:
        Whether a request asked for another fork; False if the requests have ended.
    """

    def emit(event: str, **values: Any) -> None:
        events.write(json.dumps({"event": event, **values}) + "\n")
        events.flush()

    service: Any = None
    side = ""
    explain = None
    """The service's way to say something better than an error does; None where it knows nothing about it."""
    for line in requests:
        request = json.loads(line)
        if request.get("again"):
            return True
        values = request["values"]
        try:
            function = _function(request["function"])
            if request["starts"]:
                side, explain = values["side"], getattr(function, "explain", None)
                service = function(emit, **values)
                emit("done", answer={})
            else:
                emit("done", answer=function(**values) if service is None else function(service, **values))
        except InputError as error:
            emit("failed", kind="input", message=str(error))
        except MemoryError:
            emit("failed", kind="crash", message="out of memory", traceback="")
        except Exception as error:
            problem = explain(error, side) if explain is not None else None
            if isinstance(error, OSError) and has_no_room(error):  # in a file that the user's own code writes, say
                problem = str(unwritten(error, error.filename or tracebacks.place(error) or "temporary files"))
            if problem is not None:
                emit("failed", kind="input", message=problem)
                continue
            emit(
                "failed",
                kind="crash",
                message=tracebacks.last_line(error),
                traceback=tracebacks.full(error),
                frames=tracebacks.shortened(error),
                entered=tracebacks.entered(error),
                place=tracebacks.place(error),
                own=tracebacks.own_place(error),
            )
    return False


def _function(reference: str) -> Any:
    """The function that `module:name` refers to; the name may be inside a class."""
    module, _, name = reference.partition(":")
    if not module.startswith("twinalign."):
        raise ValueError(f"{reference}: not a function of twinalign")
    return operator.attrgetter(name)(importlib.import_module(module))


def work_in(folder: str, log: str) -> dict[str, Any]:
    """Go to a folder, from which modules are imported too, and let everything that this process prints go to a file.

    The folder takes the place of the one in which the process was started; the file is emptied.
    """
    # As `side_process.borrowed_package` has it: the folder stands before what the caller's PYTHONPATH names, which may
    # well name it again.
    before = os.getcwd()
    given = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    rest = [path for path in sys.path if path not in (before, *given)]
    if before in given:
        given[given.index(before)] = folder
    os.chdir(folder)
    os.environ["PYTHONPATH"] = os.pathsep.join(given)
    sys.path[:] = [folder, *given, *rest]
    sys.stderr.flush()
    sys.stdout.flush()
    opened = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
    for printed in (1, 2):
        os.dup2(opened, printed)
    os.close(opened)
    return {}


def serve_by_forks(requests: IO[str], events: IO[str]) -> None:
    """Answer the first request here, and all others in forks of this process, one after the other.

    The caller waits for each answer, so no fork reads a request that is meant for the next one. If a fork ends without
    being asked to, this process ends in the same way.
    """
    first = requests.readline()
    if not first:
        return
    serve([first], events)
    while True:
        was_asked, ask = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(was_asked)
            _serve_in_fork(requests, events, ask)
        os.close(ask)
        _, status = os.waitpid(child, 0)
        asked = os.read(was_asked, 1)
        os.close(was_asked)
        if not asked:
            code = os.waitstatus_to_exitcode(status)
            if code < 0:
                with contextlib.suppress(OSError):  # SIGKILL has no handler to take away
                    signal.signal(-code, signal.SIG_DFL)
                os.kill(os.getpid(), -code)
            os._exit(code)
        events.write(json.dumps({"event": "done", "answer": {}}) + "\n")
        events.flush()


def _serve_in_fork(requests: IO[str], events: IO[str], ask: int) -> NoReturn:
    code = 1
    try:
        end_with_parent(or_input=True)
        # Bytecode is told from newer source by whole seconds and size, which two saves within a second may share.
        sys.dont_write_bytecode = True
        if serve(iter(requests.readline, ""), events):
            os.write(ask, b"x")
        code = 0
    except SystemExit as ended:  # the user's code may call sys.exit
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main(arguments: Sequence[str]) -> None:
    """Serve requests until standard input closes."""
    events: IO[str] = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    if "--forks" in arguments:
        serve_by_forks(sys.stdin, events)  # a thread of its own would not be in its forks
        return
    end_with_parent()
    serve(sys.stdin, events)


if __name__ == "__main__":
    main(sys.argv[1:])
