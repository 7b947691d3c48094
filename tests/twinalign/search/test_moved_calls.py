"""Layers and functions that the port applies at another place: what has moved is said, and from where."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.twinalign.search.written_cases import edited, faults_of, in_paddle, written

REFERENCE = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.act = nn.ReLU()
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 5)

    def forward_features(self, x):
        x = self.conv(x)
        x = self.act(x)
        x = x.flatten(2).transpose(1, 2)
        return x

    def forward_head(self, x):
        x = x.mean(1)
        x = self.norm(x)
        x = F.gelu(x)
        return self.head(x)

    def forward(self, x):
        return self.forward_head(self.forward_features(x))
"""
PORT = in_paddle(REFERENCE, ("transpose(1, 2)", "transpose([0, 2, 1])"))
INPUTS = '{"x": rng.standard_normal((4, 3, 6, 6)).astype("float32")}'
NORM, GELU = "        x = self.norm(x)\n", "        x = F.gelu(x)\n"


@pytest.mark.parametrize(
    ("edits", "said"),
    [
        ([(NORM + GELU, GELU + NORM)], "`x = self.norm(x)` stands behind `x = F.gelu(x)`, in the reference before it"),
        # What the norm of the reference gave has a mean of zero, up to rounding.
        (
            [(NORM, ""), ("        return x\n", "        return self.norm(x)\n")],
            "`self.norm` stands in `forward_features`, in the reference in `forward_head`",
        ),
        (
            [(GELU, ""), ("        x = self.act(x)\n", "        x = F.gelu(self.act(x))\n")],
            "`F.gelu` stands in `forward_features`, in the reference in `forward_head`",
        ),
        (
            [("        x = self.act(x)\n", ""), ("x.mean(1)", "self.act(x.mean(1))")],
            "`self.act` stands in `forward_head`, in the reference in `forward_features`",
        ),
    ],
)
def test_what_is_applied_elsewhere_is_told(edits: list[tuple[str, str]], said: str, tmp_path: Path) -> None:
    (fault,) = faults_of(written(tmp_path, REFERENCE, edited(PORT, edits), INPUTS))
    assert fault.explanation is not None
    assert f"something else: {said}, line" in fault.explanation.text
    assert "in place of" not in fault.explanation.text
    assert (": write `" if said.startswith("`x = ") else ": do as line ") in fault.suggestion


def test_lines_are_quoted_where_more_than_their_order_is_wrong(tmp_path: Path) -> None:
    edits = [(NORM + GELU, GELU + "        x = self.norm(2.0 * x)\n")]
    (fault,) = faults_of(written(tmp_path, REFERENCE, edited(PORT, edits), INPUTS))
    assert fault.explanation is not None
    assert "`self.norm(2.0 * x)` in place of" in fault.explanation.text
    assert " stands " not in fault.explanation.text


def test_one_line_is_quoted_beside_the_one_that_it_stands_for(tmp_path: Path) -> None:
    edits = [("self.head(x)", "self.head(x).tanh()")]
    reference, port = REFERENCE.replace("self.head(x)", "self.head(x.tanh())"), edited(PORT, edits)
    (fault,) = faults_of(written(tmp_path, reference, port, INPUTS))
    assert fault.explanation is not None
    assert "`self.head(x).tanh()` in place of `self.head(x.tanh())`" in fault.explanation.text


def test_the_same_port_without_a_fault_has_none(tmp_path: Path) -> None:
    assert faults_of(written(tmp_path, REFERENCE, PORT, INPUTS)) == []


INSIDE = """
class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(6)
        self.fc = nn.Linear(6, 5)

    def forward(self, x):
        x = self.norm(x)
        return self.fc(x)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(6, 6)
        self.head = Head()

    def forward(self, x):
        x = F.gelu(self.stem(x))
        return self.head(x)
"""


def test_what_has_moved_into_another_layer_is_said_in_both(tmp_path: Path) -> None:
    edits = [
        ("        x = self.norm(x)\n", "        x = F.gelu(self.norm(x))\n"),
        ("F.gelu(self.stem(x))", "self.stem(x)"),
    ]
    inputs = '{"x": rng.standard_normal((4, 6)).astype("float32")}'
    faults = faults_of(written(tmp_path, INSIDE, edited(in_paddle(INSIDE), edits), inputs))
    notes = {fault.paddle_layer: " ".join(fault.evidence.get("notes", [])) for fault in faults}
    assert "`gelu`, which is left out here, is applied in head" in notes[""]
    assert "`gelu`, which the port has here, is applied by the reference in the model's own code" in notes["head"]
    edits = [
        ("        x = self.norm(x)\n", "        x = F.silu(self.norm(x))\n"),
        ("F.gelu(self.stem(x))", "self.stem(x)"),
    ]
    others = faults_of(written(tmp_path, INSIDE, edited(in_paddle(INSIDE), edits), inputs))
    assert not any("applied" in note for fault in others for note in fault.evidence.get("notes", []))


LAYOUT = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(24, 5)

    def forward(self, x):
        x = F.softmax(x, 1)
        x = x.reshape(x.shape[0], -1)
        x = F.layer_norm(x, (24,))
        return self.fc(x)
"""


def test_lines_around_an_epsilon_that_counts_are_proven(tmp_path: Path) -> None:
    softmax, reshape = "        x = F.softmax(x, 1)\n", "        x = x.reshape([x.shape[0], -1])\n"
    port = in_paddle(LAYOUT, ("reshape(x.shape[0], -1)", "reshape([x.shape[0], -1])"))
    edits = [(softmax + reshape, reshape + softmax)]
    inputs = '{"x": 0.1 * rng.standard_normal((3, 4, 6)).astype("float32")}'
    (fault,) = faults_of(written(tmp_path, LAYOUT, edited(port, edits), inputs))
    assert fault.explanation is not None
    said = "`x = F.softmax(x, 1)` stands behind `x = x.reshape([x.shape[0], -1])`, in the reference before it, line"
    assert said in fault.explanation.text
    assert "in place of" not in fault.explanation.text
