"""Initial weights: which architectures of torchvision and paddle.vision start alike, and how sharp the check is.

    python benchmarks/initial_weights.py [--out docs/initial-weights.md] [--only NAME,…]

Each architecture that both libraries have is built by `twinalign run --stages initial`. False alarms are counted over
20 seeds on a pair that starts alike (`tests/cases/alike_start.py`). Sharpness: how often a deviation that is off by
10 % in a tensor of 10,000 elements is found with 4 seeds.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools"), str(ROOT / "tests")]

import numpy as np  # noqa: E402

import twinalign  # noqa: E402
from twinalign.model_zoo.architectures import installed  # noqa: E402
from twinalign.reports.initial import initial_groups  # noqa: E402
from twinalign.stages.initial import SEEDS  # noqa: E402

TRIALS = 20


class Architecture(twinalign.Case):
    """A model of both libraries as it is built; the architecture is the option `architecture`."""

    architecture = "resnet18"

    def reference(self) -> Any:
        """torchvision's."""
        import torchvision

        return getattr(torchvision.models, self.architecture)()

    def reproduced(self) -> Any:
        """paddle.vision's."""
        import paddle

        return getattr(paddle.vision.models, self.architecture)()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """One picture `[1, 3, 224, 224]`."""
        return {"x": rng.standard_normal((1, 3, 224, 224), dtype=np.float32)}


def initial_of(case: str, seed: int = 0, **options: str) -> tuple[dict[str, Any], float]:
    """The `initial` of a run, and the seconds of both sides' recordings."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        given = {**options, **({"seed": str(seed)} if seed else {})}
        result = twinalign.run(case, out=folder, stages="initial", options=given, locate=False)
        return result.to_json()["initial"], time.perf_counter() - started


def row_of(name: str) -> str:
    """Whether both models of an architecture start alike, and what differs."""
    try:
        found, seconds = initial_of(f"{Path(__file__)}:Architecture", architecture=name)
    except (twinalign.InputError, twinalign.SideCrashError) as error:
        return f"| {name} | – | – | {str(error)[:100]} | – |"
    kinds = [
        f"{len(group.names)} × {group.layer} `{_end(group.names[0])}`: {group.port} in place of {group.reference}"
        for group in initial_groups({"initial": found})
    ]
    text = "; ".join([*kinds, *found["notes"]]) or "nothing: both start alike"
    return f"| {name} | {found['tensors']} | {len(found['differences'])} | {text} | {seconds:.0f} |"


def _end(name: str) -> str:
    return name.rpartition(".")[2]


def false_alarms() -> tuple[int, int]:
    """Tensors compared and called different, over 20 seeds of a pair that starts alike."""
    tensors = alarms = 0
    for seed in range(TRIALS):
        found, _ = initial_of(f"{ROOT / 'tests' / 'cases' / 'alike_start.py'}:AlikeStart", seed=100 * (seed + 1))
        tensors, alarms = tensors + found["tensors"], alarms + len(found["differences"])
    return tensors, alarms


def found_of_ten_percent() -> int:
    """In how many of 20 trials a normal distribution that is 10 % too wide is found, 100 × 100 elements, 4 seeds."""
    from twinalign.files.recordings import Recording
    from twinalign.verdict.initial_weights import compare_initial
    from twinalign.verdict.stage_recordings import StageRecordings

    rng, count = np.random.default_rng(0), 0
    for _ in range(TRIALS):
        recordings = {}
        for side, deviation in (("ref", 0.02), ("paddle", 0.022)):
            whole = rng.normal(0.0, deviation, (SEEDS, 10_000)).astype(np.float32)
            extremes = np.stack([whole.min(1), whole.max(1)], axis=1).astype(float)
            about = {"shapes": {"w": [100, 100]}, "classes": {"w": "Linear"}, "tied": []}
            arrays = {"draws/w": whole[:, :4096], "extremes/w": extremes}
            recordings[side, "float32"] = Recording(arrays, {"initial": about})
        count += bool(compare_initial(StageRecordings(recordings)).differences)
    return count


def main() -> None:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "initial-weights.md")
    parser.add_argument("--only", default="", help="architectures, comma-separated")
    options = parser.parse_args()
    (tensors, alarms), found = false_alarms(), found_of_ten_percent()
    rows: list[str] = []
    for name in [name for name in options.only.split(",") if name] or installed({}):
        rows.append(row_of(name))
        print(rows[-1], flush=True)
        options.out.write_text(page(tensors, alarms, found, rows), encoding="utf-8")


def page(tensors: int, alarms: int, found: int, rows: list[str]) -> str:
    """The document."""
    return f"""# Initial weights, measured

Written by `python benchmarks/initial_weights.py`; versions as locked in `uv.lock`, on a CPU.

`twinalign run` builds both models with {SEEDS} seeds and compares the distributions that their parameters start from.

- False alarms on a pair that starts alike, {TRIALS} seeds: {alarms} of {tensors} tensors.
- A deviation 10 % too large in a tensor of 10,000 elements, {SEEDS} seeds: found in {found} of {TRIALS} trials.

## torchvision and paddle.vision

| architecture | tensors | differ | what differs | seconds |
| --- | ---: | ---: | --- | ---: |
{chr(10).join(rows)}
"""


if __name__ == "__main__":
    main()
