"""Precision modes of mixed-precision training, with loss scaling (Micikevicius et al., arXiv 1710.03740).

| mode | Linear and convolution | other layers' outputs | weights kept | loss scaling |
| --- | --- | --- | --- | --- |
| fp32 | float32 | float32 | float32 | none |
| half | float16 | float16, batch norms compute in float32 | float16, batch norms' in float32 | none |
| o1, amp | float16 | float32 | float32 | dynamic |
| o2 | float16 | float16, norms compute in float32 | float32 | dynamic |
| o3 | float16 | float16 | float16 | dynamic |
| bf16 | bfloat16 | float32 | float32 | none |

On a GPU o1, amp and bf16 are the framework's autocast. Elsewhere, and in the other modes, the arithmetic is emulated:
operands, results and their gradients are rounded to the half type and kept in float32, at the same points in both
twins. Sums inside an operator stay float32, as on a GPU; attention's inner products, the loss and the optimizer's
computations are not rounded. But where weights are kept in the half type, so is the optimizer's state, as in torch:
AdamW's epsilon of 1e-8 becomes 0, and its quotient is not finite where the second moment is 0 too, as in the first step
for gradients below 5e-3.
"""

from __future__ import annotations

MODES = ("fp32", "half", "o1", "o2", "o3", "amp", "bf16")
AUTOCAST = ("o1", "amp", "bf16")
ROUND_ALL = ("half", "o2", "o3")
SCALED = ("o1", "o2", "o3", "amp")
KEPT_IN_HALF = ("half", "o3")


class LossScaler:
    """Dynamic loss scale: halved where a gradient overflows, doubled after `growth_interval` steps that did not.

    Attributes:
        scale: what the loss is multiplied with.
        good_steps: steps without overflow since the scale last changed.
    """

    def __init__(self, scale: float = 65536.0, growth_interval: int = 2000) -> None:
        self.scale = scale
        self.growth_interval = growth_interval
        self.good_steps = 0

    def update(self, overflowed: bool) -> None:
        """Update the scale after a step."""
        self.good_steps = 0 if overflowed else self.good_steps + 1
        if overflowed:
            self.scale /= 2
        elif self.good_steps == self.growth_interval:
            self.scale *= 2
            self.good_steps = 0
