"""What makes two trainings of one model equal; a port's case has a copy of it."""

from collections.abc import Iterable
from typing import Any


def without_chance(layers: Iterable[Any], model: Any) -> Any:
    """The model with every rate of dropout at 0: no two frameworks draw the same numbers."""
    for layer in layers:
        dropping = any(word in type(layer).__name__.lower() for word in ("drop", "stochastic"))
        for name, value in vars(layer).items():
            if isinstance(value, float) and 0 < value < 1 and ("drop" in name or (dropping and name == "p")):
                setattr(layer, name, 0.0)
    return model
