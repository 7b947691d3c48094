"""An activation that the port calls behind its own layer is none that it lacks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from tests.twinalign.causes.module_unit import ModuleUnit
from tests.twinalign.causes.units import explain
from twinalign.causes.layers.activation_behind import activation_behind, behind
from twinalign.verdict.array_difference import sample_of


class NormAct(nn.Module):
    """A norm that holds its activation."""

    def __init__(self, act: nn.Module) -> None:
        super().__init__()
        self.norm, self.act = nn.LayerNorm(6, eps=1e-5), act

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        activated: torch.Tensor = self.act(self.norm(x))
        return activated


def examined(act: nn.Module) -> tuple[ModuleUnit, np.ndarray]:
    """The reference's unit, whose port is the norm alone with another epsilon, and what that gives."""
    x = np.random.default_rng(0).standard_normal((4, 6))
    port = torch.nn.functional.layer_norm(torch.from_numpy(x), (6,), eps=1e-3).numpy()
    return ModuleUnit(NormAct(act), [x], {"output.0": port}), port


@pytest.mark.parametrize("act", [nn.SiLU(), nn.ReLU(inplace=True), nn.Hardswish()], ids=lambda act: type(act).__name__)
def test_what_is_wrong_before_the_activation_is_the_cause(act: nn.Module) -> None:
    unit, port = examined(act)
    activated = act(torch.from_numpy(port.copy())).numpy()
    found = activation_behind(unit, sample_of(port), [sample_of(port + 1.0), sample_of(activated)])
    assert found is not None
    unit.port = behind(found, unit.port)
    np.testing.assert_array_equal(unit.port["output.0"], activated)
    explanation = explain(unit)
    assert explanation is not None
    assert explanation.id == "norm_epsilon"


def test_an_activation_that_nothing_behind_has_seen_is_lacking() -> None:
    unit, port = examined(nn.SiLU())
    assert activation_behind(unit, sample_of(port), [sample_of(port), sample_of(port + 1.0)]) is None
    explanation = explain(unit)
    assert explanation is not None
    assert explanation.id == "activation_missing+norm_epsilon"
