"""The search for wrong layers, measured against one plain float64 forward and backward pass of both sides.

    python benchmarks/locate_speed.py [--json FILE] [NAME…]

For ResNet-50 (torchvision and paddle.vision) and the ViT-Small twins, four images of 224 px, clean and with three
faults: seconds by the clock and of the processor, without imports, building and conversion of weights; peak memory of
either process beyond its memory after the imports; and the values on disk divided by the activations. Runs are repeated
and the fastest counts. For a tiny Llama, whose attention does not scale its scores, with its loss and three optimizer
steps: the command `twinalign locate` as a whole, alone and beside four processes that keep the processors busy. Prints
Markdown tables. Reads /proc, so Linux only.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edit_to_verdict import Seconds, processor_seconds, timed

from twinalign import Case
from twinalign.processes.side_process import borrowed_package
from twinalign.recorder.recorder import SIDES, Recorder, RunSettings
from twinalign.recorder.worker import Worker
from twinalign.replay.case_run import CaseRun
from twinalign.search.layers import locate_layers
from twinalign.stages.context import scalar_loss

BATCH, SIZE, REPEATS = 4, 224, 3
LIMITS = {"time": 1.5, "memory": 1.5, "disk": 1.0}
LLAMA = "tiny_llama"
LLAMA_LIMIT, BUSY_LIMIT = 15.0, 3.0
LLAMA_CASE = """
import sys

sys.path.insert(0, {root!r})
from tests.cases.language.cases import Llama


class Unscaled(Llama):
    steps = 3

    def reproduced(self):
        model = super().reproduced()
        model.layers[0].attention.scale = 1.0
        return model
"""


class _Images(Case):
    def inputs(self, rng: Any) -> dict[str, Any]:
        return {"x": rng.standard_normal((BATCH, 3, SIZE, SIZE)).astype("float32")}


class ResNet50(_Images):
    """ResNet-50 of the two model zoos."""

    name = "resnet50"

    def reference(self) -> Any:
        import torchvision

        return torchvision.models.resnet50()

    def reproduced(self) -> Any:
        import paddle

        return paddle.vision.models.resnet50()


class ResNet50Faulty(ResNet50):
    """With another epsilon, a leaky activation and a missing one."""

    name = "resnet50 with three faults"

    def reproduced(self) -> Any:
        import paddle

        model = super().reproduced()
        model.layer3[2].bn2._epsilon = 1e-3
        model.layer2[1].relu = paddle.nn.LeakyReLU(0.01)
        model.layer4[0].bn1._momentum = 0.5
        model.maxpool = paddle.nn.AvgPool2D(3, 2, 1)
        return model


class ViTSmall(_Images):
    """The twins' encoder."""

    name = "vit_small"

    def reference(self) -> Any:
        from moco_ref import build_encoder

        return build_encoder("vit_small")

    def reproduced(self) -> Any:
        from moco_paddle import build_encoder

        return build_encoder("vit_small")


class ViTSmallFaulty(ViTSmall):
    """With another epsilon, the other GELU and a scaled residual."""

    name = "vit_small with three faults"

    def reproduced(self) -> Any:
        model = super().reproduced()
        model.blocks[3].norm2._epsilon = 1e-5
        model.blocks[7].mlp.act._approximate = True
        proj = model.blocks[9].attn.proj
        forward = proj.forward
        proj.forward = lambda x: forward(x) * 0.5
        return model


def peak_of(process: int | str) -> int:
    """Greatest resident memory of a process so far, in bytes."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def settings_of(case: type[Case], folder: Path) -> RunSettings:
    return RunSettings(f"{Path(__file__).resolve()}:{case.__name__}", folder, ("forward",), sequential=True)


def initial_weights(recorder: Recorder) -> dict[str, Any]:
    """Each side's weights. Converting them has already built the model in these processes."""
    with recorder.running() as weights:
        return dict(weights[recorder.description["parts"]["forward"]])


def measure(case: type[Case], folder: Path) -> dict[str, Any]:
    """Locate: seconds, bytes of memory over the imports on each side, bytes on disk."""
    recorder = Recorder(settings_of(case, folder))
    weights = initial_weights(recorder)
    with recorder.started() as processes:  # new processes, which hold nothing but their imports
        imported = {side: peak_of(processes[side].pid) for side in SIDES}
        seconds, processor = [], []
        for _ in range(REPEATS):
            before, started = sum(processor_seconds(processes[side].pid) for side in SIDES), time.perf_counter()
            located = locate_layers(processes, "forward", weights, folder / "values", rename={})
            seconds.append(time.perf_counter() - started)
            processor.append(sum(processor_seconds(processes[side].pid) for side in SIDES) - before)
        return {
            "disk": located.bytes_on_disk,
            "activations": located.activation_bytes,
            "faults": len(located.faults),
            "explained": sum(fault.explanation is not None for fault in located.faults),
            "seconds": min(seconds),
            "processor": min(processor),
            "spread": statistics.pstdev(seconds),
            "memory": {side: peak_of(processes[side].pid) - imported[side] for side in SIDES},
        }


def measure_plain(case: type[Case], folder: Path) -> dict[str, Any]:
    """One pass of each side and nothing else, each in a process of its own: seconds of both, bytes of memory."""
    settings = settings_of(case, folder)
    weights = initial_weights(Recorder(settings))
    found = {}
    with borrowed_package(None) as environment:
        for side in SIDES:
            given = json.dumps({"side": side, "case": settings.case, "weights": weights[side]})
            command = [sys.executable, __file__, "--plain", given]
            output = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
            found[side] = json.loads(output)
    taken = {
        which: min(map(sum, zip(*(found[side][which] for side in SIDES), strict=True)))
        for which in ("seconds", "processor")
    }
    return {**taken, "memory": {side: found[side]["memory"] for side in SIDES}}


def plain_passes(side: str, case: str, weights: dict[str, Any]) -> dict[str, Any]:
    """Forward and backward in float64, as often as locating is repeated, in this process."""
    worker = Worker(lambda *event, **values: None, side=side, device="cpu", case=case, options={})
    imported = peak_of("self")
    seconds, processor = [], []
    for _ in range(REPEATS):
        run = CaseRun.of(worker, "forward", weights)
        with worker.backend.default_dtype("float64"):
            inputs = run.inputs()
            started, before = time.perf_counter(), time.process_time()
            outputs = run.case.forward(run.model, inputs, run.framework)
            loss = run.case.loss(outputs, inputs, run.framework) if run.has_loss else run.stand_in_loss(outputs)
            scalar_loss(loss).backward()
            seconds.append(time.perf_counter() - started)
            processor.append(time.process_time() - before)
    return {"seconds": seconds, "processor": processor, "memory": peak_of("self") - imported}


def measure_llama() -> dict[str, Seconds]:
    """The whole command, alone and beside four busy processes; each the fastest of three."""
    found: dict[str, Seconds] = {}
    root = str(Path(__file__).resolve().parent.parent)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "case.py").write_text(LLAMA_CASE.format(root=root))
        command = [sys.executable, "-m", "twinalign", "locate", "case.py", "--out"]
        for what, others in (("alone", 0), ("busy", 4)):
            with contextlib.ExitStack() as held:
                for _ in range(others):
                    busy = held.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
                    held.callback(busy.kill)
                found[what] = min(timed([*command, f"{what}{n}"], folder, ends_with=1)[0] for n in range(REPEATS))
    return found


def tables(found: Mapping[str, Any]) -> list[str]:
    """What was measured as Markdown."""
    lines = [
        "| model | plain pass | time × plain | of the processor | memory × plain, torch / paddle | disk × activations "
        "| explained |",
        "| --- |" + " ---: |" * 6,
    ]
    for name, row in found.items():
        if name == LLAMA:
            continue
        plain = row["plain"]
        memory = " / ".join(f"{row['memory'][side] / plain['memory'][side]:.2f}" for side in SIDES)
        lines.append(
            f"| {name} | {plain['seconds']:.1f} s | {row['seconds'] / plain['seconds']:.2f} "
            f"| **{row['processor'] / plain['processor']:.2f}** | {memory} | {row['disk'] / row['activations']:.2f} "
            f"| {row['explained']} of {row['faults']} |"
        )
    lines.append(f"| limit | | {LIMITS['time']} | {LIMITS['time']} | {LIMITS['memory']} | {LIMITS['disk']} | |")
    if LLAMA in found:
        alone, busy = found[LLAMA]["alone"], found[LLAMA]["busy"]
        lines += [
            "",
            "| `locate` on a tiny Llama | by the clock | of the processor | limit |",
            "| --- | ---: | ---: | ---: |",
            f"| nothing else started | {alone[0]:.1f} s | **{alone[1]:.1f} s** | {LLAMA_LIMIT:.0f} s |",
            f"| beside four busy processes | {busy[0]:.1f} s, {busy[0] / alone[0]:.1f} times that | {busy[1]:.1f} s "
            f"| {BUSY_LIMIT:.0f} times |",
        ]
    return lines


def main() -> None:
    """Measure and print the table; with `--plain`, make the plain passes of one side and print them as JSON."""
    if sys.argv[1:2] == ["--plain"]:
        answer = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)  # frameworks print at import; standard output is only for the result
        json.dump(plain_passes(**json.loads(sys.argv[2])), answer)
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"{ResNet50.name}, {ViTSmall.name}, {LLAMA}; all without one")
    parser.add_argument("--json", type=Path, help="write the figures there too")
    arguments = parser.parse_args()
    found: dict[str, Any] = {}
    for clean, faulty in ((ResNet50, ResNet50Faulty), (ViTSmall, ViTSmallFaulty)):
        if arguments.names and clean.name not in arguments.names:
            continue
        with tempfile.TemporaryDirectory() as folder:
            plain = measure_plain(clean, Path(folder))
            for case in (clean, faulty):
                found[case.name] = {"plain": plain, **measure(case, Path(folder))}
    if not arguments.names or LLAMA in arguments.names:
        found[LLAMA] = measure_llama()
    print("\n".join(tables(found)))
    if arguments.json:
        arguments.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
