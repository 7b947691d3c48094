"""The speed study: images per second of pre-training on this machine, for every setting that a user can choose.

    python benchmarks/speed_study.py [--arch vit_small] [--batch 16] [--steps 10] [--page speed.md]
    python benchmarks/speed_study.py --quick      # a small model on small pictures, in a few minutes

Four tables for either twin: data workers, threads (OMP_NUM_THREADS and MKL_NUM_THREADS), ways of starting, precision
modes. Every row is a run of the program `train` on one epoch of copies of DATA's pictures; its log has the time of each
step and of each wait for a batch, and medians leave out the first two steps. Rows that need a GPU say so where there is
none. A row that fails or takes too long says why, and the study goes on; what is measured is written to the page row by
row.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import os
import platform
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent.parent
PACKAGES = {"torch": "moco_ref", "paddle": "moco_paddle"}
MODES = ("fp32", "half", "o1", "o2", "o3", "amp", "bf16")
IMAGENET = 1_281_167
WARM_UP = 2
GRACE = 20.0
STEP = re.compile(r"iter (\d+)\] .*avg_reader_cost: ([\d.]+) sec, avg_batch_cost: ([\d.]+) sec")


@dataclasses.dataclass(frozen=True)
class Setting:
    """One row of a table."""

    side: str
    workers: int = 0
    threads: int = 0
    processes: int = 1
    mode: str = "fp32"
    device: str = "cpu"

    def launcher(self, logs: Path) -> list[str]:
        """The arguments between Python and the program."""
        package = PACKAGES[self.side]
        if self.processes == 1:
            return ["-m", package]
        count = f"--nproc_per_node={self.processes}"
        if self.side == "torch":
            return ["-m", "torch.distributed.run", "--standalone", count, "-m", package]
        backend = [] if self.device == "gpu" else ["--backend", "gloo"]
        program = str(HERE / package / "__main__.py")
        return ["-m", "paddle.distributed.launch", count, *backend, f"--log_dir={logs}", program]


@dataclasses.dataclass(frozen=True)
class Speed:
    """Seconds of a step and of the wait for its batch, and images per second."""

    step: float
    wait: float
    images: float


def finish(command: list[str], limit: float, **options: Any) -> tuple[str, str]:
    """Run a command; return why it failed, or an empty text, and its output.

    After `limit` seconds it is ended by SIGTERM, which launchers pass on, and by SIGKILL if that is not enough.
    """
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True, **options
    ) as process:
        try:
            output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                output, _ = process.communicate(timeout=GRACE)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                output, _ = process.communicate()
            return f"not done in {limit:.0f} s", output
    if process.returncode == 0:
        return "", output
    last = output.strip().splitlines()[-1:] or ["it said nothing"]
    return f"ended with exit code {process.returncode}: {last[0][:120]}", output


@dataclasses.dataclass(frozen=True)
class Study:
    """The settings that all rows share."""

    arch: str
    batch: int
    steps: int
    pictures: list[Path]
    workers: tuple[int, ...]
    threads: tuple[int, ...]
    modes: tuple[str, ...]
    limit: float = 900.0
    heads: tuple[str, ...] = ()

    def run(self, setting: Setting) -> Speed | str:
        """Train an epoch as the setting says; return its times, or why it failed."""
        with tempfile.TemporaryDirectory(prefix="speed-study-") as name:
            folder = Path(name)
            self.copy_pictures(folder / "data" / "all", self.batch * self.steps)
            command = [sys.executable, *setting.launcher(folder / "logs"), "train", str(folder / "data")]
            # By SGD: with weights and state in half precision AdamW ends at the second step.
            command += ["--arch", self.arch, "--optimizer", "sgd", "--lr", "1e-4", "--print-freq", "1"]
            command += ["--batch-size", str(self.batch), "--epochs", "1", "--warmup-epochs", "0", "--precision"]
            command += [setting.mode, "--workers", str(setting.workers), "--device", setting.device]
            threads = str(setting.threads or max(self.threads) // setting.processes)
            environment = {**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
            environment["PYTHONPATH"] = f"{HERE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
            command += [*self.heads, "--output", str(folder / "out")]
            failure, output = finish(command, self.limit, env=environment, cwd=folder)
            output += "".join(path.read_text() for path in folder.glob("logs/workerlog.0"))
        if failure:
            return failure
        by_step = {int(number): (float(wait), float(step)) for number, wait, step in STEP.findall(output)}
        kept = [costs for number, costs in by_step.items() if number >= WARM_UP]
        if not kept:
            return "logged no step"
        wait, step = (statistics.median(values) for values in zip(*kept, strict=True))
        return Speed(step, wait, self.batch / step)

    def copy_pictures(self, folder: Path, count: int) -> None:
        """Links to the pictures, repeated until there are enough."""
        folder.mkdir(parents=True)
        for number in range(count):
            source = self.pictures[number % len(self.pictures)]
            (folder / f"{number:06d}{source.suffix}").symlink_to(source)

    def load(self, side: str, workers: int) -> str:
        """Images per second of the loader alone, two views an image, its start left out; or why there are none."""
        command = [sys.executable, __file__, "--load", PACKAGES[side], str(workers), str(self.batch), self.arch]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        environment["PYTHONPATH"] = f"{HERE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        with tempfile.TemporaryDirectory(prefix="speed-study-") as name:
            # The batches that the workers made before the first was taken are few.
            self.copy_pictures(Path(name) / "all", self.batch * max(self.steps, 8 * workers))
            failure, output = finish([*command, name], self.limit, env=environment)
        return failure or f"{json.loads(output.splitlines()[-1]):.1f}"


def load_here(package: str, workers: int, batch: int, arch: str, root: str) -> float:
    """Images per second from the first batch on."""
    data, moco = (importlib.import_module(f"{package}.{name}") for name in ("data", "models.moco"))
    size = moco.default_image_size(arch)
    start, count = 0.0, 0
    for _ in data.build_pretraining_loader(root, batch, size, workers=workers):
        start, count = start or time.perf_counter(), count + batch
    return (count - batch) / (time.perf_counter() - start)


def gpus(side: str) -> int:
    """How many GPUs the framework sees."""
    code = "import torch; print(torch.cuda.device_count())"
    if side == "paddle":
        code = "import paddle; print(paddle.device.is_compiled_with_cuda() and paddle.device.cuda.device_count())"
    failure, output = finish([sys.executable, "-c", code], 300.0)
    last = "" if failure else output.split()[-1]
    return int(last) if last.isdecimal() else 0  # paddle's answer without CUDA is False


def cells(found: Speed | str) -> list[str]:
    """The last columns of a row."""
    if isinstance(found, str):
        return [found, "", "", ""]
    hours = IMAGENET / found.images / 3600
    wait = f"{100 * found.wait / found.step:.1f}%"
    return [f"{found.images:.2f}", f"{found.step:.3f}", wait, f"{hours:.1f}"]


MEASURED = ["images/s", "s a step", "waits for data", "ImageNet epoch, h"]


class Page:
    """Lines that are printed at once, and written to a file if one is given."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        if path:
            path.write_text("", encoding="utf-8")

    def add(self, *lines: str) -> None:
        """Print and write."""
        for line in lines:
            print(line, flush=True)
        if self.path:
            with open(self.path, "a", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in lines)

    def table(self, title: str, header: list[str]) -> None:
        """Begin a table."""
        self.add("", f"## {title}", "", "| " + " | ".join(header) + " |")
        self.add("| " + " | ".join(["---"] + ["---:"] * (len(header) - 1)) + " |")

    def row(self, *values: str) -> None:
        """Add a row."""
        self.add("| " + " | ".join(values) + " |")


def study_cpu(study: Study, page: Page) -> None:
    """The tables of workers and threads."""
    page.table("Data workers", ["twin", "workers", "loader alone, images/s", *MEASURED])
    for side in PACKAGES:
        for workers in study.workers:
            rate = study.load(side, workers)
            page.row(side, str(workers), rate, *cells(study.run(Setting(side, workers=workers))))
    page.table("Threads", ["twin", "OMP and MKL threads", *MEASURED])
    for side in PACKAGES:
        for threads in study.threads:
            page.row(side, str(threads), *cells(study.run(Setting(side, threads=threads))))


def study_starts(study: Study, page: Page) -> None:
    """The table of the ways to start."""
    page.table("Ways of starting", ["twin", "start", *MEASURED])
    names = {"torch": "torchrun", "paddle": "paddle.distributed.launch"}
    for side in PACKAGES:
        count = gpus(side)
        page.row(side, "one process, CPU", *cells(study.run(Setting(side))))
        for processes in sorted({2, max(study.threads)} - {1}):
            found = study.run(Setting(side, processes=processes))
            page.row(side, f"{names[side]}, {processes} processes, CPU", *cells(found))
        for processes in sorted({1, max(count, 2)}):
            found = "needs a GPU" if count == 0 else "needs several GPUs"
            if count >= processes:
                found = study.run(Setting(side, processes=processes, device="gpu", workers=max(study.workers)))
            start = "one process, one GPU" if processes == 1 else f"{names[side]}, all GPUs"
            page.row(side, start, *cells(found))


def study_modes(study: Study, page: Page) -> None:
    """The table of the precision modes."""
    page.table("Precision", ["twin", "mode", "device", *MEASURED])
    for side in PACKAGES:
        has_gpu = gpus(side) > 0
        for mode in study.modes:
            device = "CPU" if mode == "fp32" else "CPU, emulated"
            page.row(side, mode, device, *cells(study.run(Setting(side, mode=mode))))
        for mode in study.modes:
            found = study.run(Setting(side, mode=mode, device="gpu")) if has_gpu else "needs a GPU"
            page.row(side, mode, "GPU", *cells(found))


def powers_up_to(count: int) -> tuple[int, ...]:
    """1, 2, 4, … and the count itself."""
    return tuple(sorted({2**power for power in range(count.bit_length()) if 2**power <= count} | {count}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default="vit_small")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=10, help="per run; the first two do not count")
    parser.add_argument("--data", type=Path, default=HERE / "lite_data" / "photos" / "train")
    parser.add_argument("--quick", action="store_true", help="a small model on digits, fewer rows")
    parser.add_argument("--limit", type=float, default=900.0, metavar="SECONDS", help="after which a row is stopped")
    parser.add_argument("--page", type=Path, help="write the tables there as Markdown too")
    parser.add_argument("--load", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.load:
        package, workers, batch, arch, root = options.load
        print(json.dumps(load_here(package, int(workers), int(batch), arch, root)))
        return
    if options.steps <= WARM_UP:
        parser.error(f"--steps: the first {WARM_UP} do not count; give more")
    count = os.cpu_count() or 1
    workers, threads, modes = (0, *powers_up_to(count)), powers_up_to(count), MODES
    heads: tuple[str, ...] = ()
    if options.quick:
        # The published heads have more than a hundred times the weights of this encoder.
        heads = "--moco-dim", "32", "--moco-mlp-dim", "128"
        options.arch, options.data = "vit_digits", HERE / "lite_data" / "digits" / "train"
        workers, threads, modes = (0, count), (1, count), ("fp32", "half", "amp")
    pictures = sorted(path.resolve() for path in options.data.rglob("*") if path.suffix in (".jpg", ".jpeg", ".png"))
    if not pictures:
        parser.error(f"--data: {options.data} holds no pictures; python lite_data/prepare.py makes some")
    study = Study(options.arch, options.batch, options.steps, pictures, workers, threads, modes, options.limit, heads)
    page = Page(options.page)
    page.add("# Speed study", "")
    page.add(f"`{' '.join(['python benchmarks/speed_study.py', *sys.argv[1:]])}`", "")
    machine = f"{platform.machine()}, {count} cores, load before the first row {os.getloadavg()[0]:.1f}"
    page.add(f"{options.arch}, batch {options.batch}, {options.steps} steps a row; {machine}.")
    page.add("Where a row names no workers there are none, where it names no threads there are as many as cores.")
    study_cpu(study, page)
    study_starts(study, page)
    study_modes(study, page)


if __name__ == "__main__":
    main()
