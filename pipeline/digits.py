"""Stage 06: a real training of a small MoCo v3 on handwritten digits."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from moco_common.data.folders import ImageFolder
from moco_common.training.reporting import LogWriter
from pipeline.twins import Views, reading, twin
from twinalign import Case
from twinalign.case import Steps


class _EnoughStepsError(Exception):
    """Ends a training of which only the first steps are needed."""


class DigitsTraining(Views):
    """A real training of a small MoCo v3 on handwritten digits; kNN and linear accuracy of its encoder before and
    after."""

    dataset_name = "digits"
    arch = "vit_digits"
    image_size = 32
    batch = 64
    dim = 64
    mlp_dim = 256
    epochs = 4
    warmup_epochs = 1
    lr = 2e-3
    weight_decay = 0.1
    moco_m = 0.99
    moco_m_cos = True
    crop_min = 0.5
    float64_train_steps = 8

    splits = ("train",)
    data_samples = 2

    def configure(self, whole: Case) -> None:
        """This training has its own size and takes nothing from the whole case."""

    def reference(self) -> Any:
        """MoCo in torch, initialised as the recipe has it."""
        return self._build("torch")

    def reproduced(self) -> Any:
        """MoCo in paddle."""
        return self._build("paddle")

    def _build(self, framework: str) -> Any:
        build_moco = twin(framework, "models.moco").build_moco
        return build_moco(self.arch, dim=self.dim, mlp_dim=self.mlp_dim, image_size=self.image_size)

    def optimizer_of(self, model: Any, framework: str) -> Any:
        """The recipe's AdamW, whose decay reaches every parameter."""
        build_optimizer = twin(framework, "training.optimizer").build_optimizer
        return build_optimizer("adamw", model.parameters(), self.lr, self.weight_decay)

    def loader_of(self, framework: str) -> Any:
        """Batches of both views; with several ranks, this one's share of each."""
        distributed = twin(framework, "distributed")
        return twin(framework, "data").build_pretraining_loader(
            self.folder(self.dataset_name, "train"),
            self.batch,
            self.image_size,
            self.seed,
            crop_min=self.crop_min,
            rank=distributed.rank(),
            world_size=distributed.world_size(),
        )

    def dataset(self, framework: str, split: str) -> Iterator[dict[str, Any]]:
        """The batches once more, for the search in the input pipeline."""
        with reading():
            yield from self.views(framework)

    def preprocessing(self, framework: str, split: str, index: int) -> dict[str, Steps]:
        """From file to array, for every view of the images of a batch."""
        with reading():
            folder = ImageFolder(self.folder(self.dataset_name, split))
        return self.view_steps_of(framework, folder, index)

    def train(self, framework: str, model: Any, record: Any, steps: int | None = None) -> dict[str, Any]:
        """Pre-train for `epochs`; curves of loss, rate and MoCo momentum, accuracies before and after."""
        training, loader = twin(framework, "training.pretraining"), self.loader_of(framework)
        optimizer = self.optimizer_of(model, framework)
        distributed = twin(framework, "distributed")
        if distributed.world_size() > 1:
            twin(framework, "models.normalization").synchronise_batch_norm(model)
        log = LogWriter(len(loader), self.epochs, self.batch, print_freq=10)
        taken = 0

        def on_step(step: Any) -> None:
            nonlocal taken
            log(step)
            for name in ("loss", "learning_rate", "moco_momentum"):
                record(name, getattr(step, name))
            taken += 1
            if taken == steps:
                raise _EnoughStepsError

        checkpoint = twin(framework, "files.checkpoint")

        def save(epoch: int, path: Path) -> None:
            checkpoint.save_checkpoint(path.with_suffix(checkpoint.SUFFIX), model, optimizer, epoch, 0, {})

        before = self._accuracies(model, framework) if steps is None else {}
        try:
            stopped = record.resume()
            start = (0, 0)
            if stopped is not None:
                start = checkpoint.load_checkpoint(stopped.with_suffix(checkpoint.SUFFIX), model, optimizer, {})
            parallel = distributed.data_parallel(model)
            training.train(
                parallel, loader, optimizer, self, start, on_step, lambda epoch: record.checkpoint(partial(save, epoch))
            )
        except _EnoughStepsError:
            return {}
        return {f"{name}_untrained": value for name, value in before.items()} | self._accuracies(model, framework)

    def _accuracies(self, model: Any, framework: str) -> dict[str, tuple[float, int]]:
        """kNN and linear top-1 in percent of the validation digits, and how many they are."""
        evaluation, data = twin(framework, "training.evaluation"), twin(framework, "data")
        features = [
            evaluation.extract_features(
                model.base_encoder,
                data.build_evaluation_loader(self.folder(self.dataset_name, split), 256, self.image_size),
            )
            for split in ("train", "val")
        ]
        count = len(features[1][1])
        return {
            "knn_top1": (evaluation.knn_accuracy(*features[0], *features[1]), count),
            "linear_top1": (evaluation.linear_accuracy(*features[0], *features[1]), count),
        }
