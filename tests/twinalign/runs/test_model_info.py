"""`twinalign info`: counts of both models beside each other, and what differs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.usefixtures("kept_processes")

CASE = """
from twinalign import Case

class Own(Case):
    rename = {"net.1": "net.norm"}

    def reference(self):
        from torch import nn
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 4, 1))
            def forward(self, x):
                return self.net(x)
        return Model()
    def reproduced(self):
        from paddle import nn
        class Model(nn.Layer):
            def __init__(self):
                super().__init__()
                last = nn.Conv2D(8, 4, 1, bias_attr=False)
                self.net = nn.Sequential(("0", nn.Conv2D(3, 8, 3)), ("norm", nn.BatchNorm2D(8)), ("2", last))
            def forward(self, x):
                return self.net(x)
        return Model()
    def inputs(self, rng):
        return {"x": rng.standard_normal((2, 3, 10, 10), dtype="float32")}
"""


@pytest.mark.slow
def test_layers_are_counted_side_by_side(twinalign: Any, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(CASE)
    finished = twinalign("info", tmp_path / "own.py", "--out", tmp_path / "out", "--json", tmp_path / "info.json")
    assert finished.returncode == 0, finished.stderr
    found = json.loads((tmp_path / "info.json").read_text())
    rows = {row["ref"]["layer"]: row for row in found["layers"]}
    assert list(rows) == ["", "net", "net.0", "net.1", "net.2"]
    assert rows["net.1"]["paddle"]["layer"] == "net.norm"
    assert [rows["net.1"][side]["buffers"] for side in ("ref", "paddle")] == [16, 16]
    assert [name for name, row in rows.items() if row["differ"]] == ["", "net", "net.2"]
    assert rows["net.2"]["differ"] == ["parameters"]
    assert [rows["net.2"][side]["parameters"] for side in ("ref", "paddle")] == [36, 32]
    assert rows["net.0"]["ref"]["flops"] == rows["net.0"]["paddle"]["flops"] == 2 * 2 * 8 * 8 * 8 * 3 * 9
    assert "36 ≠ 32" in finished.stdout
    assert "Own: 3 layers differ, 0 have no layer of that path on the other side" in finished.stdout
    # To stdout, where nothing but the JSON stands then.
    assert json.loads(twinalign("info", tmp_path / "own.py", "--out", tmp_path / "out", "--json", "-").stdout) == found
