"""numpy dtypes by name and arrays over checked bytes; ml_dtypes is imported when needed."""

import importlib
import math
from typing import Any

import numpy as np

from plain_pickles.errors import BrokenFileError, RefusedError

ML_DTYPES = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
MOST_AXES = 32


def numpy_dtype(name: str) -> np.dtype:
    """numpy's dtype of that name, including those of ml_dtypes."""
    if name in ML_DTYPES:
        return np.dtype(getattr(importlib.import_module("ml_dtypes"), name))
    return np.dtype(name)


def checked_numeric(dtype: np.dtype) -> np.dtype:
    """Return `dtype` if it holds plain numbers; raises RefusedError for anything else, and above double precision."""
    opaque = dtype.kind == "V" and dtype.names is None and dtype.name not in ML_DTYPES
    if dtype.hasobject or dtype.kind in "OSUMm" or opaque:
        raise RefusedError(f"it holds elements of type {dtype}, which are not numbers")
    if dtype.kind in "fc" and dtype.itemsize > (8 if dtype.kind == "f" else 16):
        raise RefusedError(f"it holds elements of type {dtype}, which no framework has")
    return dtype


def checked_shape(shape: Any) -> tuple[int, ...]:
    """`shape` if it is a tuple of at most 32 lengths, else raise BrokenFileError, which quotes nothing."""
    if not isinstance(shape, tuple) or len(shape) > MOST_AXES:
        raise BrokenFileError(f"an array has no shape of at most {MOST_AXES} axes")
    if not all(type(extent) is int and 0 <= extent < 2**63 for extent in shape):
        raise BrokenFileError("an array has an impossible shape")
    return shape


def array_over(buffer: memoryview, dtype: np.dtype, shape: tuple[int, ...], fortran: bool = False) -> np.ndarray:
    """A read-only array over exactly `buffer`.

    Raises:
        BrokenFileError: shape and dtype need another number of bytes.
    """
    if math.prod(checked_shape(shape)) * dtype.itemsize != len(buffer):
        raise BrokenFileError(f"an array of shape {shape} and type {dtype} has {len(buffer)} bytes")
    array = np.ndarray(shape, dtype, buffer=buffer, order="F" if fortran else "C")
    if not buffer.readonly:
        array.flags.writeable = False
    return array
