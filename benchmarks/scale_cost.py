"""The bytes that ranks exchange in a training step: predicted by a model, and counted in real runs.

    python benchmarks/scale_cost.py [--only-predict] [--ranks 2]

Counted: both twins, started by their framework's launcher over gloo in a network namespace of their own, whose loopback
device carries nothing else; its transmitted bytes over some steps are those of all ranks together (takes root or user
namespaces). Predicted: the same model for the paper's recipes on GPUs, with a step time from three rates that are
assumptions, given as options, not measurements.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
FLOAT = 4
SMALL = [
    # architecture, image size, dim, mlp_dim, batch of all ranks
    ("vit_digits", 32, 64, 256, 32),
    ("vit_small", 32, 256, 4096, 8),
    ("resnet18", 64, 256, 4096, 8),
    ("resnet50", 64, 256, 4096, 8),
]
PAPER = [
    # recipe, GPUs, batch (official setups: 2, 4 and 8 nodes of 8)
    ("r50-100ep", 16, 4096),
    ("vit-s-300ep", 32, 4096),
    ("vit-b-300ep", 64, 4096),
]


@dataclass(frozen=True)
class Exchanged:
    """Bytes that one rank passes to collectives in one step.

    Attributes:
        gradients: all-reduced: of every trained parameter.
        batch_norm: all-reduced: sums of the synchronised batch norms, forward and backward.
        keys: all-gathered: the embeddings of both views.
        loss: all-gathered: what `train_step` tells the others.
    """

    gradients: int
    batch_norm: int
    keys: int
    loss: int = 8

    def sent(self, ranks: int) -> float:
        """Bytes that a rank sends: a ring all-reduce sends 2 (N-1)/N of its input, an all-gather N-1 times its
        input."""
        reduced = self.gradients + self.batch_norm
        return 2 * (ranks - 1) / ranks * reduced + (ranks - 1) * (self.keys + self.loss)


def exchanged(model: Any, dim: int, batch_of_rank: int) -> Exchanged:
    """The model of one step: `model` is a torch MoCo, which may be on the meta device.

    A synchronised batch norm over C channels sums C + 1 and then C numbers forward, and as many backward; the base
    encoder and predictor see two views with gradient, the momentum encoder two without.
    """
    import torch

    kind = torch.nn.modules.batchnorm._BatchNorm
    channels = {
        part: [layer.num_features for layer in getattr(model, part).modules() if isinstance(layer, kind)]
        for part in ("base_encoder", "momentum_encoder", "predictor")
    }

    def sums(part: str) -> int:
        return sum(2 * count + 1 for count in channels[part])

    numbers = 4 * (sums("base_encoder") + sums("predictor")) + 2 * sums("momentum_encoder")
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    return Exchanged(FLOAT * trained, FLOAT * numbers, FLOAT * 2 * batch_of_rank * dim)


def transmitted() -> int:
    """Bytes that the loopback device has sent since it is up."""
    line = next(line for line in Path("/proc/net/dev").read_text().splitlines() if line.strip().startswith("lo:"))
    return int(line.partition(":")[2].split()[8])


def rank_program(package: str, arch: str, image_size: int, dim: int, mlp_dim: int, batch: int, folder: Path) -> None:
    """One rank: steps of the twin's own training, and the bytes that the device sent meanwhile."""
    names = ("", ".distributed", ".models.normalization", ".training.pretraining")
    twin, distributed, normalization, training = (importlib.import_module(f"{package}{name}") for name in names)
    is_torch = package == "moco_ref"
    framework = importlib.import_module("torch" if is_torch else "paddle")
    tensor = framework.from_numpy if is_torch else framework.to_tensor
    with distributed.process_group("cpu"):
        rank, ranks = distributed.rank(), distributed.world_size()
        size = {"image_size": image_size} if arch.startswith("vit") else {}
        model = normalization.synchronise_batch_norm(twin.build_moco(arch, dim, mlp_dim, **size))
        model.train()
        optimizer = twin.build_optimizer("lars", model.parameters(), 1e-3, 0.0)
        parallel = distributed.data_parallel(model)
        args = SimpleNamespace(lr=1e-3, epochs=10, warmup_epochs=1, moco_m=0.99, moco_m_cos=True)
        drawn = np.random.default_rng(rank)
        views = [
            tensor(drawn.standard_normal((batch // ranks, 3, image_size, image_size), dtype="float32")) for _ in "12"
        ]

        def step() -> None:
            training.train_step(parallel, optimizer, *views, 0.5, args)

        step()  # gradient buckets are rebuilt after the first step
        step()
        before, steps = transmitted(), 3
        for _ in range(steps):
            step()
        found = (transmitted() - before) / steps
        if rank == 0:
            (folder / "bytes.json").write_text(json.dumps({"bytes": found}))


def measure(package: str, setting: tuple[str, int, int, int, int], ranks: int) -> float:
    """Bytes a step that all ranks send, over loopback."""
    with tempfile.TemporaryDirectory() as folder:
        launcher = {
            "moco_ref": ["torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"],
            "moco_paddle": ["paddle.distributed.launch", f"--nproc_per_node={ranks}", f"--log_dir={folder}/log"],
        }[package]
        values = [package, *map(str, setting), folder]
        program = [sys.executable, "-m", *launcher, __file__, "--rank-program", *values]
        inside = ["sh", "-c", 'ip link set lo up && exec "$@"', "sh", *program]
        paths = os.pathsep.join([str(ROOT), str(ROOT / "tools")])
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths, "GLOO_SOCKET_IFNAME": "lo"}
        finished = subprocess.run(
            ["unshare", "--net", *inside], capture_output=True, text=True, env=environment, timeout=400
        )
        if finished.returncode:
            raise SystemExit(finished.stdout[-2000:] + finished.stderr[-2000:])
        return float(json.loads((Path(folder) / "bytes.json").read_text())["bytes"])


def build(arch: str, dim: int, mlp_dim: int, **options: Any) -> Any:
    import torch

    from moco_ref import build_moco

    with torch.device("meta"):
        return build_moco(arch, dim, mlp_dim, **options)


def check(ranks: int) -> None:
    """Print the counted and the predicted bytes."""
    print("| twin | architecture | batch | per rank: gradients, batch norm, keys | predicted | counted | ratio |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for setting in SMALL:
        arch, image_size, dim, mlp_dim, batch = setting
        size = {"image_size": image_size} if arch.startswith("vit") else {}
        bytes_ = exchanged(build(arch, dim, mlp_dim, **size), dim, batch // ranks)
        model = ranks * bytes_.sent(ranks)
        parts = ", ".join(f"{part:,}" for part in (bytes_.gradients, bytes_.batch_norm, bytes_.keys))
        for package in ("moco_ref", "moco_paddle"):
            counted = measure(package, setting, ranks)
            print(
                f"| {package} | {arch} | {batch} | {parts} | {model:,.0f} | {counted:,.0f} | {counted / model:.3f} |",
                flush=True,
            )


def predict(flops: float, within: float, between: float) -> None:
    """Print bytes and step time of the paper's recipes."""
    from moco_common.programs.recipes import PRETRAINING
    from moco_ref import build_encoder
    from moco_ref.programs.summary import summarize

    heads = "recipe GPUs batch_per_GPU gradients batch_norm keys sent_per_GPU compute exchange step"
    print("| " + " | ".join(heads.split()).replace("_", " ") + " |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for recipe, gpus, batch in PAPER:
        arch = PRETRAINING[recipe]["arch"]
        stop = {"stop_grad_conv1": True} if PRETRAINING[recipe].get("stop_grad_conv1") else {}
        bytes_ = exchanged(build(arch, 256, 4096, **stop), 256, batch // gpus)
        forward = 2 * sum(
            summarize(build_encoder(arch), 224).flops.values()
        )  # a multiplication and an addition are two
        # Two views forward and backward (three times a forward), and two forward in the momentum encoder.
        compute = 8 * forward * batch / gpus / flops
        # A ring over all GPUs passes the link of each node once in and once out.
        exchange = bytes_.sent(gpus) / (between if gpus > 8 else within)
        parts = " | ".join(
            f"{part / 1e6:.1f} MB" for part in (bytes_.gradients, bytes_.batch_norm, bytes_.keys, bytes_.sent(gpus))
        )
        least, most = max(compute, exchange), compute + exchange
        print(
            f"| {recipe} | {gpus} | {batch // gpus} | {parts} | {compute * 1e3:.0f} ms | {exchange * 1e3:.0f} ms | "
            f"{least * 1e3:.0f} to {most * 1e3:.0f} ms |"
        )


def main() -> None:
    if sys.argv[1:2] == ["--rank-program"]:
        package, arch, *numbers, folder = sys.argv[2:]
        rank_program(package, arch, *map(int, numbers), Path(folder))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--only-predict", action="store_true")
    parser.add_argument("--flops", type=float, default=40e12, help="that a GPU reaches, a second (assumed)")
    parser.add_argument("--within", type=float, default=1e11, help="bytes a second between GPUs of a node (assumed)")
    parser.add_argument("--between", type=float, default=1e10, help="bytes a second between two nodes (assumed)")
    args = parser.parse_args()
    if not args.only_predict:
        check(args.ranks)
    predict(args.flops, args.within, args.between)


if __name__ == "__main__":
    main()
