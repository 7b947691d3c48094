"""Image operations on tensors: what torch's functions would do otherwise."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

from twinalign.explain.calls import Call
from twinalign.explain.data import ImageSubject
from twinalign.explain.subject import rewriting


@dataclasses.dataclass(frozen=True)
class TensorCalls:
    """The variant in which a function of torch is called with other arguments wherever the pipeline calls it."""

    detail: str
    name: str
    arguments: dict[str, Any]

    @contextlib.contextmanager
    def apply(self) -> Iterator[None]:
        """Within the context the function is called so."""

        def handle(call: Call) -> Any:
            return call.run(**self.arguments) if call.name == self.name else call.run()

        with rewriting().intercepting(None, handle):
            yield


def without_antialiasing(subject: ImageSubject) -> TensorCalls:
    """Resizing of tensors without antialiasing."""
    return TensorCalls("in tensors", "interpolate", {"antialias": False})
