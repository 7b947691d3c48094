"""What a pass of the reference keeps of its gradients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from twinalign.backends import backend_of_side
from twinalign.case.definition import Case
from twinalign.conversion.canonical_names import CanonicalNames
from twinalign.replay.case_run import CaseRun
from twinalign.replay.reference_pass import ReferencePass


class _Differentiates(torch.nn.Module):
    """Takes the gradient of its layer's output itself, which the loss does not send one to."""

    def __init__(self) -> None:
        super().__init__()
        self.critic, self.last = torch.nn.Linear(3, 1), torch.nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        real = x.detach().requires_grad_(True)
        (gradient,) = torch.autograd.grad(self.critic(real).sum(), real)
        return self.last(x + gradient)


class _Images(Case):
    def inputs(self, rng: Any) -> dict[str, Any]:
        return {"x": rng.standard_normal((2, 3)).astype("float32")}


def test_gradients_that_the_forward_pass_takes_itself_are_not_those_of_the_loss(tmp_path: Path) -> None:
    case, backend = _Images(), backend_of_side("ref")
    run = CaseRun(
        case, "forward", backend, "torch", "cpu", "float64", _Differentiates().double(), CanonicalNames({}), {}
    )
    reference = ReferencePass(run, tmp_path)
    reference.forward()
    assert "output.2.0" in reference.gradients  # critic's, of which the store forgets the values
    found = reference.backward(None)["gradients"]
    assert sorted(found) == ["output.0.0", "output.1.0", "output.3.0"]
    for number, scale in found.values():
        assert abs(reference.store.read(number)).max() >= scale > 0
