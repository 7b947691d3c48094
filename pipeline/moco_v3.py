"""MoCo v3 in torch and paddle, as cases of twinalign: the worked example.

Four models take part: MoCo itself (forward, data), the same for smaller images (loss, backward), an encoder with a
linear classifier (metric), and a small MoCo that is trained (train). Frameworks are imported only inside the methods,
each in its own process.
"""

from __future__ import annotations

import copy
import itertools
import types
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from moco_common.data.folders import ImageFolder, Pictures
from moco_common.data.samplers import EvaluationBatchSampler, PretrainingBatchSampler
from pipeline.digits import DigitsTraining
from pipeline.twins import MoCoV3Case, Views, reading, twin
from twinalign import Case
from twinalign.case import Steps

_MEAN = np.array([0.485, 0.456, 0.406])[:, None, None]
_STD = np.array([0.229, 0.224, 0.225])[:, None, None]


class MoCoV3ViTSmall(Views):
    """The official ViT-Small with its official projector and predictor, on photographs at 224 px."""

    name = "moco_v3_vit_small"
    arch = "vit_small"
    image_size = 224
    step_image_size = 112
    """Of the images that losses, gradients and optimizer steps are made of. Every layer and every weight is that of
    the full size, a quarter of the patches runs through them; all outputs are judged at the full size, in forward."""
    batch = 4
    """Images a step: paddle's CPU kernels are several times slower than torch's, and everything also runs in
    float64."""
    dim = 256
    mlp_dim = 4096
    train_mode = True
    steps = 3
    epochs = 3
    warmup_epochs = 1
    iterations_per_epoch = 1
    lr = 1e-4
    """About the rate that the official linear scaling gives for a batch of a few hundred."""
    weight_decay = 0.1
    moco_m = 0.99
    optimizer_name = "adamw"
    splits = ("train", "val", "order")
    data_samples = 4

    def __init__(self) -> None:
        self.momentum_now = self.moco_m
        self._model: Any = None

    def reference(self) -> Any:
        """MoCo in torch; the momentum encoder starts different from the base encoder, or its update would not be
        visible."""
        import torch

        model = self._build("torch")
        with torch.no_grad():
            for parameter in model.momentum_encoder.parameters():
                parameter += 0.02 * torch.randn_like(parameter)
        return model

    def reproduced(self) -> Any:
        """MoCo in paddle, its momentum encoder moved in the same way, so that both models start alike."""
        import paddle

        model = self._build("paddle")
        with paddle.no_grad():
            for name, parameter in model.momentum_encoder.named_parameters():
                if not name.endswith(("_mean", "_variance")):  # paddle holds running statistics as parameters too
                    parameter.set_value(parameter + 0.02 * paddle.randn(parameter.shape))
        return model

    def _build(self, framework: str) -> Any:
        build_moco = twin(framework, "models.moco").build_moco
        return build_moco(self.arch, dim=self.dim, mlp_dim=self.mlp_dim, image_size=self.image_size)

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Two crops of photographs `[batch, 3, size, size]`, cut here and not by the twins: stage 02 judges theirs."""
        paths = [path for path in sorted(self.folder(self.dataset_name, "train").rglob("*.*")) if path.is_file()]
        chosen = rng.choice([path for path in paths if path.suffix in (".jpg", ".png")], self.batch, replace=False)
        return {name: np.stack([self._crop(path, rng) for path in chosen]) for name in ("x1", "x2")}

    def _crop(self, path: Path, rng: np.random.Generator) -> np.ndarray:
        with Image.open(path) as image:
            rgb = image.convert("RGB")
        side = int(min(rgb.size) * rng.uniform(0.5, 1.0))
        left, top = (int(rng.integers(0, length - side + 1)) for length in rgb.size)
        rgb = rgb.resize((self.image_size, self.image_size), box=(left, top, left + side, top + side))
        return ((np.asarray(rgb).transpose(2, 0, 1) / 255 - _MEAN) / _STD).astype(np.float32)

    def observe(self, model: Any, inputs: Mapping[str, Any], framework: str) -> dict[str, Any]:
        """Encoder features in evaluation mode; queries and keys in training mode, with batch statistics."""
        model.eval()
        features = model.base_encoder.forward_features(inputs["x1"])
        model.train()
        return {"features": features, **self.forward(model, inputs, framework)}

    def forward(self, model: Any, inputs: Mapping[str, Any], framework: str) -> dict[str, Any]:
        """Queries and keys `[batch, dim]`; the momentum encoder is updated in between."""
        self._model = model
        embeddings = model.embed(inputs["x1"], inputs["x2"], self.momentum_now)
        return dict(zip(("q1", "q2", "k1", "k2"), embeddings, strict=True))

    def loss(self, outputs: Any, inputs: Mapping[str, Any], framework: str) -> dict[str, Any]:
        """Both terms of the symmetrised contrastive loss, and their sum."""
        first = self._model.contrastive_loss(outputs["q1"], outputs["k2"])
        second = self._model.contrastive_loss(outputs["q2"], outputs["k1"])
        return {"q1_k2": first, "q2_k1": second, "loss": first + second}

    def distributed(self, step: Any, framework: str) -> Any:
        """Batch norm over all ranks, gradients averaged, as in the twins' own training."""
        twin(framework, "models.normalization").synchronise_batch_norm(step.model)
        return twin(framework, "distributed").data_parallel(step)

    def optimizer(self, parameters: list[Any], framework: str) -> Any:
        """The recipe's optimizer."""
        build = twin(framework, "training.optimizer").build_optimizer
        return build(self.optimizer_name, parameters, self.lr, self.weight_decay)

    def schedule(self, optimizer: Any, step: int, framework: str) -> dict[str, float]:
        """Warm-up and cosine of the rate, cosine of the MoCo momentum, both per iteration."""
        schedule = twin(framework, "training.schedule")
        epoch = step / self.iterations_per_epoch
        settings = types.SimpleNamespace(
            lr=self.lr, warmup_epochs=self.warmup_epochs, epochs=self.epochs, moco_m=self.moco_m
        )
        schedule.adjust_learning_rate(optimizer, epoch, settings)
        self.momentum_now = schedule.adjust_moco_momentum(epoch, settings)
        return {"moco_momentum": self.momentum_now}

    def dataset(self, framework: str, split: str) -> Iterable[Any]:
        """Both augmented views of training images; evaluation images with labels; the order of three epochs."""
        samples = {"train": self.views, "val": self._evaluation_samples, "order": self._orders}[split]
        with reading():
            yield from samples(framework)

    def _orders(self, framework: str) -> Iterator[dict[str, np.ndarray]]:
        """The order of samples in each of three epochs, alone and as each of two ranks."""
        count = len(ImageFolder(self.folder(self.dataset_name, "train")))
        for epoch in range(3):
            orders = {}
            for rank, world_size in ((0, 1), (0, 2), (1, 2)):
                batches = PretrainingBatchSampler(count, self.batch, self.seed, rank, world_size)
                batches.set_epoch(epoch)
                orders[f"rank{rank}_of_{world_size}"] = np.concatenate([np.array(batch) for batch in batches])
            yield orders

    def _evaluation_samples(self, framework: str) -> Iterator[dict[str, Any]]:
        """Batches of evaluation images with their labels."""
        data = twin(framework, "data")
        loader = data.build_evaluation_loader(self.folder(self.dataset_name, "val"), self.batch, self.image_size)
        for images, labels in loader:
            yield {"images": images, "labels": labels}

    def preprocessing(self, framework: str, split: str, index: int) -> dict[str, Steps]:
        """From file to array: every view of the images of a training batch, every image of an evaluation batch."""
        if split not in ("train", "val"):
            return {}
        with reading():
            folder = ImageFolder(self.folder(self.dataset_name, split))
        find = self.view_steps_of if split == "train" else self._evaluation_steps
        return find(framework, folder, index)

    def _evaluation_steps(self, framework: str, folder: Pictures, index: int) -> dict[str, Steps]:
        steps = twin(framework, "data").evaluation_transform(self.image_size).steps()
        sampler = EvaluationBatchSampler(len(folder), self.batch)
        return {
            f"images.{place}": [("load", self.reader(folder.samples[sample][0])), *steps]
            for place, (_, sample) in enumerate(next(itertools.islice(sampler, index, None)))
        }

    def part(self, stage: str) -> Case:
        """Smaller images for loss and backward, the classifier for metric, the small MoCo for train."""
        if stage in ("loss", "backward") and self.image_size > self.step_image_size:
            smaller = copy.copy(self)
            smaller.name, smaller.image_size = f"{self.name}_steps", self.step_image_size
            return smaller
        parts = {"metric": LinearClassifier, "train": DigitsTraining}
        if stage not in parts:
            return self
        part = parts[stage]()
        part.name = f"{self.name}_{stage}"
        part.data, part.seed = self.data, self.seed
        part.configure(self)
        return part


class LinearClassifier(MoCoV3Case):
    """An encoder with a linear classifier on photographs: top-1, top-5 and kNN top-1."""

    arch = "vit_small"
    image_size = 224
    batch = 8
    neighbours = 5
    """The number of neighbours that vote, of the few training photographs."""

    def configure(self, whole: MoCoV3ViTSmall) -> None:
        """Take the architecture from the whole case, and 64 pixels for its 224.

        The encoder at full size is judged in the stages forward, loss and backward, and evaluation pictures of that
        size in the stage data; what is judged here, how features become accuracies, is the same for smaller ones.
        """
        self.arch, self.dataset_name = whole.arch, whole.dataset_name
        self.image_size = max(whole.image_size * 2 // 7, 32)
        # The same number of pixels per batch for every image size.
        self.batch = 8 * (224 // self.image_size) ** 2

    def reference(self) -> Any:
        """The torch encoder; its classifier holds the classes' mean features, so that accuracies are above chance."""
        import torch

        model = self._build("torch")
        features, labels = self._features(model, "torch", "train")
        with torch.no_grad():
            means = torch.stack([features[labels == label].mean(dim=0) for label in labels.unique()])
            directions = (means - means.mean(dim=0)) / features.std()
            classifier = self.classifier(model)
            classifier.weight.copy_(directions)
            classifier.bias.copy_(-(directions * means).sum(dim=1) / 2)
        return model

    def reproduced(self) -> Any:
        """The paddle encoder with a classifier of as many classes."""
        return self._build("paddle")

    def _build(self, framework: str) -> Any:
        classes = len(ImageFolder(self.folder(self.dataset_name, "train")).classes)
        return twin(framework, "models.moco").build_encoder(self.arch, num_classes=classes, image_size=self.image_size)

    def classifier(self, model: Any) -> Any:
        """The encoder's last layer."""
        return model.head

    def _features(self, model: Any, framework: str, split: str) -> tuple[Any, Any]:
        """Features `[N, dim]` and labels `[N]` of a split."""
        folder = self.folder(self.dataset_name, split)
        loader = twin(framework, "data").build_evaluation_loader(folder, self.batch, self.image_size)
        return twin(framework, "training.evaluation").extract_features(model, loader)

    def evaluate(self, model: Any, framework: str, dtype: str) -> dict[str, Any]:
        """Features and logits of the validation images, and the accuracies in percent that follow."""
        evaluation = twin(framework, "training.evaluation")
        with reading():
            train, train_labels = self._features(model, framework, "train")
            features, labels = self._features(model, framework, "val")
        logits = self.classifier(model)(features)
        top1, top5 = evaluation.topk_accuracy(logits, labels, topk=(1, 5))
        knn = evaluation.knn_accuracy(train, train_labels, features, labels, k=self.neighbours)
        return {"features": features, "logits": logits, "top1": top1, "top5": top5, "knn_top1": knn}
