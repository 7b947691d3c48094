"""Wrong layers that share their code: where the time did not suffice for one, it is not spent again on the next."""

from __future__ import annotations

from pathlib import Path

from tests.twinalign.search.written_cases import in_paddle, written
from twinalign.recorder.recorder import RunSettings
from twinalign.search.locator import locate

REFERENCE = """
class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.last = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        h = torch.tanh(self.first(x)) * x.mean(-1, keepdim=True)
        return self.last(h + x)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = Block(6), Block(6)

    def forward(self, x):
        return self.two(self.one(x))
"""
PORT = in_paddle(REFERENCE, ("x.mean(-1, keepdim=True)", "x.max(-1, keepdim=True)"))
INPUTS = '{"x": rng.standard_normal((4, 6)).astype("float32")}'


def test_a_layer_whose_code_was_given_up_is_not_searched_once_more(tmp_path: Path) -> None:
    case = str(written(tmp_path, REFERENCE, PORT, INPUTS))
    settings = RunSettings(case, tmp_path / "out", stages=("forward",), explain_seconds=0.0)
    first, second = locate(settings).faults
    assert first.evidence["notes"][0].startswith("not tried: some of the known causes, and two of them together; ")
    assert second.evidence["notes"] == [
        "not searched in the reference: its code is that of one (forward), for whose causes the time did not suffice"
    ]
