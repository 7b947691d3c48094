"""An architecture of torchvision and paddle.vision as a case of three methods."""

from typing import Any

import numpy as np

from twinalign.backends import load_backend
from twinalign.case.definition import Case
from twinalign.conversion.model_factory import load_factory
from twinalign.model_zoo.architectures import pair_of


class Architecture(Case):
    """Compares torchvision's model called `name` with paddle.vision's."""

    batch: int = 2
    size: int = 224

    def reference(self) -> Any:
        return build_reference(self.name)

    def reproduced(self) -> Any:
        factory, arguments = load_factory(pair_of(self.name).factories()["paddle"])
        return factory(**arguments)

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((self.batch, 3, self.size, self.size), dtype=np.float32)}


def build_reference(name: str) -> Any:
    """torchvision's model with running means and variances other than 0 and 1, which would hide their effect."""
    factory, arguments = load_factory(pair_of(name).factories()["ref"])
    model = factory(**arguments)
    backend = load_backend("torch")
    rng = np.random.default_rng(1)
    for key, tensor in backend.state_tensors(model).items():
        if key.endswith(("running_mean", "running_var")):
            moved = rng.random(tuple(tensor.shape), dtype=np.float32) * 0.2
            backend.assign(tensor, moved + (1.0 if key.endswith("var") else -0.1))
    return model
