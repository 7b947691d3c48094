"""Every step of the port's optimizers and schedules beside torch's, in float64."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.slow
def test_every_optimizer_steps_in_the_port_as_in_torch(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, str(HERE / "optimizers_of_port.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found["wrong"] == {}
    assert found["compared"] == len((HERE / "optimizers.txt").read_text(encoding="utf-8").splitlines())
