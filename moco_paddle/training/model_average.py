"""Exponential moving average of the whole model, kept beside the training by a hook on its steps.

The decay is ramped, `min(decay, (1 + t) / (10 + t))` after t steps, so that the average forgets the initial weights
early on (Tarvainen and Valpola, arXiv 1703.01780, ramp theirs for the same reason).
"""

from __future__ import annotations

from typing import Any

import paddle
from paddle import Tensor, nn


class ModelAverage:
    """The average of every floating-point entry of a model's state; call it after each step.

    Attributes:
        decay: the value that the decay rises to.
        updates: how many steps it has seen.
        state: the averages by the state dict's keys; integer entries are copied.
    """

    def __init__(self, model: nn.Layer, decay: float) -> None:
        self.decay = decay
        self.updates = 0
        self._model = model
        self.state: dict[str, Tensor] = {key: value.detach().clone() for key, value in model.state_dict().items()}

    @paddle.no_grad()
    def __call__(self, record: Any = None) -> None:
        """Move the averages towards the model as it is now; the hook's arguments are ignored."""
        self.updates += 1
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        for key, value in self._model.state_dict().items():
            if value.is_floating_point():
                # diff: paddle's add_ takes no factor.
                self.state[key].set_value(self.state[key] * decay + value * (1 - decay))
            else:
                self.state[key].set_value(value)

    def load(self, state: dict[str, Tensor], updates: int) -> None:
        """Restore the averages that were saved after `updates` steps.

        Raises:
            ValueError: they are another model's.
        """
        if state.keys() != self.state.keys():
            raise ValueError("the saved average belongs to another model; resume with the same options")
        for key, value in state.items():
            self.state[key].set_value(value)
        self.updates = updates
