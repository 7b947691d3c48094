"""An architecture of both zoos as a case of three methods."""

from __future__ import annotations

from typing import Any

import numpy as np

from twinalign.backends import load_backend
from twinalign.case import Case
from twinalign.convert.worker import load_factory
from twinalign.zoo.architectures import pair_of


class Architecture(Case):
    """torchvision's model beside paddle.vision's; `name` says which."""

    batch: int = 2
    size: int = 224

    def reference(self) -> Any:
        """torchvision's model with initial weights, and statistics as after a training."""
        return build_reference(self.name)

    def reproduced(self) -> Any:
        """paddle.vision's model."""
        factory, arguments = load_factory(pair_of(self.name).factories()["paddle"])
        return factory(**arguments)

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Noise images `[batch, 3, size, size]`, float32."""
        return {"x": rng.standard_normal((self.batch, 3, self.size, self.size), dtype=np.float32)}


def build_reference(name: str) -> Any:
    """torchvision's model; its running means and variances are not 0 and 1, which would hide what they do."""
    factory, arguments = load_factory(pair_of(name).factories()["ref"])
    model = factory(**arguments)
    backend = load_backend("torch")
    rng = np.random.default_rng(1)
    for key, tensor in backend.state_tensors(model).items():
        if key.endswith(("running_mean", "running_var")):
            moved = rng.random(tuple(tensor.shape), dtype=np.float32) * 0.2
            backend.assign(tensor, moved + (1.0 if key.endswith("var") else -0.1))
    return model
