"""What a model that has not changed gave is remembered; another request is another run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from twinalign.conversion.remote_model import RememberedModel, RememberedRuns


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
