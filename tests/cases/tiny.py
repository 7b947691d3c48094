"""MoCo v3 in a size that runs in seconds, and the faults that the tests plant into its paddle side, one at a time."""

from __future__ import annotations

import dataclasses
from typing import Any

from moco_common.images import augmentation
from pipeline.digits import DigitsTraining
from pipeline.moco_v3 import MoCoV3ViTSmall
from twinalign import Case


class TinyMoCo(MoCoV3ViTSmall):
    """A ViT of a few thousand weights on handwritten digits, through the first five stages."""

    name = "tiny_moco"
    arch = "vit_digits"
    image_size = 32
    batch = 8
    dim = 16
    mlp_dim = 32
    data_samples = 3

    def part(self, stage: str) -> Case:
        """No part has a model of its own but the classifier."""
        return self if stage == "train" else super().part(stage)


class UntransposedLinear(TinyMoCo):
    """A square Linear keeps torch's layout."""

    def reproduced(self) -> Any:
        import paddle.nn.functional as F

        model = super().reproduced()
        layer = model.base_encoder.blocks[0].attn.proj
        layer.forward = lambda x: F.linear(x, layer.weight.T, layer.bias)
        return model


class LayerNormEpsilon(TinyMoCo):
    """One LayerNorm has 1e-5 for 1e-6."""

    def reproduced(self) -> Any:
        model = super().reproduced()
        model.base_encoder.blocks[1].norm1._epsilon = 1e-5
        return model


class KeysBeforeUpdate(TinyMoCo):
    """The keys are computed before the momentum encoder moves."""

    def forward(self, model: Any, inputs: Any, framework: str) -> dict[str, Any]:
        if framework == "torch":
            return super().forward(model, inputs, framework)
        import paddle

        self._model = model
        q1, q2 = (model.predictor(model.base_encoder(inputs[name])) for name in ("x1", "x2"))
        with paddle.no_grad():
            k1, k2 = (model.momentum_encoder(inputs[name]) for name in ("x1", "x2"))
            model.update_momentum_encoder(self.momentum_now)
        return {"q1": q1, "q2": q2, "k1": k1, "k2": k2}


class ForgottenTwoT(TinyMoCo):
    """The loss lacks its factor 2T."""

    def loss(self, outputs: Any, inputs: Any, framework: str) -> dict[str, Any]:
        losses = super().loss(outputs, inputs, framework)
        return losses if framework == "torch" else {k: v / (2 * self._model.temperature) for k, v in losses.items()}


class LateSchedule(TinyMoCo):
    """The learning rate is one iteration behind."""

    def schedule(self, optimizer: Any, step: int, framework: str) -> dict[str, float]:
        return super().schedule(optimizer, step if framework == "torch" else max(0, step - 1), framework)


class DecayAsL2(TinyMoCo):
    """Weight decay goes into the gradient, as Adam has it, and not beside it."""

    def optimizer(self, parameters: list[Any], framework: str) -> Any:
        if framework == "torch":
            return super().optimizer(parameters, framework)
        import paddle

        return paddle.optimizer.Adam(self.lr, parameters=parameters, weight_decay=self.weight_decay)


class WrongProbability(TinyMoCo):
    """The second view is never solarised."""

    def dataset(self, framework: str, split: str) -> Any:
        if framework == "paddle":
            augmentation.VIEW_2 = dataclasses.replace(augmentation.VIEW_2, solarize_probability=0.0)
        return super().dataset(framework, split)


class Training(DigitsTraining):
    """The training of the main job, as a case of its own."""

    name = "training"
