"""How a model computes while it is trained: the modes of `moco_common.training.precision`, on this framework."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import paddle
from paddle import Tensor, nn
from paddle.nn import functional as F
from paddle.optimizer import Optimizer

from moco_common.training.precision import AUTOCAST, KEPT_IN_HALF, MODES, ROUND_ALL, SCALED, LossScaler
from moco_paddle.models.normalization import BatchNorm1D, BatchNorm2D
from moco_paddle.training.optimizer import euclidean_norm

# diff: paddle's optimizers have other names for what they keep.
_STATE = {"moment1", "moment2", "velocity", "mu"}
BATCH_NORMS = (BatchNorm1D, BatchNorm2D)


class Precision:
    """How a model computes while it is trained; changes the model's layers in place.

    Attributes:
        mode: one of `MODES`.
        half_name: the mode's half type, "float16" or "bfloat16".
        is_emulated: whether the half type is emulated in float32.
        scaler: the loss scale, None where the mode has none.
        skipped: how many steps were skipped because a gradient was not finite.
        overflow: the parameter whose gradient made the last step be skipped, None if it was made.
    """

    def __init__(self, mode: str, model: nn.Layer, device: str = "cpu") -> None:
        if mode not in MODES:
            raise ValueError(f"--precision: {mode!r} is none of {', '.join(MODES)}")
        self.mode = mode
        self.device = device
        self.half_name = "bfloat16" if mode == "bf16" else "float16"
        self.half_type = self.half_name  # diff: paddle takes names for dtypes.
        self.is_emulated = mode != "fp32" and not (mode in AUTOCAST and device != "cpu")
        self.scaler = LossScaler() if mode in SCALED else None
        self.skipped = 0
        self.overflow: str | None = None
        self._model = model
        if self.is_emulated:
            self._install()
        self.round_weights()

    def _install(self) -> None:
        for layer in self._model.sublayers(include_self=True):
            if isinstance(layer, (nn.Linear, nn.Conv2D)):
                layer.forward = partial(_rounded_forward, layer, self.half_type)
            elif self.mode in ROUND_ALL and not any(True for _ in layer.children()):
                layer.register_forward_post_hook(lambda _, inputs, output: rounded(output, self.half_type))

    def context(self) -> Any:
        """Return the context in which the model is called."""
        if self.mode in AUTOCAST and not self.is_emulated:
            return paddle.amp.auto_cast(dtype=self.half_type)
        return contextlib.nullcontext()

    def step(self, loss: Tensor, optimizer: Optimizer) -> None:
        """Backpropagate the loss and update the weights, unless a gradient is not finite."""
        if self.scaler is None:
            loss.backward()
        else:
            (loss * self.scaler.scale).backward()
            self._unscale()
        self.overflow = self._first_gradient_not_finite()
        if self.overflow is None:
            before = [parameter.detach().clone() for parameter in self._kept_in_half()]
            optimizer.step()
            self._round_state(optimizer, before)
            self.round_weights()
        else:
            self.skipped += 1
        if self.scaler is not None:
            self.scaler.update(self.overflow is not None)

    @paddle.no_grad()
    def _unscale(self) -> None:
        for parameter in self._model.parameters():
            if parameter.grad is not None:
                parameter.grad.set_value(parameter.grad * (1 / self.scaler.scale))

    @paddle.no_grad()
    def _first_gradient_not_finite(self) -> str | None:
        gradients = {name: p.grad for name, p in self._model.named_parameters() if p.grad is not None}
        # diff: paddle's ReLU and max pooling turn NaN into numbers on a CPU; the loss stays finite, gradients not.
        norms = paddle.stack([euclidean_norm(gradient) for gradient in gradients.values()])
        # A step waits for one number; only if it is not finite, for all of them.
        if math.isfinite(float(norms.sum())):
            return None
        return next(name for name, norm in zip(gradients, norms.tolist(), strict=True) if not math.isfinite(norm))

    @paddle.no_grad()
    def round_weights(self) -> None:
        """Round the weights, where the mode keeps them in the half type; batch norms' only in o3."""
        for parameter in self._kept_in_half():
            parameter.set_value(rounded(parameter, self.half_type))

    @paddle.no_grad()
    def _round_state(self, optimizer: Optimizer, before: list[Tensor]) -> None:
        """Round the optimizer's state too, and correct AdamW's step to a division by the rounded second moment."""
        for parameter, start in zip(self._kept_in_half(), before, strict=True):
            if parameter.grad is None:
                continue
            # diff: paddle keeps its state by name and then by parameter; its own AdamW would have it in float32.
            state = {
                name: found[parameter.name]
                for name, found in optimizer._accumulators.items()
                if name in _STATE and parameter.name in found
            }
            exact = state["moment2"].sqrt() if "moment2" in state else None
            for value in state.values():
                value.set_value(rounded(value, self.half_type))
            if exact is not None:
                decayed = start * (1 - optimizer.get_lr() * optimizer._weight_decay)
                parameter.set_value(decayed + (parameter - decayed) * exact / state["moment2"].sqrt())

    def _kept_in_half(self) -> Iterator[Tensor]:
        if self.mode not in KEPT_IN_HALF:
            return
        # diff: paddle's modules() is called sublayers(include_self=True).
        for layer in self._model.sublayers(include_self=True):
            if self.mode == "o3" or not isinstance(layer, BATCH_NORMS):
                # diff: paddle lists the running statistics of its batch norms among the parameters.
                for name, parameter in layer.named_parameters(include_sublayers=False):
                    if name not in ("_mean", "_variance"):
                        yield parameter

    def state(self) -> dict[str, float]:
        """Return the state for a checkpoint, as plain values."""
        return {} if self.scaler is None else {"scale": self.scaler.scale, "good_steps": self.scaler.good_steps}

    def load(self, state: dict[str, float]) -> None:
        """Restore what `state` returned."""
        if self.scaler is not None and state:
            self.scaler.scale, self.scaler.good_steps = state["scale"], int(state["good_steps"])


def rounded(x: Tensor, half_type: Any) -> Tensor:
    """Return `x` with every value, and every value of its gradient, rounded to the half type; the dtype stays."""
    return x.astype(half_type).astype(x.dtype)


def _rounded_forward(layer: nn.Layer, half_type: Any, x: Tensor) -> Tensor:
    """Apply a Linear or a convolution to rounded operands, and round the result."""
    x, weight = rounded(x, half_type), rounded(layer.weight, half_type)
    bias = None if layer.bias is None else rounded(layer.bias, half_type)
    if isinstance(layer, nn.Linear):
        return rounded(F.linear(x, weight, bias), half_type)
    y = F.conv2d(x, weight, bias, layer._stride, layer._padding, layer._dilation, layer._groups)
    return rounded(y, half_type)


@paddle.no_grad()
def first_layer_not_finite(model: nn.Layer, *arguments: Any) -> str | None:
    """Call the model once more; return the name of the first layer whose output is not finite, None where all are."""
    found: list[str] = []

    def watch(name: str, output: Any) -> None:
        if not found and isinstance(output, Tensor) and not math.isfinite(float(output.abs().sum())):
            found.append(name)

    handles = [
        layer.register_forward_post_hook(lambda _, inputs, output, name=name: watch(name, output))
        for name, layer in model.named_sublayers(include_self=True)
        if not any(True for _ in layer.children())
    ]
    try:
        model(*arguments)
    finally:
        for handle in handles:
            handle.remove()
    return found[0] if found else None
