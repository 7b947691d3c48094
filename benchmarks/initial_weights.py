"""Initial weights: which architectures of torchvision and paddle.vision start alike, and how sharp the check is.

    python benchmarks/initial_weights.py [--out docs/initial-weights.md] [--only NAME,…]

Each architecture that both libraries have, and each encoder of the MoCo v3 twins with its projector and predictor, is
built by `twinalign run --stages initial`; `--only` names some (`vgg16`, or `Twins/resnet50` of the twins alone) and
keeps the page's other rows. False alarms are counted over 20 seeds on a pair that starts alike
(`tests/cases/alike_start.py`). Sharpness: how often a deviation that is off by 10 % in a tensor of 10,000 elements is
found with 4 seeds.
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
from moco_ref.models.moco import ARCHITECTURES as TWINS  # noqa: E402
from twinalign.conversion.model_factory import load_factory  # noqa: E402
from twinalign.model_zoo.architectures import installed, pair_of  # noqa: E402
from twinalign.reports.initial import initial_groups  # noqa: E402
from twinalign.stages.initial import SEEDS  # noqa: E402

TRIALS = 20
HEADINGS = {"Architecture": "torchvision and paddle.vision", "Twins": "The MoCo v3 twins"}


class Architecture(twinalign.Case):
    """A model of both libraries as it is built; the architecture is the option `architecture`."""

    architecture = "resnet18"

    def reference(self) -> Any:
        """torchvision's."""
        import torchvision

        return getattr(torchvision.models, self.architecture)()

    def reproduced(self) -> Any:
        """paddle.vision's."""
        factory, arguments = load_factory(pair_of(self.architecture).factories()["paddle"])
        return factory(**arguments)

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """One picture `[1, 3, 224, 224]`."""
        return {"x": rng.standard_normal((1, 3, 224, 224), dtype=np.float32)}


class Twins(twinalign.Case):
    """MoCo v3 in both frameworks as it is built; the encoder is the option `architecture`."""

    architecture = "vit_small"

    def reference(self) -> Any:
        """The torch twin."""
        from moco_ref.models.moco import build_moco

        return build_moco(self.architecture)

    def reproduced(self) -> Any:
        """The paddle twin."""
        from moco_paddle.models.moco import build_moco

        return build_moco(self.architecture)

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Two pictures `[2, 3, 224, 224]`."""
        return {name: rng.standard_normal((2, 3, 224, 224), dtype=np.float32) for name in ("x1", "x2")}


def initial_of(case: str, seed: int = 0, **options: str) -> tuple[dict[str, Any], float]:
    """The `initial` of a run, and the seconds of both sides' recordings."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        given = {**options, **({"seed": str(seed)} if seed else {})}
        result = twinalign.run(case, out=folder, stages="initial", options=given, locate=False)
        return result.to_json()["initial"], time.perf_counter() - started


def row_of(case: str, name: str) -> str:
    """Whether both models of an architecture start alike, and what differs."""
    try:
        found, seconds = initial_of(f"{Path(__file__)}:{case}", architecture=name)
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
            about = {"shapes": {"w": [100, 100]}, "own_names": {"w": "w"}, "classes": {"w": "Linear"}, "tied": []}
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
    only = [name for name in options.only.split(",") if name]
    names = {"Architecture": installed({}), "Twins": list(TWINS)}
    rows = {case: _rows_of(options.out, HEADINGS[case]) if only else {} for case in names}
    for case, known in names.items():
        for name in [name for name in known if not only or {name, f"{case}/{name}"} & set(only)]:
            rows[case][name] = row_of(case, name)
            print(rows[case][name], flush=True)
            ordered = {at: [rows[at][one] for one in names[at] if one in rows[at]] for at in names}
            options.out.write_text(page(tensors, alarms, found, ordered), encoding="utf-8")


def _rows_of(path: Path, heading: str) -> dict[str, str]:
    """The rows under a heading of the page that was written before, by architecture."""
    _, _, section = path.read_text(encoding="utf-8").partition(f"## {heading}")
    lines = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("|")]
    return {line.split("|")[1].strip(): line for line in lines[2:]}


def page(tensors: int, alarms: int, found: int, rows: dict[str, list[str]]) -> str:
    """The document."""
    head = "| architecture | tensors | differ | what differs | seconds |\n| --- | ---: | ---: | --- | ---: |"
    return f"""# Initial weights, measured

Written by `python benchmarks/initial_weights.py`; versions as locked in `uv.lock`, on a CPU.

`twinalign run` builds both models with {SEEDS} seeds and compares the distributions that their parameters start from.
The seconds are those of the whole command, both frameworks' imports included.

- False alarms on a pair that starts alike, {TRIALS} seeds: {alarms} of {tensors} tensors.
- A deviation 10 % too large in a tensor of 10,000 elements, {SEEDS} seeds: found in {found} of {TRIALS} trials.

## {HEADINGS["Twins"]}

Every encoder, with projector and predictor, as `build_moco` makes it.

{head}
{chr(10).join(rows["Twins"])}

## {HEADINGS["Architecture"]}

{head}
{chr(10).join(rows["Architecture"])}
"""


if __name__ == "__main__":
    main()
