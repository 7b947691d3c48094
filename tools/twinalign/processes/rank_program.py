"""The child's end of a rank: started by a framework's launcher, it answers through a socket.

Run as `rank_program.py SOCKET`; its output goes where the launcher puts it.
"""

import faulthandler
import json
import os
import signal
import socket
import sys
from pathlib import Path

if sys.path[0] == str(Path(__file__).resolve().parent):
    del sys.path[0]  # of this script's own folder, whose modules are twinalign's and nobody else's

from twinalign.processes.serving import end_with_parent, serve


def main() -> None:
    """Report this process's rank, and serve requests until the socket closes."""
    end_with_parent()
    # Where this rank stands, for the parent that finds it standing still.
    stack = Path(sys.argv[1]).with_name(f"stack.{os.getpid()}").open("w", encoding="utf-8")
    faulthandler.register(signal.SIGUSR1, stack, all_threads=False)
    rank = int(os.environ.get("RANK", os.environ.get("PADDLE_TRAINER_ID", "0")))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(sys.argv[1])
        with (
            connection.makefile("r", encoding="utf-8") as requests,
            connection.makefile("w", encoding="utf-8") as events,
        ):
            events.write(json.dumps({"event": "here", "rank": rank, "process": os.getpid()}) + "\n")
            events.flush()
            serve(requests, events)
    os._exit(0)  # the other ranks are ended as well: nothing is left to be said between them


if __name__ == "__main__":
    main()
