"""Time and memory of `twinalign verify` on a bundle of 500 MB, compared with reading and hashing the same file.

Three bundles are made: of samples of 4096 elements with their projections, as stages record large tensors; of sizes in
the proportion that the backward stage of MoCo v3 ViT-Small records; and of whole tensors of a million elements. Each
process is timed as a whole, interpreter and imports included, and its greatest resident memory counts the mapped file
as well. With `--bundle`, a bundle of `twinalign pack` is measured instead.

    python benchmarks/verify_speed.py [--megabytes 500] [--repeats 3] [--bundle FILE]
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import io
import itertools
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.bundle.archive import Archive, write_archive
from twinalign.bundle.contents import Contents
from twinalign.bundle.fabrication_in_metadata import collected_hashes_of
from twinalign.bundle.layout import (
    CASE,
    FORMAT,
    MANIFEST,
    SUMMARY,
    VERSION,
    ledger_member,
    log_member,
    metadata_member,
    recording_member,
)
from twinalign.files.recordings import PROJECTION_COUNT, PROJECTIONS_SUFFIX, SAMPLE_SIZE, sample_positions
from twinalign.sides import STAGES
from twinalign.verdict.classic import log_lines
from twinalign.verdict.compare import compare_stage

SAMPLED = len(sample_positions(SAMPLE_SIZE**2 // 4))
"""Elements of a sample of a tensor of `[SAMPLE_SIZE, SAMPLE_SIZE // 4]`."""
STAGE, CASE_NAME = "backward", "synthetic"
BYTES_AN_ELEMENT = 2 * (4 + 8)
FRAMEWORKS = {"ref": "torch", "paddle": "paddle"}
BASES = {"ref": "torch.nn.modules.module.Module", "paddle": "paddle.nn.layer.layers.Layer"}
READ_AND_HASH = "import hashlib, sys; hashlib.file_digest(open(sys.argv[1], 'rb'), 'sha256').hexdigest()"


def recordings(sizes: list[int], megabytes: int) -> dict[tuple[str, str], dict[str, np.ndarray]]:
    """Both sides in both precisions, sizes in turn: rounding of float32, and float64 runs that agree."""
    rng = np.random.default_rng(0)
    found: dict[tuple[str, str], dict[str, np.ndarray]] = {
        (side, dtype): {} for dtype in ("float32", "float64") for side in FRAMEWORKS
    }
    elements = 0
    for index, size in enumerate(itertools.cycle(sizes)):
        elements += size
        if elements * BYTES_AN_ELEMENT > megabytes * 1e6:
            return found
        name = f"step0.gradient.layers.{index}.weight"
        parts = [(name, size)] + ([(name + PROJECTIONS_SUFFIX, PROJECTION_COUNT)] if size == SAMPLED else [])
        for part, count in parts:
            truth = rng.standard_normal(count)
            for side in FRAMEWORKS:
                rounded = truth * (1 + 1e-7 * rng.standard_normal(count))
                found[side, "float32"][part] = rounded if part != name else rounded.astype(np.float32)
                found[side, "float64"][part] = truth * (1 + 1e-15 * rng.standard_normal(count))
    raise AssertionError("cycles never end")


def metadata(side: str, dtype: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    environment = {"framework": FRAMEWORKS[side], "device": "cpu", "versions": {FRAMEWORKS[side]: "1"}, "python": "3"}
    shape = [SAMPLE_SIZE, SAMPLE_SIZE // 4]
    return {
        "format": 1,
        "side": side,
        "stage": STAGE,
        "case": CASE_NAME,
        "dtype": dtype,
        "seed": 0,
        "environment": environment,
        "weights_sha256": "0" * 64,
        "layer_classes": {f"{CASE_NAME}.LayerNorm": {"count": 1, "bases": [BASES[side]]}},
        "identity": identity(),
        "code_sha256": {f"/{CASE_NAME}.py": hashlib.sha256(b"").hexdigest()},
        "data_sha256": {},
        "inputs_sha256": {"0": "0" * 64},
        "sampled": {name: {"shape": shape} for name, array in arrays.items() if array.size == SAMPLED},
        "recorded_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "seconds": 1.0,
    }


def identity() -> dict[str, Any]:
    return {"case": f"/{CASE_NAME}.py", "options": {}, "device": "cpu", "interpreter": {"python": "3"}}


def members_of(made: dict[tuple[str, str], dict[str, np.ndarray]]) -> dict[str, bytes]:
    """All of a bundle but its manifest, with a summary that claims nothing yet."""
    found: dict[str, bytes] = {}
    for (side, dtype), arrays in made.items():
        stream = io.BytesIO()
        np.save(stream, arrays)  # type: ignore[arg-type]
        found[recording_member(side, STAGE, dtype)] = stream.getvalue()
        found[metadata_member(side, STAGE, dtype)] = encoded(metadata(side, dtype, arrays))
    description = {"name": CASE_NAME, "stages": [STAGE], "parts": {STAGE: CASE_NAME}}
    found[CASE] = encoded({"identity": {side: identity() for side in FRAMEWORKS}, "description": description})
    found[ledger_member(CASE_NAME)] = encoded({"entries": [{}]})
    found[f"source/{CASE_NAME}.py"] = b""
    found[log_member(STAGE)] = b""
    empty = {"verdict": "aligned", "classic": {"passed": True, "threshold": 1e-6}, "tensors": []}
    environment = {
        side: json.loads(found[metadata_member(side, STAGE, "float32")])["environment"] for side in FRAMEWORKS
    }
    found[SUMMARY] = encoded(
        {"case": CASE_NAME, "verdict": "aligned", "stages": {STAGE: empty}, "environment": environment}
    )
    return found


def write_bundle(path: Path, members: dict[str, bytes]) -> None:
    """Write the members with a manifest that fits them."""
    keys = {
        (side, STAGE, dtype): json.loads(members[metadata_member(side, STAGE, dtype)])
        for side in FRAMEWORKS
        for dtype in ("float32", "float64")
    }
    summary = json.loads(members[SUMMARY])
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "twinalign": "0",
        "case": CASE_NAME,
        "verdict": summary["verdict"],
        "stages": [STAGE],
        "missing_stages": [stage for stage in STAGES if stage != STAGE],
        "environment": summary["environment"],
        "hashes": collected_hashes_of(keys, {STAGE: CASE_NAME}),
        "source": {f"source/{CASE_NAME}.py": f"/{CASE_NAME}.py"},
        "members": {
            name: {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            for name, content in members.items()
        },
    }
    write_archive(path, {**members, MANIFEST: encoded(manifest)})


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


def make(path: Path, sizes: list[int], megabytes: int) -> int:
    """Write an honest bundle; returns how many tensors a recording of it has."""
    members = members_of(recordings(sizes, megabytes))
    write_bundle(path, members)
    with Archive(path) as archive:
        contents = Contents.of(archive)
        comparison = compare_stage(STAGE, contents.recordings(STAGE), contents.description)
        count = len(comparison.tensors)
    summary = json.loads(members[SUMMARY])
    summary["stages"][STAGE], summary["verdict"] = comparison.to_json(), comparison.verdict
    members[SUMMARY] = encoded(summary)
    members[log_member(STAGE)] = ("\n".join(log_lines(comparison.classic)) + "\n").encode()
    write_bundle(path, members)
    return count


def measured(*command: str) -> tuple[float, float, float]:
    """Seconds, seconds of processors, and greatest resident memory in MB of a process."""
    started = time.perf_counter()
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    if status:
        raise SystemExit(f"{' '.join(command)} failed:\n{said.decode()}")
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def forget(path: Path) -> None:
    """Drop the file from the page cache, so that the next reader waits for the disk."""
    with path.open("rb") as stream:
        os.fsync(stream.fileno())
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def table(path: Path, name: str, repeats: int) -> None:
    """Measure both on one bundle, in turn, with the file in the page cache and out of it; the best of the repeats."""
    for cache in ("cached", "cold"):
        figures: dict[str, list[tuple[float, float, float]]] = {READ_AND_HASH: [], "verify": []}
        for _ in range(repeats):
            for key in figures:
                if cache == "cold":
                    forget(path)
                command = ("-m", "twinalign", "verify") if key == "verify" else ("-c", key)
                figures[key].append(measured(*command, str(path)))
        base, checked = ([min(column) for column in zip(*found, strict=True)] for found in figures.values())
        memory = max(resident for _, _, resident in figures["verify"])
        print(
            f"{name:<26} {cache:<6} {base[0]:>6.2f} s {checked[0]:>6.2f} s {checked[0] / base[0]:>6.1f} "
            f"{base[1]:>9.2f} s {checked[1]:>6.2f} s {checked[1] / base[1]:>6.1f} {memory:>6.0f} MB",
            flush=True,
        )


# The sizes of the mix are those of `twinalign run moco_v3_vit_small`, stage backward, in hundredths of its tensors.
KINDS = {
    "samples": [SAMPLED],
    "of the mix": [*[384] * 46, *[SAMPLED] * 33, *[1152] * 8, *[1536] * 7, *[4096] * 5, 256],
    "whole": [10**6],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--bundle", type=Path, metavar="FILE", help="A bundle of `twinalign pack`, measured instead.")
    parser.add_argument("--make", nargs=2, metavar=("KIND", "FILE"), help="Write one bundle and measure nothing.")
    asked = parser.parse_args()
    if asked.make:
        kind, file = asked.make
        print(make(Path(file), KINDS[kind], asked.megabytes))
        return
    print(f"{os.cpu_count()} processors, {platform.machine()}, Python {platform.python_version()}")
    print(
        f"{'bundle':<26} {'file':<6} {'hash':>8} {'verify':>8} {'ratio':>6} "
        f"{'hash, CPU':>11} {'verify':>8} {'ratio':>6} {'memory':>9}"
    )
    if asked.bundle:
        table(asked.bundle, f"{asked.bundle.stat().st_size / 1e6:.0f} MB, {asked.bundle.name}", asked.repeats)
        return
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "bundle.zip"
        for kind in KINDS:
            # In a process of its own: a child's peak memory counts what its parent held when it was started.
            maker = [sys.executable, __file__, "--make", kind, str(path), "--megabytes", str(asked.megabytes)]
            count = subprocess.run(maker, check=True, capture_output=True, text=True).stdout.strip()
            table(path, f"{path.stat().st_size / 1e6:.0f} MB, {count} {kind}", asked.repeats)


if __name__ == "__main__":
    main()
