"""Averages of weights that the reference's training keeps outside of any module, and writes into the model to use them.

How they are kept, and with which coefficients, need not be known: what is written is the same combination of the
weights after each step in every element, and the combination is solved for.
"""

import contextlib
from collections.abc import Iterator

import torch

from twinalign.backends.torch.reference_only.steps import watching_steps

_ELEMENTS = 1 << 12
"""Of all parameters together, of which the combination is found: far more than the steps of a search."""
_ROUNDING = 1e-6
"""Relative: a combination that leaves more is none, and something else has changed the weights."""


class _Written:
    def __init__(self, model: torch.nn.Module) -> None:
        parameters = [p for p in model.parameters() if p.requires_grad]
        share = max(1, _ELEMENTS // max(1, len(parameters)))
        self._sampled = [(p, torch.randperm(p.numel(), generator=torch.Generator())[:share]) for p in parameters]
        self._buffers = [buffer for buffer in model.buffers() if buffer.is_floating_point()]
        self._weights, self._statistics = [self._sample()], [self._copies()]
        self._own: list[torch.Tensor] | None = None

    def _sample(self) -> torch.Tensor:
        return torch.cat([p.detach().flatten()[places].double() for p, places in self._sampled])

    def _copies(self) -> list[torch.Tensor]:
        return [buffer.clone() for buffer in self._buffers]

    def end_step(self, _: object) -> None:
        self._weights.append(self._sample())
        self._statistics.append(self._copies())

    @torch.no_grad()
    def settle(self, *_: object) -> None:
        """Average the buffers as well where the parameters have been, and give them back with the parameters."""
        now = self._sample()
        if torch.equal(now, self._weights[-1]):
            if self._own is not None:
                self._set(self._own)
            self._own = None
        elif self._own is None and (shares := self._combination(now)) is not None:
            self._own = self._copies()
            rows = zip(*self._statistics, strict=True)
            self._set([sum(s * float(share) for s, share in zip(row, shares, strict=True)) for row in rows])

    def _combination(self, written: torch.Tensor) -> torch.Tensor | None:
        """What each step's weights count for in `written`; None if no combination gives it."""
        known = torch.stack(self._weights, 1)
        shares = torch.linalg.lstsq(known, written[:, None], driver="gelsd").solution[:, 0]
        left = (known @ shares - written).norm()
        return shares if left <= _ROUNDING * (written - self._weights[-1]).norm() else None

    def _set(self, values: list[torch.Tensor]) -> None:
        for buffer, value in zip(self._buffers, values, strict=True):
            buffer.copy_(value)


@contextlib.contextmanager
def averaging_buffers_too(model: torch.nn.Module) -> Iterator[None]:
    """Let an average of weights that is written into the model cover its buffers, as paddle's parameters do."""
    written = _Written(model)
    with contextlib.ExitStack() as stack:
        stack.callback(model.register_forward_pre_hook(written.settle).remove)
        stack.enter_context(watching_steps(lambda _: None, written.end_step))
        yield
        written.settle()
