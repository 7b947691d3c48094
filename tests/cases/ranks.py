"""Small cases for several ranks: a classifier with a plain loss, and features of all ranks compared with each other."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from twinalign import Case


def library(framework: str) -> ModuleType:
    if framework == "torch":
        import torch

        return torch
    import paddle

    return paddle


class Classifier(Case):
    """What a user writes who knows nothing of ranks: model, inputs, a plain loss, an optimizer."""

    name = "classifier"
    train_mode = True
    steps = 2
    batch = 8
    lr = 0.1

    def reference(self) -> Any:
        import torch

        return torch.nn.Sequential(torch.nn.Linear(6, 10), torch.nn.Tanh(), torch.nn.Linear(10, 4))

    def reproduced(self) -> Any:
        import paddle

        return paddle.nn.Sequential(paddle.nn.Linear(6, 10), paddle.nn.Tanh(), paddle.nn.Linear(10, 4))

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {
            "x": rng.standard_normal((self.batch, 6), dtype="float32"),
            "label": rng.integers(0, 4, self.batch),
        }

    def forward(self, model: Any, inputs: Any, framework: str) -> Any:
        return model(inputs["x"])

    def loss(self, outputs: Any, inputs: Any, framework: str) -> Any:
        return library(framework).nn.functional.cross_entropy(outputs, inputs["label"])

    def optimizer(self, parameters: list[Any], framework: str) -> Any:
        if framework == "torch":
            import torch

            return torch.optim.SGD(parameters, self.lr)
        import paddle

        return paddle.optimizer.SGD(self.lr, parameters=parameters)


class WrongOnRank1(Classifier):
    """The port adds something on rank 1 alone."""

    name = "wrong_on_rank_1"

    def loss(self, outputs: Any, inputs: Any, framework: str) -> Any:
        found = super().loss(outputs, inputs, framework)
        if framework == "paddle":
            import paddle

            found = found + 0.01 * paddle.distributed.get_rank()
        return found


class RaisesOnRank1(Classifier):
    """The reference raises on rank 1."""

    name = "raises_on_rank_1"

    def loss(self, outputs: Any, inputs: Any, framework: str) -> Any:
        if framework == "torch":
            import torch

            if torch.distributed.get_rank() == 1:
                raise ArithmeticError("nothing to divide by")
        return super().loss(outputs, inputs, framework)


class DiesOnRank1(Classifier):
    """The port's process of rank 1 ends."""

    name = "dies_on_rank_1"

    def loss(self, outputs: Any, inputs: Any, framework: str) -> Any:
        if framework == "paddle":
            import os
            import signal

            import paddle

            if paddle.distributed.get_rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
        return super().loss(outputs, inputs, framework)


class OddBatch(Classifier):
    """A batch that cannot be cut in two."""

    name = "odd_batch"
    batch = 7


class AllPairs(Classifier):
    """Features of two views, each compared with those of all ranks, gathered without gradient; batch norm over all."""

    name = "all_pairs"

    def reference(self) -> Any:
        import torch

        return torch.nn.Sequential(torch.nn.Linear(6, 10), torch.nn.BatchNorm1d(10), torch.nn.Linear(10, 4))

    def reproduced(self) -> Any:
        import paddle

        from moco_paddle.models.normalization import BatchNorm1D

        return paddle.nn.Sequential(paddle.nn.Linear(6, 10), BatchNorm1D(10), paddle.nn.Linear(10, 4))

    def distributed(self, step: Any, framework: str) -> Any:
        if framework == "torch":
            from moco_ref.models.normalization import synchronise_batch_norm
        else:
            from moco_paddle.models.normalization import synchronise_batch_norm
        synchronise_batch_norm(step.model)
        return super().distributed(step, framework)

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {name: rng.standard_normal((self.batch, 6), dtype="float32") for name in ("x1", "x2")}

    def forward(self, model: Any, inputs: Any, framework: str) -> Any:
        return {"z1": model(inputs["x1"]), "z2": model(inputs["x2"])}

    def loss(self, outputs: Any, inputs: Any, framework: str) -> Any:
        distributed = library(framework).distributed
        rank = distributed.get_rank() if distributed.is_initialized() else 0
        ranks = distributed.get_world_size() if distributed.is_initialized() else 1
        gather = self._gather_torch if framework == "torch" else self._gather_paddle
        logits = outputs["z1"] @ gather(outputs["z2"], ranks).T / 0.5
        own = outputs["z1"].shape[0]
        labels = library(framework).arange(own) + own * rank
        return library(framework).nn.functional.cross_entropy(logits, labels)

    @staticmethod
    def _gather_torch(z: Any, ranks: int) -> Any:
        import torch

        with torch.no_grad():
            found = [torch.empty_like(z) for _ in range(ranks)]
            if ranks == 1:
                return z.detach()
            torch.distributed.all_gather(found, z.contiguous())
            return torch.cat(found)

    @staticmethod
    def _gather_paddle(z: Any, ranks: int) -> Any:
        import paddle

        if ranks == 1:
            return z.detach()
        found: list[Any] = []
        paddle.distributed.all_gather(found, z)
        return paddle.concat(found)
