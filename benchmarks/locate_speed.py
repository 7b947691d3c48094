"""The search for wrong layers, measured against one plain float64 forward and backward pass of both sides.

    python benchmarks/locate_speed.py [NAME…]

For ResNet-50 (torchvision and paddle.vision) and the ViT-Small twins, four images of 224 px, clean and with three
faults: wall time without imports, building and conversion of weights; peak memory of either process over what it takes
once imported; and the values on disk against the activations. Runs are repeated and the fastest counts. Prints a
Markdown table. Reads /proc, so Linux only.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from twinalign import Case
from twinalign.locate.layers import locate_layers
from twinalign.recorder.process import RecorderProcess
from twinalign.runner import SIDES, Recorder, RunSettings

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
    """The encoder of the twins."""

    name = "vit_small"

    def reference(self) -> Any:
        from moco_ref.builder import build_encoder

        return build_encoder("vit_small")

    def reproduced(self) -> Any:
        from moco_paddle.builder import build_encoder

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


def peak_of(process: RecorderProcess) -> int:
    """Greatest resident memory of a recorder process so far, in bytes."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def measure(case: type[Case], plain: bool, folder: Path) -> dict[str, Any]:
    """Seconds, bytes of memory over the imports on each side, bytes on disk."""
    settings = RunSettings(f"{Path(__file__).resolve()}:{case.__name__}", folder, ("forward",), sequential=True)
    recorder = Recorder(settings)
    with recorder.running() as weights:
        part = recorder.description["parts"]["forward"]
        # Converting the weights has already built the model: fresh processes have nothing but their imports.
    found: dict[str, Any] = {}
    with recorder.started() as processes:
        imported = {side: peak_of(processes[side]) for side in SIDES}
        seconds = []
        for _ in range(REPEATS):
            started = time.perf_counter()
            if plain:
                seconds.append(
                    sum(
                        processes[side].request(
                            "call",
                            function="twinalign.locate.sides:plain_pass",
                            stage="forward",
                            weights=weights[part][side],
                            dtype="float64",
                        )["seconds"]
                        for side in SIDES
                    )
                )
                continue
            located = locate_layers(
                processes,
                "forward",
                weights[part],
                folder / "values",
                rename={},
            )
            seconds.append(time.perf_counter() - started)
            found = {
                "disk": located.bytes_on_disk,
                "activations": located.activation_bytes,
                "faults": len(located.faults),
                "explained": sum(fault.explanation is not None for fault in located.faults),
            }
        found["seconds"] = min(seconds)
        found["spread"] = statistics.pstdev(seconds)
        found["memory"] = {side: peak_of(processes[side]) - imported[side] for side in SIDES}
    return found


def main() -> None:
    """Measure and print the table."""
    rows = []
    for clean, faulty in ((ResNet50, ResNet50Faulty), (ViTSmall, ViTSmallFaulty)):
        if sys.argv[1:] and clean.name not in sys.argv[1:]:
            continue
        with tempfile.TemporaryDirectory() as folder:
            plain = measure(clean, True, Path(folder))
            for case in (clean, faulty):
                found = measure(case, False, Path(folder))
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
