"""The child's end: requests arrive as JSON lines, events are returned as JSON lines.

Run as `python -m twinalign.processes.serving`. Standard output carries only events; everything that a framework or the
user's code prints goes to standard error.
"""

import importlib
import json
import operator
import os
import sys
import threading
import time
from collections.abc import Iterable
from typing import IO, Any

from twinalign.errors import InputError, has_no_room, unwritten
from twinalign.processes import tracebacks


def end_with_parent() -> None:
    """End this process once its parent is gone, which may be killed without notice."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def serve(requests: Iterable[str], events: IO[str]) -> None:
    """Answer each line of `requests` with events.

    A request names a function of this package and its arguments. A request with `starts` names a service: the object
    that it makes becomes the first argument of every later call. Without a service, functions get only the arguments.
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
                own=tracebacks.own_place(error),
            )


def _function(reference: str) -> Any:
    """The function that `module:name` refers to; the name may be inside a class."""
    module, _, name = reference.partition(":")
    if not module.startswith("twinalign."):
        raise ValueError(f"{reference}: not a function of twinalign")
    return operator.attrgetter(name)(importlib.import_module(module))


def main() -> None:
    """Serve requests until standard input closes."""
    end_with_parent()
    events: IO[str] = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    serve(sys.stdin, events)


if __name__ == "__main__":
    main()
