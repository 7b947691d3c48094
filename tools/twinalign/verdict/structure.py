"""What must agree before numbers are compared: names, shapes, element types. Nothing is converted to fit."""

import fnmatch
from collections.abc import Iterable, Mapping

import numpy as np

from twinalign.errors import InputError
from twinalign.verdict.results import DIVERGED, Described, TensorVerdict


def select_names(names: Iterable[str], only: Iterable[str], skip: Iterable[str]) -> list[str]:
    """Names that match a shell pattern of `only` (all if empty) and none of `skip`."""
    only, skip = tuple(only), tuple(skip)

    def matches(name: str, patterns: tuple[str, ...]) -> bool:
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)

    return [name for name in names if (not only or matches(name, only)) and not matches(name, skip)]


def require_something(
    reference: Mapping[str, np.ndarray], reproduced: Mapping[str, np.ndarray], patterns: Iterable[str]
) -> None:
    """Raise InputError if there is nothing to compare: an empty comparison proves nothing."""
    if not reference and not reproduced:
        patterns = ", ".join(patterns)
        raise InputError(
            f"nothing to compare: no tensor is left after {patterns}" if patterns else "nothing to compare: no tensors"
        )
    if all(array.size == 0 for array in (*reference.values(), *reproduced.values())):
        raise InputError("nothing to compare: every tensor is empty")


def lone(name: str, array: np.ndarray, in_reference: bool) -> TensorVerdict:
    """The verdict on a tensor that only one side has."""
    where = "missing in the reproduction" if in_reference else "not in the reference"
    verdict = TensorVerdict(name, DIVERGED, f"{where}: {array.dtype} {list(array.shape)}", basis="structure")
    if in_reference:
        verdict.shape, verdict.dtype = array.shape, str(array.dtype)
    else:
        verdict.reproduced_shape, verdict.reproduced_dtype = array.shape, str(array.dtype)
    verdict.size = array.size
    return verdict


def structural_reason(
    reference: np.ndarray, reproduced: np.ndarray, described: Described | None, check_dtype: bool
) -> str | None:
    """Why two arrays cannot be equal whatever their numbers; None if they can."""
    reasons = []
    if reference.shape != reproduced.shape:
        if described is not None:
            reasons.append("the samples of the two sides differ in size")
        else:
            reasons.append(f"shape {list(reference.shape)} against {list(reproduced.shape)}")
    if check_dtype and reference.dtype != reproduced.dtype:
        reasons.append(f"dtype {reference.dtype} against {reproduced.dtype}")
        if {str(reference.dtype), str(reproduced.dtype)} & {"uint16"}:
            reasons[-1] += " (paddle hands bfloat16 to numpy as uint16: record it as float32)"
    return "; ".join(reasons) or None


def native(array: np.ndarray) -> np.ndarray:
    """The array in this machine's byte order; a copy only if it differs."""
    array = np.asarray(array)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def common_type(reference: np.ndarray, reproduced: np.ndarray) -> np.dtype | None:
    """A type that can represent the numbers of both arrays; None if there is none.

    numpy would convert int64 and uint64 to float64, where neighbouring integers are equal from 2^53 on.
    """
    try:
        common = np.result_type(reference.dtype, reproduced.dtype)
    except TypeError:  # bfloat16 beside uint16
        return None
    if common.kind == "f" and reference.dtype.kind in "iu" and reproduced.dtype.kind in "iu":
        unsigned = reference if reference.dtype.kind == "u" else reproduced
        return np.dtype(np.int64) if unsigned.size == 0 or unsigned.max() < 2**63 else None
    return common
