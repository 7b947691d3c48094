"""Two edits at once in one piece of a model: `python benchmarks/pairs_of_edits.py [--half A|B|both] [--seconds 20]`.

The pieces and the edits: `two_edits/`. Each piece is examined as `locate` examines a unit, without processes: what the
port computes is recorded on two draws of inputs, and so are the tensors that the lines of its code make. A cause that
is stated is then tried on a third draw, backward too: where it does not give the port there, it is wrong.
"""

from __future__ import annotations

import argparse
import ast
import copy
import dataclasses
import linecache
import random
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools"), str(ROOT / "benchmarks" / "two_edits")]

import units  # noqa: E402
from faults import FAULTS, Fault  # noqa: E402

from tests.twinalign.causes.module_unit import ModuleUnit  # noqa: E402
from tests.twinalign.causes.units import Unit  # noqa: E402
from twinalign.backends.torch import backend  # noqa: E402
from twinalign.causes.layers.explaining import examined_unit  # noqa: E402
from twinalign.causes.layers.subject import LayerSubject  # noqa: E402
from twinalign.causes.proving import prove  # noqa: E402
from twinalign.causes.registry import Explanation  # noqa: E402
from twinalign.replay.budget import Budget  # noqa: E402
from twinalign.replay.code_lines import OwnCode  # noqa: E402

SEED = 23
MOVED = 0.7
"""Relative size of the noise that makes the third draw."""
SAME = 1e-8


@dataclasses.dataclass
class Piece(ModuleUnit):
    """A unit that knows itself in the phase backward, and which tensors the port's lines make.

    All draws and phases are of one module, whose child layers return what belongs to the piece that runs.
    """

    steps: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    other: Any = None
    returning: dict[str, Any] = dataclasses.field(default_factory=dict)

    def _force(self, path: str, child: Any) -> None:
        vars(child).pop("forward", None)
        super()._force(path, child)
        self.returning[path] = child.forward

    def run(self, perturbation: float = 0.0) -> dict[str, np.ndarray]:
        for path, forward in self.returning.items():
            self.call.get_submodule(path).forward = forward  # type: ignore[attr-defined]
        return super().run(perturbation)

    def in_phase(self, phase: str) -> Any:
        return self.other if phase == "backward" else None

    def hold_what_agrees(self) -> None:
        """Everything is among its values already."""


def functions() -> dict[str, str]:
    """Source of each piece by its name."""
    text = Path(units.__file__).read_text(encoding="utf-8")
    found = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    return {node.name: f"{ast.get_source_segment(text, node)}\n" for node in found}


def spoiled(source: str, fault: Fault, folder: Path) -> Any:
    """The piece's function with both edits, from a file of its own."""
    for before, after in fault[1:]:
        if source.count(before) != 1:
            raise ValueError(f"{fault[0]}: {before!r} stands there {source.count(before)} times")
        source = source.replace(before, after)
    file = folder / f"{fault[0]}_port_{abs(hash(fault))}.py"
    file.write_text("import math\nimport torch\nimport torch.nn.functional as F\nfrom typing import Any\n\n\n" + source)
    names: dict[str, Any] = {"__name__": f"port_of_{fault[0]}"}
    exec(compile(file.read_text(), str(file), "exec"), names)
    linecache.checkcache()
    return names[fault[0]]


def modules(name: str, wrong: Any) -> tuple[Unit, Unit]:
    """The piece, and the piece with both edits, with the same random parameters."""
    parts, _ = units.PARTS[name]
    right = Unit(getattr(units, name), **copy.deepcopy(parts)).double()
    rng = np.random.default_rng(1)
    with torch.no_grad():
        for key, parameter in right.named_parameters():
            values = 0.5 * rng.standard_normal(tuple(parameter.shape))
            parameter.copy_(torch.from_numpy(values**2 + 0.3 if "variance" in key else values))
    port = copy.deepcopy(right)
    port.function = wrong
    return right, port


def steps_of(port: ModuleUnit) -> list[dict[str, Any]]:
    """What the lines of the port's code make."""
    noted = SimpleNamespace(steps=[], functions={})
    with OwnCode(backend, lambda: noted).followed():
        port.run()
    file = Path(port.call.function.__code__.co_filename).name  # type: ignore[attr-defined]
    return [dataclasses.asdict(step) for step in noted.steps if step.file == file]


def drawn(name: str, right: Unit, port: Unit, seed: int, phase: str) -> tuple[Piece, ModuleUnit]:
    """The reference's piece with the port's values on one draw of inputs, and the port's."""
    rng = np.random.default_rng(seed)
    inputs = [rng.standard_normal(shape) for shape in units.PARTS[name][1]]
    forced = [key for key, _ in right.named_children()]
    piece = Piece(right, inputs, {}, phase, forced=forced)
    wrong = ModuleUnit(copy.deepcopy(port), inputs, {}, phase, forced=forced, recorded=piece.recorded)
    piece.port = dict(wrong.reference)
    if phase == "forward":
        piece.steps = steps_of(wrong)
    return piece, wrong


def tried(fault: Fault, folder: Path, seconds: float, traced: bool) -> dict[str, Any]:
    """What is found for a fault: `result` (`explained`, `nothing`, `wrong`, `no effect`), `found`, `seconds`."""
    right, port = modules(fault[0], spoiled(functions()[fault[0]], fault, folder))
    pieces = {(phase, seed): drawn(fault[0], right, port, seed, phase) for phase in ("forward", "backward")
              for seed in (2, 3)}  # fmt: skip
    first, second = pieces["forward", 2][0], pieces["forward", 3][0]
    first.other = pieces["backward", 2][0]
    if not traced:
        first.steps = []
    examined = examined_unit(first, (), second)
    if examined is None:
        return {"result": "no effect", "found": None, "seconds": 0.0, "stopped": ""}
    budget, started = Budget(2.0 * seconds), time.process_time()
    with budget.of_one():
        found = prove(examined, budget)
    took = time.process_time() - started
    result = "nothing" if found is None else "explained"
    if found is not None and not all(same(*pieces[phase, 2], examined.applied) for phase in ("forward", "backward")):
        result = "wrong"
    return {"result": result, "found": found, "seconds": took, "stopped": examined.not_tried}


def same(piece: Piece, port: ModuleUnit, variant: Any) -> bool:
    """Whether a cause gives the port on the third draw."""
    ours: Mapping[str, np.ndarray] = LayerSubject(piece).run(variant, MOVED)
    theirs = port.run(MOVED)
    return all(
        name in ours and np.allclose(ours[name], value, rtol=0.0, atol=SAME * max(1.0, np.abs(value).max(initial=0.0)))
        for name, value in theirs.items()
    )


def halves() -> list[str]:
    """The half of each fault, by lot."""
    order = list(range(len(FAULTS)))
    random.Random(SEED).shuffle(order)
    return ["AB"[order.index(number) % 2] for number in range(len(FAULTS))]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--half", choices=("A", "B", "both"), default="both")
    parser.add_argument("--seconds", type=float, default=20.0, help="of processor time for one piece")
    parser.add_argument("--no-trace", action="store_true", help="nothing is known of the port's lines")
    parser.add_argument(
        "--only", type=int, nargs="*", help="numbers of faults, which are then shown whatever their half"
    )
    options = parser.parse_args()
    counts: dict[tuple[str, str], int] = {}
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        for number, (fault, half) in enumerate(zip(FAULTS, halves(), strict=True)):
            if options.half not in (half, "both") or (options.only and number not in options.only):
                continue
            row = tried(fault, Path(folder), options.seconds, not options.no_trace)
            counts[half, row["result"]] = counts.get((half, row["result"]), 0) + 1
            shown = row["found"].text if isinstance(row["found"], Explanation) else row["stopped"]
            told = shown if half == "A" or options.only else ""
            print(f"{number:3} {half} {fault[0]:16} {row['result']:10} {row['seconds']:5.1f} s  {told}", flush=True)
    for (half, result), count in sorted(counts.items()):
        print(f"half {half}: {result} {count}")


if __name__ == "__main__":
    main()
