"""Names of dtypes in torch's and safetensors' files, and how far arrays may unfold."""

from plain_pickles.dtypes import ML_DTYPES

TORCH_DTYPES = (
    *("float64", "float32", "float16", "complex128", "complex64"),
    *("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool"),
    *ML_DTYPES,
)
# The typed storages of torch.save.
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

EXPANDED_BYTES = 1 << 27
"""What tensors with stride 0, or that share their bytes, may take once they are read as float64, ..."""
EXPANDED_SHARE = 16
"""... besides this many times the bytes on which they stand."""
