"""Time and memory of converting a large checkpoint, against plain copies of the same bytes.

A child process converts a ViT-like checkpoint by explicit rules; its peak memory beyond what its imports take is read
from the kernel. The same process copies the source plainly, both several times in a row: on a virtual machine new
memory for a file can cost several times as much as the copy, if the host must provide it first; runs in a row reuse the
memory of the run before.

    python benchmarks/convert_speed.py [--megabytes 1024] [--repeats 7] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from twinalign.conversion import writers

_CHILD = """
import json, os, sys, time
import twinalign.conversion.convert_file as converter
import twinalign.files.reader, twinalign.files.torch_files, twinalign.files.pickled, twinalign.files.safetensors_file
import ml_dtypes
from pathlib import Path
from twinalign.conversion.options import Options

def plain_copy(source, target):
    # Read the source and write it elsewhere in blocks of a megabyte.
    started = time.perf_counter()
    with open(source, "rb") as reader, open(target, "wb") as writer:
        while block := reader.read(2**20):
            writer.write(block)
    seconds = time.perf_counter() - started
    os.unlink(target)
    return seconds

def peak():
    # Not ru_maxrss: that starts from the parent's peak.
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))

def convert(source, target):
    started = time.perf_counter()
    converter.convert_checkpoint(Path(source), Path(target), Options(layers={"*": "Linear"}))
    seconds = time.perf_counter() - started
    os.unlink(target)
    return seconds

source, target, repeats = sys.argv[1], sys.argv[2], int(sys.argv[3])
copies = [plain_copy(source, target) for _ in range(repeats)]
before = peak()
converts = [convert(source, target)]
memory = peak() - before
converts += [convert(source, target) for _ in range(repeats - 1)]
copies += [plain_copy(source, target) for _ in range(repeats)]
print(json.dumps({"convert": converts, "copy": copies, "memory": memory}))
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


def measure(source: Path, target: Path, repeats: int) -> dict[str, object]:
    """The best and the median of copies and conversions, and the largest memory."""
    command = [sys.executable, "-c", _CHILD, str(source), str(target), str(repeats)]
    run = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    memory = run["memory"]
    found = {"memory_megabytes": round(memory / 2**20), "memory_of_file": round(memory / source.stat().st_size, 2)}
    for name, chosen in (("best", min), ("median", statistics.median)):
        copy, convert = chosen(run["copy"]), chosen(run["convert"])
        found |= {f"{name}_copy": round(copy, 2), f"{name}_convert": round(convert, 2)}
        found[f"{name}_ratio"] = round(convert / copy, 2)
    return found


SOURCES = {
    "torch.pth": (writers.write_torch, ("out.pdparams", "out.npz", "out.safetensors")),
    "paddle.pdparams": (writers.write_paddle, ("out.pth", "out.safetensors")),
    "some.safetensors": (lambda path, state: writers.write_safetensors(path, state, {}), ("out.pdparams", "out.pth")),
    "paddle.npz": (writers.write_npz, ("out.pth",)),
}
"""Source → how it is written, and what it is converted into."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    state = make_state(arguments.megabytes)
    largest = max(array.nbytes for array in state.values())
    results: dict[str, object] = {"largest_tensor_megabytes": round(largest / 2**20)}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, (write, targets) in SOURCES.items():
            write(root / name, state)
            for target in targets:
                results[f"{name} -> {target}"] = found = measure(root / name, root / target, arguments.repeats)
                print(f"{name} -> {target}", found, flush=True)
            (root / name).unlink()
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
