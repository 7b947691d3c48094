"""Inputs that neither model can be called with: the case is at fault, and neither side."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from twinalign.errors import InputError
from twinalign.processes.side_process import ChildError
from twinalign.sides import SIDES

_CALLS_OF_MODEL = ("forward", "observe", "")
"""Functions of the user's code that an error in a model's call enters first; a model of a library has none."""
_NO_GRADIENT = "does not require grad and does not have a grad_fn"
"""In what torch says where it is to differentiate and follows no operations."""


_READ_FROM_CASE = ("data", "train")
"""Stages whose inputs are those of the case's own data."""


def is_of_call(error: BaseException | None, stage: str) -> bool:
    """Whether a model raised when a stage called it with given inputs, and not the case's loss or another function."""
    called = isinstance(error, ChildError) and not error.died and error.entered in _CALLS_OF_MODEL
    return called and stage not in _READ_FROM_CASE


def refused_inputs(
    part: str, stage: str, inputs: Path, errors: Mapping[str, BaseException | None]
) -> InputError | None:
    """What to say of the `inputs` of a part if the errors of both sides are of the model's call; None otherwise.

    `inputs` is the archive that holds them, which does not exist if the case makes its inputs in another way than by
    `inputs(rng)`.
    """
    reasons = [
        f"{side}: {error.reason.splitlines()[0]}" for side in SIDES if isinstance(error := errors[side], ChildError)
    ]
    if not all(is_of_call(errors[side], stage) for side in SIDES) or not inputs.exists():
        return None
    if any(_NO_GRADIENT in reason for reason in reasons):
        return InputError(
            f"case {part}: the model differentiates in its forward pass, and is called without gradients; do that "
            f"inside torch.enable_grad() and paddle.enable_grad(); {'; '.join(reasons)}"
        )
    if stage == "metric":  # which takes samples, not the case's inputs
        return InputError(
            f"case {part}: change dataset(framework, 'val'), or define evaluate: neither model takes what its samples "
            f"begin with, and nothing else; {'; '.join(reasons)}"
        )
    with np.load(inputs, allow_pickle=False) as stored:
        given = ", ".join(f"{name} {list(array.shape)} {array.dtype}" for name, array in stored.items())
    return InputError(f"case {part}: change inputs(rng): neither model takes {given}; {'; '.join(reasons)}")
