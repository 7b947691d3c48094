"""Masks that either side writes in its own way: true for what is hidden or for what is seen, or a number that is added.

A mask is of truth values, or it is added to scores: 0 where they are seen, and a large negative number, or minus
infinity, where they are hidden.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from twinalign.replay.layouts import HIDES, Layout, PlainForm, Repeated, repeated, without_axes_of_one
from twinalign.replay.own_values import OwnValues

_MOSTLY = 0.75
"""A mask has the sense in which so many of its truth values are the other's, or are not."""
_LEAST = -1e30
"""What stands for minus infinity where a mask is the product of truth values and a number."""

_CASTS = {"bool": "bool", "int32": "int", "int64": "long", "float32": "float"}
"""dtype → the method of torch that makes it."""


@dataclasses.dataclass(frozen=True)
class Truths:
    """How a mask writes true and false.

    Attributes:
        true, false: the values; of a mask that is added, one is 0 and the other hides.
        dtype: the mask's.
    """

    true: float
    false: float
    dtype: np.dtype

    @property
    def is_added(self) -> bool:
        """Whether one of the values hides what it is added to."""
        return min(self.true, self.false) < -HIDES

    @property
    def opposite(self) -> Truths:
        """The same values for what is not so."""
        return Truths(self.false, self.true, self.dtype)

    def read(self, mask: Any) -> Any:
        """The truth values of an array or tensor of this kind."""
        hidden = mask < -HIDES if self.is_added else mask != 0
        return hidden if (self.true < -HIDES if self.is_added else self.true != 0) else ~hidden

    def write(self, truths: np.ndarray) -> np.ndarray:
        """Truth values as a mask of this kind."""
        return np.where(truths, self.true, self.false).astype(self.dtype)


def truths_of(array: np.ndarray) -> Truths | None:
    """How a mask writes its truth values; seen counts as true for one that is added. None for what is no mask."""
    if not array.size:
        return None
    if array.dtype.kind == "b" or ((array == 0) | (array == 1)).all():
        return Truths(1.0, 0.0, array.dtype)
    hidden = array < -HIDES
    is_added = array.dtype.kind == "f" and hidden.any() and not hidden.all() and not array[~hidden].any()
    return Truths(0.0, float(array.min()), array.dtype) if is_added else None


@dataclasses.dataclass(frozen=True)
class OtherTruths:
    """The port writes a mask in another way than the reference does.

    Attributes:
        port, reference: how either does, of the same truths.
        inner: the form that the mask has besides.
    """

    port: Truths
    reference: Truths
    inner: Repeated | Layout | None = None

    def to_port(self, array: np.ndarray) -> np.ndarray:
        """The values of an array of the reference's shape in the port's form."""
        written = self.port.write(self.reference.read(array))
        return written if self.inner is None else self.inner.to_port(written)

    def to_reference(self, array: np.ndarray) -> np.ndarray:
        """The values of an array of the port's shape in the reference's form."""
        written = self.reference.write(self.port.read(array))
        return written if self.inner is None else self.inner.to_reference(written)

    def gradient_to_port(self, array: np.ndarray) -> np.ndarray:
        """A gradient of the reference's shape in the port's form."""
        signed = array * self._sign
        return signed if self.inner is None else self.inner.gradient_to_port(signed)

    def gradient_to_reference(self, array: np.ndarray) -> np.ndarray:
        """A gradient of the port's shape in the reference's form."""
        signed = array * self._sign
        return signed if self.inner is None else self.inner.gradient_to_reference(signed)

    @property
    def _sign(self) -> float:
        return 1.0 if (self.port.true > self.port.false) == (self.reference.true > self.reference.false) else -1.0

    def to_json(self) -> list[list[float]]:
        """What `mask_of_port` needs."""
        return [[max(one.true, _LEAST), max(one.false, _LEAST)] for one in (self.port, self.reference)]

    def tensor_to_reference(self, tensor: Any) -> Any:
        """A mask of the port's, which is a tensor of torch, in the reference's form."""
        truths = self.port.read(tensor)
        made = getattr(truths, _CASTS.get(self.reference.dtype.name, "double"))()
        return made.masked_fill(truths, self.reference.true).masked_fill(~truths, self.reference.false)


Form = PlainForm | OtherTruths | OwnValues


def mask_of_port(name: ast.expr, values: list[list[float]]) -> ast.expr:
    """Code of torch that gives the port's mask for one of the reference's, as `OtherTruths.to_json` has both."""
    port, reference = (Truths(true, false, np.dtype("float64")) for true, false in values)
    if not (port.is_added or reference.is_added):
        return ast.copy_location(ast.UnaryOp(ast.Invert(), name), name)
    written = ast.unparse(name)
    truths = f"({written} < {-HIDES})" if reference.is_added else f"({written} != 0)"
    holds_for = reference.true < -HIDES if reference.is_added else reference.true != 0
    wanted = port.true < -HIDES if port.is_added else port.true != 0
    text = truths if holds_for == wanted else f"{truths}.logical_not()"
    text = f"{text} * {min(port.true, port.false)!r}" if port.is_added else text
    return ast.copy_location(ast.parse(text, mode="eval").body, name)


def other_truths(port: np.ndarray, reference: np.ndarray) -> OtherTruths | None:
    """The form of a mask that the port writes in another way; None for a mask that it writes alike, and for no mask.

    A few values may be wrong besides: a causal mask that is off by one still says what is hidden, or what is not.
    """
    ours, theirs = truths_of(port), truths_of(reference)
    if ours is None or theirs is None:
        return None
    truths = theirs.read(reference)
    for sense in (ours, ours.opposite):
        inner: Repeated | Layout | None = None
        if port.shape != reference.shape:
            written = sense.write(truths)
            inner = without_axes_of_one(reference.shape, port.shape) or repeated(port, written)
            if inner is None:
                continue
        found = OtherTruths(sense, theirs, inner)
        if np.mean(sense.read(found.to_port(reference)) == sense.read(port)) >= _MOSTLY:
            is_alike = (sense.true, sense.false) == (theirs.true, theirs.false)
            is_constant = not sense.is_added and (port.all() or not port.any())
            return None if is_alike or (is_constant and sense != ours) else found
    return None


def senses_of(forms: Mapping[str, Form]) -> dict[str, bool]:
    """Place of a mask → whether the port's true is greater than its false, of those that it writes in another way."""
    masks = {place: form for place, form in forms.items() if isinstance(form, OtherTruths)}
    return {place: form.port.true > form.port.false for place, form in masks.items() if place.startswith("input.")}


def in_reference_form(tensor: Any, port: np.ndarray, reference: np.ndarray) -> Any:
    """A tensor of torch, with the values of the port's, as the reference has it if it is a mask of another kind."""
    found = other_truths(port, reference)
    return tensor if found is None else found.tensor_to_reference(tensor)
