"""A checkpoint in shards that is larger than what it is converted and compared in.

    python benchmarks/large_models.py [--gigabytes 13] [--folder FOLDER] [--json FILE]

A column of square float32 matrices and their biases in .safetensors shards of half a gigabyte, with an index. It is
converted to paddle and compared with a copy that differs in the last bit. Counted is a process's own peak of resident
memory, pages of mapped files included; the limit is the largest shard and 500 MB. FOLDER needs three times the size.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 4096
SHARD = 500_000_000
BEYOND = 500_000_000
RUN = """
import sys
from pathlib import Path
from twinalign.cli import main
try:
    main(sys.argv[2:])
except SystemExit as ended:
    code = int(ended.code or 0)
status = Path("/proc/self/status").read_text()
Path(sys.argv[1]).write_text(f"{code} {status.split('VmHWM:')[1].split()[0]}")
"""


def write_checkpoint(folder: Path, total: int, step: float) -> None:
    """Shards of random matrices and their index; `step`: by how much every number is larger than in another one."""
    folder.mkdir()
    layers = total // (4 * WIDTH * (WIDTH + 1))
    in_shard = SHARD // (4 * WIDTH * (WIDTH + 1))
    places: dict[str, str] = {}
    for start in range(0, layers, in_shard):
        name = f"model-{start // in_shard:05d}.safetensors"
        header: dict[str, Any] = {}
        end = 0
        for layer in range(start, min(start + in_shard, layers)):
            for kind, shape in (("weight", [WIDTH, WIDTH]), ("bias", [WIDTH])):
                size = 4 * int(np.prod(shape))
                header[f"layers.{layer}.{kind}"] = {"dtype": "F32", "shape": shape, "data_offsets": [end, end + size]}
                end += size
        places |= dict.fromkeys(header, name)
        text = json.dumps(header).encode()
        with open(folder / name, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for layer in range(start, min(start + in_shard, layers)):
                rng = np.random.default_rng(layer)
                for shape in ((WIDTH, WIDTH), (WIDTH,)):
                    (rng.standard_normal(shape, np.float32) * np.float32(1 + step)).tofile(file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))


def run(folder: Path, *arguments: str) -> dict[str, Any]:
    """A command's exit code, seconds by the clock and of the processor, and peak of resident memory in bytes."""
    import resource
    import time

    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "tools"), str(ROOT)])}
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    told = folder / "told"
    subprocess.run(
        [sys.executable, "-c", RUN, str(told), *arguments], env=environment, check=True, stdout=subprocess.DEVNULL
    )
    seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    code, peak = map(int, told.read_text().split())
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"code": code, "seconds": seconds, "processor": processor, "peak": 1024 * peak}


def measure(folder: Path, gigabytes: float) -> dict[str, Any]:
    """Both commands on a checkpoint of this size."""
    total = int(gigabytes * 1e9)
    one, other = folder / "one", folder / "other"
    write_checkpoint(one, total, 0.0)
    index = str(one / "model.safetensors.index.json")
    arguments = "--layer", "layers.*=Linear", "--to", "paddle", "--quiet"
    converted = run(folder, "convert", index, str(folder / "converted.safetensors"), *arguments)
    (folder / "converted.safetensors").unlink()
    write_checkpoint(other, total, 2.0**-23)
    compared = run(folder, "compare", str(one), str(other))
    largest = max(path.stat().st_size for path in one.iterdir())
    size = sum(path.stat().st_size for path in one.iterdir())
    for made in (one, other):
        shutil.rmtree(made)
    return {"size": size, "largest": largest, "convert": converted, "compare": compared}


def table(found: dict[str, Any]) -> list[str]:
    """The figures as Markdown."""
    limit = found["largest"] + BEYOND
    lines = [
        f"{found['size'] / 1e9:.1f} GB in shards of at most {found['largest'] / 1e6:.0f} MB:",
        "",
        "| command | peak memory | limit | ratio | time | of the processor |",
        "| --- |" + " ---: |" * 5,
    ]
    for name in ("convert", "compare"):
        row = found[name]
        cells = [name, f"{row['peak'] / 1e6:.0f} MB", f"{limit / 1e6:.0f} MB", f"**{row['peak'] / limit:.2f}**"]
        lines.append("| " + " | ".join([*cells, f"{row['seconds']:.0f} s", f"{row['processor']:.0f} s"]) + " |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=13.0)
    parser.add_argument("--folder", type=Path, help="where to write, a temporary folder if not given")
    parser.add_argument("--json", type=Path, help="write the figures there too")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        found = measure(Path(folder), arguments.gigabytes)
    print("\n".join(table(found)))
    if arguments.json:
        arguments.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
