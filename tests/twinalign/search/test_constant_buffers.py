"""Masks and tables that a constructor computes: the port keeps its own, and what it has wrong shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.twinalign.search.written_cases import edited, faults_of, in_paddle, written

REFERENCE = """
class Net(nn.Module):
    def __init__(self, width=4, length=6, window=2):
        super().__init__()
        self.enter = nn.Linear(width, width)
        regions = np.zeros(length)
        for number, part in enumerate((slice(0, -window), slice(-window, -1), slice(-1, None))):
            regions[part] = number
        mask = np.where(regions[:, None] != regions, -100.0, 0.0).astype("float32")
        self.register_buffer("mask", torch.tensor(mask))

    def forward(self, x):
        x = self.enter(x)
        scores = torch.softmax(x @ x.transpose(1, 2) + self.mask, -1)
        return scores @ x
"""
RIGHT = in_paddle(REFERENCE, ("x.transpose(1, 2)", "x.transpose([0, 2, 1])"), ("paddle.tensor(", "paddle.to_tensor("))
INPUTS = '{"x": rng.standard_normal((2, 6, 4)).astype("float32")}'


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("[:, None] != regions", "[:, None] > regions", "`regions[:, None] > regions` in place of "),
        ("slice(-window, -1), slice(-1, None)", "slice(-window, None)", "line 47 of case.py"),
    ],
)  # fmt: skip
def test_the_line_that_makes_a_wrong_mask_is_named(right: str, wrong: str, said: str, tmp_path: Path) -> None:
    (fault,) = faults_of(written(tmp_path, REFERENCE, edited(RIGHT, [(right, wrong)]), INPUTS))
    assert fault.explanation is not None
    assert said in fault.explanation.text


def test_another_number_that_hides_as_much_is_no_fault(tmp_path: Path) -> None:
    assert faults_of(written(tmp_path, REFERENCE, edited(RIGHT, [("-100.0", "-1e9")]), INPUTS)) == []


def test_what_is_drawn_is_given_to_the_port(tmp_path: Path) -> None:
    drawn = [("torch.tensor(mask)", "torch.randn(6, 6)")], [("paddle.to_tensor(mask)", "paddle.randn([6, 6])")]
    reference, port = edited(REFERENCE, drawn[0]), edited(RIGHT, drawn[1])
    assert faults_of(written(tmp_path, reference, port, INPUTS)) == []


def test_a_long_table_that_float32_rounds_otherwise_is_given_to_the_port(tmp_path: Path) -> None:
    table = (
        "        places = np.arange(4000, dtype='float32')[:, None]\n"
        "        rates = {rates}\n"
        "        self.register_buffer('table', {framework}(np.sin(places * rates).astype('float32')))\n"
    )
    theirs = table.format(framework="torch.tensor", rates="np.exp(np.arange(4, dtype='float32') * np.float32(-2.3))")
    ours = table.format(
        framework="paddle.to_tensor", rates="(10.0 ** (np.arange(4) * (-2.3 / np.log(10)))).astype('float32')"
    )
    used = ("return scores @ x", "return scores @ x + self.table[3990:3996]")
    begin = ("        self.enter =", "{}        self.enter =")
    reference = edited(REFERENCE, [(begin[0], begin[1].format(theirs)), used])
    port = edited(RIGHT, [(begin[0], begin[1].format(ours)), used])
    assert faults_of(written(tmp_path, reference, port, INPUTS)) == []
