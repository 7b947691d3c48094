"""Calls have one number, whether a unit runs alone, with its layers' results given to it, or in the whole."""

from __future__ import annotations

from pathlib import Path

from twinalign.recorder.recorder import RunSettings
from twinalign.search.locator import locate

SOURCE = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(3, 3)
        self.head = nn.Linear(3, 2)

    def forward(self, x, mask):
        return self.head(self.proj(x)[:, 0])
"""


def test_what_gives_a_unit_its_layers_results_takes_no_number_of_its_calls(tmp_path: Path) -> None:
    """Else the call that a cause changes has another number in the whole, which then does not bear the cause out."""
    port = SOURCE.replace("[:, 0]", "[:, -1]").replace("torch", "paddle").replace("nn.Module", "nn.Layer")
    (tmp_path / "net_source.py").write_text(SOURCE, encoding="utf-8")
    (tmp_path / "net_port.py").write_text(port, encoding="utf-8")
    case = f"{Path(__file__).with_name('whole_number_cases.py')}:Unmasked"
    (fault,) = locate(RunSettings(case, tmp_path / "out", options={"folder": str(tmp_path)})).faults
    assert fault.explanation is not None
    assert fault.explanation.id == "token_chosen"
