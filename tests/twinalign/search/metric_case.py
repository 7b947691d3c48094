"""Metrics on outputs that are given, and on features that are compared, whose paddle side counts otherwise."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import numpy as np

from twinalign import Case

CLASSES, COUNT = 6, 11


class Outputs(Case):
    """The model hands its inputs on; whole numbers, so that there are ties."""

    name = "outputs"
    fault = ""
    data_samples = COUNT

    def reference(self) -> Any:
        import torch

        return torch.nn.Identity()

    def reproduced(self) -> Any:
        import paddle

        return paddle.nn.Identity()

    def dataset(self, framework: str, split: str) -> Any:
        rng = np.random.default_rng(0)
        for label in (0, 1, 1, 2, 3, 3, 3, 4, 5, 5, 0):
            logits = rng.integers(0, 5, CLASSES).astype(np.float32)
            logits[label] += 1
            yield logits, np.int64(label)

    def metric(self, outputs: Any, labels: np.ndarray, framework: str) -> dict[str, Any]:
        import metric_faults

        count = metric_faults.METRICS.get(self.fault, metric_faults.accuracies)
        return (count if framework == "paddle" else metric_faults.accuracies)(outputs.numpy(), labels)


class OutputsNamedWithAt(Outputs):
    """The names of the results are those of papers."""

    def metric(self, outputs: Any, labels: np.ndarray, framework: str) -> dict[str, Any]:
        return {
            f"acc@{number}": value for number, value in enumerate(super().metric(outputs, labels, framework).values())
        }


class _WithLoss:
    """A model in torch or paddle whose call returns a single number beside its outputs."""

    @staticmethod
    def of(library: Any) -> Any:
        base = library.nn.Module if library.__name__ == "torch" else library.nn.Layer

        class Model(base):  # type: ignore[misc, valid-type]
            def forward(self, x: Any) -> Any:
                return x, x.mean()

        return Model()


class OutputsWithLoss(Outputs):
    """The metric takes the first of two outputs; the other has no rows."""

    def reference(self) -> Any:
        import torch

        return _WithLoss.of(torch)

    def reproduced(self) -> Any:
        import paddle

        return _WithLoss.of(paddle)

    def metric(self, outputs: Any, labels: np.ndarray, framework: str) -> dict[str, Any]:
        return super().metric(outputs[0], labels, framework)


class Features(Case):
    """Neighbours of features, from the twins' own evaluation; the model has a batch norm."""

    name = "features"
    fault = ""

    def reference(self) -> Any:
        import torch

        return torch.nn.Sequential(torch.nn.Linear(5, 5, bias=False), torch.nn.BatchNorm1d(5))

    def reproduced(self) -> Any:
        import paddle

        further = [paddle.nn.Tanh()] if self.fault.startswith("layer") else []
        return paddle.nn.Sequential(paddle.nn.Linear(5, 5, bias_attr=False), paddle.nn.BatchNorm1D(5), *further)

    def evaluate(self, model: Any, framework: str, dtype: str) -> dict[str, Any]:
        rng = np.random.default_rng(2)
        centres = rng.standard_normal((4, 5))
        labels = np.arange(60) % 4
        images = (centres[labels] + 1.2 * rng.standard_normal((60, 5))) * rng.uniform(0.3, 3, (60, 1))
        library = importlib.import_module(framework)
        model.eval()
        if framework == "paddle" and self.fault == "evaluation_mode":
            model.train()
        convert = library.from_numpy if framework == "torch" else library.to_tensor
        features, labels = self.features(model, convert(images), framework), convert(labels)
        if framework == "paddle" and self.fault == "scaled_features":
            features = features * 1.01
        package = importlib.import_module("moco_ref.training.evaluation" if framework == "torch" else "metric_faults")
        knn = package.knn_accuracy
        settings = self.settings() if framework == "paddle" else {}
        found = {
            "features": features,
            "knn": knn(features[:40], labels[:40], features[40:], labels[40:], **{"k": 7, **settings}),
            "knn_of_few": knn(features[:12], labels[:12], features[40:], labels[40:], **{"k": 7, **settings}),
        }
        if framework == "paddle" and self.fault == "metric_names":
            found["knn"], found["knn_of_few"] = found["knn_of_few"], found["knn"]
        return found

    def features(self, model: Any, images: Any, framework: str) -> Any:
        if framework == "paddle" and self.fault == "layer_called_alone":
            return functools.reduce(lambda values, layer: layer(values), model, images)
        return model(images)

    def settings(self) -> dict[str, Any]:
        return {
            "metric_top_k": {"k": 3},
            "metric_temperature": {"temperature": 1.0},
            "metric_normalize": {"normalized": False},
            "unknown": {"shift": 1},
        }.get(self.fault, {})


class Accuracies(Features):
    """The same evaluation, which returns numbers alone: they do not tell a wrong model from a wrong metric."""

    def evaluate(self, model: Any, framework: str, dtype: str) -> dict[str, Any]:
        found = super().evaluate(model, framework, dtype)
        return {name: found[name] for name in ("knn", "knn_of_few")}
