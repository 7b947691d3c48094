"""Round trips of every classification architecture that torchvision and paddle.vision both have.

For each: torchvision's random weights go through `convert_checkpoint` with verification in float64 (no name list is
given; layers are matched by the tool), then torch → paddle → torch and paddle → torch → paddle are compared bit by bit.

With names, only these are measured; the JSON file keeps its results for the others.

    python benchmarks/convert_zoo.py [NAME …] [--size 224] [--json FILE] [--markdown FILE]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import warnings
from pathlib import Path

warnings.simplefilter("ignore")

import numpy as np  # noqa: E402
import paddle  # noqa: E402
import torch  # noqa: E402
import torchvision  # noqa: E402

from twinalign.backends.paddle import backend as paddle_backend  # noqa: E402
from twinalign.backends.torch import backend as torch_backend  # noqa: E402
from twinalign.conversion import convert_state  # noqa: E402
from twinalign.conversion.convert_file import convert_checkpoint  # noqa: E402
from twinalign.conversion.model_factory import load_factory  # noqa: E402
from twinalign.conversion.options import Options  # noqa: E402
from twinalign.errors import TwinalignError  # noqa: E402
from twinalign.model_zoo.architectures import Pair, installed  # noqa: E402
from twinalign.model_zoo.case import build_reference  # noqa: E402


def bits_equal(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> bool:
    return list(first) == list(second) and all(first[key].tobytes() == second[key].tobytes() for key in first)


def measure(name: str, pair: Pair, size: int, folder: Path) -> dict[str, object]:
    """Convert one architecture; an error is part of the result."""
    started = time.perf_counter()
    torch.manual_seed(0)
    paddle.seed(0)
    factory, arguments = load_factory(pair.factories()["paddle"])
    models = build_reference(name), factory(**arguments)
    torch.save(models[0].state_dict(), folder / "a.pth")
    options = Options(factories=pair.factories(), inputs=(f"2,3,{size},{size}",), verify=True)
    try:
        report = convert_checkpoint(folder / "a.pth", folder / "a.pdparams", options)
    except TwinalignError as error:
        kind = type(error).__name__
        return {"verdict": "diverged" if kind == "DivergedError" else "refused", "reason": str(error)}
    matched = {entry.matched_by for entry in report.ledger.entries if entry.target}
    # The tool's own assignment as rename rules, so that the round trips need no further runs.
    rename = {entry.source[0]: entry.target for entry in report.ledger.entries if entry.target and entry.source}
    layouts = torch_backend.describe_state(models[0]), paddle_backend.describe_state(models[1])
    states = dict(torch_backend.state_items(models[0])), dict(paddle_backend.state_items(models[1]))
    there = convert_state(states[0], *layouts, rename=rename).arrays
    back = convert_state(there, *reversed(layouts), source="paddle", rename=rename).arrays
    here = convert_state(states[1], *reversed(layouts), source="paddle", rename=rename).arrays
    again = convert_state(here, *layouts, rename=rename).arrays
    return {
        "verdict": "aligned",
        "matched_by": "/".join(sorted(matched)),
        "float64": report.ledger.facts["verified"]["relative_difference"],
        "torch_round_trip": bits_equal(states[0], back),
        "paddle_round_trip": bits_equal(states[1], again),
        "seconds": round(time.perf_counter() - started, 1),
    }


def summary(results: dict[str, dict[str, object]]) -> str:
    aligned = [r for r in results.values() if r["verdict"] == "aligned"]
    close = sum(r["float64"] <= 1e-8 for r in aligned)
    exact = sum(bool(r["torch_round_trip"] and r["paddle_round_trip"]) for r in aligned)
    return (
        f"{len(results)} architectures: {len(aligned)} aligned ({close} within 1e-8 in float64, {exact} round trips "
        f"bit for bit), {sum(r['verdict'] == 'diverged' for r in results.values())} diverged, "
        f"{sum(r['verdict'] == 'refused' for r in results.values())} refused"
    )


def table(results: dict[str, dict[str, object]]) -> str:
    """The results as a page of the documentation."""
    lines = [
        "# The architectures that torchvision and paddle.vision share",
        "",
        f"Written by `benchmarks/convert_zoo.py` with torch {torch.__version__}, torchvision {torchvision.__version__} "
        f"and paddle {paddle.__version__}: {summary(results)}.",
        "",
        "Matched by: how the tool matched every key, without a list of names. float64: largest relative "
        "difference of the outputs. Round trips: torch to paddle to torch, and paddle to torch to paddle.",
        "",
        "| architecture | verdict | matched by | float64 | round trips |",
        "| --- | --- | --- | --- | --- |",
    ]
    said = []
    for name, found in results.items():
        if found["verdict"] == "aligned":
            exact = found["torch_round_trip"] and found["paddle_round_trip"]
            cells = (found["matched_by"], f"{found['float64']:.0e}", "bit for bit" if exact else "differ")
        else:
            cells = ("", "", "")
            said += ["", f"**{name}**: {found['reason']}."]
        lines.append(f"| {name} | {found['verdict']} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", "## The messages for the others", *said]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path, help="write a table of everything that was found")
    arguments = parser.parse_args()
    every = installed({})
    results = {}
    if arguments.names and arguments.json and arguments.json.exists():
        results = json.loads(arguments.json.read_text())
    for name in arguments.names or every:
        with tempfile.TemporaryDirectory() as folder:
            results[name] = measure(name, every[name], arguments.size, Path(folder))
        print(f"{name:22}", *(f"{key}={value}" for key, value in results[name].items()), flush=True)
        if arguments.json:
            arguments.json.write_text(json.dumps(results, indent=1) + "\n")
    results = {name: results[name] for name in sorted(results)}
    print(summary(results))
    if arguments.markdown:
        arguments.markdown.write_text(table(results))


if __name__ == "__main__":
    main()
