"""What a later step of training inherits of a distance that is allowed in the parameters it starts from.

A constant that a framework keeps in float32 (paddle's Adam and its powers of beta2) may move parameters by more than
the reference's rounding does, in the judged precision too. What the next step computes with them is then off by as
much more than rounding as they are, beside its own rounding; docs/verdict.md, "Inherited rounding".
"""

import re
from collections import defaultdict
from collections.abc import Sequence

from twinalign.verdict.excuses import Pending
from twinalign.verdict.results import ALIGNED

_STEP = re.compile(r"(?P<run>(?:.*\.)?)step(?P<step>\d{1,6})\.(?P<kind>\w+)")
_Ratios = tuple[float, float]
"""Of a tensor's error to the reference's own rounding: in RMS, and of the worst element."""


def excuse_inherited(pending: Sequence[Pending], rms_factor: float, worst_factor: float) -> None:
    """Withdraw divergences of later steps in the judged precision that allowed parameters explain.

    The float64 runs must agree on the tensor, and the first step inherits nothing.
    """
    allowed = _of_parameters(pending)
    for item in pending:
        match = _STEP.match(item.tensor.name)
        if match is None or not item.over_floor or not item.has_arbiter:
            continue
        before = [ratios for step, ratios in allowed[match["run"]] if step < int(match["step"])]
        rms, worst = (max(ratios, default=0.0) for ratios in (zip(*before, strict=True) if before else ((), ())))
        tensor = item.tensor
        if tensor.noise_ratio is None or tensor.noise_ratio_worst is None or not rms:
            continue
        if tensor.noise_ratio <= rms_factor + rms and tensor.noise_ratio_worst <= worst_factor + worst:
            tensor.verdict, item.over_floor = ALIGNED, False
            tensor.reason = (
                f"the float64 runs agree ({tensor.fp64_rel or 0.0:.2g} relative); the error is "
                f"{tensor.noise_ratio:.2g} times the reference's own rounding, and that of the parameters before was "
                f"allowed at {rms:.2g} times"
            )


def _of_parameters(pending: Sequence[Pending]) -> dict[str, list[tuple[int, _Ratios]]]:
    """Run (of a rank) → step and ratios of each parameter that passed by an allowance."""
    found = defaultdict(list)
    for item in pending:
        tensor, match = item.tensor, _STEP.match(item.tensor.name)
        if match is None or match["kind"] != "parameter" or not tensor.allowed or tensor.verdict != ALIGNED:
            continue
        found[match["run"]].append((int(match["step"]), (tensor.noise_ratio or 0.0, tensor.noise_ratio_worst or 0.0)))
    return found
