"""One rank of the official release's two-process runs, started by torchrun or paddle.distributed.launch.

golden_rank_program.py PACKAGE plain|sync FOLDER [gradients]
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from test_distributed import support


def step(twin: Any, kind: str, gradients: bool) -> dict[str, Any]:
    """The first step of this rank: loss, embeddings, running statistics, and norm and probe of each gradient."""
    distributed = twin.module("distributed")
    rank = distributed.rank()
    model = twin.module("models.moco").build_moco("vit_small", dim=64, mlp_dim=512)
    state = twin.state(model)
    twin.load(model, {k: support.golden_fill(k, v.shape) for k, v in state.items() if "num_batches" not in k})
    model.train()
    twin.to(model, "float64")
    if kind == "sync":
        twin.module("models.normalization").synchronise_batch_norm(model)
    embed, seen = model.embed, []
    model.embed = lambda *arguments: seen.append(embed(*arguments)) or seen[-1]
    views = [
        twin.tensor(np.random.RandomState(seed + 10 * rank).randn(8, 3, 224, 224).astype("float32").astype("float64"))
        for seed in (1, 2)
    ]
    parallel = distributed.data_parallel(model) if gradients else model  # what averages ends with the wrapper
    with contextlib.nullcontext() if gradients else twin.without_gradients():
        loss = parallel(*views, 0.99)
    found: dict[str, Any] = {"loss": float(twin.array(loss))}
    found |= {n: twin.array(x)[:8, :8].tolist() for n, x in zip(("q1", "q2", "k1", "k2"), seen[0], strict=True)}
    found["running"] = {k: float(np.linalg.norm(v)) for k, v in twin.state(model).items() if "running_" in k}
    if gradients:
        loss.backward()
        found["gradients"] = {k: support.golden_probe(k, v) for k, v in twin.gradients(model).items()}
    return found


def main() -> None:
    package, kind, folder, *options = sys.argv[1:]
    twin = support.Twin(package)
    distributed = twin.module("distributed")
    with distributed.process_group("cpu"):
        found = step(twin, kind, "gradients" in options)
        (Path(folder) / f"rank{distributed.rank()}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
