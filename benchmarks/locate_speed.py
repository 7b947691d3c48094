"""The search for wrong layers, measured against one plain float64 forward and backward pass of both sides.

    python benchmarks/locate_speed.py [NAME…]

For ResNet-50 (torchvision and paddle.vision) and the ViT-Small twins, four images of 224 px, clean and with three
faults: wall time without imports, building and conversion of weights; peak memory of either process beyond its memory
after the imports; and the values on disk divided by the activations. Runs are repeated and the fastest counts. Prints a
Markdown table. Reads /proc, so Linux only.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from twinalign import Case
from twinalign.processes.side_process import borrowed_package
from twinalign.recorder.recorder import SIDES, Recorder, RunSettings
from twinalign.recorder.worker import Worker
from twinalign.replay.case_run import CaseRun
from twinalign.search.layers import locate_layers
from twinalign.stages.context import scalar_loss

BATCH, SIZE, REPEATS = 4, 224, 3
LIMITS = {"time": 2.5, "memory": 1.5, "disk": 1.0}


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
        seconds = []
        for _ in range(REPEATS):
            started = time.perf_counter()
            located = locate_layers(processes, "forward", weights, folder / "values", rename={})
            seconds.append(time.perf_counter() - started)
        return {
            "disk": located.bytes_on_disk,
            "activations": located.activation_bytes,
            "faults": len(located.faults),
            "explained": sum(fault.explanation is not None for fault in located.faults),
            "seconds": min(seconds),
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
    seconds = [sum(passes) for passes in zip(*(found[side]["seconds"] for side in SIDES), strict=True)]
    return {"seconds": min(seconds), "memory": {side: found[side]["memory"] for side in SIDES}}


def plain_passes(side: str, case: str, weights: dict[str, Any]) -> dict[str, Any]:
    """Forward and backward in float64, as often as locating is repeated, in this process."""
    worker = Worker(lambda *event, **values: None, side=side, device="cpu", case=case, options={})
    imported = peak_of("self")
    seconds = []
    for _ in range(REPEATS):
        run = CaseRun.of(worker, "forward", weights)
        with worker.backend.default_dtype("float64"):
            inputs = run.inputs()
            started = time.perf_counter()
            outputs = run.case.forward(run.model, inputs, run.framework)
            loss = run.case.loss(outputs, inputs, run.framework) if run.has_loss else run.stand_in_loss(outputs)
            scalar_loss(loss).backward()
            seconds.append(time.perf_counter() - started)
    return {"seconds": seconds, "memory": peak_of("self") - imported}


def main() -> None:
    """Measure and print the table; with `--plain`, make the plain passes of one side and print them as JSON."""
    if sys.argv[1:2] == ["--plain"]:
        answer = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)  # frameworks print at import; standard output is only for the result
        json.dump(plain_passes(**json.loads(sys.argv[2])), answer)
        return
    rows = []
    for clean, faulty in ((ResNet50, ResNet50Faulty), (ViTSmall, ViTSmallFaulty)):
        if sys.argv[1:] and clean.name not in sys.argv[1:]:
            continue
        with tempfile.TemporaryDirectory() as folder:
            plain = measure_plain(clean, Path(folder))
            for case in (clean, faulty):
                found = measure(case, Path(folder))
                memory = " / ".join(f"{found['memory'][side] / plain['memory'][side]:.2f}" for side in SIDES)
                rows.append(
                    f"| {case.name} | {plain['seconds']:.1f} s | {found['seconds'] / plain['seconds']:.2f} | {memory} "
                    f"| {found['disk'] / found['activations']:.2f} | {found['explained']} of {found['faults']} |"
                )
    print("| model | plain pass | time × plain | memory × plain, torch / paddle | disk × activations | explained |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    print("\n".join(rows))
    print(f"| limit | | {LIMITS['time']} | {LIMITS['memory']} | {LIMITS['disk']} | |")


if __name__ == "__main__":
    main()
