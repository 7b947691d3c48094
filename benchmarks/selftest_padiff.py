"""PaDiff on planted faults: which it detects and which layer it names; started by selftest_table.py.

    python benchmarks/selftest_padiff.py CASE WEIGHTS.json FOLDER ID,ID,…

Prints a JSON object: fault id -> path of the layer that PaDiff stops at, null where it finds no difference; the port
without a fault is `""`. `compare_mode` is "strict" with the least power of ten for `atol` and `rtol` that the port
without a fault passes: PaDiff's defaults (means equal to 1e-7) fail there. It looks at layers and gradients alone.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
CASE, WEIGHTS, FOLDER, FAULTS = sys.argv[1:]
ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [FOLDER, str(ROOT), str(ROOT / "tools")]  # PaDiff writes its logs where sys.path begins

import numpy as np  # noqa: E402
import padiff  # noqa: E402
from padiff.trainer import Checker  # noqa: E402

from twinalign.planted_faults import spoiled_port  # noqa: E402
from twinalign.recorder.worker import Worker  # noqa: E402

TOLERANCES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)


class Pair:
    """Both sides of a case in this process, which PaDiff needs."""

    def __init__(self) -> None:
        self.weights = json.loads(Path(WEIGHTS).read_text(encoding="utf-8"))
        start = {"device": "cpu", "case": CASE, "options": {}, "threads": 1}
        self.workers = {side: Worker(lambda *_, **__: None, side=side, **start) for side in ("ref", "paddle")}
        spoiled_port.explore(self.workers["paddle"], self.weights["paddle"])
        self.tolerance = TOLERANCES[0]

    def difference(self, fault: str) -> Any:
        """Path of the layer that PaDiff stops at, None where it finds no difference."""
        if fault:
            spoiled_port.plant(self.workers["paddle"], fault)
        models, inputs = {}, {}
        for side, worker in self.workers.items():
            case = worker.fresh_case("forward")
            models[side] = worker.build_model(case, "forward", "float32", self.weights[side])
            worker.backend.set_training(models[side], case.train_mode)
            arrays = case.inputs(np.random.default_rng([case.seed, 0]))
            inputs[side] = {name: worker.backend.to_tensor(array, "float32", "cpu") for name, array in arrays.items()}
            # Without gradients of its inputs PaDiff compares none of the backward pass but those of the weights.
            for tensor in inputs[side].values():
                tensor.stop_gradient = False  # what paddle calls it; torch's tensors ignore it
                tensor.requires_grad = True
            if hasattr(case, "moco_m"):
                inputs[side]["m"] = case.moco_m
        found: list[Any] = []
        Checker.print_info = lambda *_, p_root, **__: found.append(p_root)
        options = {"atol": self.tolerance, "rtol": self.tolerance, "compare_mode": "strict"}
        square = [lambda output: (output**2).sum()] * 2
        with contextlib.redirect_stdout(io.StringIO()):
            same = padiff.auto_diff(
                models["paddle"],
                models["ref"],
                (inputs["paddle"], inputs["ref"]),
                auto_weights=False,
                options=options,
                loss_fn=square,
            )
        paths = {id(layer): path for path, layer in models["paddle"].named_sublayers(include_self=True)}
        spoiled_port.unplant(self.workers["paddle"])
        if same:
            return None
        node = found[0] if found else None
        # It may stop at a function; then take the layer that calls it.
        while node is not None and id(node.net) not in paths:
            node = node.father
        return "?" if node is None else paths[id(node.net)]


def main() -> None:
    """Find the tolerance, then try every fault."""
    pair = Pair()
    answers: dict[str, Any] = {}
    for pair.tolerance in TOLERANCES:
        answers[""] = pair.difference("")
        if answers[""] is None:
            break
    answers["tolerance"] = pair.tolerance
    for fault in FAULTS.split(","):
        try:
            answers[fault] = pair.difference(fault)
        except Exception as error:
            answers[fault] = f"error: {type(error).__name__}: {error}"[:200]
            spoiled_port.unplant(pair.workers["paddle"])
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
