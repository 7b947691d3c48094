"""What a comparison found, as data."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from twinalign.errors import ExitCode
from twinalign.notebook import Shown

ALIGNED = "aligned"
ROUNDING = "rounding"
DIVERGED = "diverged"
INCONCLUSIVE = "inconclusive"
EXIT_CODES = {ALIGNED: ExitCode.ALIGNED, DIVERGED: ExitCode.DIVERGED, INCONCLUSIVE: ExitCode.INCONCLUSIVE}


class Described(NamedTuple):
    """What a stored sample of a larger tensor stands for.

    `shape` is that of the whole tensor; `index_of` converts a flat position in the sample into an index.
    """

    shape: tuple[int, ...]
    index_of: Callable[[int], tuple[int, ...]]


class JsonFields:
    """Base of dataclasses whose JSON form has exactly their fields."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {name: plain(value) for name, value in vars(self).items()}


def float64_agrees(ratio: float | str | None) -> bool:
    """Whether a tensor's float64 runs agree, by its `fp64_ratio`; JSON has names for numbers that are not finite."""
    return isinstance(ratio, (int, float)) and ratio <= 1.0


@dataclasses.dataclass
class TensorVerdict(JsonFields):
    """One tensor's verdict with the numbers behind it; None for numbers that are not available.

    Relative errors are elementwise, over elements with a nonzero reference.
    """

    name: str
    verdict: str
    reason: str
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    max_abs: float | None = None
    mean_abs: float | None = None
    max_rel: float | None = None
    noise_ratio: float | None = None
    """RMS of the reproduction's distance from float64 truth over the reference's."""
    fp64_rel: float | None = None
    """RMS of the two float64 runs' difference over the RMS of the reference's."""
    worst_index: tuple[int, ...] | None = None

    basis: str = ""
    """What decided: structure, exact, given tolerances, float64, noise floor, repeat, tolerance, or draws."""
    reproduced_shape: tuple[int, ...] | None = None
    reproduced_dtype: str | None = None
    size: int | None = None
    mismatched: int | None = None
    """Elements over the tolerances `rtol` and `atol`."""
    mismatched_share: float | None = None
    rtol: float | None = None
    atol: float | None = None
    reference_value: Any = None
    """At the worst element."""
    reproduced_value: Any = None
    rms_abs: float | None = None
    mean_rel: float | None = None
    rms_rel: float | None = None
    max_ulp: int | None = None
    mean_ulp: float | None = None
    cosine: float | None = None
    reference_max: float | None = None
    """Greatest magnitude in the reference."""
    floor_rms: float | None = None
    """Rounding of the reference, measured: RMS of its distance from float64 truth, absolute."""
    floor_max: float | None = None
    noise_ratio_worst: float | None = None
    fp64_max_abs: float | None = None
    fp64_ratio: float | None = None
    """The float64 runs' difference over what rounding in float64 explains; at most 1 is agreement."""
    structural_zeros: int | None = None
    """Elements that are zero in exact arithmetic, so that float32 contains only rounding."""
    findings: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    """Facts that name a cause: permutation, transpose, factor, offset, shift."""
    accepted: str | None = None
    """Id of the convention under which a difference was accepted; it then does not decide."""
    allowed: str | None = None
    """Id of the allowance that explains a float64 difference."""
    parted_at: int | None = None
    """Of a curve: first step over what rounding explains, or, where rounding grows, at which they are 1% apart."""


@dataclasses.dataclass
class Classic(JsonFields):
    """reprod_log's verdict; `lines` are its log lines without time and logger name."""

    passed: bool
    threshold: float
    lines: list[str]
    error: str | None = None
    """Why reprod_log would have stopped with an exception, if so; `passed` is then False."""
    quirks: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(repr=False)
class Comparison(Shown):
    """The verdict on two sets of arrays."""

    kind = "compare"

    verdict: str
    """"aligned" ("rounding" tensors included), "diverged" or "inconclusive"."""
    tensors: list[TensorVerdict]
    classic: Classic
    notes: list[str] = dataclasses.field(default_factory=list)
    """What the reader of a verdict must know, such as a missing float64 run."""
    training: dict[str, Any] | None = None
    """Of the train stage: divergence horizons, kinds of trained weights, equivalence of outcomes, experiments."""
    attached: dict[str, Any] | None = None
    """Of attached trainers: `first` to differ, verdicts of quantities by `steps`, proven `causes`, `noise`."""

    @property
    def counts(self) -> dict[str, int]:
        """Number of tensors by verdict; accepted ones are counted separately."""
        found: dict[str, int] = {}
        for tensor in self.tensors:
            key = "accepted" if tensor.accepted else tensor.verdict
            found[key] = found.get(key, 0) + 1
        return found

    def to_json(self) -> dict[str, Any]:
        """A stage of `summary.json`."""
        return {
            "verdict": self.verdict,
            "classic": self.classic.to_json(),
            "counts": self.counts,
            "notes": list(self.notes),
            "tensors": [tensor.to_json() for tensor in self.tensors],
            **({"training": plain(self.training)} if self.training is not None else {}),
            **({"attached": plain(self.attached)} if self.attached is not None else {}),
        }


def whole(tensors: list[TensorVerdict]) -> str:
    """The worst verdict of all tensors that are not accepted: diverged, inconclusive, aligned."""
    verdicts = {tensor.verdict for tensor in tensors if tensor.accepted is None}
    if DIVERGED in verdicts:
        return DIVERGED
    return INCONCLUSIVE if INCONCLUSIVE in verdicts else ALIGNED


def plain(value: Any) -> Any:
    """`value` in types of strict JSON; NaN and infinities become "NaN", "Infinity", "-Infinity"."""
    if isinstance(value, bool | str) or value is None:
        return value
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, complex):
        return [plain(value.real), plain(value.imag)]
    if hasattr(value, "item"):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    return value
