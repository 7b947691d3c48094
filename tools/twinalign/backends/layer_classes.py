"""The classes of a model's layers, by their full names."""

from collections import Counter
from typing import Any

from twinalign.backends.protocol import Backend


def layer_classes(backend: Backend, model: Any) -> dict[str, dict[str, Any]]:
    """Full name of each layer class → how many layers of the model have it, and its base classes."""
    counts = Counter(type(layer) for layer in backend.all_layers(model))
    return {
        full_name(kind): {"count": count, "bases": [full_name(base) for base in kind.__mro__[1:-1]]}
        for kind, count in counts.items()
    }


def full_name(kind: type) -> str:
    """Module and name of a class."""
    return f"{kind.__module__}.{kind.__qualname__}"
