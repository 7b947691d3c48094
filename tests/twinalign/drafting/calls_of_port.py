"""Draft the calls of calls.txt, and print as JSON what each is in the port's paddle beside torch.

    python calls_of_port.py FOLDER

A process of its own: where a kernel of paddle's fails, it ends the process.
"""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import torch

from twinalign.drafting.draft import draft
from twinalign.drafting.package import shims_source
from twinalign.drafting.rewriting import rewritten

CALLS = (Path(__file__).parent / "calls.txt").read_text(encoding="utf-8").splitlines()
HEAD = """import math
from collections import OrderedDict

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.utils.checkpoint


def call(x, y, m, i, i4):
"""


def source(call: str) -> str:
    """A module with a function of the call; statements are parted by semicolons."""
    *statements, last = call.split("; ")
    if last.startswith("with "):
        statement, _, value = last.partition("\\n    ")
        head, _, body = statement.partition(": ")
        return f"{HEAD}    {head}:\n        {body}\n    {value}\n"
    last = last if last.startswith("return ") else f"return {last}"
    return HEAD + "".join(f"    {line}\n" for line in (*statements, last))


def arrays() -> list[np.ndarray]:
    """x and y [2, 3, 4, 5] and m [4, 4] in float64, i [3, 4] below 9, and i4 like x, places in its second dimension."""
    rng = np.random.default_rng(0)
    places = np.tile(np.arange(3)[None, :, None, None], (2, 1, 4, 5))
    floats = [rng.standard_normal(shape) for shape in ((2, 3, 4, 5), (2, 3, 4, 5), (4, 4))]
    return [*floats, rng.integers(0, 9, (3, 4)), rng.permuted(places, axis=1)]


def leaves(value: Any) -> list[Any]:
    """What a call gave, in order, without the containers."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)) or type(value).__name__ == "odict_keys":
        return [leaf for item in value for leaf in leaves(item)]
    return [value]


def array(leaf: Any) -> np.ndarray:
    """Of a tensor or a number."""
    return np.asarray(leaf.detach().numpy() if hasattr(leaf, "detach") else leaf)


def compare(mine: Any, other: Any) -> None:
    """Values, types and gradients of what the call gives in torch and in the port; raises where they differ."""
    first = [torch.tensor(value, requires_grad=value.dtype.kind == "f") for value in arrays()]
    second = [paddle.to_tensor(value, stop_gradient=value.dtype.kind != "f") for value in arrays()]
    expected, found = leaves(mine(*first)), leaves(other(*second))
    assert len(expected) == len(found), f"{len(found)} values, not {len(expected)}"
    for one, two in zip(map(array, expected), map(array, found), strict=True):
        if one.dtype.kind in "OU":
            assert str(one) == str(two)
            continue
        assert one.dtype == two.dtype
        tolerance = {"float16": 1e-3, "float32": 1e-6, "complex64": 1e-6}.get(one.dtype.name, 1e-9)
        np.testing.assert_allclose(two, one, rtol=tolerance, atol=tolerance)
    trained = [
        (one, two)
        for one, two in zip(expected, found, strict=True)
        if hasattr(one, "detach") and one.requires_grad and one.dtype == torch.float64
    ]
    if not trained:
        return
    for tensors, make in zip(zip(*trained, strict=True), (torch.from_numpy, paddle.to_tensor), strict=True):
        sizes = [tuple(tensor.shape) for tensor in tensors]
        weights = [make(np.linspace(0.5, 2, int(np.prod(size))).reshape(size)) for size in sizes]
        sum((tensor * weight).sum() for tensor, weight in zip(tensors, weights, strict=True)).backward()
    for one, two in zip(first[:3], second[:3], strict=True):
        gradients = [np.zeros(tuple(t.shape)) if t.grad is None else t.grad.numpy() for t in (one, two)]
        np.testing.assert_allclose(gradients[1], gradients[0], rtol=1e-7, atol=1e-7)


def write_both(folder: Path, given: dict[str, str]) -> None:
    """Write the modules, by their paths below `port/`, as the packages `reference` and `port`, and make these known."""
    rules, used = {}, set()
    for path, text in given.items():
        rules[path], _, shims = rewritten(path, text, ".")
        used |= shims
    made = {**draft(rules), "port/shims.py": shims_source(used), "port/__init__.py": "", "reference/__init__.py": ""}
    for path, text in {**made, **{path.replace("port", "reference"): text for path, text in given.items()}}.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    sys.path.insert(0, str(folder))


def main(folder: Path) -> None:
    """Write both packages, and compare call by call."""
    write_both(folder, {f"port/call{number}.py": source(call) for number, call in enumerate(CALLS)})
    wrong = {}
    for number, call in enumerate(CALLS):
        torch.manual_seed(0)
        try:
            compare(*(importlib.import_module(f"{of}.call{number}").call for of in ("reference", "port")))
        except Exception as error:
            wrong[call] = f"{type(error).__name__}: {error}"
    print(json.dumps({"compared": len(CALLS), "wrong": wrong}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
