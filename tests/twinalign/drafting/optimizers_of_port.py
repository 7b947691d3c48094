"""Draft the optimizers and schedules of optimizers.txt, and print as JSON where the port's steps are not torch's.

python optimizers_of_port.py FOLDER
"""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import torch
from calls_of_port import write_both

from twinalign.drafting.parts import optimizer_and_schedule

LINES = (Path(__file__).parent / "optimizers.txt").read_text(encoding="utf-8").splitlines()
STEPS = 6
HEAD = """import torch
import torch.optim as optim


class Halved:
    def __init__(self, optimizer):
        self.optimizer = optimizer

    def step(self):
        for number, group in enumerate(self.optimizer.param_groups):
            group["lr"] *= 0.5 + 0.1 * number


def build(parameters):
"""


def source(line: str) -> str:
    """A module that builds the optimizer and, behind a semicolon, the schedule."""
    optimizer, _, schedule = line.partition("; ")
    body = [f"optimizer = {optimizer}", *([f"schedule = {schedule}"] if schedule else [])]
    returned = "optimizer, schedule" if schedule else "optimizer"
    return HEAD + "".join(f"    {statement}\n" for statement in (*body, f"return {returned}"))


def trained(build: Any, parameters: list[Any]) -> list[np.ndarray]:
    """Parameters after each of some steps on their own squares times the step."""
    optimizer, schedule = optimizer_and_schedule(build(parameters))
    found = []
    for step in range(STEPS):
        sum(((parameter - 0.3) ** 2).sum() * (1 + step) for parameter in parameters).backward()
        optimizer.step()
        (optimizer.zero_grad if hasattr(optimizer, "zero_grad") else optimizer.clear_grad)()
        if schedule is not None:
            schedule.step()
        found += [parameter.detach().numpy().copy() for parameter in parameters]
    return found


def compare(mine: Any, other: Any) -> None:
    """Every parameter after every step in torch and in the port; raises where they differ."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((3, 4)), rng.standard_normal(4)]
    expected = trained(mine, [torch.nn.Parameter(torch.tensor(array)) for array in arrays])
    places = [paddle.create_parameter(list(array.shape), "float64") for array in arrays]
    for place, array in zip(places, arrays, strict=True):
        place.set_value(paddle.to_tensor(array))
    for one, two in zip(expected, trained(other, places), strict=True):
        np.testing.assert_allclose(two, one, rtol=1e-6, atol=1e-7)


def main(folder: Path) -> None:
    """Write both packages, and compare line by line."""
    paddle.set_default_dtype("float64")
    write_both(folder, {f"port/line{number}.py": source(line) for number, line in enumerate(LINES)})
    wrong = {}
    for number, line in enumerate(LINES):
        try:
            compare(*(importlib.import_module(f"{of}.line{number}").build for of in ("reference", "port")))
        except Exception as error:
            wrong[line] = f"{type(error).__name__}: {error}"
    print(json.dumps({"compared": len(LINES), "wrong": wrong}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
