"""MoCo v3 in torch and paddle, as cases of twinalign: the worked example.

Three models take part: MoCo itself (forward, data, loss, backward), an encoder with a linear classifier (metric), and a
small MoCo that is really trained (train). Frameworks are imported inside the methods only, each in its own process.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from lite_data import prepare as lite_data
from twinalign import Case, InputError
from twinalign.case import Steps

_PACKAGE_OF = {"torch": "moco_ref", "paddle": "moco_paddle"}
_MEAN = np.array([0.485, 0.456, 0.406])[:, None, None]
_STD = np.array([0.229, 0.224, 0.225])[:, None, None]


@contextlib.contextmanager
def reading(framework: str) -> Iterator[None]:
    """Turn a bad folder or picture into the one line that a user is shown."""
    data = twin(framework, "data")
    try:
        yield
    except (data.DataFolderError, data.BadImageError) as error:
        raise InputError(str(error)) from None


def default_data() -> Path:
    """Where lite_data is prepared: in the clone, or in the working directory where twinalign was installed without."""
    in_a_clone = (lite_data.HERE.parent / "pyproject.toml").is_file()
    return lite_data.HERE if in_a_clone else Path("lite_data").absolute()


def twin(framework: str, module: str) -> Any:
    """A module of the twin that is written in `framework`."""
    return importlib.import_module(f"{_PACKAGE_OF[framework]}.{module}")


class MoCoV3Case(Case):
    """What the three cases share: the data and where the twins' code lies."""

    code_packages = ("moco_ref", "moco_paddle", "pipeline", "lite_data")
    data = ""
    """Folder with `photos/` and `digits/` as lite_data prepares them; empty: prepared where it is missing."""

    def prepare(self) -> None:
        """Prepare lite_data where no folder is given; check the given one."""
        if self.data:
            for name in ("photos", "digits"):
                if not (Path(self.data) / name / "train").is_dir():
                    raise InputError(
                        f"--data {self.data}: no folder {name}/train in it; leave --data out to have it made"
                    )
            return
        try:
            lite_data.prepare(default_data())
        except lite_data.InputError as error:
            raise InputError(str(error)) from None

    def folder(self, name: str, split: str) -> Path:
        """Where the images of a split lie."""
        return Path(self.data or default_data()) / name / split

    def data_files(self) -> Iterator[Path]:
        """The images that the stage reads, and their folders."""
        for split in ("train", "val"):
            yield from sorted(self.folder(self.dataset_name, split).rglob("*"))

    dataset_name = "photos"


class MoCoV3ViTSmall(MoCoV3Case):
    """The official ViT-Small with its official projector and predictor, on photographs at 224 px."""

    name = "moco_v3_vit_small"
    arch = "vit_small"
    image_size = 224
    batch = 4
    """Images a step: paddle's CPU kernels take several times torch's, and everything also runs in float64."""
    dim = 256
    mlp_dim = 4096
    train_mode = True
    steps = 3
    epochs = 3
    warmup_epochs = 1
    iterations_per_epoch = 1
    lr = 1e-4
    """Of the size that the official linear scaling gives to a batch of a few hundred."""
    weight_decay = 0.1
    moco_m = 0.99
    optimizer_name = "adamw"
    splits = ("train", "val", "order")
    data_samples = 4

    def __init__(self) -> None:
        self.momentum_now = self.moco_m
        self._model: Any = None

    def reference(self) -> Any:
        """MoCo in torch; the momentum encoder is moved off the base encoder, or its update would show nowhere."""
        import torch

        model = self._build("torch")
        with torch.no_grad():
            for parameter in model.momentum_encoder.parameters():
                parameter += 0.02 * torch.randn_like(parameter)
        return model

    def reproduced(self) -> Any:
        """MoCo in paddle."""
        return self._build("paddle")

    def _build(self, framework: str) -> Any:
        build_moco = twin(framework, "builder").build_moco
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
        """Queries and keys `[batch, dim]`; the momentum encoder moves in between."""
        self._model = model
        embeddings = model.embed(inputs["x1"], inputs["x2"], self.momentum_now)
        return dict(zip(("q1", "q2", "k1", "k2"), embeddings, strict=True))

    def loss(self, outputs: Any, inputs: Mapping[str, Any], framework: str) -> dict[str, Any]:
        """Both halves of the symmetrised contrastive loss, and their sum."""
        first = self._model.contrastive_loss(outputs["q1"], outputs["k2"])
        second = self._model.contrastive_loss(outputs["q2"], outputs["k1"])
        return {"q1_k2": first, "q2_k1": second, "loss": first + second}

    def optimizer(self, parameters: list[Any], framework: str) -> Any:
        """The recipe's optimizer."""
        build = twin(framework, "optimizer").build_optimizer
        return build(self.optimizer_name, parameters, self.lr, self.weight_decay)

    def schedule(self, optimizer: Any, step: int, framework: str) -> dict[str, float]:
        """Warm-up and cosine of the rate, cosine of the MoCo momentum, both per iteration."""
        schedule = twin(framework, "schedule")
        epoch = step / self.iterations_per_epoch
        settings = types.SimpleNamespace(
            lr=self.lr, warmup_epochs=self.warmup_epochs, epochs=self.epochs, moco_m=self.moco_m
        )
        schedule.adjust_learning_rate(optimizer, epoch, settings)
        self.momentum_now = schedule.adjust_moco_momentum(epoch, settings)
        return {"moco_momentum": self.momentum_now}

    def dataset(self, framework: str, split: str) -> Iterable[Any]:
        """Both augmented views of training images; evaluation images with labels; the order of three epochs."""
        samples = {"train": self._views, "val": self._evaluation_samples, "order": self._orders}[split]
        with reading(framework):
            yield from samples(framework)

    def _views(self, framework: str) -> Iterator[dict[str, Any]]:
        """Batches of both views."""
        data = twin(framework, "data")
        loader = data.build_pretraining_loader(
            self.folder(self.dataset_name, "train"), self.batch, image_size=self.image_size, seed=self.seed
        )
        for views1, views2, indices in loader:
            yield {"view1": views1, "view2": views2, "index": indices}

    def _orders(self, framework: str) -> Iterator[dict[str, np.ndarray]]:
        """The order of samples in each of three epochs, alone and as each of two ranks."""
        sampler = twin(framework, "sampler").PretrainingBatchSampler
        count = len(twin(framework, "data").ImageFolder(self.folder(self.dataset_name, "train")))
        for epoch in range(3):
            orders = {}
            for rank, world_size in ((0, 1), (0, 2), (1, 2)):
                batches = sampler(count, self.batch, self.seed, rank, world_size)
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
        data = twin(framework, "data")
        with reading(framework):
            folder = data.ImageFolder(self.folder(self.dataset_name, split))
        find = self._view_steps if split == "train" else self._evaluation_steps
        return find(framework, folder, index)

    def _view_steps(self, framework: str, folder: Any, index: int) -> dict[str, Steps]:
        two_views = twin(framework, "augmentation").build_two_views(self.image_size, seed=self.seed)
        sampler = twin(framework, "sampler").PretrainingBatchSampler(len(folder), self.batch, self.seed)
        found: dict[str, Steps] = {}
        for place, (epoch, sample) in enumerate(next(itertools.islice(sampler, index, None))):
            path = folder.samples[sample][0]
            with Image.open(path) as image:
                size = image.size
            for view, draws in enumerate(two_views.draws(*size, epoch, sample), start=1):
                steps = twin(framework, "augmentation").view_steps(draws, self.image_size)
                found[f"view{view}.{place}"] = [("load", self._reader(framework, path)), *steps]
        return found

    def _evaluation_steps(self, framework: str, folder: Any, index: int) -> dict[str, Steps]:
        steps = twin(framework, "augmentation").evaluation_transform(self.image_size).steps()
        sampler = twin(framework, "sampler").EvaluationBatchSampler(len(folder), self.batch)
        return {
            f"images.{place}": [("load", self._reader(framework, folder.samples[sample][0])), *steps]
            for place, (_, sample) in enumerate(next(itertools.islice(sampler, index, None)))
        }

    @staticmethod
    def _reader(framework: str, path: Path) -> Callable[[Any], Any]:
        """The first step: what it is given is nothing."""
        load_image = twin(framework, "data").load_image
        return lambda nothing: load_image(path)

    def part(self, stage: str) -> Case:
        """The classifier for metric, the small MoCo for train."""
        parts = {"metric": LinearClassifier, "train": DigitsTraining}
        if stage not in parts:
            return self
        part = parts[stage]()
        part.name = f"{self.name}_{stage}"
        part.data = self.data
        part.configure(self)
        return part


class LinearClassifier(MoCoV3Case):
    """An encoder with a linear classifier on photographs: top-1, top-5 and kNN top-1."""

    arch = "vit_small"
    image_size = 224
    batch = 8
    neighbours = 5
    """Of the few training photographs, those that vote."""

    def configure(self, whole: MoCoV3ViTSmall) -> None:
        """Take architecture and image size from the whole case."""
        self.arch, self.image_size, self.dataset_name = whole.arch, whole.image_size, whole.dataset_name
        # As many pixels a batch, whatever their size.
        self.batch = 8 * (224 // self.image_size) ** 2

    def reference(self) -> Any:
        """The torch encoder; its classifier holds the classes' mean features, so that accuracies are not chance."""
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
        classes = len(twin(framework, "data").ImageFolder(self.folder(self.dataset_name, "train")).classes)
        return twin(framework, "builder").build_encoder(self.arch, num_classes=classes, image_size=self.image_size)

    def classifier(self, model: Any) -> Any:
        """The encoder's last layer."""
        return model.head

    def _features(self, model: Any, framework: str, split: str) -> tuple[Any, Any]:
        """Features `[N, dim]` and labels `[N]` of a split."""
        folder = self.folder(self.dataset_name, split)
        loader = twin(framework, "data").build_evaluation_loader(folder, self.batch, self.image_size)
        return twin(framework, "evaluation").extract_features(model, loader)

    def evaluate(self, model: Any, framework: str, dtype: str) -> dict[str, Any]:
        """Features and logits of the validation images, and the accuracies in percent that follow."""
        evaluation = twin(framework, "evaluation")
        with reading(framework):
            train, train_labels = self._features(model, framework, "train")
            features, labels = self._features(model, framework, "val")
        logits = self.classifier(model)(features)
        top1, top5 = evaluation.topk_accuracy(logits, labels, topk=(1, 5))
        knn = evaluation.knn_accuracy(train, train_labels, features, labels, k=self.neighbours)
        return {"features": features, "logits": logits, "top1": top1, "top5": top5, "knn_top1": knn}


class _EnoughStepsError(Exception):
    """Ends a training that is wanted for its first steps only."""


class DigitsTraining(MoCoV3Case):
    """A small MoCo v3 really trained on handwritten digits, and the kNN accuracy of its encoder before and after."""

    dataset_name = "digits"
    arch = "vit_digits"
    image_size = 32
    batch = 64
    dim = 64
    mlp_dim = 256
    epochs = 5
    warmup_epochs = 1
    lr = 2e-3
    weight_decay = 0.1
    moco_m = 0.99
    moco_m_cos = True
    crop_min = 0.5
    float64_train_steps = 12

    def configure(self, whole: MoCoV3ViTSmall) -> None:
        """The size of this training is its own; nothing of the whole case matters here."""

    def reference(self) -> Any:
        """MoCo in torch, initialised as the recipe has it."""
        return self._build("torch")

    def reproduced(self) -> Any:
        """MoCo in paddle."""
        return self._build("paddle")

    def _build(self, framework: str) -> Any:
        build_moco = twin(framework, "builder").build_moco
        return build_moco(self.arch, dim=self.dim, mlp_dim=self.mlp_dim, image_size=self.image_size)

    def train(self, framework: str, model: Any, record: Any, steps: int | None = None) -> dict[str, Any]:
        """Pre-train for `epochs`; curves of loss, rate and MoCo momentum, kNN accuracy before and after."""
        training, data = twin(framework, "training"), twin(framework, "data")
        loader = data.build_pretraining_loader(
            self.folder(self.dataset_name, "train"), self.batch, self.image_size, self.seed, crop_min=self.crop_min
        )
        build_optimizer = twin(framework, "optimizer").build_optimizer
        optimizer = build_optimizer("adamw", model.parameters(), self.lr, self.weight_decay)
        log = training.LogWriter(len(loader), self.epochs, self.batch, print_freq=10)
        taken = 0

        def on_step(step: Any) -> None:
            nonlocal taken
            log(step)
            for name in ("loss", "learning_rate", "moco_momentum"):
                record(name, getattr(step, name))
            taken += 1
            if taken == steps:
                raise _EnoughStepsError

        before = self._knn_accuracy(model, framework) if steps is None else None
        try:
            training.train(model, loader, optimizer, self, on_step=on_step)
        except _EnoughStepsError:
            return {}
        return {"knn_top1_untrained": before, "knn_top1": self._knn_accuracy(model, framework)}

    def _knn_accuracy(self, model: Any, framework: str) -> tuple[float, int]:
        """kNN top-1 in percent of the validation digits, and how many they are."""
        evaluation, data = twin(framework, "evaluation"), twin(framework, "data")
        features = [
            evaluation.extract_features(
                model.base_encoder,
                data.build_evaluation_loader(self.folder(self.dataset_name, split), 256, self.image_size),
            )
            for split in ("train", "val")
        ]
        return evaluation.knn_accuracy(*features[0], *features[1]), len(features[1][1])
