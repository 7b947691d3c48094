"""An average that is kept outside of the model and written into it, with and without the model's buffers."""

from collections.abc import Callable

import pytest
import torch

from twinalign.backends.torch.reference_only.written_averages import averaging_buffers_too

STEPS = 6


def trained(decay: Callable[[int], float], buffers: bool) -> tuple[torch.nn.Module, torch.Tensor, torch.Tensor]:
    """The trained model, what it gives with the average and, when its own weights are back, without it."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 3)).double()
    around = averaging_buffers_too(model) if not buffers else torch.enable_grad()
    with around:
        averaged = dict(model.named_parameters()) | (dict(model.named_buffers()) if buffers else {})
        averaged = {name: value for name, value in averaged.items() if value.is_floating_point()}
        shadow = {name: value.detach().clone() for name, value in averaged.items()}
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        for step in range(STEPS):
            x = torch.randn(16, 5, dtype=torch.float64)
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            for name, value in averaged.items():
                shadow[name].mul_(decay(step)).add_(value.detach(), alpha=1 - decay(step))
        x = torch.randn(16, 5, dtype=torch.float64)
        model.eval()
        own = {name: value.detach().clone() for name, value in averaged.items()}
        given = []
        for state in (shadow, own):
            with torch.no_grad():
                for name, value in averaged.items():
                    value.copy_(state[name])
                given.append(model(x))
    return model, *given


@pytest.mark.parametrize("decay", [lambda step: 0.9, lambda step: min(0.8, (1 + step) / (4 + step))])
def test_running_statistics_are_averaged_as_the_weights_are(decay: Callable[[int], float]) -> None:
    _, averaged, own = trained(decay, buffers=False)
    _, expected, expected_own = trained(decay, buffers=True)
    torch.testing.assert_close(averaged, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(own, expected_own, rtol=0.0, atol=0.0)


def test_weights_that_something_else_has_changed_leave_the_statistics() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.BatchNorm1d(8))
    with averaging_buffers_too(model):
        model(torch.randn(16, 5)).sum().backward()
        torch.optim.SGD(model.parameters(), lr=0.1).step()
        before = {name: buffer.clone() for name, buffer in model.named_buffers()}
        with torch.no_grad():
            model[0].weight.normal_()
        model.eval()
        model(torch.randn(16, 5))
    assert all(torch.equal(buffer, before[name]) for name, buffer in model.named_buffers())
