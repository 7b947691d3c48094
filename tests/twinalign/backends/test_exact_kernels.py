"""torch's hard activations in float64: exact where a kernel keeps a sixth in float32, as those of CUDA do."""

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

from twinalign.backends.torch.reference_only import exact_kernels

SIXTH = torch.tensor(1 / 6, dtype=torch.float32).double()
POINTS = torch.tensor([-4.0, -3.0, -2.5, -0.1, 0.0, 0.3, 2.9, 3.0, 7.0], dtype=torch.float64)


@pytest.fixture
def inexact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels on the CPU that multiply by a sixth in float32."""

    def hardsigmoid(x: torch.Tensor) -> torch.Tensor:
        return (x + 3).clamp(0, 6) * SIXTH.to(x.dtype)

    def hardswish(x: torch.Tensor) -> torch.Tensor:
        return x * hardsigmoid(x)

    for kernel in (hardsigmoid, hardswish):
        monkeypatch.setattr(torch._C._nn, kernel.__name__, kernel)
        monkeypatch.setattr(torch._C._nn, f"{kernel.__name__}_", lambda x, kernel=kernel: x.copy_(kernel(x.clone())))


def values_and_gradient(function: Callable[[torch.Tensor], torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    x = POINTS.clone().requires_grad_()
    y = function(x * 1.0)
    y.sum().backward()
    return y.detach(), x.grad


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("function", [F.hardsigmoid, F.hardswish])
def test_float64_is_exact_where_the_kernel_is_not(
    request: pytest.FixtureRequest, function: Callable[..., torch.Tensor], inplace: bool
) -> None:
    truth = values_and_gradient(function)
    request.getfixturevalue("inexact")
    away = values_and_gradient(lambda x: function(x, inplace=inplace))[0]
    assert (away - truth[0]).abs().max() > 1e-9  # the kernels of the fixture are wrong
    exact_kernels.make_float64_exact("cpu")
    found = values_and_gradient(lambda x: function(x, inplace=inplace))
    torch.testing.assert_close(found[0], truth[0], rtol=1e-15, atol=1e-15)
    # torch's own gradient of hardsigmoid has the sixth in float32 on the CPU too. At the kinks either slope is right.
    inside, between = POINTS.abs() != 3, (POINTS.abs() < 3).double()
    slope = between / 6 if function is F.hardsigmoid else between * (2 * POINTS + 3) / 6 + (POINTS > 3)
    torch.testing.assert_close(found[1][inside], slope[inside], rtol=1e-15, atol=1e-15)


def test_other_devices_and_types_keep_their_kernel(inexact: None) -> None:
    exact_kernels.make_float64_exact("cuda")
    assert torch.equal(F.hardsigmoid(POINTS), (POINTS + 3).clamp(0, 6) * SIXTH)
    exact_kernels.make_float64_exact("cuda")  # once more changes nothing
    assert not hasattr(torch._C._nn.hardsigmoid.__wrapped__, "__wrapped__")
