"""Time and memory of converting a large checkpoint, against plain copies of the same bytes.

A child process converts a ViT-like checkpoint by explicit rules; its peak memory beyond what its imports take is read
from the kernel. The copy reads the source and writes as many bytes as the target has, in the same blocks.

    python benchmarks/convert_speed.py [--megabytes 1024] [--repeats 3] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from twinalign.convert import writers

_CHILD = """
import json, sys, time
import twinalign.convert.converter as converter
import twinalign.files.reader, twinalign.files.torch_files, twinalign.files.pickled, twinalign.files.safetensors_file
import ml_dtypes
from pathlib import Path
from twinalign.convert.options import Options
def peak():
    # Not ru_maxrss: that starts from the parent's peak.
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
before = peak()
started = time.perf_counter()
converter.convert_checkpoint(Path(sys.argv[1]), Path(sys.argv[2]), Options(layers={"*": "Linear"}))
print(json.dumps({"seconds": time.perf_counter() - started, "memory": peak() - before}))
"""


def make_state(megabytes: int) -> dict[str, np.ndarray]:
    """Blocks of a ViT of width 1024: four square matrices, two of 1024 × 4096, biases and norms."""
    generator = np.random.default_rng(0)
    width, state, size, block = 1024, {}, 0, 0
    while size < megabytes * 2**20:
        shapes = {
            "qkv": (3 * width, width),
            "proj": (width, width),
            "fc1": (4 * width, width),
            "fc2": (width, 4 * width),
        }
        for name, shape in shapes.items():
            state[f"blocks.{block}.{name}.weight"] = generator.random(shape, dtype=np.float32)
            state[f"blocks.{block}.{name}.bias"] = generator.random(shape[0], dtype=np.float32)
            size += state[f"blocks.{block}.{name}.weight"].nbytes
        block += 1
    return state


def plain_copy(source: Path, target: Path) -> float:
    """Seconds to read the source and write it elsewhere in blocks of a megabyte."""
    started = time.perf_counter()
    with source.open("rb") as reader, target.open("wb") as writer:
        while block := reader.read(2**20):
            writer.write(block)
    return time.perf_counter() - started


def measure(source: Path, target: Path, repeats: int) -> dict[str, float]:
    copies, conversions, memory = [], [], []
    for _ in range(repeats):
        copies.append(plain_copy(source, target.with_suffix(".copy")))
        target.with_suffix(".copy").unlink()
        child = subprocess.run(
            [sys.executable, "-c", _CHILD, str(source), str(target)], capture_output=True, text=True, check=True
        )
        found = json.loads(child.stdout)
        conversions.append(found["seconds"])
        memory.append(found["memory"])
    return {
        "copy_seconds": round(min(copies), 2),
        "convert_seconds": round(min(conversions), 2),
        "ratio": round(min(conversions) / min(copies), 2),
        "memory_megabytes": round(max(memory) / 2**20),
        "memory_of_file": round(max(memory) / source.stat().st_size, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    state = make_state(arguments.megabytes)
    largest = max(array.nbytes for array in state.values())
    results = {"largest_tensor_megabytes": round(largest / 2**20)}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        sources = {
            "torch.pth": (writers.write_torch, "out.pdparams"),
            "paddle.pdparams": (writers.write_paddle, "out.pth"),
            "torch.safetensors": (lambda path, arrays: writers.write_safetensors(path, arrays, {}), "out.pdparams"),
        }
        for name, (write, target) in sources.items():
            write(root / name, state)
            results[f"{name} -> {target}"] = measure(root / name, root / target, arguments.repeats)
            print(name, "->", target, results[f"{name} -> {target}"], flush=True)
            (root / name).unlink()
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
