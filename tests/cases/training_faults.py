"""A training of a few steps, and the faults that the tests plant into the port's, one at a time."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from moco_common.images import augmentation
from pipeline.digits import DigitsTraining

FAULTS = (
    "decay_reaches_norms_and_biases",
    "average_inverted",
    "augmentation_missing",
    "last_batch_kept",
    "warmup_missing",
    "batch_norm_momentum",
    "base_rate",
)


class FewSteps(DigitsTraining):
    """Twelve steps of 16 digits; the reference decays neither biases nor normalisation layers."""

    name = "few_steps"
    batch = 16
    dim = 16
    mlp_dim = 32
    epochs = 3
    float64_train_steps = 6
    fault = ""

    def in_port(self, framework: str, fault: str) -> bool:
        """Whether the port has this fault."""
        return framework == "paddle" and self.fault == fault

    def reproduced(self) -> Any:
        model = super().reproduced()
        if self.in_port("paddle", "average_inverted"):
            update = model.update_momentum_encoder
            model.update_momentum_encoder = lambda m: update(1 - m)
        if self.in_port("paddle", "batch_norm_momentum"):
            for layer in model.sublayers():
                if hasattr(layer, "_mean"):
                    layer._momentum = 1 - layer._momentum
        return model

    def optimizer_of(self, model: Any, framework: str) -> Any:
        if framework == "torch":
            import torch

            parameters = [p for p in model.parameters() if p.requires_grad]
            groups = [
                {"params": [p for p in parameters if p.ndim > 1]},
                {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
            ]
            return torch.optim.AdamW(groups, self.lr, weight_decay=self.weight_decay)
        import paddle

        decayed = {p.name for p in model.parameters() if p.ndim > 1}
        choose: Callable[[str], bool] | None = lambda name: name in decayed  # noqa: E731
        if self.in_port(framework, "decay_reaches_norms_and_biases"):
            choose = None
        return paddle.optimizer.AdamW(
            self.lr, parameters=model.parameters(), weight_decay=self.weight_decay, apply_decay_param_fun=choose
        )

    def loader_of(self, framework: str) -> Any:
        self.spoil_views(framework)
        loader = super().loader_of(framework)
        if self.in_port(framework, "last_batch_kept"):
            sampler = loader.batch_sampler

            class WithRest(type(sampler)):  # type: ignore[misc]
                def __len__(self) -> int:
                    return -(-self.length // self.batch_size)

            sampler.__class__ = WithRest
        return loader

    def views(self, framework: str) -> Any:
        self.spoil_views(framework)
        return super().views(framework)

    def view_steps_of(self, framework: str, folder: Any, index: int) -> Any:
        self.spoil_views(framework)
        return super().view_steps_of(framework, folder, index)

    def spoil_views(self, framework: str) -> None:
        """The first view is never blurred."""
        blurred = 0.0 if self.in_port(framework, "augmentation_missing") else 1.0
        augmentation.VIEW_1 = dataclasses.replace(augmentation.VIEW_1, blur_probability=blurred)

    def train(self, framework: str, model: Any, record: Any, steps: int | None = None) -> dict[str, Any]:
        if self.in_port(framework, "warmup_missing"):
            self.warmup_epochs = 0
        if self.in_port(framework, "base_rate"):
            self.lr = self.lr / 4
        return super().train(framework, model, record, steps)
