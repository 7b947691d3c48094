"""The parent's end of a converter process: one child a framework, for what only the framework can answer."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.errors import InputError, SideCrashError
from twinalign.recorder.process import borrowed_package, end_at_once, how_it_ended


class ModelProcess:
    """A child process that holds the model of one side; answers are awaited by `result`, so two can work at once."""

    def __init__(self, side: str, factory: str, python: str | None = None, rules: Sequence[str] = ()) -> None:
        """Start the process and let it import its framework; `python` is another interpreter, None: this one.

        `rules`: modules that register storage rules, for the trials.
        """
        self.side, self.factory = side, factory
        self._borrowed = contextlib.ExitStack()
        self.folder = Path(self._borrowed.enter_context(tempfile.TemporaryDirectory(prefix="twinalign-convert-")))
        environment = self._borrowed.enter_context(borrowed_package(python))
        self._log = self.folder / "log"
        self._files = 0
        with self._log.open("wb") as errors:
            try:
                self._process = subprocess.Popen(
                    [python or sys.executable, "-u", "-m", "twinalign.convert.worker"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    env=environment,
                    text=True,
                    start_new_session=True,
                )
            except OSError as error:
                self._borrowed.close()
                raise InputError(f"--{side}-python {python}: cannot be started ({error.strerror})") from None
        self.send("start", side=side, factory=factory, rules=list(rules))
        self._started = False

    def send(self, operation: str, **values: Any) -> None:
        """Ask for something; one `result` belongs to every `send`."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"operation": operation, **values}) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise self._death() from None

    def result(self) -> dict[str, Any]:
        """The answer to the oldest request.

        Raises InputError for a mistake in what the user gave, SideCrashError where the model's code failed.
        """
        if not self._started:
            self._started = True
            self._answer()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._death()
        answer: dict[str, Any] = json.loads(line)
        if "problem" in answer:
            raise InputError(answer["problem"])
        if "crash" in answer:
            raise SideCrashError(f"the {self.side} model {self.factory} failed: {answer['crash']}")
        return answer

    def ask(self, operation: str, **values: Any) -> dict[str, Any]:
        """Send and wait."""
        self.send(operation, **values)
        return self.result()

    def save(self, arrays: Mapping[str, np.ndarray]) -> str:
        """Put arrays where the child can read them; bfloat16 goes as float32, which holds it exactly."""
        self._files += 1
        path = self.folder / f"{self._files}.npz"
        np.savez(
            path,
            allow_pickle=False,
            **{k: v.astype(np.float32) if v.dtype.name == "bfloat16" else v for k, v in arrays.items()},
        )
        return str(path)

    def close(self) -> None:
        """End the process at once and remove what was exchanged."""
        end_at_once(self._process)
        self._borrowed.close()

    def __enter__(self) -> ModelProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _death(self) -> SideCrashError:
        ending = how_it_ended(self._process, self._log)
        return SideCrashError(f"the process of the {self.side} model {self.factory} ended {ending}")
