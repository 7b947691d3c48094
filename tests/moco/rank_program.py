"""One rank of a few training steps, started by torchrun or paddle.distributed.launch; writes what it ends with.

rank_program.py PACKAGE ARCH STEPS FOLDER [plain]
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from test_distributed import small_moco, support, views

GLOBAL_BATCH = 8


def run_steps(twin: Any, arch: str, steps: int, synchronised: bool = True) -> dict[str, np.ndarray]:
    """Train on this rank's share of the global batch; losses, last gradients and the state at the end."""
    distributed = twin.module("distributed")
    rank, world = distributed.rank(), distributed.world_size()
    model = small_moco(twin, arch)
    if synchronised:
        twin.module("models.normalization").synchronise_batch_norm(model)
    optimizer = twin.module("training.optimizer").build_optimizer("adamw", model.parameters(), 1e-3, 0.1)
    parallel = distributed.data_parallel(model)
    share = slice(rank * GLOBAL_BATCH // world, (rank + 1) * GLOBAL_BATCH // world)
    losses = []
    for step in range(steps):
        twin.clear_gradients(optimizer)
        loss = parallel(*(twin.tensor(view[share]) for view in views(GLOBAL_BATCH, step)), 0.9)
        losses.append(float(twin.array(loss)))
        loss.backward()
        optimizer.step()
    gradients = {f"gradient/{name}": array for name, array in twin.gradients(model).items()}
    return {"losses": np.array(losses), **gradients, **{f"state/{k}": v for k, v in twin.state(model).items()}}


def main() -> None:
    package, arch, steps, folder, *options = sys.argv[1:]
    twin = support.Twin(package)
    distributed = twin.module("distributed")
    with distributed.process_group("cpu"):
        found = run_steps(twin, arch, int(steps), "plain" not in options)
        np.savez(Path(folder) / f"rank{distributed.rank()}.npz", **found)


if __name__ == "__main__":
    main()
