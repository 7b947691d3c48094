"""torchvision's models beside paddle.vision's as cases through five stages, small enough to plant many faults in
them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from lite_data import prepare
from twinalign import Case

CLASSES = 10
SIZE = 64
_MEAN, _STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


class Photographs:
    """Photographs with labels, transformed as `torchvision.transforms` and `paddle.vision.transforms` both do it."""

    def __init__(self, transforms: Any, split: str) -> None:
        folder = prepare.HERE / "photos" / split
        self.paths = sorted(path for path in folder.rglob("*") if path.suffix in (".jpg", ".png"))
        self.transform = transforms.Compose(
            [
                transforms.Resize(SIZE + 8),
                transforms.CenterCrop(SIZE),
                transforms.ToTensor(),
                transforms.Normalize(_MEAN, _STD),
            ]
        )

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Any, np.ndarray]:
        with Image.open(self.paths[index]) as image:
            return self.transform(image.convert("RGB")), np.int64(index % CLASSES)

    def __iter__(self) -> Iterator[tuple[Any, np.ndarray]]:
        return (self[index] for index in range(len(self)))


class ZooCase(Case):
    """One architecture that both libraries have, with weights changed from their initial values."""

    batch = 4
    steps = 3
    rate = 0.01
    data_samples = 6

    def prepare(self) -> None:
        """Photographs for data and metric."""
        prepare.prepare()

    def reference(self) -> Any:
        """torchvision's model; its statistics come from a few batches, and zeros and ones are perturbed."""
        import torch
        import torchvision

        model = getattr(torchvision.models, self.name)(num_classes=CLASSES)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.02 * torch.randn_like(parameter)
            norms = [layer for layer in model.modules() if isinstance(layer, torch.nn.BatchNorm2d)]
            momenta = [layer.momentum for layer in norms]
            for layer in norms:
                layer.momentum = None  # the plain average of all batches
            model.train()
            for _ in range(5):
                model(torch.randn(8, 3, SIZE, SIZE))
            for layer, momentum in zip(norms, momenta, strict=True):
                layer.momentum = momentum
        return model

    def reproduced(self) -> Any:
        """paddle.vision's model."""
        import paddle

        return getattr(paddle.vision.models, self.name)(num_classes=CLASSES)

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Noise images `[batch, 3, 64, 64]`."""
        return {"x": rng.standard_normal((self.batch, 3, SIZE, SIZE), dtype=np.float32)}

    def loss(self, outputs: Any, inputs: Mapping[str, Any], framework: str) -> Any:
        """Cross entropy with labels 0, 1, 2, ..."""
        labels = np.arange(self.batch) % CLASSES
        if framework == "torch":
            import torch

            return torch.nn.functional.cross_entropy(outputs, torch.from_numpy(labels).to(outputs.device))
        import paddle

        return paddle.nn.functional.cross_entropy(outputs, paddle.to_tensor(labels))

    def optimizer(self, parameters: list[Any], framework: str) -> Any:
        """SGD with momentum 0.9 and decay 1e-4."""
        if framework == "torch":
            import torch

            return torch.optim.SGD(parameters, self.rate, momentum=0.9, weight_decay=1e-4)
        import paddle

        return paddle.optimizer.Momentum(self.rate, 0.9, parameters=parameters, weight_decay=1e-4)

    def schedule(self, optimizer: Any, step: int, framework: str) -> None:
        """Half a cosine over three steps."""
        rate = self.rate * 0.5 * (1 + np.cos(np.pi * step / self.steps))
        if framework == "torch":
            optimizer.param_groups[0]["lr"] = float(rate)
        else:
            optimizer.set_lr(float(rate))

    def dataset(self, framework: str, split: str) -> Photographs:
        """Resized, cropped, scaled and normalised photographs."""
        if framework == "torch":
            from torchvision import transforms
        else:
            from paddle.vision import transforms
        return Photographs(transforms, split)

    def metric(self, outputs: Any, labels: np.ndarray, framework: str) -> dict[str, float]:
        """Top-1 and top-5 accuracy in percent."""
        ranks = np.argsort(-np.asarray(outputs.numpy()), axis=1, kind="stable")
        return {f"top{k}": 100.0 * float((ranks[:, :k] == labels[:, None]).any(axis=1).mean()) for k in (1, 5)}

    def data_files(self) -> Iterator[Path]:
        """The photographs."""
        yield from sorted((prepare.HERE / "photos").rglob("*.*"))


class MobileNetV3Small(ZooCase):
    """MobileNetV3-Small in evaluation mode, as in the guide."""

    name = "mobilenet_v3_small"


class ResNet18(ZooCase):
    """ResNet-18 in training mode: paddle.vision's running variances are biased, which the case accepts."""

    name = "resnet18"
    train_mode = True
    accept = ("bn_running_var_biased",)
