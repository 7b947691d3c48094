"""Names of element types in the formats, and their numpy dtypes; ml_dtypes is imported where one needs it."""

from __future__ import annotations

import importlib

import numpy as np

from twinalign.files.errors import BrokenFileError, RefusedError

# torch's names (torch.dtype and the typed storages of torch.save).
TORCH_DTYPES = {
    "float64": "float64",
    "float32": "float32",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "complex128": "complex128",
    "complex64": "complex64",
    "complex32": None,
    "int64": "int64",
    "int32": "int32",
    "int16": "int16",
    "int8": "int8",
    "uint64": "uint64",
    "uint32": "uint32",
    "uint16": "uint16",
    "uint8": "uint8",
    "bool": "bool",
    "float8_e4m3fn": "float8_e4m3fn",
    "float8_e5m2": "float8_e5m2",
    "float8_e4m3fnuz": "float8_e4m3fnuz",
    "float8_e5m2fnuz": "float8_e5m2fnuz",
    "float8_e8m0fnu": "float8_e8m0fnu",
}
TORCH_STORAGES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "ComplexDoubleStorage": "complex128",
    "ComplexFloatStorage": "complex64",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
}
# safetensors' names (https://github.com/huggingface/safetensors, README, "Format").
SAFETENSORS_DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "C64": "complex64",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U64": "uint64",
    "U32": "uint32",
    "U16": "uint16",
    "U8": "uint8",
    "BOOL": "bool",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
}
ML_DTYPES = (
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
)


def numpy_dtype(name: str) -> np.dtype:
    """numpy's dtype of that name, those of ml_dtypes included."""
    if name in ML_DTYPES:
        return np.dtype(getattr(importlib.import_module("ml_dtypes"), name))
    return np.dtype(name)


def checked_numeric(dtype: np.dtype) -> np.dtype:
    """`dtype` where it holds plain numbers; raises RefusedError for text, times, objects, structures and more
    than double precision."""
    if dtype.hasobject or dtype.kind in "OSUMm" or (dtype.kind == "V" and dtype.names is None and not is_ml(dtype)):
        raise RefusedError(f"it holds elements of type {dtype}, which are not numbers")
    if dtype.kind in "fc" and dtype.itemsize > (8 if dtype.kind == "f" else 16):
        raise RefusedError(f"it holds elements of type {dtype}, which no framework has")
    return dtype


def is_ml(dtype: np.dtype) -> bool:
    """Whether a dtype is one of ml_dtypes' (bfloat16, float8)."""
    return dtype.name in ML_DTYPES


def array_over(buffer: memoryview, dtype: np.dtype, shape: tuple[int, ...], fortran: bool = False) -> np.ndarray:
    """A read-only array over exactly `buffer`.

    Raises:
        BrokenFileError: the number of bytes is not what shape and dtype need.
    """
    count = 1
    for extent in shape:
        if not isinstance(extent, int) or extent < 0:
            raise BrokenFileError(f"an array has the impossible shape {shape}")
        count *= extent
    if len(shape) > 32:
        raise BrokenFileError(f"an array has the impossible shape {shape}")
    if count * dtype.itemsize != len(buffer):
        raise BrokenFileError(f"an array of shape {shape} and type {dtype} has {len(buffer)} bytes")
    array = np.ndarray(shape, dtype, buffer=buffer, order="F" if fortran else "C")
    if not buffer.readonly:
        array.flags.writeable = False
    return array
