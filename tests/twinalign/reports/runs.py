"""Summaries of runs that never were, in the published form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from twinalign.files.recordings import Recording
from twinalign.verdict.results import TensorVerdict

STAGES = ("forward", "data", "metric", "loss", "backward", "train")
LAYERS = ("", "blocks", *(f"blocks.{i}" for i in range(4)), *(f"blocks.{i}.norm" for i in range(4)), "head")


def tensor(name: str, verdict: str = "aligned", number: int = 0, **values: Any) -> dict[str, Any]:
    """A tensor with every number that the report shows."""
    scale = 1.0 + number % 7
    found = TensorVerdict(
        name,
        verdict,
        values.pop("reason", None)
        or f"the float64 runs agree ({scale:.1f}e-13 relative); the error is {scale / 3:.2g} times "
        "the reference's own rounding",
        **{
            "shape": (384, 384),
            "dtype": "float32",
            "max_abs": 1.234e-6 * scale,
            "mean_abs": 2.345e-7 * scale,
            "max_rel": 3.456e-5 * scale,
            "max_ulp": 123 + number,
            "noise_ratio": scale / 3,
            "fp64_rel": 1e-13 * scale,
            "worst_index": (number % 384, 17),
            "reference_max": 2.0,
            "floor_rms": 1e-7 * scale,
            "floor_max": 3e-7 * scale,
            **values,
        },
    )
    return found.to_json()


def scalar(name: str, reference: float, port: float, **values: Any) -> dict[str, Any]:
    """A tensor of one number."""
    return tensor(name, shape=(), worst_index=(), reference_value=reference, reproduced_value=port, **values)


def stage(tensors: list[dict[str, Any]], verdict: str = "aligned") -> dict[str, Any]:
    """A stage with these tensors."""
    classic = {"passed": False, "threshold": 1e-6, "lines": [], "error": None, "quirks": []}
    return {"verdict": verdict, "classic": classic, "counts": {}, "notes": [], "tensors": tensors}


def backward(layers: int, steps: int = 3) -> list[dict[str, Any]]:
    """Losses, rates and gradients of some steps."""
    found = []
    for step in range(steps):
        found.append(scalar(f"step{step}.loss.loss", 2.0 + step, 2.0 + step + 1e-6, floor_max=2e-6))
        found.append(scalar(f"step{step}.learning_rate", step / 1e4, step / 1e4, max_abs=0.0))
        for kind in ("gradient", "parameter", "moment1", "moment2"):
            for layer in range(layers):
                name = f"step{step}.{kind}.base_encoder.blocks.{layer // 4}.mlp.fc{layer % 4}.weight"
                found.append(tensor(name, number=layer))
    return found


def summary(stages: dict[str, Any], verdict: str = "aligned", **more: Any) -> dict[str, Any]:
    """`summary.json` with these stages."""
    environments = {
        "ref": {
            "framework": "torch",
            "device": "cpu",
            "versions": {"torch": "2.15.0", "numpy": "2.4.6"},
            "flags": {"threads": 2, "default_dtype": "float32", "cudnn_allow_tf32": False},
            "python": "3.11.7",
        },
        "paddle": {
            "framework": "paddle",
            "device": "cpu",
            "versions": {"paddle": "3.3.1", "numpy": "2.4.6"},
            "flags": {"default_dtype": "float32", "FLAGS_use_mkldnn": False},
            "python": "3.12.1",
        },
    }
    return {
        "case": "made_up",
        "verdict": verdict,
        "seconds": 12.3,
        "stages": stages,
        "environment": environments,
        **more,
    }


def located() -> dict[str, Any]:
    """A wrong layer with its proven cause, and a wrong step of the data that is unexplained."""
    layers = [
        {
            "reference_layer": path,
            "paddle_layer": path,
            "class": "paddle.nn.LayerNorm" if path.endswith("norm") else "my.Block",
            "matched_by": "name",
            "inherited_error": 10.0 ** -(14 - place),
            "wrong": ["forward"] if path == "blocks.1.norm" else [],
        }
        for place, path in enumerate(LAYERS)
    ]
    epsilon = {
        "id": "norm_epsilon",
        "text": "the normalisation's epsilon has another value: 1e-05 in place of 1e-06",
        "confirmed": True,
        "evidence": {"unexplained_error": 1.2e-5, "remaining_error": 3.4e-13, "differences": ["epsilon"]},
    }
    value = {"relative": 2.5e-6, "rms": 1e-6, "max_abs": 4.4e-5, "worst_index": [0, 1], "text": ""}
    faults = [
        {
            "reference_layer": "blocks.1.norm",
            "paddle_layer": "blocks.1.norm",
            "phase": "forward",
            "explanation": epsilon,
            "evidence": {
                "where": "what it returns",
                "values": {"output.0": value},
                "paddle_class": "paddle.nn.layer.norm.LayerNorm",
            },
        },
        {
            "reference_layer": "dataset.train",
            "paddle_layer": "dataset.train",
            "phase": "data",
            "explanation": None,
            "evidence": {"step": "jitter", "pictures": [f"/elsewhere/train_{side}.png" for side in ("ref", "paddle")]},
        },
    ]
    part = {"layers": layers, "without_partner": {"reference": ["extra"], "port": []}}
    return {"case": "made_up", "verdict": "diverged", "faults": faults, "layers": {"made_up": part}}


def rich_summary() -> dict[str, Any]:
    """A diverged run of all six stages, with faults located."""
    verdicts = ("diverged", "rounding", "aligned", "aligned", "inconclusive")
    forward = [tensor(f"layer.{i}", verdicts[i % 5], i, max_abs=(i + 1) * 1e-7) for i in range(20)]
    stages = {
        "forward": stage(forward, "diverged"),
        "data": stage([tensor("train.0.image", "diverged", fp64_rel=None, noise_ratio=None)], "diverged"),
        "metric": stage([scalar("top1", 58.25, 58.25, max_abs=0.0)]),
        "loss": stage([scalar("loss", 1.5, 1.5000001)]),
        "backward": stage(backward(40)),
        "train": stage([tensor("curve.loss", "rounding"), scalar("outcome.knn_top1", 84.4, 85.6)]),
    }
    return summary(stages, "diverged", located=located())


def write_pictures(folder: Path) -> None:
    """The images that the wrong step made of a sample on either side."""
    (folder / "locate" / "data").mkdir(parents=True)
    for side, colour in (("ref", (200, 30, 30)), ("paddle", (30, 30, 200))):
        Image.new("RGB", (8, 8), colour).save(folder / "locate" / "data" / f"train_{side}.png")


def write_training(folder: Path) -> None:
    """Recordings of a training of 60 steps."""
    steps = np.arange(60)
    loss = 3.0 * np.exp(-steps / 40.0)
    rate = np.cos(steps / 60.0)
    ours = {"curve.loss": loss, "repeat.curve.loss": loss + 1e-7 * 1.2**steps, "curve.learning_rate": rate}
    Recording(ours).save(folder / "train_ref.npy")
    Recording({"curve.loss": loss - 1e-7 * 1.1**steps, "curve.learning_rate": rate}).save(folder / "train_paddle.npy")
