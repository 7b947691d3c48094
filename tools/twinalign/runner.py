"""`twinalign run`: record both sides of a case, stage by stage, and compare.

One process a framework; the two work at the same time where memory allows. Recordings that still stand for the code,
data and packages that made them are reused.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import difflib
import queue
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.case import STAGES, resolve_case
from twinalign.convert.options import Options
from twinalign.errors import InputError, SideCrashError
from twinalign.freshness import interpreter_versions, is_fresh
from twinalign.halves import HALVES, no_kernels
from twinalign.jobs import SIDES as SIDES
from twinalign.jobs import Job as Job
from twinalign.jobs import RunSettings as RunSettings
from twinalign.jobs import WeightFiles as WeightFiles
from twinalign.jobs import chosen_stages, recorded_identity, recorded_precisions, require_file_names
from twinalign.machine import available_memory, processors, require_writable
from twinalign.ranks.recordings import is_ranked, join_ranks
from twinalign.recorder.group import RecorderGroup
from twinalign.recorder.process import RecorderProcess
from twinalign.recording import Recording, metadata_path, read_metadata, write_json
from twinalign.stages import STAGE_BY_NAME
from twinalign.starting_weights import convert_weights

_MEMORY_FOR_BOTH = 8 << 30
Plan = Mapping[str, Any]


class Recorder:
    """Makes the recordings of a run and yields each stage as soon as both sides have it."""

    def __init__(self, settings: RunSettings, progress: Callable[[str, str], None] = lambda side, text: None) -> None:
        """Check the settings; raises InputError on an unknown case or stage, or an unwritable output folder."""
        self.settings = settings
        self.progress = progress
        self.resolved = resolve_case(settings.case)
        unknown = [stage for stage in settings.stages if stage not in STAGES]
        if unknown:
            close = difflib.get_close_matches(unknown[0], STAGES, 1)
            meant = f"did you mean {close[0]}? " if close else ""
            raise InputError(f"--stages {unknown[0]}: unknown stage; {meant}the stages are {', '.join(STAGES)}")
        if settings.ranks < 1:
            raise InputError(f"--ranks {settings.ranks}: give the number of processes a side, 1 or more")
        self.out = settings.out
        require_writable(self.out)
        self.identity = {
            side: {
                "case": self.resolved,
                "options": dict(settings.options),
                "device": settings.device,
                "interpreter": interpreter_versions(settings.pythons.get(side) or sys.executable, side),
            }
            for side in SIDES
        }
        self.description: dict[str, Any] = {}
        self.points: Callable[[str, Mapping[str, Any]], None] = lambda side, event: None
        """Told the newest points of a training's curves while it goes on."""
        self.processes: dict[str, RecorderProcess] = {}
        """The recorder process of each side, while it runs."""
        self.without_float64: dict[tuple[str, str], str] = {}
        """(side, stage) -> why its float64 recording could not be made; float32 alone is judged there."""
        self.groups: dict[str, RecorderGroup] = {}
        """The processes of each side that record together, while they run."""
        self._concurrent = True
        self._heavy = threading.Lock()

    def recording_path(self, side: str, stage: str, dtype: str) -> Path:
        """Where a recording lies: the field's names in `out`, float64 partners under `out/float64`."""
        folder = self.out if dtype == "float32" else self.out / dtype
        return folder / f"{STAGE_BY_NAME[stage].file_stem}_{side}.npy"

    def usual_kernels_path(self, stage: str) -> Path:
        """Where the port lies once more, by paddle's usual kernels, if the accuracy-compatible ones were asked for."""
        return self.out / "usual_kernels" / f"{STAGE_BY_NAME[stage].file_stem}_paddle.npy"

    def repeat_path(self, stage: str) -> Path:
        """Where the reference lies once more, from values moved by one unit in the last place, if float64 failed."""
        return self.out / "repeat" / f"{STAGE_BY_NAME[stage].file_stem}_ref.npy"

    def record(self, sides: Sequence[str] = SIDES) -> Iterator[str]:
        """Record what is missing or stale; yields the name of each stage once all its recordings are there."""
        self.description = self._known_description()
        # What is known of the case stands as long as every recording made with it does.
        if (
            set(self.settings.stages) <= set(self.description.get("stages", ()))
            and self._jobs(sides)
            and not self._stale_jobs(sides)
        ):
            yield from self._stages()
            return
        with self.started(sides):
            stale = self._stale_jobs(sides)
            weights = self._initialise(sides, stale)
            stale = self._stale_jobs(sides, weights)
            yield from self._work_off(stale, weights, sides)

    @contextlib.contextmanager
    def started(self, sides: Sequence[str] = SIDES) -> Iterator[Mapping[str, RecorderProcess]]:
        """Keep the processes up inside the block; yields them by side."""
        try:
            self._start(sides)
            yield self.processes
        finally:
            self._close()

    @contextlib.contextmanager
    def running(self, sides: Sequence[str] = SIDES) -> Iterator[dict[str, dict[str, Any]]]:
        """Keep the processes up inside the block, for what records the same sides again and again.

        Yields:
            part -> what each side's recorder is given of its weights, for every part of the chosen stages.
        """
        with self.started(sides):
            yield self._initialise(sides, self._jobs(sides))

    def make(self, job: Job, weights: Mapping[str, Any], moved: bool = False, plan: Plan | None = None) -> None:
        """Let the running process of a side, or its ranks together, make one recording."""
        ranked = is_ranked(job.stage, self.settings.ranks)
        process = self.group(job.side) if ranked else self.processes[job.side]
        with join_ranks(job.path, self.settings.ranks) if ranked else contextlib.nullcontext():
            answer = process.request(
                "record",
                stage=job.stage,
                dtype=job.dtype,
                path=str(job.path),
                weights=weights.get(self.description["parts"][job.stage], {}).get(job.side, {}),
                identity=self._identity_of(job),
                rounded_to=self._half,
                compatible=job.compatible,
                moved=moved,
                plan=dict(self.settings.plan if plan is None else plan),
            )
        self.progress(job.side, f"{job.stage} {job.dtype}: recorded")
        if answer.get("casts_to_float32") and self.settings.precision != "float64":
            self._repeat(job, weights)

    def group(self, side: str) -> RecorderGroup:
        """The processes of a side that record together, started when they are first wanted."""
        if side not in self.groups or not self.groups[side].alive:
            self.processes[side].request("release")
            self.progress(side, f"starting {self.settings.ranks} ranks")
            self.groups[side] = RecorderGroup(
                side,
                self.settings.ranks,
                device=self.settings.device,
                python=self.settings.pythons.get(side),
                log=self.out / "log" / f"ranks_{side}.log",
                threads=max(1, processors() // self.settings.ranks // (len(self.processes) if self._concurrent else 1)),
                debug=self.settings.debug,
                progress=self.progress,
            )
            self.groups[side].request("start", **self._start_request(side))
        return self.groups[side]

    def _start_request(self, side: str) -> dict[str, Any]:
        options = dict(self.settings.options)
        return {"side": side, "device": self.settings.device, "case": self.resolved, "options": options}

    def fresh_arrays(self, side: str, stage: str) -> dict[str, np.ndarray]:
        """Arrays of a recording that still stands for code and data; empty where there is none."""
        job = Job(side, stage, dtype := self.dtypes_of(stage)[0], self.recording_path(side, stage, dtype))
        return Recording.load(job.path).arrays if is_fresh(read_metadata(job.path), self._identity_of(job)) else {}

    def _stages(self) -> list[str]:
        return chosen_stages(self.settings, self.description)

    def dtypes_of(self, stage: str) -> list[str]:
        """The precisions in which a stage is recorded."""
        return recorded_precisions(stage, self.settings.precision, self.description["float64_train_steps"])

    @property
    def _half(self) -> str | None:
        """The half precision that is judged, None where it is none."""
        return self.settings.precision if self.settings.precision in HALVES else None

    def _jobs(self, sides: Sequence[str]) -> list[Job]:
        # float64 jobs come last in a stage: the model object is rebuilt only when the precision changes.
        jobs = [
            Job(side, stage, dtype, self.recording_path(side, stage, dtype), self._compatible(side, stage))
            for stage in self._stages()
            for dtype in self.dtypes_of(stage)
            for side in sides
        ]
        again = [stage for stage in self._stages() if "paddle" in sides and self._compatible("paddle", stage)]
        return jobs + [
            Job("paddle", stage, self.dtypes_of(stage)[0], self.usual_kernels_path(stage)) for stage in again
        ]

    def _compatible(self, side: str, stage: str) -> bool:
        return self.settings.accuracy_compatible and side == "paddle" and STAGE_BY_NAME[stage].needs_model

    def _identity_of(self, job: Job) -> dict[str, Any]:
        asked = {
            "precision": self.settings.precision,
            "accuracy_compatible": job.compatible,
            "ranks": self.settings.ranks,
        }
        found = recorded_identity(self.identity, job.side, job.stage, asked)
        return found | ({"plan": dict(self.settings.plan)} if self.settings.plan and job.stage == "train" else {})

    def _stale_jobs(self, sides: Sequence[str], weights: Mapping[str, Mapping[str, Any]] | None = None) -> list[Job]:
        stale = []
        for job in self._jobs(sides):
            metadata = {} if self.settings.fresh else read_metadata(job.path)
            part = self.description["parts"][job.stage]
            other_weights = weights and part in weights and metadata.get("weights_sha256") != weights[part]["sha256"]
            if not is_fresh(metadata, self._identity_of(job)) or (
                other_weights and STAGE_BY_NAME[job.stage].needs_model
            ):
                stale.append(job)
        return stale

    def _known_description(self) -> dict[str, Any]:
        known = read_metadata(self.out / "case")
        return known.get("description", {}) if known.get("identity") == self.identity else {"stages": []}

    def _start(self, sides: Sequence[str]) -> None:
        self._concurrent = not self.settings.sequential and available_memory() >= _MEMORY_FOR_BOTH
        threads = max(1, processors() // len(sides)) if self._concurrent else None
        for side in sides:
            self.processes[side] = RecorderProcess(
                side,
                python=self.settings.pythons.get(side),
                log=self.out / "log" / f"recorder_{side}.log",
                threads=threads,
                debug=self.settings.debug,
                progress=self.progress,
                points=self.points,
            )
        described = self._on_each(sides, "start", self._start_request)
        self.description = described[sides[0]]
        require_file_names(self.resolved, self.description["parts"].values())
        write_json(self.out / "case.json", {"identity": self.identity, "description": self.description})
        self.progress("both", "preparing")
        self.processes[sides[0]].request("prepare")

    def _on_each(
        self, sides: Sequence[str], operation: str, values: Callable[[str], Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Send one request to each side at the same time; the first failure ends all.

        Models that are recorded one after the other for want of memory are built so, too.
        """
        together = self._concurrent or operation == "start"
        with concurrent.futures.ThreadPoolExecutor(len(sides) if together else 1) as pool:
            futures = {side: pool.submit(self.processes[side].request, operation, **values(side)) for side in sides}
            with self._closing_on_error():
                concurrent.futures.wait(futures.values(), return_when=concurrent.futures.FIRST_EXCEPTION)
                for future in [f for f in futures.values() if f.done()]:
                    future.result()
            return {side: future.result() for side, future in futures.items()}

    @contextlib.contextmanager
    def _closing_on_error(self) -> Iterator[None]:
        # Closing the processes ends the requests that the other threads wait for.
        try:
            yield
        except BaseException:
            self._close()
            raise

    def _close(self) -> None:
        for group in self.groups.values():
            group.close()
        for process in self.processes.values():
            process.close()

    def _initialise(self, sides: Sequence[str], stale: Sequence[Job]) -> dict[str, dict[str, Any]]:
        """Make the weights of every part that a stale job needs: on the reference side, converted for the other.

        Returns:
            part -> what each side's recorder is given, and `sha256`, the hash of the reference's weights.
        """
        stage_of_part = {
            self.description["parts"][job.stage]: job.stage for job in stale if STAGE_BY_NAME[job.stage].needs_model
        }
        made = {}
        for part, stage in stage_of_part.items():
            self.progress("both", f"weights of {part}")
            files = {side: WeightFiles.of(self.out / "weights", part, side) for side in SIDES}
            asked = {"stage": stage, "rounded_to": self._half}
            self._on_each(sides, "initialise", lambda side: {**asked, **files[side].request()})  # noqa: B023
            made[part] = convert_weights(
                self.out / "weights" / f"{part}_ledger.json",
                files,
                Options(
                    remedy="Make the port's layers those of the reference",
                    factories={side: self._factory(side, stage) for side in SIDES},
                    pythons=self.settings.pythons,
                    rename=self.description["rename"].get(part, {}),
                    rules=self.description.get("rules", ()),
                ),
                for_paddle="paddle" in sides,
            )
        return made

    def _factory(self, side: str, stage: str) -> str:
        """How a process of the converter builds the model of a side."""
        arguments = {"reference": self.resolved, "side": side, "stage": stage, "options": dict(self.settings.options)}
        return f"twinalign.case:case_model({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"

    def _work_off(self, stale: Sequence[Job], weights: Mapping[str, Any], sides: Sequence[str]) -> Iterator[str]:
        """Let the sides record, and yield each stage once nothing of it is missing."""
        done: queue.SimpleQueue[Job | BaseException] = queue.SimpleQueue()
        threads = [
            threading.Thread(target=self._record_all, args=(jobs, weights, done), daemon=True)
            for jobs in self._queues(stale, sides)
        ]
        with self._closing_on_error():
            for thread in threads:
                thread.start()
            missing = {stage: {job for job in stale if job.stage == stage} for stage in self._stages()}
            while True:
                for stage in [stage for stage, jobs in missing.items() if not jobs]:
                    del missing[stage]
                    yield stage
                if not missing:
                    return
                finished = done.get()
                if isinstance(finished, BaseException):
                    raise finished
                missing[finished.stage].discard(finished)

    def _queues(self, stale: Sequence[Job], sides: Sequence[str]) -> list[list[Job]]:
        """Jobs for each thread: a side a thread, or one thread where both sides do not fit into memory together."""
        # The jobs of one model in one precision follow each other, so that it is built once. The sides take the models
        # in opposite order: a large one then fills the memory of one process at a time.
        parts = list(dict.fromkeys(self.description["parts"].values()))

        def order(job: Job) -> tuple[bool, int, str]:
            place = parts.index(self.description["parts"][job.stage])
            return STAGE_BY_NAME[job.stage].needs_model, place if job.side == sides[0] else -place, job.dtype

        by_side = [sorted((job for job in stale if job.side == side), key=order) for side in sides]
        return by_side if self._concurrent else [[job for jobs in by_side for job in jobs]]

    def _record_all(self, jobs: Sequence[Job], weights: Mapping[str, Any], done: queue.SimpleQueue) -> None:
        for before, job in zip([None, *jobs], jobs, strict=False):
            if before is not None and before.side != job.side:  # one side after the other, for models that fill memory
                self.processes[before.side].request("release")
                if before.side in self.groups:
                    self.groups[before.side].close()
            # Gradients and optimizer state in float64 are what takes the most: never on both sides at once.
            heavy = job.stage == "backward" and job.dtype == "float64"
            try:
                with self._heavy if heavy else contextlib.nullcontext():
                    try:
                        self.make(job, weights)
                    except SideCrashError as error:
                        if job.dtype in HALVES and self.settings.device == "cpu" and self.processes[job.side].alive:
                            raise no_kernels(job.dtype, error) from None
                        if not self._can_do_without(job):
                            raise
                        self._do_without(job, weights, error)
            except BaseException as error:
                done.put(error)
                return
            done.put(job)

    def _can_do_without(self, job: Job) -> bool:
        """Whether the user's code raised in float64 after float32 went well: then the model does not work there."""
        ranked = is_ranked(job.stage, self.settings.ranks)
        raised = self.groups[job.side].raised if ranked else self.processes[job.side].alive
        return job.dtype == "float64" != self.settings.precision and raised

    def _do_without(self, job: Job, weights: Mapping[str, Any], error: SideCrashError) -> None:
        for path in (job.path, metadata_path(job.path)):
            path.unlink(missing_ok=True)
        self.without_float64[job.side, job.stage] = str(error)
        self.progress(job.side, f"{job.stage}: no float64, float32 is judged alone")
        if job.side == "ref":
            self._repeat(job, weights)

    def _repeat(self, job: Job, weights: Mapping[str, Any]) -> None:
        """Let the reference run in the judged precision from moved values: how far that moves it measures rounding."""
        if job.stage == "train":  # it has a repeat of its own
            return
        judged = self.dtypes_of(job.stage)[0]
        self.make(dataclasses.replace(job, dtype=judged, path=self.repeat_path(job.stage)), weights, moved=True)
