"""Lines with complex numbers, where torch has noted a conjugate without making it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.twinalign.search.written_cases import edited, faults_of, in_paddle, written

REFERENCE = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(15, 15)
        self.last = nn.Linear(15, 4)

    def forward(self, x):
        x = self.first(x)
        f = torch.fft.rfft(x, norm="ortho")
        g = torch.conj(f) * f.mean()
        y = torch.fft.irfft(g, n=15, norm="ortho")
        z = torch.fft.fft(x)
        y = y + z.real - z.imag
        return self.last(y)
"""
PORT = in_paddle(REFERENCE, ("z.real - z.imag", "z.real() - z.imag()"))
INPUTS = '{"x": rng.standard_normal((4, 15)).astype("float32")}'


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("paddle.conj(f) * f", "f * f", "`f * f.mean()` in place of `torch.conj(f) * f.mean()`"),
        ('rfft(x, norm="ortho")', "rfft(x)", "`paddle.fft.rfft(x)` in place of `torch.fft.rfft(x, norm='ortho')`"),
        ("n=15, ", "n=14, ", "`n=14` in place of `n=15`"),
        ("paddle.fft.fft(x)", "paddle.fft.ifft(x)", "`paddle.fft.ifft(x)` in place of `torch.fft.fft(x)`"),
        ("- z.imag()", "+ z.imag()", "`y + z.real() + z.imag()` in place of `y + z.real - z.imag`"),
    ],
)
def test_a_line_with_complex_numbers_is_proven(old: str, new: str, said: str, tmp_path: Path) -> None:
    padded = "        y = F.pad(y, [0, 1])\n" if "n=14" in new else ""
    edits = [(old, new), ("        z = ", f"{padded}        z = ")]
    (fault,) = faults_of(written(tmp_path, REFERENCE, edited(PORT, edits), INPUTS))
    assert fault.explanation is not None
    assert said in fault.explanation.text
    assert "write `y + z.real" not in fault.suggestion  # which paddle has as methods


def test_the_same_port_without_a_fault_has_none(tmp_path: Path) -> None:
    assert faults_of(written(tmp_path, REFERENCE, PORT, INPUTS)) == []
