"""twinalign's access to torch and paddle: two packages with the same modules and functions, defined in `protocol`.

A backend imports its framework, so only the process that records a side loads the backend of that side.
"""

import sys

from twinalign.backends.protocol import Backend
from twinalign.errors import InputError
from twinalign.sides import FRAMEWORK_OF_SIDE


def load_backend(framework: str) -> Backend:
    """The backend of `"torch"` or `"paddle"`; raises ImportError if the framework is not installed."""
    if framework == "torch":
        from twinalign.backends.torch import backend as torch_backend

        return torch_backend
    if framework == "paddle":
        from twinalign.backends.paddle import backend as paddle_backend

        return paddle_backend
    raise ImportError(f"there is no backend for {framework}; there are torch and paddle")


def backend_of_side(side: str) -> Backend:
    """The backend of the framework that records `side`; raises InputError if this interpreter lacks it."""
    framework = FRAMEWORK_OF_SIDE[side]
    try:
        return load_backend(framework)
    except ModuleNotFoundError as error:
        if error.name != framework:
            raise
        raise InputError(
            f"{sys.executable} has no {framework}; install it there, or name an interpreter that has it "
            f"with --{side}-python"
        ) from None
