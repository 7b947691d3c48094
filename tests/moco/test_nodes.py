"""Two nodes: network namespaces joined by a pair of virtual devices, each framework's own launcher in both."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest


def load(name: str) -> Any:
    # In importlib mode a file beside this one is no module that one can import by name.
    spec = importlib.util.spec_from_file_location(f"moco_{name}", Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PROGRAM = Path(__file__).with_name("rank_program.py")


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.fixture
def nodes() -> Iterator[list[tuple[str, str, str]]]:
    """Namespace, device and address of each of two nodes."""
    mark = os.getpid()
    found = [(f"twinalign{mark}n{i}", f"ta{mark % 100000}v{i}", f"10.99.0.{i}") for i in (1, 2)]
    try:
        try:
            for namespace, _, _ in found:
                ip("netns", "add", namespace)
            (one, first, _), (two, second, _) = found
            ip("link", "add", first, "netns", one, "type", "veth", "peer", "name", second, "netns", two)
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("network namespaces are not to be had here (they take root and iproute2)")
        for namespace, device, address in found:
            ip("-n", namespace, "addr", "add", f"{address}/24", "dev", device)
            ip("-n", namespace, "link", "set", "lo", "up")
            ip("-n", namespace, "link", "set", device, "up")
        yield found
    finally:
        for namespace, _, _ in found:
            subprocess.run(["ip", "netns", "del", namespace], capture_output=True)


@pytest.mark.slow
@pytest.mark.parametrize("package", ["moco_ref", "moco_paddle"])
def test_two_nodes_equal_one_process(package: str, nodes: list[tuple[str, str, str]], tmp_path: Path) -> None:
    master = f"{nodes[0][2]}:29511"
    processes = []
    for number, (namespace, device, address) in enumerate(nodes):
        launcher = {
            "moco_ref": [
                "torch.distributed.run",
                f"--node_rank={number}",
                f"--master_addr={nodes[0][2]}",
                "--master_port=29511",
            ],
            "moco_paddle": [
                "paddle.distributed.launch",
                f"--rank={number}",
                f"--master={master}",
                f"--host={address}",
                f"--log_dir={tmp_path / 'log'}{number}",
            ],
        }[package]
        command = [
            "ip",
            "netns",
            "exec",
            namespace,
            sys.executable,
            "-m",
            *launcher,
            "--nnodes=2",
            "--nproc_per_node=1",
        ]
        command += [str(PROGRAM), package, "vit_digits", "2", str(tmp_path)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": device}
        processes.append(
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
        )
    said = [process.communicate(timeout=250)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], "\n".join(text[-2000:] for text in said)
    program = load("rank_program")
    joined = program.run_steps(program.support.Twin(package), "vit_digits", 2)
    ranks = [np.load(tmp_path / f"rank{rank}.npz") for rank in range(2)]
    losses = np.mean([rank["losses"] for rank in ranks], axis=0)
    np.testing.assert_allclose(losses, joined["losses"], rtol=1e-9)
