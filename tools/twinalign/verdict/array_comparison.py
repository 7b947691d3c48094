"""The comparison of two sets of arrays: structure, float64 arbiter, noise floor, tolerances, in that order."""

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from twinalign.errors import InputError
from twinalign.files.mapped_memory import release
from twinalign.verdict import results
from twinalign.verdict.allowances import Allowance, resolve
from twinalign.verdict.classic import THRESHOLD, classic_verdict
from twinalign.verdict.excuses import accept_conventions, set_aside_draws
from twinalign.verdict.findings import describe_difference
from twinalign.verdict.results import Comparison, Described, TensorVerdict, whole
from twinalign.verdict.statistics import Statistics, measure_all, value_at
from twinalign.verdict.structure import (
    common_type,
    lone,
    native,
    require_something,
    select_names,
    structural_reason,
)
from twinalign.verdict.tensor_judge import Judge, Measured
from twinalign.verdict.tolerances import tolerances_of

_TOGETHER = 1 << 18
"""Elements of tensors that are judged in one go."""


class _Options(NamedTuple):
    rtol: float | None
    atol: float | None
    check_dtype: bool
    everything: bool
    search: bool


def compare_arrays(
    reference: Mapping[str, np.ndarray],
    reproduced: Mapping[str, np.ndarray],
    *,
    reference64: Mapping[str, np.ndarray] | None = None,
    reproduced64: Mapping[str, np.ndarray] | None = None,
    reference_repeat: Mapping[str, np.ndarray] | None = None,
    repeats: Mapping[str, Sequence[Sequence[float]]] | None = None,
    changed_by_draws: Mapping[str, float] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    only: Iterable[str] = (),
    skip: Iterable[str] = (),
    accept: Iterable[str] | Mapping[str, str] = (),
    allowances: Iterable[Allowance | str] = (),
    known_rounding: Mapping[str, float] | None = None,
    classic_threshold: float = THRESHOLD,
    described: Mapping[str, Described] | None = None,
    check_dtype: bool = True,
    everything: bool = True,
    search: bool = True,
) -> Comparison:
    """Judge a reproduction against its reference.

    Args:
        reference, reproduced: name -> array, in the judged precision (float32, or half precision).
        reference64: the reference's run in float64; measures rounding, the noise floor.
        reproduced64: the port's run in float64; the two float64 runs then decide.
        reference_repeat: the reference in the judged precision with another summation order (other thread count,
            permuted batch), or from values changed by one unit in the last place; measures rounding without float64.
        repeats: name -> flat values of the reference's repeats in the judged precision, for tensors with too few
            elements to measure rounding in one run.
        changed_by_draws: name -> root mean square of what another seed changes in the reference, absolute; a difference
            of that size is inconclusive.
        rtol, atol: relative and absolute tolerance; together they decide alone.
        only, skip: shell patterns of names to compare (all by default), and to leave out.
        accept: ids of conventions whose differences are shown but do not affect the verdict; a mapping of ids to
            patterns, or `ID=PATTERN`, limits them to names.
        allowances: float64 differences that float32 constants explain: `Allowance`, `ID` or `ID=PATTERN`;
            `float32_epsilon` is always included.
        known_rounding: name -> relative rounding of the reference from other recordings of the same quantity.
        classic_threshold: threshold of reprod_log's verdict.
        described: for names stored as samples, what they stand for.
        check_dtype: whether different element types are a divergence.
        everything: False leaves out what a verdict does not need (relative errors, ULP, cosine).
        search: whether to search diverged tensors for permutation, transpose, factor, offset and shift.

    Raises:
        InputError: nothing is left to compare, one of `rtol` and `atol` is missing, a tolerance is negative or NaN, or
            an id is unknown.
    """
    _require_limits(rtol, atol, classic_threshold)
    only, skip = tuple(only), tuple(skip)
    names = set(select_names((*reference, *reproduced), only, skip))
    reference, reproduced, *partners = (
        {name: native(array) for name, array in (arrays or {}).items() if name in names}
        for arrays in (reference, reproduced, reference64, reproduced64, reference_repeat)
    )
    require_something(reference, reproduced, (*only, *skip))
    options = _Options(rtol, atol, check_dtype, everything, search)
    judge = Judge(partners[0], partners[1], partners[2], resolve(allowances), known_rounding, repeats)
    tensors, classic_known = _judge_all(reference, reproduced, partners, described or {}, judge, options)
    judge.finish()
    accept_conventions(tensors, accept)
    judge.excuse()
    if rtol is None:
        set_aside_draws(tensors, changed_by_draws or {})
    for tensor in tensors:
        _explain(tensor, reference, reproduced, classic_threshold, options)
    classic_result = classic_verdict(reference, reproduced, classic_threshold, classic_known)
    return Comparison(whole(tensors), tensors, classic_result, judge.notes(tensors))


def _require_limits(rtol: float | None, atol: float | None, classic_threshold: float) -> None:
    if (rtol is None) != (atol is None):
        raise InputError("--rtol and --atol: give both or neither")
    if any(value is not None and not value >= 0 for value in (rtol, atol)):
        raise InputError("--rtol and --atol: numbers from 0 up")  # with NaN every comparison passes
    if not classic_threshold >= 0:
        raise InputError("--threshold: a number from 0 up")


class _Candidate(NamedTuple):
    """A tensor of the reference; `pair` where there is something to measure."""

    tensor: TensorVerdict
    pair: tuple[np.ndarray, np.ndarray] | None = None
    described: Described | None = None


def _judge_all(
    reference: Mapping[str, np.ndarray],
    reproduced: Mapping[str, np.ndarray],
    partners: Sequence[Mapping[str, np.ndarray]],
    described: Mapping[str, Described],
    judge: Judge,
    options: _Options,
) -> tuple[list[TensorVerdict], dict[str, Any]]:
    """Verdicts of all tensors, and reprod_log's means that were computed on the way."""
    tensors: list[TensorVerdict] = []
    classic: dict[str, Any] = {}
    for names in _together(reference):
        every = [_candidate(n, reference[n], reproduced.get(n), described.get(n), options) for n in names]
        tensors += [candidate.tensor for candidate in every]
        pairs = [(one.tensor, *one.pair, one.described) for one in every if one.pair is not None]
        statistics = measure_all(
            [(first, second, tensor.rtol or 0.0, tensor.atol or 0.0) for tensor, first, second, _ in pairs],
            everything=options.everything,
        )
        judged = []
        for (tensor, first, second, sample), found in zip(pairs, statistics, strict=True):
            _fill(tensor, found, first, second, sample, options.everything)
            if tensor.shape != tensor.reproduced_shape:
                apart = f"differ by up to {found.max_abs:.3g}" if tensor.mismatched or found.max_abs else "are equal"
                tensor.reason += f"; the values {apart}"
            elif found.classic_mean is not None:
                classic[tensor.name] = found.classic_mean
            if tensor.basis != "structure":
                judged.append(Measured(tensor, found, first, second))
        judge.judge(judged, explicit=options.rtol is not None)
        sets = (reference, reproduced, *partners)
        release(*(arrays[name] for arrays in sets for name in names if name in arrays))
    tensors += [lone(name, array, in_reference=False) for name, array in reproduced.items() if name not in reference]
    return tensors, classic


def _together(reference: Mapping[str, np.ndarray]) -> Iterator[list[str]]:
    """Names in order, in groups of about `_TOGETHER` elements, so that data stay in cache."""
    names: list[str] = []
    elements = 0
    for name, array in reference.items():
        names.append(name)
        elements += array.size + 1
        if elements >= _TOGETHER:
            yield names
            names, elements = [], 0
    yield names


def _candidate(
    name: str, reference: np.ndarray, reproduced: np.ndarray | None, described: Described | None, options: _Options
) -> _Candidate:
    if reproduced is None:
        return _Candidate(lone(name, reference, in_reference=True))
    tensor = TensorVerdict(name, results.ALIGNED, "", shape=described.shape if described else reference.shape)
    tensor.dtype, tensor.reproduced_dtype = _text_of(reference.dtype), _text_of(reproduced.dtype)
    tensor.reproduced_shape = described.shape if described else reproduced.shape
    tensor.size = reference.size
    reason = structural_reason(reference, reproduced, described, options.check_dtype)
    if reason is not None:
        tensor.verdict, tensor.reason, tensor.basis = results.DIVERGED, reason, "structure"
    if reference.shape != reproduced.shape:
        if described is not None or [n for n in reference.shape if n != 1] != [n for n in reproduced.shape if n != 1]:
            return _Candidate(tensor)
        reproduced = reproduced.reshape(reference.shape)  # [] against [1]: what it holds is told beside its shape
    if reference.dtype != reproduced.dtype:
        common = common_type(reference, reproduced)
        if common is None:
            if reason is None:
                text = f"no type holds the numbers of both {reference.dtype} and {reproduced.dtype}"
                tensor.verdict, tensor.reason, tensor.basis = results.DIVERGED, text, "structure"
            return _Candidate(tensor)
        reference, reproduced = reference.astype(common), reproduced.astype(common)
    given = options.rtol is not None
    tensor.rtol, tensor.atol = (options.rtol, options.atol) if given else tolerances_of(reference.dtype)
    return _Candidate(tensor, (reference, reproduced), described)


@functools.cache  # numpy takes longer over a dtype's name than over a small array
def _text_of(dtype: np.dtype) -> str:
    return str(dtype)


def _fill(
    tensor: TensorVerdict,
    found: Statistics,
    reference: np.ndarray,
    reproduced: np.ndarray,
    described: Described | None,
    everything: bool,
) -> None:
    tensor.max_abs, tensor.mean_abs, tensor.rms_abs = found.max_abs, found.mean_abs, found.rms_abs
    worst = found.nonfinite_index if found.nonfinite_differ else found.worst_index
    if worst is not None:
        tensor.reference_value, tensor.reproduced_value = value_at(reference, worst), value_at(reproduced, worst)
        tensor.worst_index = worst if described is None else described.index_of(worst[0])
    tensor.mismatched = found.mismatched + found.nonfinite_differ
    tensor.mismatched_share = tensor.mismatched / reference.size if reference.size else 0.0
    if everything:
        tensor.max_rel, tensor.mean_rel, tensor.rms_rel = found.max_rel, found.mean_rel, found.rms_rel
        tensor.max_ulp, tensor.mean_ulp, tensor.cosine = found.max_ulp, found.mean_ulp, found.cosine
        tensor.reference_max = found.reference_max


def _explain(
    tensor: TensorVerdict,
    reference: Mapping[str, np.ndarray],
    reproduced: Mapping[str, np.ndarray],
    classic_threshold: float,
    options: _Options,
) -> None:
    """Separate rounding from aligned, and search for causes of a divergence."""
    if tensor.verdict == results.ALIGNED and (tensor.mean_abs or 0.0) > classic_threshold:
        tensor.verdict = results.ROUNDING
    if tensor.verdict == results.DIVERGED and options.search and tensor.name in reference and tensor.name in reproduced:
        tensor.findings = describe_difference(reference[tensor.name], reproduced[tensor.name])
        if tensor.findings:
            tensor.reason += "; " + "; ".join(finding["text"] for finding in tensor.findings)
