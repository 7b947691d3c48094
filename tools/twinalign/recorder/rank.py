"""One of several recorder processes of a side: started by the framework's launcher, it answers through a socket.

Run as `rank.py SOCKET`; what it prints goes where the launcher puts it.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path

if sys.path[0] == str(Path(__file__).resolve().parent):
    del sys.path[0]  # of this script's own folder, whose modules are twinalign's and nobody else's

from twinalign.backends import load_distributed
from twinalign.recorder.serving import end_with_parent, serve
from twinalign.recorder.worker import Worker


class RankWorker(Worker):
    """A worker that records its share, in a file of its own, together with those of the other ranks."""

    def join(self) -> tuple[int, int]:
        """Join the other processes."""
        found: tuple[int, int] = load_distributed(self.framework).join(self.device)
        return found


def main() -> None:
    """Say which rank this is, and serve requests until the socket closes."""
    end_with_parent()
    rank = int(os.environ.get("RANK", os.environ.get("PADDLE_TRAINER_ID", "0")))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(sys.argv[1])
        with (
            connection.makefile("r", encoding="utf-8") as requests,
            connection.makefile("w", encoding="utf-8") as events,
        ):
            events.write(json.dumps({"event": "here", "rank": rank, "process": os.getpid()}) + "\n")
            events.flush()
            serve(requests, events, RankWorker)
    os._exit(0)  # the other ranks are ended as well: nothing is left to be said between them


if __name__ == "__main__":
    main()
