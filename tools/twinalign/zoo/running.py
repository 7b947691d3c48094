"""Run the zoo: one forward alignment an architecture, and what came of each."""

from __future__ import annotations

import dataclasses
import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinalign.convert.trial import DivergedError
from twinalign.errors import ExitCode, InputError, SideCrashError
from twinalign.judging import run
from twinalign.runner import RunSettings
from twinalign.verdict.results import ALIGNED, DIVERGED, INCONCLUSIVE
from twinalign.zoo.architectures import chosen, installed

if TYPE_CHECKING:
    from twinalign.judging import RunResult

CASE = "twinalign.zoo.case:Architecture"
CRASHED = "crashed"
_EXIT_CODES = {
    CRASHED: ExitCode.SIDE_CRASHED,
    DIVERGED: ExitCode.DIVERGED,
    INCONCLUSIVE: ExitCode.INCONCLUSIVE,
    ALIGNED: ExitCode.ALIGNED,
}


@dataclasses.dataclass
class Outcome:
    """One architecture.

    Attributes:
        name: torchvision's.
        verdict: aligned, diverged (the two libraries' networks are not the same), inconclusive or crashed.
        matched: how many keys found their partner how: `name`, `order` or `trial`.
        float64: the greatest relative difference of the outputs in float64, None where the weights do not fit.
        noise: of float32, in units of the reference's own rounding.
        explanation: what differs, in words, where the two differ.
        seconds: that it took.
    """

    name: str
    verdict: str
    matched: dict[str, int] = dataclasses.field(default_factory=dict)
    float64: float | None = None
    noise: float | None = None
    explanation: str = ""
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """As plain containers."""
        return dataclasses.asdict(self)


@dataclasses.dataclass
class ZooResult:
    """All architectures that were asked for."""

    outcomes: list[Outcome] = dataclasses.field(default_factory=list)

    @property
    def counts(self) -> dict[str, int]:
        """How many have each verdict."""
        found = Counter(outcome.verdict for outcome in self.outcomes)
        return {verdict: found[verdict] for verdict in (ALIGNED, DIVERGED, INCONCLUSIVE, CRASHED) if found[verdict]}

    @property
    def exit_code(self) -> ExitCode:
        """Of the gravest verdict: crashed, diverged, inconclusive, aligned."""
        return next((code for verdict, code in _EXIT_CODES.items() if verdict in self.counts), ExitCode.ALIGNED)

    def to_json(self) -> dict[str, Any]:
        """In the form of `zoo --json`."""
        return {"counts": self.counts, "architectures": [outcome.to_json() for outcome in self.outcomes]}

    def _repr_html_(self) -> str:
        from twinalign.notebook import as_html
        from twinalign.zoo.tables import print_zoo

        return as_html(lambda console: print_zoo(self, console))


def run_zoo(
    names: Sequence[str] = (),
    *,
    out: Path = Path("result/zoo"),
    size: int = 224,
    device: str = "cpu",
    pythons: Mapping[str, str | None] | None = None,
    progress: Callable[[str, str], None] = lambda side, text: None,
    on_outcome: Callable[[Outcome], None] = lambda outcome: None,
) -> ZooResult:
    """Align every architecture that is named, or all that both libraries have.

    Args:
        names: torchvision's names.
        out: a folder an architecture; what has not changed there is not recorded again.
        size: edge of the images.
        device: `"cpu"` or `"gpu"`.
        pythons: side → interpreter that has its library.
        progress: told what each side is doing.
        on_outcome: told of each architecture when it is done.

    Raises:
        InputError: an unknown name, or an interpreter without its library.
    """
    pythons = pythons or {}
    result = ZooResult()
    for name in chosen(names, installed(pythons)):
        options = {"name": name, "size": str(size)}
        asked = RunSettings(
            case=CASE, out=out / name, stages=("forward",), device=device, pythons=pythons, options=options
        )
        outcome = _outcome(name, asked, lambda side, text, name=name: progress(side, f"{name}: {text}"))  # type: ignore[misc]
        result.outcomes.append(outcome)
        on_outcome(outcome)
    return result


def _outcome(name: str, asked: RunSettings, progress: Callable[[str, str], None]) -> Outcome:
    started = time.perf_counter()
    try:
        outcome = _of_run(name, run(asked, progress), asked.out)
    except (DivergedError, InputError) as error:  # the weights of the one do not fit the other
        outcome = Outcome(name, DIVERGED, explanation=str(error))
    except SideCrashError as error:
        outcome = Outcome(name, CRASHED, explanation=str(error))
    finally:
        # Hundreds of megabytes an architecture; the ledger and the recordings are what is read again.
        for path in (asked.out / "weights").glob("*.npz"):
            path.unlink()
        shutil.rmtree(asked.out / "locate", ignore_errors=True)
    outcome.seconds = round(time.perf_counter() - started, 1)
    return outcome


def _of_run(name: str, result: RunResult, out: Path) -> Outcome:
    tensors = result.stages["forward"].tensors
    float64 = [tensor.fp64_rel for tensor in tensors if tensor.fp64_rel is not None]
    noise = [tensor.noise_ratio for tensor in tensors if tensor.noise_ratio is not None]
    ledger = json.loads((out / "weights" / f"{name}_ledger.json").read_text(encoding="utf-8"))
    said = (
        [tensor.reason for tensor in tensors if tensor.verdict == result.verdict] if result.verdict != ALIGNED else []
    )
    for fault in result.located.faults if result.located else ():
        cause = fault.explanation.text if fault.explanation else "unexplained"
        said.append(f"{fault.paddle_layer or 'the model itself'} ({fault.phase}): {cause}")
    return Outcome(
        name,
        result.verdict,
        dict(Counter(entry["matched_by"] for entry in ledger["entries"] if entry["target"] and entry["matched_by"])),
        max(float64, default=None),
        max(noise, default=None),
        "; ".join(said),
    )
