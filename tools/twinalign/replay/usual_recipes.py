"""Numbers, methods and sets of parameters that recipes of the field use, and a port in place of the reference's."""

from collections.abc import Callable
from typing import Any

from twinalign.case.definition import Case
from twinalign.stages.context import step_inputs

CLIP_NORMS = (1.0, 5.0, 10.0, 0.1, 3.0, 2.0, 0.5, 0.25, 0.3, 0.02, 0.01, 20.0, 40.0, 100.0)
DECAYS = (0.01, 0.05, 0.1, 0.3, 0.02, 0.2, 0.5, 1e-3, 1e-4, 5e-4, 4e-5, 5e-5, 1e-5, 1e-6, 1.5e-6)
DECAY_FACTORS = (10.0, 0.1, 0.5, 2.0, 100.0, 0.01)
METHODS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("SGD", {}),
    ("SGD", {"momentum": 0.9}),
    ("SGD", {"momentum": 0.9, "nesterov": True}),
    *((name, {}) for name in ("Adam", "AdamW", "RMSprop", "Adagrad", "NAdam", "RAdam", "Adamax")),
)
Choice = Callable[[str], bool]
"""Whether a parameter of a name is one of a set."""


def batch_size(case: Any) -> int:
    """Number of samples in a step; 1 where nothing tells it, as in a case that only trains."""
    given = {} if type(case).inputs is Case.inputs else step_inputs(case)
    return next((array.shape[0] for array in given.values() if array.ndim), 1)


def linear_scaling(batch: int) -> list[tuple[str, float]]:
    """Factors by which a rate is off where it is scaled with the batch and should not be, or the other way round."""
    named = f"the linear scaling of a batch of {batch}"
    return [(f"{batch}/256, {named}", batch / 256), (f"256/{batch}, {named} missing", 256 / batch)]


def factors(case: Any) -> list[tuple[str, float]]:
    """Factors by which rates and gradients go wrong, with what they stand for."""
    batch = batch_size(case)
    found = [(str(n), float(n)) if up else (f"1/{n}", 1 / n) for n in (10, 2, 4, 8) for up in (True, False)]
    if batch > 1:
        found += linear_scaling(batch)
        found += [(f"{batch}, the batch: a sum, not a mean", float(batch)), (f"1/{batch}, the batch", 1 / batch)]
    found += [("100", 100.0), ("1/100", 0.01), ("1000", 1000.0), ("1/1000", 0.001)]
    return list({value: (text, value) for text, value in reversed(found)}.values())[::-1]


def choices(dimensions: Callable[[str], int]) -> dict[str, Choice]:
    """Sets of parameters that recipes treat apart, by what they are called and their number of axes."""
    exempt = ("pos_embed", "position", "cls_token", "class_token", "dist_token", "relative_position")
    return {
        "biases": lambda name: name.rpartition(".")[2] == "bias",
        "one-dimensional parameters": lambda name: dimensions(name) <= 1,
        "scales of normalisation layers": lambda name: dimensions(name) <= 1 and not name.endswith("bias"),
        "normalisation layers": lambda name: "norm" in name.lower() or ".bn" in f".{name.lower()}",
        "position embeddings and tokens": lambda name: any(word in name for word in exempt),
        "weights of more than one dimension": lambda name: dimensions(name) > 1,
    }
