"""What must agree before numbers are compared: names, shapes, element types. Nothing is converted to fit."""

import fnmatch
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from twinalign.case.moved_values import OF_FLOAT32
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


def give_one_type(
    name: str, judged: Sequence[dict[str, np.ndarray]], high: Sequence[dict[str, np.ndarray] | None]
) -> None:
    """Give a number of Python's or numpy's the coarser type of the two sides, in place.

    A float64 run in which its type is coarser as well decides only by more than the rounding to that type: if both
    differ by less, it is taken away.

    Args:
        judged: the arrays of the reference and of the port in the judged precision.
        high: those of their float64 runs, as far as there are any.
    """
    types = [arrays[name].dtype for arrays in judged if name in arrays]
    if len(types) < 2 or types[0] == types[1] or any(dtype.kind != "f" for dtype in types):
        return  # floats alone: a whole number in the place of one is seen by its type
    coarser = min(types, key=lambda dtype: dtype.itemsize)
    for arrays in judged:
        arrays[name] = arrays[name].astype(coarser)
    runs = [finer for finer in high if finer is not None and name in finer]
    alike = all(np.allclose(finer[name], runs[0][name], rtol=OF_FLOAT32, atol=0.0) for finer in runs)
    for finer in runs:
        if not alike:
            finer[name] = finer[name].astype(np.float64)
        elif finer[name].dtype != np.float64:
            del finer[name]


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
