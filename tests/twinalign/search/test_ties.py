"""Weights that are one tensor on one side alone change the training: a fault with both names, and no false ones."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from twinalign.backends.torch.reference_only.ties import tie, untie
from twinalign.recorder.recorder import RunSettings
from twinalign.search.locator import LocateResult, locate

CASES = Path(__file__).with_name("tied_cases.py")
PROVEN = {"weights_not_shared", "weights_shared"}
"""Ids of the causes that tests here find."""
BOTH = "`first.weight` and `second.weight`; `first.bias` and `second.bias`"
APART = "weights that are one tensor in the reference are tensors of their own in the port: "
JOINED = "weights that are tensors of their own in the reference are one tensor in the port: "


def found(case: str, folder: Path) -> LocateResult:
    result = locate(RunSettings(f"{CASES}:{case}", folder / "out"))
    assert result.not_searched == {}
    return result


@pytest.mark.parametrize(
    ("case", "place", "text", "remedy"),
    [
        ("Shared", "second", f"{APART}{BOTH}", "let `second.weight` be `first.weight` and `second.bias` be"),
        ("SharedInPort", "first", f"{JOINED}{BOTH}", "build a layer for `second.weight` and `second.bias` alone"),
        ("Head", "head", f"{APART}`words.weight` and `head.weight`", "let `head.weight` be `words.weight`"),
        ("Nested", "second.inner", f"{APART}{BOTH.replace('.', '.inner.')}", "near tied_cases.py:"),
    ],
)
def test_what_one_side_alone_shares_is_at_fault(case: str, place: str, text: str, remedy: str, tmp_path: Path) -> None:
    (fault,) = found(case, tmp_path).faults
    assert (fault.paddle_layer, fault.phase) == (place, "backward")
    assert fault.explanation is not None
    assert fault.explanation.text == text
    assert fault.explanation.evidence["unexplained_error"] > 0.1
    assert fault.explanation.evidence["remaining_error"] < 1e-12
    assert remedy in fault.suggestion


def test_a_tie_is_found_beside_another_fault(tmp_path: Path) -> None:
    faults = found("HeadAndActivation", tmp_path).faults
    causes = [fault.explanation.id for fault in faults if fault.explanation]
    assert causes == ["weights_not_shared", "activation_swapped"]
    assert "remaining_error" not in faults[0].explanation.evidence  # type: ignore[union-attr]


@pytest.mark.parametrize("case", ["SharedInBoth", "FrozenHead"])
def test_ties_that_change_no_gradient_are_no_fault(case: str, tmp_path: Path) -> None:
    assert found(case, tmp_path).faults == []


class Model(torch.nn.Module):
    """A block that is used twice, whose norm is used elsewhere, too."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(2)
        self.first = torch.nn.Sequential(torch.nn.Linear(2, 2), self.norm)
        self.second = self.first


def test_a_shared_layer_becomes_two_and_one_again() -> None:
    model = Model()
    groups = [[f"{path}.0.{name}" for path in ("first", "second")] for name in ("weight", "bias")]
    untie(model, groups)
    assert model.second is not model.first
    assert model.second[0].weight is not model.first[0].weight
    assert model.second[1].weight is model.norm.weight  # in no group
    assert len(list(model.parameters())) == 6
    for keys in groups:
        tie(model, keys)
    assert model.second[0].bias is model.first[0].bias
    assert len(list(model.parameters())) == 4
