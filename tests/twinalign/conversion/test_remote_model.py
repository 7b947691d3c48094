"""What a model that has not changed gave is remembered; another request is another run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from twinalign.conversion.remote_model import BothModels, RememberedModel, RememberedRuns, RemoteModel
from twinalign.errors import SideCrashError


class Process:
    """Answers every request, and counts them."""

    def __init__(self) -> None:
        self.asked = 0

    def send(self, function: Any, *, outputs: str, inputs: str, **request: Any) -> None:
        self.asked += 1
        with np.load(inputs) as arrays:
            np.savez(outputs, x=arrays["x"] + self.asked)

    def answer(self) -> dict[str, Any]:
        return {"calls": [{"path": str(self.asked)}]}


def test_a_request_is_run_once(tmp_path: Path) -> None:
    known: RememberedRuns = {}
    process = Process()

    def run(value: float, **request: Any) -> tuple[str, float]:
        model = RememberedModel(known, "ref", process, tmp_path, "of a test")  # type: ignore[arg-type]
        model.ask_run(model.save({"x": np.array(value)}), **request)
        calls, (output,) = model.run()
        return calls[0]["path"], float(output)

    assert run(1.0, colours={"a": "b"}) == ("1", 2.0)
    assert run(1.0, colours={"a": "b"}) == ("1", 2.0)
    assert run(2.0, colours={"a": "b"}) == ("2", 4.0)  # other inputs
    assert run(1.0, colours={"a": "c"}) == ("3", 4.0)  # other weights
    assert run(1.0, colours={"a": "b"}) == ("1", 2.0)
    known.clear()
    assert run(1.0, colours={"a": "b"}) == ("4", 5.0)


def test_a_failure_of_one_model_leaves_no_answer_of_the_other_unread(tmp_path: Path) -> None:
    class Refusing(Process):
        def answer(self) -> dict[str, Any]:
            raise SideCrashError("not these inputs")

    class Counting(Process):
        read = 0

        def answer(self) -> dict[str, Any]:
            self.read += 1
            return super().answer()

    reference, port = Refusing(), Counting()
    models = [
        RemoteModel(side, process, tmp_path, "of a test") for side, process in (("ref", reference), ("paddle", port))
    ]  # type: ignore[arg-type]
    both = BothModels(*models, {"x": np.zeros(2)})
    with pytest.raises(SideCrashError, match="not these inputs"):
        both.run([{"colours": {}}, {"colours": {}}])
    assert (port.asked, port.read) == (1, 1)
