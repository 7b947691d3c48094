"""Ranks against one process on the joined batch: statistics, loss, gradients and updates, to float64."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

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
    model = twin.module("builder").build_moco(arch, dim=16, mlp_dim=32, **({"image_size": 32} if "vit" in arch else {}))
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
def test_ranks_equal_one_process_on_the_joined_batch(twin: Any, arch: str, ranks: int) -> None:
    distributed, normalization = twin.module("distributed"), twin.module("normalization")
    whole = views(8)
    joined = step_of_rank(twin, small_moco(twin, arch), whole)

    def of_rank(rank: int) -> dict[str, Any]:
        model = normalization.synchronise_batch_norm(small_moco(twin, arch))
        share = slice(rank * 8 // ranks, (rank + 1) * 8 // ranks)
        return step_of_rank(twin, model, [view[share] for view in whole])

    found = distributed.simulate_ranks(ranks, of_rank)
    assert np.mean([rank["loss"] for rank in found]) == pytest.approx(joined["loss"], rel=1e-12)
    assert_close(mean_gradients(found), joined["gradients"])
    for rank in found:
        assert_close(rank["state"], joined["state"])


def test_without_synchronisation_ranks_differ_from_the_joined_batch(twin: Any) -> None:
    whole = views(8)
    joined = step_of_rank(twin, small_moco(twin), whole)
    found = twin.module("distributed").simulate_ranks(
        2, lambda rank: step_of_rank(twin, small_moco(twin), [view[4 * rank : 4 * rank + 4] for view in whole])
    )
    assert abs(np.mean([rank["loss"] for rank in found]) / joined["loss"] - 1) > 1e-4


def test_synchronised_statistics_of_unequal_batches(twin: Any) -> None:
    normalization, distributed = twin.module("normalization"), twin.module("distributed")
    kind = normalization.BatchNorm1d if twin.is_torch else normalization.BatchNorm1D
    x = np.random.default_rng(0).standard_normal((7, 5)) * 3 + 1

    def of_rank(rank: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        layer = normalization.synchronise_batch_norm(twin.to(kind(5), "float64"))
        layer.train()
        y = layer(twin.tensor(x[:2] if rank == 0 else x[2:]))
        return twin.array(y), twin.state(layer)

    found = distributed.simulate_ranks(2, of_rank)
    y = np.concatenate([part for part, _ in found])
    np.testing.assert_allclose(y, (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5), rtol=1e-12)
    for _, state in found:
        mean, variance = (next(v for k, v in state.items() if k.endswith(end)) for end in ("mean", "var"))
        np.testing.assert_allclose(mean, 0.1 * x.mean(0), rtol=1e-6)
        np.testing.assert_allclose(variance, 0.9 + 0.1 * x.var(0, ddof=1), rtol=1e-6)


@pytest.mark.parametrize("ranks", [16, 1024])
def test_contrastive_loss_of_many_ranks(twin: Any, ranks: int) -> None:
    """Keys of all ranks are candidates, labels are offset by rank: against numpy on the joined batch."""
    distributed = twin.module("distributed")
    model = small_moco(twin)
    rng = np.random.default_rng(1)
    q, k = rng.standard_normal((2, ranks * 4, 8))

    def of_rank(rank: int) -> float:
        share = slice(rank * 4, rank * 4 + 4)
        return float(twin.array(model.contrastive_loss(twin.tensor(q[share]), twin.tensor(k[share]))))

    unit_q, unit_k = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (q, k))
    logits = unit_q @ unit_k.T / model.temperature
    expected = 2 * model.temperature * (np.log(np.exp(logits).sum(axis=1)) - np.diag(logits)).mean()
    assert np.mean(distributed.simulate_ranks(ranks, of_rank)) == pytest.approx(expected, rel=1e-12)


def test_simulated_ranks_end_with_the_first_failure(twin: Any) -> None:
    distributed = twin.module("distributed")

    def fails(rank: int) -> None:
        if rank == 1:
            raise ZeroDivisionError("of rank 1")
        distributed.gather_objects(rank)

    with pytest.raises(ZeroDivisionError, match="of rank 1"):
        distributed.simulate_ranks(3, fails)
    with pytest.raises(RuntimeError, match="has ended"):
        distributed.simulate_ranks(2, lambda rank: distributed.gather_objects(rank) if rank else None)
    with pytest.raises(ValueError, match="ranks: 0 is not a number of them; give 1 or more"):
        distributed.simulate_ranks(0, lambda rank: rank)
    assert distributed.simulate_ranks(3, lambda rank: distributed.gather_objects(rank * rank)) == [[0, 1, 4]] * 3
    assert (distributed.rank(), distributed.world_size()) == (0, 1)


def launch(package: str, count: int, folder: Path, *arguments: str) -> list[dict[str, np.ndarray]]:
    """Start `rank_program.py` by the framework's own launcher; what each rank wrote."""
    launcher = {
        "moco_ref": ["torch.distributed.run", "--standalone", f"--nproc_per_node={count}"],
        "moco_paddle": ["paddle.distributed.launch", f"--nproc_per_node={count}", f"--log_dir={folder / 'log'}"],
    }[package]
    program = Path(__file__).with_name("rank_program.py")
    command = [sys.executable, "-m", *launcher, str(program), package, *arguments[:2], str(folder), *arguments[2:]]
    # A thread a rank: more would only wait for each other.
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tools")]),
    }
    finished = subprocess.run(command, capture_output=True, text=True, timeout=280, env=environment, cwd=folder)
    assert finished.returncode == 0, finished.stdout[-3000:] + finished.stderr[-3000:]
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
