"""How a recorder process answers: requests come as JSON lines, events go back as JSON lines."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from typing import IO, Any

from twinalign.backends import FRAMEWORK_OF_SIDE
from twinalign.errors import InputError
from twinalign.recorder import tracebacks


def _missing_framework(error: Exception, side: str) -> str | None:
    """What to say where the user's code imports a framework that this interpreter lacks, the other side's above all."""
    missing = error.name.partition(".")[0] if isinstance(error, ModuleNotFoundError) and error.name else ""
    if missing not in FRAMEWORK_OF_SIDE.values() or sys.modules.get(missing) is not None:
        return None
    where = tracebacks.place(error) or "the case"
    if missing == FRAMEWORK_OF_SIDE[side]:
        return f"{where}: {sys.executable} has no {missing}; name an interpreter that has it with --{side}-python"
    return (
        f"{where}: imports {missing} on the {side} side, where there is none; import it inside the methods of its own "
        "side, not at the top of the file"
    )


def end_with_parent() -> None:
    """End this process when its parent is gone, killed without a chance to say so."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def serve(requests: Iterable[str], events: IO[str], worker_of: Callable[..., Any]) -> None:
    """Answer each line of `requests` with events; the first one makes `worker_of(emit, request)`."""

    def emit(event: str, **values: Any) -> None:
        events.write(json.dumps({"event": event, **values}) + "\n")
        events.flush()

    worker: Any = None
    side = "ref"
    for line in requests:
        request = json.loads(line)
        operation = request.pop("operation")
        try:
            if operation == "start":
                side = request["side"]
                worker = worker_of(emit, request)
                emit("done", **worker.describe())
            else:
                emit("done", **getattr(worker, operation)(**request))
        except InputError as error:
            emit("failed", kind="input", message=str(error))
        except MemoryError:
            emit("failed", kind="crash", message="out of memory", traceback="")
        except Exception as error:
            if (problem := _missing_framework(error, side)) is not None:
                emit("failed", kind="input", message=problem)
                continue
            last = traceback.format_exception_only(error)[-1].strip()
            emit(
                "failed",
                kind="crash",
                message=last,
                traceback=tracebacks.full(error),
                frames=tracebacks.shortened(error),
                entered=tracebacks.entered(error),
            )
