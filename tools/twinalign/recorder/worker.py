"""The state of a recorder process (framework, case, last model), and the functions that make the recordings."""

import contextlib
import datetime
import functools
import resource
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from twinalign.backends import backend_of_side
from twinalign.backends.layer_classes import full_name, layer_classes
from twinalign.case.definition import Case, stages_of
from twinalign.case.loading import load_case
from twinalign.case.moved_values import moved_values
from twinalign.conversion.canonical_names import CanonicalNames
from twinalign.conversion.model_factory import load_rules
from twinalign.conversion.trial_model import TrialModel
from twinalign.errors import InputError
from twinalign.files.freshness import hash_paths
from twinalign.files.half_precision import rounded
from twinalign.files.rank_recordings import rank_path
from twinalign.files.reader import read_arrays
from twinalign.files.recordings import save_npz, write_json
from twinalign.processes import tracebacks
from twinalign.processes.machine import give_back_memory
from twinalign.processes.serving import imported_for_good
from twinalign.processes.side_process import doing
from twinalign.recorder.plain_attributes import PlainAttributes
from twinalign.recorder.provenance import code_hashes, environment
from twinalign.recorder.served_sources import serve_sources
from twinalign.recorder.tables_without_partner import exact_tables, take_tables
from twinalign.sides import FRAMEWORK_OF_SIDE, INITIAL
from twinalign.stages import STAGE_BY_NAME
from twinalign.stages.checkpoints import CheckpointPlace
from twinalign.stages.context import StageContext, step_inputs
from twinalign.stages.random_draws import measure_draws
from twinalign.stages.training_plan import TrainingPlan


class PlantedFault(Protocol):
    """A fault that `twinalign selftest` plants: every case and model made afterwards has it."""

    def spoil_case(self, case: Case) -> None:
        """Change methods of a case that was just loaded."""

    def spoil_model(self, case: Case, model: Any) -> None:
        """Change layers of a model that was just built."""

    def spoil_weights(self, case: Case, model: Any) -> None:
        """Change parameters or buffers of a model that was just given its weights."""


class Worker:
    """State of one recorder process; functions that are called there get it as their first argument."""

    def __init__(
        self,
        emit: Callable[..., None],
        *,
        side: str,
        device: str,
        case: str,
        options: Mapping[str, str],
        threads: int | None = None,
        sources: Mapping[str, str] | None = None,
    ) -> None:
        serve_sources(sources or {})
        self.emit, self.side, self.device = emit, side, device
        self.case_reference, self.options, self.framework = case, options, FRAMEWORK_OF_SIDE[side]
        self.case = load_case(self.case_reference, self.options)
        other = next(framework for framework in FRAMEWORK_OF_SIDE.values() if framework != self.framework)
        if other in sys.modules:
            note = f"note: {self.case_reference} imports {other} here as well; import it inside its own side's methods"
            emit("progress", text=note)
        with imported_for_good():
            self.backend = backend_of_side(self.side)
        try:
            self.rank, self.ranks = self.join()
            self.backend.configure(self.device, threads)
        except RuntimeError as error:
            raise InputError(f"--device {self.device}: {error} in {sys.executable}; use --device cpu") from None
        self.planted: PlantedFault | None = None
        self.retie: Callable[[Any], Any] = lambda model: model
        """What gives a model that was just built the ties between weights that the other side's has."""
        self._model: tuple[tuple[str, str, bool], Any] | None = None
        self._attributes: PlainAttributes | None = None  # of that model
        self._untouched: tuple[str, Any] | None = None
        """A part and its model as it was built, in float32: the first recordings need not build it again."""
        self._own: dict[str, np.ndarray] = {}
        """Initial values of the last model where the other side has no partner."""
        self._trial: tuple[str, TrialModel] | None = None
        self.kept: dict[str, Any] = {}
        """What functions called through `call` keep for the requests that follow."""

    def join(self) -> tuple[int, int]:
        """This process's rank and the number of ranks; called before anything is put on a device."""
        return 0, 1

    @staticmethod
    def explain(error: Exception, side: str) -> str | None:
        """The message for an import of a framework that is not installed here, usually the other side's."""
        missing = error.name.partition(".")[0] if isinstance(error, ModuleNotFoundError) and error.name else ""
        if missing not in FRAMEWORK_OF_SIDE.values() or sys.modules.get(missing) is not None:
            return None
        where = tracebacks.place(error) or "the case"
        if missing == FRAMEWORK_OF_SIDE[side]:
            return f"{where}: {sys.executable} has no {missing}; name an interpreter that has it with --{side}-python"
        return (
            f"{where}: imports {missing} on the {side} side, where it is not installed; import it inside the methods "
            "of its own side, not at the top of the file"
        )

    @doing("starting")
    def describe(self) -> dict[str, Any]:
        """What the parent needs to know of the case without importing it."""
        stages = stages_of(self.case)
        parts = {stage: self.part_key(stage) for stage in stages}
        parts[INITIAL] = parts["forward"]
        return {
            "name": self.case.name,
            "stages": stages,
            "parts": parts,
            "rename": {parts[stage]: dict(self.case.part(stage).rename) for stage in stages},
            "allow_missing": {parts[stage]: list(self.case.part(stage).allow_missing) for stage in stages},
            "allow_unexpected": {parts[stage]: list(self.case.part(stage).allow_unexpected) for stage in stages},
            "rules": self.rules(),
            "accept": list(self.case.accept),
            "initial": self.case.initial,
            "allowances": list(self.case.allowances),
            "train_mode": any(self.case.part(stage).train_mode for stage in stages),
            "float64_train_steps": self.case.part("train").float64_train_steps if "train" in stages else 0,
            "environment": environment(self.framework, self.device, self.backend),
        }

    def rules(self) -> list[str]:
        """The case's storage rules: paths of files, or names of modules."""
        folder = Path(getattr(sys.modules[type(self.case).__module__], "__file__", ".")).resolve().parent
        return [str(folder / rule) if rule.endswith(".py") else rule for rule in self.case.rules]

    @doing("preparing")
    def prepare(self) -> dict[str, Any]:
        self.case.prepare()
        return {}

    @doing("building the model of")
    def initialise(
        self, stage: str, arrays: str, layout: str, inputs: str, rounded_to: str | None = None
    ) -> dict[str, Any]:
        """Build the model of a stage's case and write its layout; on the reference side also weights and inputs."""
        case = self.fresh_case(stage)
        self.forget_model()
        model = self.construct(case)
        write_json(Path(layout), self.backend.describe_state(model))
        if self.side == "ref":
            save_npz(Path(arrays), rounded(dict(self.backend.state_items(model)), rounded_to or ""))
            if type(case).inputs is not Case.inputs:
                save_npz(Path(inputs), step_inputs(case))
        self._untouched = self.part_key(stage), model
        return {}

    @doing("recording")
    def record(
        self,
        stage: str,
        dtype: str,
        path: str,
        weights: Mapping[str, Any],
        identity: Any,
        repeat: int = 0,
        rounded_to: str | None = None,
        compatible: bool = False,
        built_in_float64: bool = False,
        plan: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Record one stage in one precision into `path`.

        Args:
            weights: the initial weights' file and hash, and the names on the other side.
            repeat: start from weights and inputs moved by last bits, as this repeat does; 0 leaves them.
            rounded_to: half precision to which the inputs are rounded, as the weights are.
            compatible: use paddle's accuracy-compatible kernels, if it has them.
            built_in_float64: let constructors make in float64 what they ask for in float32.
            plan: fields of a `TrainingPlan`, for the train stage.
        """
        self.backend.use_accuracy_compatible(compatible)
        if self.ranks > 1:
            self.forget_model()  # one that was wrapped keeps the hooks that average its gradients
            path = str(rank_path(Path(path), self.rank))
        case = self.fresh_case(stage)
        record, started = STAGE_BY_NAME[stage].record, time.perf_counter()
        self.backend.set_seed(case.seed)
        context = self.context(case, stage, dtype, weights, repeat, built_in_float64)
        context.rounded_to, context.plan = rounded_to or "", TrainingPlan(**(plan or {}))
        checkpoints = CheckpointPlace(
            Path(path).with_suffix(".checkpoint"), lambda: self._made_by(case, stage, dtype, weights, identity)
        )
        context.checkpoints = checkpoints if self.ranks == 1 else None  # one of several ranks cannot go on alone
        casts = self._casts_counted(dtype)
        with casts, self.backend.default_dtype(dtype), self.kernels_noted() as kernels:
            record(context)
            measure_draws(context, record, self.forget_model if self.ranks > 1 else lambda: None)
        recording = context.recording
        recording.metadata = {
            **self._made_by(case, stage, dtype, weights, identity),
            "seconds": round(time.perf_counter() - started, 3),
            "casts_to_float32": getattr(casts, "count", 0),
            "kernels": {kernel: {n: sorted(values) for n, values in of.items()} for kernel, of in kernels.items()},
            **recording.metadata,
            **({"built_in_float64": True} if built_in_float64 else {}),
            **{name: weights[name] for name in ("tied_apart",) if name in weights and stage == "forward"},
        }
        recording.save(Path(path))
        checkpoints.remove()
        checkpoints.below("repeat").remove()
        return {name: recording.metadata[name] for name in ("seconds", "casts_to_float32")}

    def context(
        self,
        case: Case,
        stage: str,
        dtype: str,
        weights: Mapping[str, Any],
        repeat: int = 0,
        built_in_float64: bool = False,
    ) -> StageContext:
        """What a stage is recorded with; arguments as for `record` and `build_model`."""
        return StageContext(
            case=case,
            framework=self.framework,
            backend=self.backend,
            dtype=dtype,
            device=self.device,
            build_model=functools.partial(self.build_model, case, stage, dtype, weights, repeat, built_in_float64),
            construct=functools.partial(self.freshly_built, case, stage),
            canonical=CanonicalNames.of(weights),
            progress=lambda text: self.emit("progress", text=f"{stage} {dtype}: {text}"),
            repeat=repeat,
            rank=self.rank,
            ranks=self.ranks,
            points=lambda prefix, step, values: self.emit(
                "points", precision=dtype, prefix=prefix, step=step, values=values
            ),
        )

    def _made_by(self, case: Case, stage: str, dtype: str, weights: Mapping[str, Any], identity: Any) -> dict[str, Any]:
        """Metadata of a recording: what it is, and everything that it depends on."""
        return {
            "format": 1,
            "side": self.side,
            "stage": stage,
            "case": self.case.name,
            "dtype": dtype,
            "seed": case.seed,
            "environment": environment(self.framework, self.device, self.backend),
            "weights_sha256": weights.get("sha256"),
            "layer_classes": self.layer_classes() if STAGE_BY_NAME[stage].judged_in_any_precision else {},
            "identity": identity,
            "code_sha256": code_hashes(case),
            "data_sha256": hash_paths(case.data_files()),
            "recorded_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "peak_device_memory_bytes": self.backend.peak_device_memory(),
        }

    def _casts_counted(self, dtype: str) -> contextlib.AbstractContextManager[Any]:
        """On the reference side in float64, counts computations that the model still makes in float32."""
        if self.side != "ref" or dtype != "float64":
            return contextlib.nullcontext()
        from twinalign.backends.torch.reference_only.graph import CastCount

        counter: contextlib.AbstractContextManager[Any] = CastCount()
        return counter

    def kernels_noted(self) -> contextlib.AbstractContextManager[Mapping[str, Mapping[str, set[float]]]]:
        """On the port's side, notes the calls of paddle's kernels that keep constants in float32."""
        if self.side == "ref":
            return contextlib.nullcontext({})
        from twinalign.backends.paddle.port_only.kernels import kernels_called

        return kernels_called()

    @doing("giving memory back in")
    def release(self) -> dict[str, Any]:
        self.forget_model()
        return {}

    def part_key(self, stage: str) -> str:
        part = self.case.part(stage)
        return part.name or type(part).__name__

    def fresh_case(self, stage: str) -> Case:
        """A new instance of the case that defines `stage`, so that no recording affects the next one."""
        case = load_case(self.case_reference, self.options).part(stage)
        if self.planted is not None:
            self.planted.spoil_case(case)
        return case

    def construct(self, case: Case, further_seeds: int = 0) -> Any:
        """A freshly built model of this side; `further_seeds`: by how many the seed is behind the case's own."""
        self.backend.set_seed(case.seed + further_seeds)
        build = case.reference if self.side == "ref" else case.reproduced
        with self.backend.building():
            model = build()
        if not self.backend.is_model(model):
            raise InputError(
                f"{type(case).__name__}.{build.__name__}() returned {full_name(type(model))}, which is not a "
                f"{self.backend.MODEL_CLASS}; build the {self.framework} model there"
            )
        if self.planted is not None:
            self.planted.spoil_model(case, model)
        return model

    def _untouched_model(self, stage: str) -> Any:
        return self._untouched[1] if self._untouched and self._untouched[0] == self.part_key(stage) else None

    def freshly_built(self, case: Case, stage: str, further_seeds: int = 0) -> Any:
        """What `construct` returns, to be looked at only: with the case's own seed it may have been built before."""
        if further_seeds:
            return self.construct(case, further_seeds)
        if self._untouched_model(stage) is None:
            self._untouched = self.part_key(stage), self.construct(case)
        return self._untouched_model(stage)

    def build_model(
        self,
        case: Case,
        stage: str,
        dtype: str,
        weights: Mapping[str, Any],
        repeat: int = 0,
        built_in_float64: bool = False,
    ) -> Any:
        """The model with its initial weights; the object is reused between stages, its state is not."""
        key = (self.part_key(stage), dtype, built_in_float64)
        if self._model is None or self._model[0] != key:
            # In the other stages a generator's state may tell that nothing was built: they do not set it afterwards.
            reusable = STAGE_BY_NAME[stage].judged_in_any_precision and key[1:] == ("float32", False)
            built = self._untouched_model(stage) if reusable else None
            self.forget_model()
            # Built in the default dtype, as the user's code is used to, and converted after.
            with self.backend.default_dtype("float64" if built_in_float64 else "float32"):
                built = built if built is not None else self.construct(case)
            self._model = key, self.retie(self.backend.prepare_model(built, dtype, self.device))
            take_tables(self.backend, built, {} if built_in_float64 else weights)
            self._attributes = PlainAttributes(self.backend, self._model[1])
            kept = {*weights.get("kept", ()), *weights.get("own_buffers", ())}
            self._own = exact_tables(self.backend, built, weights) if built_in_float64 else {}
            self._own |= {n: array for n, array in self.backend.state_items(built) if n in kept} if kept else {}
        self.restore_weights(model := self._model[1], weights)
        self.restore_attributes()
        if self.planted is not None:
            self.planted.spoil_weights(case, model)
        if repeat:
            self.backend.load_state_arrays(model, moved_values(dict(self.backend.state_items(model)), dtype, repeat))
        self.backend.clear_gradients(model)
        return model

    def restore_weights(self, model: Any, weights: Mapping[str, Any]) -> None:
        self.backend.load_state_arrays(model, {**read_arrays(weights["path"]), **self._own})

    def restore_attributes(self) -> None:
        """Set back what a pass may have changed in the last model beside its tensors."""
        if self._attributes is not None:
            self._attributes.restore()

    def layer_classes(self) -> dict[str, dict[str, Any]]:
        return layer_classes(self.backend, self._model[1]) if self._model else {}

    def trial_model(self, stage: str) -> TrialModel:
        """The converter's model of a stage's case, kept until the next recording is made."""
        if self._trial is None or self._trial[0] != stage:
            self.forget_model()
            load_rules(self.rules())
            case = self.fresh_case(stage)
            made = TrialModel(
                self.backend,
                self.framework,
                self.device,
                lambda: self.construct(case),
                lambda model, inputs: case.forward(model, inputs, self.framework),
            )
            self._trial = stage, made
        return self._trial[1]

    def forget_model(self) -> None:
        if self._model is not None or self._trial is not None or self._untouched is not None:
            self._model = self._trial = self._untouched = self._attributes = None
            give_back_memory()


class RankWorker(Worker):
    """A worker that records its share together with the other ranks, into its own file."""

    def join(self) -> tuple[int, int]:
        return self.backend.join_ranks(self.device)
