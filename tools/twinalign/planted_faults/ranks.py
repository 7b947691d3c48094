"""The selftest of several ranks: plant each of their faults and see whether it is detected, located and explained."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from twinalign.errors import InputError, SideCrashError
from twinalign.planted_faults.rank_faults import RankFault, plant, rank_faults
from twinalign.planted_faults.selftest import Recorded, Selftest, SelftestResult, Trial, differ, diverges, record, tidy
from twinalign.recorder.recorder import Recorder, RunSettings
from twinalign.search.ranks import RankSearch
from twinalign.sides import SIDES

_STAGES = ("loss", "backward")


def selftest_of(
    settings: RunSettings, faults: Sequence[str], locate: bool, progress: Callable[[str, str], None]
) -> Selftest | RankSelftest:
    """The selftest that is asked for: of one process a side, or of several."""
    kind = RankSelftest if settings.ranks > 1 else Selftest
    return kind(settings, faults, locate, progress=progress)


class RankSelftest:
    """Plants faults into the port's ranks, one at a time; both sides' processes are started once for all of them.

    All faults are planted by default, and located and explained with `locate`. Raises InputError if there is no such
    case or fault, or the case has no loss.
    """

    def __init__(
        self,
        settings: RunSettings,
        faults: Sequence[str] = (),
        locate: bool = True,
        progress: Callable[[str, str], None] = lambda side, text: None,
    ) -> None:
        unknown = [fault for fault in faults if fault not in rank_faults()]
        if unknown:
            raise InputError(f"--faults {unknown[0]}: no such fault of ranks; there are {', '.join(rank_faults())}")
        self._recorder = Recorder(settings, progress)
        self._faults = [fault for fault in rank_faults().values() if not faults or fault.id in faults]
        self._locate, self._progress = locate, progress
        self._clean: dict[str, Recorded] = {}
        self._weights: Mapping[str, Mapping[str, Any]] = {}

    def places(self) -> dict[str, str]:
        """Where each of the faults would go; records nothing."""
        return {fault.id: f"ranks.{fault.part}" for fault in self._faults}

    def run(self) -> SelftestResult:
        """Make every trial; raises SideCrashError if a process died, or the case's own code raises without a fault."""
        started = time.perf_counter()
        with self._recorder.running() as self._weights:
            offered = self._recorder.description["stages"]
            stages = [stage for stage in _STAGES if stage in offered]
            if not stages:
                raise InputError("--ranks: the case has no loss(), so its ranks exchange nothing")
            result = SelftestResult(self._recorder.description["name"])
            faults = [fault for fault in self._faults if fault.stage in stages]
            result.left_out = [fault.id for fault in self._faults if fault not in faults]
            search = RankSearch(self._recorder, self._weights, self._progress)
            for stage in stages:
                sides = [record(self._recorder, self._weights, side, stage) for side in SIDES]
                self._clean[stage] = {**sides[0], **sides[1]}
            result.alarms = [stage for stage in stages if self._diverges(stage, {})]
            if self._locate and (alarm := search.search()) is not None:
                result.alarms.append(alarm.paddle_layer)
            for number, fault in enumerate(faults, start=1):
                self._progress("both", f"fault {number} of {len(faults)}: {fault.id}")
                result.trials.append(self._try(fault, stages, search))
        result.seconds = time.perf_counter() - started
        return result

    def _try(self, fault: RankFault, stages: Sequence[str], search: RankSearch) -> Trial:
        started = time.perf_counter()
        place = f"ranks.{fault.part}"
        trial = Trial(fault.id, "ranks", fault.text, place, place, fault.stage)
        try:
            self._plant(fault.id, fault.stage)
            for stage in stages[: stages.index(fault.stage) + 1]:
                recorded = record(self._recorder, self._weights, "paddle", stage, f"planted/{fault.id}")
                trial.changed |= any(differ(self._clean[stage][key], port) for key, port in recorded.items())
                if trial.flagged is None and self._diverges(stage, recorded):
                    trial.flagged = stage
            if self._locate and trial.changed:
                found = search.search()
                if found is not None:
                    trial.note(found)
                    trial.right_place = found.paddle_layer == place
                    trial.right_cause = trial.right_place and trial.named[0]["cause"] == fault.cause
                    trial.extra = [] if trial.right_place else [found.paddle_layer]
        except (SideCrashError, InputError) as error:
            trial.error = str(error)
        self._plant("", fault.stage)
        tidy(self._recorder)
        trial.seconds = round(time.perf_counter() - started, 2)
        return trial

    def _plant(self, fault: str, stage: str) -> None:
        self._recorder.group("paddle").call(plant, fault=fault, stage=stage)

    def _diverges(self, stage: str, port: Recorded) -> bool:
        """Whether a stage diverges with these recordings of the port in place of those without a fault."""
        return diverges(self._recorder, stage, {**self._clean[stage], **port})
