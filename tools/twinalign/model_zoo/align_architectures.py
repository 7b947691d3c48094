"""Runs one forward alignment per architecture and collects the outcomes."""

import dataclasses
import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from twinalign.errors import DivergedError, ExitCode, InputError, SideCrashError
from twinalign.model_zoo.architectures import chosen, installed
from twinalign.model_zoo.case import Architecture
from twinalign.notebook import Shown
from twinalign.recorder.recorder import RunSettings
from twinalign.runs.options import case_name
from twinalign.runs.run_result import RunResult
from twinalign.runs.run_stages import run
from twinalign.verdict.results import ALIGNED, DIVERGED, INCONCLUSIVE

CRASHED = "crashed"
_EXIT_CODES = {
    CRASHED: ExitCode.SIDE_CRASHED,
    DIVERGED: ExitCode.DIVERGED,
    INCONCLUSIVE: ExitCode.INCONCLUSIVE,
    ALIGNED: ExitCode.ALIGNED,
}


@dataclasses.dataclass
class Outcome:
    """The outcome for one architecture."""

    name: str
    """In torchvision."""
    verdict: str
    """Aligned, diverged (the two libraries' networks differ), inconclusive or crashed."""
    matched: dict[str, int] = dataclasses.field(default_factory=dict)
    """How many keys were matched by `name`, `order` or `trial`."""
    float64: float | None = None
    """The largest relative difference of the outputs in float64; None if the weights do not fit."""
    noise: float | None = None
    """The float32 error divided by the reference's own rounding error."""
    explanation: str = ""
    """What differs, in words."""
    seconds: float = 0.0


@dataclasses.dataclass(repr=False)
class ZooResult(Shown):
    """The outcomes for all architectures that were asked for."""

    kind = "zoo"

    outcomes: list[Outcome] = dataclasses.field(default_factory=list)

    @property
    def counts(self) -> dict[str, int]:
        """Verdict -> number of architectures."""
        found = Counter(outcome.verdict for outcome in self.outcomes)
        return {verdict: found[verdict] for verdict in (ALIGNED, DIVERGED, INCONCLUSIVE, CRASHED) if found[verdict]}

    @property
    def exit_code(self) -> ExitCode:
        """That of the worst verdict: crashed, diverged, inconclusive, aligned."""
        return next((code for verdict, code in _EXIT_CODES.items() if verdict in self.counts), ExitCode.ALIGNED)

    def to_json(self) -> dict[str, Any]:
        return {"counts": self.counts, "architectures": [dataclasses.asdict(outcome) for outcome in self.outcomes]}


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
    """Align the named architectures, or all that both libraries have.

    Args:
        names: torchvision's names.
        out: holds a folder per architecture; a recording there is reused if nothing has changed.
        size: height and width of the images.
        device: `"cpu"` or `"gpu"`.
        pythons: side → interpreter that has its library; by default this one.
        progress: called with what each side is doing.
        on_outcome: called with each finished architecture.

    Raises:
        InputError: an unknown name, or an interpreter without its library.
    """
    pythons = pythons or {}
    result = ZooResult()
    for name in chosen(names, installed(pythons)):
        asked = RunSettings(
            case=case_name(Architecture),
            out=out / name,
            stages=("forward",),
            device=device,
            pythons=pythons,
            options={"name": name, "size": str(size)},
        )
        outcome = _outcome(name, asked, lambda side, text, name=name: progress(side, f"{name}: {text}"))  # type: ignore[misc]
        result.outcomes.append(outcome)
        on_outcome(outcome)
    return result


def _outcome(name: str, asked: RunSettings, progress: Callable[[str, str], None]) -> Outcome:
    started = time.perf_counter()
    try:
        outcome = _of_run(name, run(asked, progress), asked.out)
    except (DivergedError, InputError) as error:  # the weights do not fit the port's model
        outcome = Outcome(name, DIVERGED, explanation=str(error))
    except SideCrashError as error:
        outcome = Outcome(name, CRASHED, explanation=str(error))
    finally:
        # Hundreds of megabytes per architecture; only the ledger and the recordings are read again.
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
    said = [tensor.reason for tensor in tensors if tensor.verdict == result.verdict != ALIGNED]
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
