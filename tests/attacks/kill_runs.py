"""Kill runs without notice at many moments: nothing is lost or half-written, and nothing stays behind.

    python tests/attacks/kill_runs.py --moments 20 run convert pack "train moco_ref 2"

Each command is first run to its end. Then it is killed at a random moment (its first process alone, by SIGKILL), and
run again until it ends by itself: its files must be those of the first run, bit by bit. 20 s after a kill no process of
it may be left, and no temporary folder. Exit code 1 if anything is.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

import numpy as np

from twinalign.files.reader import read_arrays

ROOT = Path(__file__).resolve().parents[2]
CASE = f"{ROOT / 'tests' / 'cases' / 'tiny.py'}:TinyMoCo"
SECONDS_TO_END = 20
TRAIN = "-a vit_digits -b 8 --epochs 3 --warmup-epochs 1 --lr 0.03 --moco-dim 8 --moco-mlp-dim 16 --device cpu"


class Attack:
    """One command, its output in a folder of its own, and the files that make it up."""

    def __init__(self, command: str, folder: Path) -> None:
        self.words = command.split()
        self.folder = folder
        self.mark = uuid.uuid4().hex
        self.temporary = folder / "tmp"
        self.temporary.mkdir(parents=True)
        self.inputs = folder / "inputs"
        self.inputs.mkdir()
        self._prepare()

    def _prepare(self) -> None:
        kind = self.words[0]
        if kind == "convert":
            rng = np.random.default_rng(0)
            weights = {f"layer{n}.weight": rng.standard_normal((512, 512), dtype="f4") for n in range(40)}
            np.savez(self.inputs / "a.npz", **{f"state_dict/{name}": array for name, array in weights.items()})
        elif kind == "pack":
            self._call([*self._twinalign(), "run", CASE, "--out", str(self.inputs / "result")])
        elif kind == "train":
            from PIL import Image

            for number in range(26):
                path = self.inputs / f"class{number % 2}" / f"{number:02d}.png"
                path.parent.mkdir(exist_ok=True)
                pixels = np.random.RandomState(number).randint(0, 256, (32, 32, 3), dtype="uint8")
                Image.fromarray(pixels).save(path)

    def _twinalign(self) -> list[str]:
        return [sys.executable, "-m", "twinalign"]

    def command(self, out: Path) -> list[str]:
        """The command line; a training goes on from its newest checkpoint."""
        kind = self.words[0]
        if kind == "run":
            return [*self._twinalign(), "run", CASE, "--out", str(out)]
        if kind == "convert":
            target = out / "a.pdparams"
            return [*self._twinalign(), "convert", str(self.inputs / "a.npz"), str(target), "--layer", "*=Linear"]
        if kind == "pack":
            return [*self._twinalign(), "pack", "--partial", str(self.inputs / "result"), str(out / "a.zip")]
        package, ranks = self.words[1], int(self.words[2])
        module = {"moco_ref": ["torch.distributed.run", "--standalone"], "moco_paddle": ["paddle.distributed.launch"]}
        launcher = ["-m", *module[package], f"--nproc_per_node={ranks}"] if ranks > 1 else []
        launcher += [f"--log_dir={self.folder / 'log'}"] if launcher and package == "moco_paddle" else []
        program = ["-m", package] if package == "moco_ref" or ranks == 1 else [str(ROOT / package / "__main__.py")]
        found = [sys.executable, *launcher, *program, "train", str(self.inputs), *TRAIN.split(), "--output", str(out)]
        checkpoints = sorted(out.glob("checkpoint_*"))
        return [*found, "--resume", str(checkpoints[-1])] if checkpoints else found

    def _start(self, command: list[str]) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "TMPDIR": str(self.temporary), "KILL_RUNS_MARK": self.mark, "OMP_NUM_THREADS": "1"}
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "tools"), str(ROOT)])
        output = (self.folder / "output").open("ab")
        return subprocess.Popen(command, stdout=output, stderr=output, env=environment, start_new_session=True)

    def _call(self, command: list[str]) -> int:
        return self._start(command).wait()

    def finish(self, out: Path) -> int:
        out.mkdir(exist_ok=True)
        return self._call(self.command(out))

    def kill_after(self, seconds: float, out: Path) -> None:
        out.mkdir(exist_ok=True)
        process = self._start(self.command(out))
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def left(self) -> list[str]:
        """Processes and temporary folders that are still there some seconds after a kill."""
        ended = time.monotonic() + SECONDS_TO_END
        while (found := self._processes()) and time.monotonic() < ended:
            time.sleep(0.2)
        return found + [path.name for path in self.temporary.iterdir() if path.name.startswith("twinalign-")]

    def _processes(self) -> list[str]:
        found = []
        for folder in Path("/proc").iterdir():
            try:
                if folder.name.isdigit() and self.mark.encode() in (folder / "environ").read_bytes():
                    found.append((folder / "cmdline").read_text().replace("\0", " ")[:120])
            except OSError:
                continue
        return found


def content(out: Path) -> dict[str, bytes]:
    """What must be the same after every kill: arrays by name and bundles by their bytes, without times."""
    found: dict[str, bytes] = {}
    for path in sorted(out.rglob("*")):
        name = str(path.relative_to(out))
        if path.suffix in (".npy", ".npz", ".pth", ".tar", ".pdparams") and "locate" not in name:
            arrays = read_arrays(path)
            found |= {f"{name}:{key}": array.tobytes() for key, array in arrays.items()}
        elif path.suffix == ".zip":
            found[name] = path.read_bytes()
        elif path.name == "summary.json":
            found[name] = json.loads(path.read_text())["verdict"].encode()
        elif path.suffix in (".part", ".partial"):
            found[name] = b"left behind"
    return found


def attack(command: str, moments: int, seed: int, folder: Path) -> list[str]:
    """Kill a command at as many moments; returns what was found wrong."""
    one = Attack(command, folder)
    begun = time.monotonic()
    code = one.finish(folder / "whole")
    whole, seconds = content(folder / "whole"), time.monotonic() - begun
    wrong = [] if code in (0, 1) and whole else [f"{command}: ends with {code} by itself"]
    rng = random.Random(f"{seed} {command}")
    for number in range(moments):
        out = folder / f"killed{number}"
        moment = rng.uniform(0.0, seconds)
        one.kill_after(moment, out)
        wrong += [f"{command}: left {moment:.1f} s after its start: {what}" for what in one.left()]
        again = one.finish(out)
        found = content(out)
        differing = [name for name in whole | found if whole.get(name) != found.get(name)]
        if again != code or differing:
            wrong.append(f"{command}: killed after {moment:.1f} s, ends with {again}, differs in {differing[:3]}")
        shutil.rmtree(out)
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commands", nargs="+", help='run, convert, pack, "train moco_ref 1", "train moco_paddle 2"')
    parser.add_argument("--moments", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    wrong = []
    for command in asked.commands:
        with tempfile.TemporaryDirectory(prefix="killed-") as folder:
            found = attack(command, asked.moments, asked.seed, Path(folder))
        print(f"{command}: {asked.moments} kills, {len(found)} findings", *found, sep="\n  ", flush=True)
        wrong += found
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
