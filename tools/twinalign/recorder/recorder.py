"""Make the recordings of a run: both sides of a case, stage by stage.

Each framework has one process. Recordings that are up to date with code, data and packages are reused.
"""

import concurrent.futures
import contextlib
import dataclasses
import functools
import queue
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from twinalign.conversion.initial_weights import WeightFiles as WeightFiles
from twinalign.conversion.initial_weights import convert_weights
from twinalign.conversion.remote_model import RememberedModel, RememberedRuns, RemoteModel
from twinalign.errors import InputError, SideCrashError
from twinalign.files.half_precision import no_kernels
from twinalign.files.rank_recordings import is_ranked, join_ranks
from twinalign.files.recordings import metadata_path
from twinalign.files.writer import clear_abandoned
from twinalign.processes.guardian import temporary_folder
from twinalign.processes.machine import available_memory, processors
from twinalign.processes.rank_group import RankGroup
from twinalign.processes.side_process import SideProcess
from twinalign.recorder.constant_buffers import settle_constants
from twinalign.recorder.held_folder import held_folder
from twinalign.recorder.kept_processes import KeptProcesses
from twinalign.recorder.no_float64 import why_no_float64
from twinalign.recorder.recording_plan import PlannedRecording as PlannedRecording
from twinalign.recorder.recording_plan import RecordingPlan
from twinalign.recorder.refused_inputs import is_of_call, refused_inputs
from twinalign.recorder.run_settings import RunSettings as RunSettings
from twinalign.recorder.served_sources import serving
from twinalign.recorder.worker import RankWorker, Worker
from twinalign.sides import HALVES, INITIAL, SIDES
from twinalign.stages import STAGE_BY_NAME

_MEMORY_FOR_BOTH = 8 << 30
Plan = Mapping[str, Any]
Outcome = tuple[PlannedRecording, BaseException | None]
"""A recording that is finished, or the error that ended it."""


class Recorder(RecordingPlan):
    """Makes the recordings of a run and yields each stage as soon as both sides have it."""

    def __init__(
        self,
        settings: RunSettings,
        progress: Callable[[str, str], None] = lambda side, text: None,
        kept: KeptProcesses | None = None,
    ) -> None:
        """Check the settings as `RecordingPlan` does; `kept`: lends the processes, which else live for one run."""
        super().__init__(settings, kept.versions if kept else None)
        self.progress = progress
        # On a GPU an import may already have opened the device, which no fork can use.
        self._start_process = SideProcess if kept is None or settings.device != "cpu" else kept.start
        self._trials: dict[tuple[str, str], RememberedRuns] = {} if kept is None else kept.trials
        self.points: Callable[[str, Mapping[str, Any]], None] = lambda side, event: None
        """Told the newest points of a training's curves while it goes on."""
        self.processes: dict[str, SideProcess] = {}
        """The recorder process of each side, while it runs."""
        self.without_float64: dict[tuple[str, str], str] = {}
        """(side, stage) -> why its float64 recording could not be made; float32 alone is judged there."""
        self.groups: dict[str, RankGroup] = {}
        """The processes of each side that record together, while they run."""
        self._concurrent = True
        self._ended: set[str] = set()
        self._heavy = threading.Lock()

    def record(self, sides: Sequence[str] = SIDES) -> Iterator[str]:
        """Record what is missing or stale; yields the name of each stage once it has all its recordings."""
        with held_folder(self.out):
            yield from self._recorded(sides)

    def _recorded(self, sides: Sequence[str]) -> Iterator[str]:
        self.description = self._known_description()
        # What is known of the case stands as long as every recording made with it does.
        known = {INITIAL, *self.settings.stages} <= set(self.description.get("parts", ()))
        if known and self._planned(sides) and not self._stale(sides):
            yield from self._stages()
            return
        with self.started(sides):
            # Stages without a model come first: their verdicts need not wait until models are built and converted.
            with_model = [stage for stage in self._stages() if STAGE_BY_NAME[stage].needs_model]
            without = [stage for stage in self._stages() if stage not in with_model]
            stale = self._stale(sides)
            yield from self._work_off(without, [one for one in stale if one.stage in without], {}, sides)
            weights = self._initialise(sides, stale, stale)
            stale = [one for one in self._stale(sides, weights) if one.stage in with_model]
            yield from self._work_off(with_model, stale, weights, sides, last=True)
        self.settings = dataclasses.replace(self.settings, fresh=False)  # what is there now has been made anew

    @contextlib.contextmanager
    def started(self, sides: Sequence[str] = SIDES) -> Iterator[Mapping[str, SideProcess]]:
        """Keep the processes alive inside the block; yields them by side."""
        with held_folder(self.out):
            try:
                self._start(sides)
                yield self.processes
            finally:
                self._close()

    @contextlib.contextmanager
    def running(
        self, sides: Sequence[str] = SIDES, wanted: Sequence[PlannedRecording] | None = None
    ) -> Iterator[dict[str, dict[str, Any]]]:
        """Keep the processes alive inside the block, to record the same sides, or what is wanted, repeatedly.

        Yields:
            part -> what each side's recorder is given of its weights, for every part of the chosen stages.
        """
        with self.started(sides):
            yield self._initialise(sides, self._planned(sides) if wanted is None else wanted, self._stale(sides))

    def make(
        self, one: PlannedRecording, weights: Mapping[str, Any], repeat: int = 0, plan: Plan | None = None
    ) -> None:
        """Let a side's running process, or its ranks together, make one recording; an older repeat beside it goes."""
        if not repeat and one.dtype != "float64" and one.path == self.recording_path("ref", one.stage, one.dtype):
            metadata_path(self.repeat_path(one.stage)).unlink(missing_ok=True)
        ranked = is_ranked(one.stage, self.settings.ranks)
        process = self.group(one.side) if ranked else self.processes[one.side]
        with join_ranks(one.path, self.settings.ranks) if ranked else contextlib.nullcontext():
            answers = process.call(
                Worker.record,
                stage=one.stage,
                dtype=one.dtype,
                path=str(one.path),
                weights=weights.get(self.description["parts"][one.stage], {}).get(one.side, {}),
                identity=self._identity_of(one),
                rounded_to=self._half,
                compatible=one.compatible,
                repeat=repeat,
                built_in_float64=one.built_in_float64,
                plan=dict({**self.settings.plan, **self.steps_of_other(one)} if plan is None else plan),
            )
        self.progress(one.side, f"{one.stage} {one.dtype}: recorded")
        answer = answers[0] if isinstance(answers, list) else answers
        if not repeat and (self.is_repeated(one) or answer.get("casts_to_float32")):
            self._repeat(one, weights)

    def group(self, side: str) -> RankGroup:
        """The processes of a side that record together, started on first use."""
        if side not in self.groups or not self.groups[side].alive:
            self.processes[side].call(Worker.release)
            self.progress(side, f"starting {self.settings.ranks} ranks")
            self.groups[side] = RankGroup(
                side,
                self.settings.ranks,
                device=self.settings.device,
                python=self.settings.pythons.get(side),
                log=self.out / "log" / f"ranks_{side}.log",
                threads=max(1, processors() // self.settings.ranks // (len(self.processes) if self._concurrent else 1)),
                debug=self.settings.debug,
                progress=self.progress,
            )
            self.groups[side].start(RankWorker, **self._worker_settings())
        return self.groups[side]

    def _worker_settings(self) -> dict[str, Any]:
        return {
            "device": self.settings.device,
            "case": self.resolved,
            "options": dict(self.settings.options),
            "sources": dict(self.settings.sources),
        }

    def _start(self, sides: Sequence[str]) -> None:
        self._concurrent = not self.settings.sequential and available_memory() >= _MEMORY_FOR_BOTH
        threads = max(1, processors() // len(sides)) if self._concurrent else None
        self._ended.clear()
        for side in sides:
            self.processes[side] = self._start_process(
                side,
                python=self.settings.pythons.get(side),
                log=self.out / "log" / f"recorder_{side}.log",
                threads=threads,
                debug=self.settings.debug,
                progress=self.progress,
                points=self.points,
            )
        described = self._on_each(sides, self._start_worker, together=True)
        self._keep_description(described[sides[0]])
        self.progress("both", "preparing")
        self.processes[sides[0]].call(Worker.prepare)

    def _start_worker(self, process: SideProcess) -> dict[str, Any]:
        process.start(Worker, **self._worker_settings())
        return process.call(Worker.describe)

    def _on_each(
        self, sides: Sequence[str], ask: Callable[[SideProcess], dict[str, Any]], together: bool
    ) -> dict[str, dict[str, Any]]:
        """Ask each side's process, at the same time or, without memory for both, one by one; a failure ends all."""
        # The pool waits for its threads, so the processes must be closed before: also if Ctrl-C comes while they start.
        with concurrent.futures.ThreadPoolExecutor(len(sides) if together else 1) as pool, self.closing_on_error():
            futures = {side: pool.submit(ask, self.processes[side]) for side in sides}
            concurrent.futures.wait(futures.values(), return_when=concurrent.futures.FIRST_EXCEPTION)
            for future in filter(concurrent.futures.Future.done, futures.values()):
                future.result()
            return {side: future.result() for side, future in futures.items()}

    @contextlib.contextmanager
    def closing_on_error(self, threads: Sequence[threading.Thread] = ()) -> Iterator[None]:
        """Close the processes if the block fails: a request that went on could take the next run's answer."""
        try:
            yield
        except BaseException:
            self._close()
            for thread in filter(threading.Thread.is_alive, threads):
                thread.join()
            clear_abandoned(self.out.rglob(".*.part"))  # the other side may have been writing when it was ended
            raise

    def _close(self) -> None:
        for group in self.groups.values():
            group.close()
        for side in self.processes.keys() - self._ended:  # a kept process may be at work for somebody else by now
            self.processes[side].close()

    def _initialise(
        self, sides: Sequence[str], wanted: Sequence[PlannedRecording], stale: Sequence[PlannedRecording]
    ) -> dict[str, dict[str, Any]]:
        """Make the weights of every part that a wanted recording needs: the reference's own, converted for the port.

        Those of the reference with which it was recorded stand: they need not come out the same a second time.

        Returns part -> what each side's recorder is given, and `sha256`, the hash of the reference's weights.
        """
        with_model = [one.stage for one in wanted if STAGE_BY_NAME[one.stage].needs_model]
        stages = [stage for stage in with_model if stage != INITIAL] or with_model
        stage_of_part, made = {self.description["parts"][stage]: stage for stage in stages}, {}
        release = None if self._concurrent else lambda process: process.call(Worker.release)
        for part, stage in reversed(stage_of_part.items()):  # the first is recorded first: its model is there still
            self.progress("both", f"weights of {part}")
            files = {side: WeightFiles.of(self.out / "weights", part, side) for side in SIDES}
            asked = {"stage": stage, "rounded_to": self._half}

            def build(process: SideProcess) -> dict[str, Any]:
                if process.side == "ref" and self._weights_stand(part, files["ref"], stale):  # noqa: B023
                    return {}
                if process.side == "ref":
                    self._trials.pop((self.resolved, part), None)  # noqa: B023
                answer = process.call(Worker.initialise, **asked, **files[process.side].request())  # noqa: B023
                return answer if release is None else release(process)  # the other side needs the memory

            self._on_each(sides, build, together=self._concurrent)
            options, trial = self._conversion_of(part), functools.partial(self._trial_models, part, stage)
            with serving(self.settings.sources):  # rules run in this process as well
                made[part] = convert_weights(self._ledger(part), files, options, trial, for_paddle="paddle" in sides)
            settle_constants({} if self._half else self.processes, stage, files, made[part], release)
        return {part: made[part] for part in stage_of_part}

    @contextlib.contextmanager
    def _trial_models(self, part: str, stage: str) -> Iterator[Mapping[str, RemoteModel]]:
        """Both models for the converter, in the running processes, or in a new one for a side that has none."""
        with contextlib.ExitStack() as held:
            folder = held.enter_context(temporary_folder())
            models: dict[str, RemoteModel] = {}
            for side in SIDES:
                process = self.processes.get(side)
                if process is None or not process.alive:
                    process = held.enter_context(SideProcess(side, python=self.settings.pythons.get(side)))
                    self._start_worker(process)
                # The reference stands until its weights are made anew; of the port nothing is known to stand.
                known = self._trials.setdefault((self.resolved, part), {}) if side == "ref" else {}
                models[side] = RememberedModel(known, side, process, folder, f"of {part}", stage=stage)
            yield models
            for process in [process for process in self.processes.values() if process.alive]:
                process.call(Worker.release)

    def _work_off(
        self,
        stages: Sequence[str],
        stale: Sequence[PlannedRecording],
        weights: Mapping[str, Any],
        sides: Sequence[str],
        last: bool = False,
    ) -> Iterator[str]:
        """Let the sides record what is stale of these stages, the `last` ones or not; yields each that is complete."""
        done: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        threads = [
            threading.Thread(target=self._record_all, args=(wanted, weights, done, last), daemon=True)
            for wanted in self._queues(stale, sides)
        ]
        with self.closing_on_error(threads):
            for thread in threads:
                thread.start()
            missing = {stage: {one for one in stale if one.stage == stage} for stage in stages}
            while True:
                for stage in [stage for stage, wanted in missing.items() if not wanted]:
                    del missing[stage]
                    yield stage
                if not missing:
                    return
                finished, error = done.get()
                if error is not None:
                    raise self._refused_inputs(finished, error, missing[finished.stage], weights, done) or error
                missing[finished.stage].discard(finished)

    def _refused_inputs(
        self,
        one: PlannedRecording,
        error: BaseException,
        missing: Collection[PlannedRecording],
        weights: Mapping[str, Any],
        done: queue.SimpleQueue[Outcome],
    ) -> InputError | None:
        """What to say if neither model can be called with the case's inputs, which is neither side's fault."""
        other = next((it for it in missing if (it.stage, it.dtype) == (one.stage, one.dtype) and it != one), None)
        if other is None or not is_of_call(error, one.stage):
            return None
        reasons = {one.side: error, other.side: self._error_of(other, weights, done)}
        part = self.description["parts"][one.stage]
        return refused_inputs(part, one.stage, WeightFiles.of(self.out / "weights", part, "ref").inputs, reasons)

    def _error_of(
        self, wanted: PlannedRecording, weights: Mapping[str, Any], done: queue.SimpleQueue[Outcome]
    ) -> BaseException | None:
        """The error that ends a recording, which another thread makes if the sides work at the same time."""
        if not self._concurrent:
            try:
                self.make(wanted, weights)
            except SideCrashError as error:
                return error
            return None
        while True:
            finished, failure = done.get()
            if finished == wanted or failure is not None:
                return failure if finished == wanted else None

    def _queues(self, stale: Sequence[PlannedRecording], sides: Sequence[str]) -> list[list[PlannedRecording]]:
        """The recordings of each thread: one thread per side, or a single one if memory does not allow both."""
        by_side = self._in_turn(stale, sides)
        return by_side if self._concurrent else [[one for wanted in by_side for one in wanted]]

    def _record_all(
        self,
        wanted: Sequence[PlannedRecording],
        weights: Mapping[str, Any],
        done: queue.SimpleQueue[Outcome],
        last: bool = False,
    ) -> None:
        for before, one in zip([None, *wanted], wanted, strict=False):
            # One side after the other, for models that fill memory.
            if before is not None and before.side != one.side:
                self._give_way(before.side, last)
            # Gradients and optimizer state in float64 are what takes the most: never on both sides at once.
            heavy = one.stage == "backward" and one.dtype == "float64"
            try:
                with self._heavy if heavy else contextlib.nullcontext():
                    try:
                        self.make(one, weights)
                    except SideCrashError as error:
                        if one.dtype in HALVES and self.settings.device == "cpu" and self.processes[one.side].alive:
                            raise no_kernels(one.dtype, error) from None
                        if not self._can_do_without(one):
                            raise
                        self._do_without(one, weights, error)
                if one is wanted[-1] and self._concurrent:
                    self._give_way(one.side, last)
            except BaseException as error:
                done.put((one, error))
                return
            done.put((one, None))

    def _give_way(self, side: str, for_good: bool) -> None:
        """Leave the memory to the other side: the model's, and where nothing follows that of the framework as well."""
        if side in self.groups:
            self.groups[side].close()
        if for_good:
            self._ended.add(side)
            self.processes[side].close()
        else:
            self.processes[side].call(Worker.release)

    def _can_do_without(self, one: PlannedRecording) -> bool:
        """Whether the user's code raised in float64 after float32 succeeded: then the model has no float64."""
        ranked = is_ranked(one.stage, self.settings.ranks)
        raised = self.groups[one.side].raised if ranked else self.processes[one.side].alive
        return one.dtype == "float64" != self.settings.precision and raised

    def _do_without(self, one: PlannedRecording, weights: Mapping[str, Any], error: SideCrashError) -> None:
        for path in (one.path, metadata_path(one.path)):
            path.unlink(missing_ok=True)
        self.without_float64[one.side, one.stage] = why_no_float64(one.stage, error)
        self.progress(one.side, f"{one.stage}: no float64, only float32 is judged")
        if one.side == "ref":
            self._repeat(one, weights)

    def _repeat(self, one: PlannedRecording, weights: Mapping[str, Any]) -> None:
        """Run the reference once more from moved values in the judged precision, to measure the effect of rounding."""
        if one.stage == "train":  # it has a repeat of its own
            return
        judged = self.dtypes_of(one.stage)[0]
        self.make(dataclasses.replace(one, dtype=judged, path=self.repeat_path(one.stage)), weights, repeat=1)
