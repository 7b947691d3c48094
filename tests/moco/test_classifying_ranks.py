"""`finetune` and `lincls` by several processes against one on the joined batches, in float64."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image


def load(name: str) -> Any:
    # In importlib mode a file beside this one is no module that one can import by name.
    spec = importlib.util.spec_from_file_location(f"moco_{name}", Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ranks = load("test_distributed")
PROGRAM = Path(__file__).with_name("run_in_float64.py")
COMMON = "-b 8 --epochs 2 --image-size 32 --workers 0 --print-freq 1 --device cpu"
EVERYTHING = (
    "--warmup-epochs 1 --lr 3 --aa rand-m9-mstd0.5-inc1 --repeated-aug --drop-path 0.3 --mixup 0.8 --cutmix 1 "
    "--smoothing 0.1 --reprob 0.25 --clip-grad 0.5 --model-ema --filter-bias-and-bn"
)
RUNS = {
    "finetune-vit": f"finetune -a vit_digits {EVERYTHING}",
    # With batch norms, whose statistics are those of all ranks.
    "finetune-resnet": "finetune -a resnet18 --warmup-epochs 0 --lr 0.1 --drop-path 0.3",
    "lincls": "lincls -a vit_digits --lr 3",
}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pictures")
    generator = np.random.RandomState(0)
    # Three batches of eight and one of four; ranks have unequal numbers to validate.
    for split, count in (("train", 28), ("val", 7)):
        for number in range(count):
            path = root / split / f"class{number % 3}" / f"{number:02d}.png"
            path.parent.mkdir(exist_ok=True, parents=True)
            array = generator.randint(0, 256, (12, 12, 3), dtype="uint8") // 2 + 40 * (number % 3)
            Image.fromarray(array.astype("uint8")).resize((40, 36)).save(path)
    return root


def run(package: str, count: int, folder: Path, data: Path, name: str, *options: str) -> tuple[list[str], dict]:
    """The lines of the log, without times, and the weights at the end, averages included."""
    twin = ranks.support.Twin(package)
    command, *rest = RUNS[name].split()
    if command == "lincls":
        rest += ["--pretrained", str(encoder(twin, folder.parent))]
    launcher = ranks.launcher(package, count, folder)
    arguments = [package, command, str(data), *rest, *COMMON.split(), "--output", str(folder), *options]
    finished = subprocess.run(
        [*launcher, str(PROGRAM), *arguments],
        capture_output=True,
        text=True,
        timeout=280,
        env=ranks.environment(),
        cwd=folder.parent,
    )
    assert finished.returncode == 0, finished.stdout[-3000:] + finished.stderr[-3000:]
    said = [line.partition(", avg_")[0] for line in finished.stdout.splitlines() if line.startswith("[epoch")]
    # paddle's launcher shows rank 0's log twice.
    assert not twin.is_torch or len(said) == len(set(said))
    read_weights = twin.module("files.weights").read_weights
    path = folder / f"checkpoint{twin.module('files.checkpoint').SUFFIX}"
    weights = {key: np.asarray(value) for key, value in read_weights(path)[0].items()}
    if "--model-ema" in rest:
        weights |= {f"average of {key}": np.asarray(value) for key, value in read_weights(path, True)[0].items()}
    return list(dict.fromkeys(said)), weights


def encoder(twin: Any, folder: Path) -> Path:
    """A pre-training checkpoint, the same at every call."""
    path = folder / f"encoder{twin.module('files.checkpoint').SUFFIX}"
    if not path.exists():
        twin.seed(0)
        model = twin.to(twin.module("models.moco").build_moco("vit_digits", 8, 16), "float64")
        optimizer = twin.module("training.optimizer").build_optimizer("sgd", model.parameters(), 0.1, 0.0)
        with open(path, "wb"):
            pass
        twin.module("files.checkpoint").save_checkpoint(path, model, optimizer, 1, 0, {"arch": "vit_digits"})
    return path


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("package", ranks.PACKAGES)
def test_two_processes_equal_one_on_the_joined_batches(package: str, name: str, pictures: Path, tmp_path: Path) -> None:
    lines, weights = run(package, 1, tmp_path / "one", pictures, name)
    assert len(lines) == 2 * (4 + 1)
    two_lines, two_weights = run(package, 2, tmp_path / "two", pictures, name)
    assert two_lines == lines  # to five digits, in float64; one rank alone wrote
    floating = {key: array for key, array in weights.items() if array.dtype == "float64"}
    assert len(floating) > 10
    ranks.assert_close({key: two_weights[key] for key in floating}, floating, 1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("package", ranks.PACKAGES)
def test_wrong_use_of_two_processes_gets_one_line(package: str, pictures: Path, tmp_path: Path) -> None:
    command = [*ranks.launcher(package, 2, tmp_path), str(PROGRAM), package, "finetune", str(pictures)]
    command += [*COMMON.split(), "-a", "vit_digits", "-b", "6", "--warmup-epochs", "0", "--output", str(tmp_path)]
    finished = subprocess.run(
        command, capture_output=True, text=True, timeout=200, env=ranks.environment(), cwd=tmp_path
    )
    assert finished.returncode != 0
    said = finished.stdout + finished.stderr + "".join(path.read_text() for path in tmp_path.glob("log/worker*"))
    assert "error: batch_size: 6 is not shared by 2 ranks; give a multiple of 4" in said
