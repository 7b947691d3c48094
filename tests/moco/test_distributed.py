"""Ranks against one process on the joined batch: statistics, loss, gradients and updates, to float64."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from moco_common.distributed import _broke_off, require_equal

ROOT = Path(__file__).resolve().parent.parent.parent


def load(name: str) -> Any:
    # In importlib mode a file beside this one is no module that one can import by name.
    spec = importlib.util.spec_from_file_location(f"moco_{name}", Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


support = load("conftest")

PACKAGES = ("moco_ref", "moco_paddle")


@pytest.fixture(params=PACKAGES)
def twin(request: pytest.FixtureRequest) -> Any:
    return support.Twin(request.param)


def views(count: int, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((count, 3, 32, 32)) for _ in range(2)]


def small_moco(twin: Any, arch: str = "vit_digits", seed: int = 3) -> Any:
    """A small MoCo in float64 whose weights are far from zero, the same in every call."""
    twin.seed(seed)
    model = twin.module("models.moco").build_moco(
        arch, dim=16, mlp_dim=32, **({"image_size": 32} if "vit" in arch else {})
    )
    state = twin.state(model)
    rng = np.random.default_rng(seed)
    filled = {}
    for key, value in state.items():
        if key.endswith("num_batches_tracked"):
            continue
        noise = 0.05 * rng.standard_normal(value.shape)
        filled[key] = (np.abs(noise) + 0.5 if key.endswith("running_var") else value + noise).astype("float32")
    twin.load(model, filled)
    model.train()
    return twin.to(model, "float64")


def step_of_rank(twin: Any, model: Any, parts: list[np.ndarray], momentum: float = 0.9) -> dict[str, Any]:
    """One step up to the gradients: loss, gradients and state."""
    loss = model(*(twin.tensor(part) for part in parts), momentum)
    loss.backward()
    return {"loss": float(twin.array(loss)), "gradients": twin.gradients(model), "state": twin.state(model)}


def mean_gradients(ranks: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    return {name: np.mean([rank["gradients"][name] for rank in ranks], axis=0) for name in ranks[0]["gradients"]}


def assert_close(actual: dict[str, np.ndarray], expected: dict[str, np.ndarray], tolerance: float = 1e-9) -> None:
    assert actual.keys() == expected.keys()
    # What is zero in exact arithmetic (the gradient of a bias before a normalisation) has rounding alone.
    whole = max(float(np.abs(array).max()) for array in expected.values() if array.size)
    for name, array in expected.items():
        scale = max(float(np.abs(array).max()), 1e-3 * whole)
        np.testing.assert_allclose(actual[name], array, rtol=0, atol=tolerance * scale, err_msg=name)


@pytest.mark.parametrize("arch", ["vit_digits", "resnet18"])
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.slow
def test_ranks_equal_one_process_on_the_joined_batch(twin: Any, arch: str, ranks: int) -> None:
    normalization = twin.module("models.normalization")
    whole = views(8)
    joined = step_of_rank(twin, small_moco(twin, arch), whole)

    def of_rank(rank: int) -> dict[str, Any]:
        model = normalization.synchronise_batch_norm(small_moco(twin, arch))
        share = slice(rank * 8 // ranks, (rank + 1) * 8 // ranks)
        return step_of_rank(twin, model, [view[share] for view in whole])

    found = twin.simulate_ranks(ranks, of_rank)
    assert np.mean([rank["loss"] for rank in found]) == pytest.approx(joined["loss"], rel=1e-12)
    assert_close(mean_gradients(found), joined["gradients"])
    for rank in found:
        assert_close(rank["state"], joined["state"])


def test_without_synchronisation_ranks_differ_from_the_joined_batch(twin: Any) -> None:
    whole = views(8)
    joined = step_of_rank(twin, small_moco(twin), whole)
    found = twin.simulate_ranks(
        2, lambda rank: step_of_rank(twin, small_moco(twin), [view[4 * rank : 4 * rank + 4] for view in whole])
    )
    assert abs(np.mean([rank["loss"] for rank in found]) / joined["loss"] - 1) > 1e-4


def test_synchronised_statistics_of_unequal_batches(twin: Any) -> None:
    normalization = twin.module("models.normalization")
    kind = normalization.BatchNorm1d if twin.is_torch else normalization.BatchNorm1D
    x = np.random.default_rng(0).standard_normal((7, 5)) * 3 + 1

    def of_rank(rank: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        layer = normalization.synchronise_batch_norm(twin.to(kind(5), "float64"))
        layer.train()
        y = layer(twin.tensor(x[:2] if rank == 0 else x[2:]))
        return twin.array(y), twin.state(layer)

    found = twin.simulate_ranks(2, of_rank)
    y = np.concatenate([part for part, _ in found])
    np.testing.assert_allclose(y, (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5), rtol=1e-12)
    for _, state in found:
        mean, variance = (next(v for k, v in state.items() if k.endswith(end)) for end in ("mean", "var"))
        np.testing.assert_allclose(mean, 0.1 * x.mean(0), rtol=1e-6)
        np.testing.assert_allclose(variance, 0.9 + 0.1 * x.var(0, ddof=1), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [16, 1024])
def test_contrastive_loss_of_many_ranks(twin: Any, ranks: int) -> None:
    """Keys of all ranks are candidates, labels are offset by rank: against numpy on the joined batch."""
    model = small_moco(twin)
    rng = np.random.default_rng(1)
    q, k = rng.standard_normal((2, ranks * 4, 8))

    def of_rank(rank: int) -> float:
        share = slice(rank * 4, rank * 4 + 4)
        return float(twin.array(model.contrastive_loss(twin.tensor(q[share]), twin.tensor(k[share]))))

    unit_q, unit_k = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (q, k))
    logits = unit_q @ unit_k.T / model.temperature
    expected = 2 * model.temperature * (np.log(np.exp(logits).sum(axis=1)) - np.diag(logits)).mean()
    assert np.mean(twin.simulate_ranks(ranks, of_rank)) == pytest.approx(expected, rel=1e-12)


def test_simulated_ranks_end_with_the_first_failure(twin: Any) -> None:
    distributed = twin.module("distributed")

    def fails(rank: int) -> None:
        if rank == 1:
            raise ZeroDivisionError("of rank 1")
        distributed.gather_objects(rank)

    with pytest.raises(ZeroDivisionError, match="of rank 1"):
        twin.simulate_ranks(3, fails)
    with pytest.raises(RuntimeError, match="has ended"):
        twin.simulate_ranks(2, lambda rank: distributed.gather_objects(rank) if rank else None)
    with pytest.raises(ValueError, match="ranks: 0 is not a number of them; give 1 or more"):
        twin.simulate_ranks(0, lambda rank: rank)
    assert twin.simulate_ranks(3, lambda rank: distributed.gather_objects(rank * rank)) == [[0, 1, 4]] * 3
    assert (distributed.rank(), distributed.world_size()) == (0, 1)


def launcher(package: str, count: int, folder: Path) -> list[str]:
    """The framework's own way to start `count` processes."""
    module = {
        "moco_ref": ["torch.distributed.run", "--standalone", f"--nproc_per_node={count}"],
        "moco_paddle": ["paddle.distributed.launch", f"--nproc_per_node={count}", f"--log_dir={folder / 'log'}"],
    }[package]
    return [sys.executable, "-m", *module] if count > 1 else [sys.executable]


def environment() -> dict[str, str]:
    # A thread a rank: more would only wait for each other.
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tools")])}


def start(package: str, count: int, folder: Path, program: str, *arguments: str) -> None:
    """Start a program of this folder by the framework's own launcher, and wait for its end."""
    path = str(Path(__file__).with_name(program))
    command = [*launcher(package, count, folder), path, package, *arguments]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=500, env=environment(), cwd=folder)
    assert finished.returncode == 0, finished.stdout[-3000:] + finished.stderr[-3000:]


def launch(package: str, count: int, folder: Path, *arguments: str) -> list[dict[str, np.ndarray]]:
    """Let ranks train as `rank_program.py` does; what each wrote."""
    start(package, count, folder, "rank_program.py", *arguments[:2], str(folder), *arguments[2:])
    found = []
    for rank in range(count):
        with np.load(folder / f"rank{rank}.npz") as file:
            found.append(dict(file))
    return found


NOISE_DRIVEN = ("base_encoder.norm.bias", "attn.qkv.bias")
"""Their gradient, or a third of it, is zero in exact arithmetic: AdamW makes steps of what rounding leaves."""


@pytest.mark.slow
@pytest.mark.parametrize("package", PACKAGES)
def test_processes_equal_one_process_on_the_joined_batch(package: str, tmp_path: Path) -> None:
    """Five AdamW steps: losses of the ranks average to the joined batch's, gradients and states are its."""
    joined = load("rank_program").run_steps(support.Twin(package), "vit_digits", 5)
    losses = joined.pop("losses")
    joined = {name: array for name, array in joined.items() if not name.endswith(NOISE_DRIVEN)}
    for count in (2, 4):
        folder = tmp_path / str(count)
        folder.mkdir()
        ranks = launch(package, count, folder, "vit_digits", "5")
        np.testing.assert_allclose(np.mean([rank.pop("losses") for rank in ranks], axis=0), losses, rtol=1e-9)
        for rank in ranks:
            assert_close({name: rank[name] for name in joined}, joined)


@pytest.mark.slow
@pytest.mark.parametrize(("package", "kind"), [("moco_ref", "sync"), ("moco_paddle", "plain")])
def test_two_processes_equal_official_release(package: str, kind: str, tmp_path: Path) -> None:
    """ViT-Small in float64; the other two pairs agree as well, and take as long again.

    paddle's gradients of this size take minutes; those of a small model are held against one process above.
    """
    options = ["gradients"] if package == "moco_ref" and kind == "sync" else []
    start(package, 2, tmp_path, "golden_rank_program.py", kind, str(tmp_path), *options)
    official = support.golden(f"runs/dist_vit_small_{kind}_float64.json")
    for rank, expected in enumerate(official):
        found = json.loads((tmp_path / f"rank{rank}.json").read_text())
        check_official_rank(found, expected, official[0]["grads_ddp_averaged"])


def check_official_rank(found: dict[str, Any], expected: dict[str, Any], gradients: dict[str, Any]) -> None:
    assert found["loss"] == pytest.approx(expected["losses"][0], rel=1e-9)
    for name in ("q1", "q2", "k1", "k2"):
        np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=1e-9, err_msg=name)
    assert found["running"] == pytest.approx(expected["running_stats_after_step1"], rel=1e-9)
    for name, (norm, dot) in found.get("gradients", {}).items():
        official_norm, official_dot = gradients[name]
        if official_norm > 1e-6:  # others are zero in exact arithmetic
            assert norm == pytest.approx(official_norm, rel=1e-9), name
            assert dot == pytest.approx(official_dot, abs=1e-9 * max(official_norm, abs(official_dot))), name


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pictures")
    generator = np.random.RandomState(0)
    for number in range(26):
        path = root / f"class{number % 2}" / f"{number:02d}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(generator.randint(0, 256, (12, 12, 3), dtype="uint8")).resize((32, 32)).save(path)
    return root


OPTION_TEXT = (
    "--arch vit_digits --image-size 32 --batch-size 8 --warmup-epochs 1 --optimizer lars --lr 3 --weight-decay 0.1 "
    "--moco-m-cos --moco-dim 8 --moco-mlp-dim 16 --workers 0 --print-freq 1 --device cpu"
)
OPTIONS = OPTION_TEXT.split()


@pytest.mark.slow
def test_training_goes_on_with_another_number_of_ranks(
    twin: Any, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process throughout, and two that are followed by one: the same losses and weights, and one writer."""
    checkpoint, suffix = twin.module("files.checkpoint"), twin.module("files.checkpoint").SUFFIX
    monkeypatch.setattr(checkpoint, "check_settings", lambda *arguments: None)
    program = str(Path(__file__).with_name("run_in_float64.py"))

    def train(count: int, name: str, *options: str | Path) -> tuple[list[str], dict[str, np.ndarray]]:
        command = [
            *launcher(twin.package, count, tmp_path / name),
            program,
            twin.package,
            "train",
            str(pictures),
            *OPTIONS,
        ]
        command += ["--epochs", "2", "--output", str(tmp_path / name), *map(str, options)]
        finished = subprocess.run(command, capture_output=True, text=True, timeout=280, env=environment(), cwd=tmp_path)
        assert finished.returncode == 0, finished.stdout[-3000:] + finished.stderr[-3000:]
        model = twin.to(
            twin.module("models.moco").build_moco("vit_digits", dim=8, mlp_dim=16, image_size=32), "float64"
        )
        optimizer = twin.module("training.optimizer").build_optimizer("lars", model.parameters(), 1.0, 0.1)
        checkpoint.load_checkpoint(tmp_path / name / f"checkpoint_0002{suffix}", model, optimizer, {})
        said = [line for line in finished.stdout.splitlines() if line.startswith("[epoch")]
        return [line.partition(", avg_")[0] for line in dict.fromkeys(said)], twin.state(model)

    lines, state = train(1, "one")
    assert len(lines) == 6
    two_lines, two_state = train(2, "two")
    assert two_lines == lines  # to five digits, in float64
    assert_close(two_state, state, 1e-7)
    resumed_lines, resumed_state = train(1, "resumed", "--resume", tmp_path / "two" / f"checkpoint_0001{suffix}")
    assert resumed_lines == lines[3:]
    assert_close(resumed_state, state, 1e-7)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "number", "message"),
    [
        # paddle's own C++ ends a process whose peer is gone, before Python hears of it.
        ("moco_ref", signal.SIGKILL, r"error: rank 1 is gone: its process \d+ has ended"),
        (
            "moco_ref",
            signal.SIGSTOP,
            r"error: rank 1 \(process \d+ on \S+\) stands still: the others have waited for it",
        ),
        ("moco_paddle", signal.SIGSTOP, r"error: rank 1 \(process \d+ on \S+\) stands still: the others have waited"),
        # Its launcher then names no store.
        ("moco_paddle --backend=gloo", signal.SIGSTOP, r"error: rank 1 \(process \d+ on \S+\) stands still: the "),
    ],
)
def test_ranks_end_when_one_is_lost(package: str, number: int, message: str, pictures: Path, tmp_path: Path) -> None:
    package, *options = package.split()
    program = {"moco_ref": ["-m", "moco_ref"], "moco_paddle": [str(ROOT / "moco_paddle" / "__main__.py")]}[package]
    command = [*launcher(package, 2, tmp_path), *options, *program, "train", str(pictures), *OPTIONS]
    command += ["--epochs", "500", "--keep", "1", "--rank-timeout", "10", "--output", str(tmp_path / "out")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(), cwd=tmp_path
    ) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if "[epoch 1, iter 0]" in line and number is not None:
                os.kill(rank_process(1, str(tmp_path / "out")), number)
                number = None
        assert process.wait(timeout=60) != 0
    assert number is None, "".join(lines)[-3000:]
    assert re.search(message, "".join(lines)), "".join(lines)[-3000:]


def rank_process(rank: int, mark: str) -> int:
    """The process of a rank whose command line has `mark`."""
    wanted = re.compile(rf"\0(?:RANK|PADDLE_TRAINER_ID)={rank}\0")
    for folder in Path("/proc").iterdir():
        try:
            if mark in (folder / "cmdline").read_text() and wanted.search("\0" + (folder / "environ").read_text()):
                return int(folder.name)
        except (OSError, UnicodeDecodeError):
            continue
    raise AssertionError(f"no process of rank {rank}")


def test_an_error_of_its_own_is_no_lost_rank() -> None:
    for message in (
        "[gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:31415",
        "NCCL communicator was aborted on rank 1.",
        "(External) Connection reset by peer",
    ):
        assert _broke_off(RuntimeError(message))
    for error in (RuntimeError("mat1 and mat2 shapes cannot be multiplied (8x16 and 17x4)"), ValueError("gloo"), None):
        assert not _broke_off(error)


def test_a_rank_with_a_nan_is_named(twin: Any) -> None:
    training = twin.module("training.pretraining")
    args = Namespace(lr=0.1, epochs=2, warmup_epochs=1, moco_m=0.9, moco_m_cos=True)

    def of_rank(rank: int) -> None:
        model = twin.module("models.normalization").synchronise_batch_norm(small_moco(twin))
        optimizer = twin.module("training.optimizer").build_optimizer("lars", model.parameters(), 0.1, 0.0)
        parts = [view[4 * rank : 4 * rank + 4].copy() for view in views(8)]
        if rank == 1:
            parts[0][2] = np.nan
        with pytest.raises(FloatingPointError) as error:
            training.train_step(model, optimizer, *(twin.tensor(part) for part in parts), 0.5, args)
        # paddle's loss passes over a key that is no number; its gradient does not.
        assert re.fullmatch(
            r"the (loss is nan|gradient of \S+ is not finite) at epoch 0\.5000, first in "
            r"base_encoder\.patch_embed\.proj of rank 1; a lower --lr may help, or another --precision",
            str(error.value),
        )

    twin.simulate_ranks(2, of_rank)


def test_what_rank_0_cannot_write_ends_all(twin: Any) -> None:
    distributed = twin.module("distributed")

    def of_rank(rank: int) -> None:
        def write() -> None:
            assert rank == 0
            raise OSError(28, "No space left on device", "checkpoint")

        with pytest.raises(OSError, match=r"rank 0: \[Errno 28\] No space left on device: 'checkpoint'"):
            distributed.on_rank_0(write)
        assert distributed.on_rank_0(lambda: 7) == (7 if rank == 0 else None)

    twin.simulate_ranks(3, of_rank)


def test_ranks_that_differ_are_refused(twin: Any) -> None:
    gather_objects = twin.module("distributed").gather_objects

    def of_rank(rank: int) -> None:
        require_equal(gather_objects({"version": "1", "seed": 3}))
        message = "rank 2 has version = '2', rank 0 has '1'; start all ranks alike"
        with pytest.raises(ValueError, match=message):
            require_equal(gather_objects({"version": "2" if rank == 2 else "1", "seed": 3}))

    twin.simulate_ranks(3, of_rank)
