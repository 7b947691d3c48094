"""A tensor that each side computes in a way of its own, and takes so: angles that one side counts backwards, say."""

import dataclasses

import numpy as np

from twinalign.replay.layouts import PlainForm


@dataclasses.dataclass(frozen=True)
class OwnValues:
    """The port's values of a tensor, through which no gradient flows, and that a layer takes as the port has them.

    Attributes:
        port, reference: both sides' values.
        inner: the form that the port's has besides.
    """

    port: np.ndarray
    reference: np.ndarray
    inner: PlainForm | None = None

    def to_port(self, array: np.ndarray) -> np.ndarray:
        """What the port has for the reference's values."""
        return self.port

    def to_reference(self, array: np.ndarray) -> np.ndarray:
        """What the reference has for the port's values; others are what they are."""
        if self.is_of(array):
            return self.reference
        return array if self.inner is None else self.inner.to_reference(array)

    def gradient_to_port(self, array: np.ndarray) -> np.ndarray:
        """A gradient of the reference's shape in the port's form."""
        return array if self.inner is None else self.inner.gradient_to_port(array)

    def gradient_to_reference(self, array: np.ndarray) -> np.ndarray:
        """A gradient of the port's shape in the reference's form."""
        return array if self.inner is None else self.inner.gradient_to_reference(array)

    def is_of(self, array: np.ndarray) -> bool:
        """Whether an array has the port's values."""
        return array.shape == self.port.shape and np.array_equal(array, self.port, equal_nan=array.dtype.kind == "f")
