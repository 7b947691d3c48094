"""The recorder: a process of one framework that takes requests as JSON lines and answers with events.

Run as `python -m twinalign.recorder.worker`. Standard output carries nothing but events; whatever the framework or the
user's code prints goes to standard error.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import gc
import importlib
import os
import platform
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from twinalign.backends import FRAMEWORK_OF_SIDE, backend_of_side
from twinalign.case import Case, load_case, stages_of
from twinalign.errors import InputError
from twinalign.freshness import hash_paths
from twinalign.halves import rounded
from twinalign.recorder import tracebacks
from twinalign.recorder.rank_files import rank_path
from twinalign.recorder.serving import end_with_parent, serve
from twinalign.recording import save_npz, write_json
from twinalign.stages import STAGE_BY_NAME
from twinalign.stages.checkpoints import CheckpointPlace
from twinalign.stages.context import StageContext, step_inputs
from twinalign.stages.drawing import measure_draws
from twinalign.stages.moving import moved_arrays
from twinalign.stages.naming import CanonicalNames
from twinalign.stages.watching import TrainingPlan


class PlantedFault(Protocol):
    """What `twinalign selftest` plants: every case and model that is made afterwards is wrong in one way."""

    def spoil_case(self, case: Case) -> None:
        """Change methods of a case that was just loaded."""

    def spoil_model(self, case: Case, model: Any) -> None:
        """Change layers of a model that was just built."""

    def spoil_weights(self, case: Case, model: Any) -> None:
        """Change parameters or buffers of a model that was just given its weights."""


class Worker:
    """State of one recorder process: its framework, its case, the last model that it built."""

    def __init__(self, emit: Callable[..., None], start: Mapping[str, Any]) -> None:
        """Import the framework and the case named in the `start` request."""
        self.emit = emit
        self.side: str = start["side"]
        self.device: str = start["device"]
        self.case_reference: str = start["case"]
        self.options: Mapping[str, str] = start["options"]
        self.framework = FRAMEWORK_OF_SIDE[self.side]
        self.case = load_case(self.case_reference, self.options)
        other = next(framework for framework in FRAMEWORK_OF_SIDE.values() if framework != self.framework)
        if other in sys.modules:
            note = f"note: {self.case_reference} imports {other} here as well; import it inside its own side's methods"
            emit("progress", text=note)
        self.backend = backend_of_side(self.side)
        try:
            self.rank, self.ranks = self.join()
            self.backend.configure(self.device, start["threads"])
        except RuntimeError as error:
            raise InputError(f"--device {self.device}: {error} in {sys.executable}; use --device cpu") from None
        self.planted: PlantedFault | None = None
        self._model: tuple[tuple[str, str], Any] | None = None
        self.kept: dict[str, Any] = {}
        """What functions called through `call` keep for the requests that follow."""

    def join(self) -> tuple[int, int]:
        """Which of how many processes this one is; before anything is put on a device."""
        return 0, 1

    def describe(self) -> dict[str, Any]:
        """What the parent must know of the case, so that it need not import it."""
        stages = stages_of(self.case)
        parts = {stage: self.part_key(stage) for stage in stages}
        return {
            "name": self.case.name,
            "stages": stages,
            "parts": parts,
            "rename": {parts[stage]: dict(self.case.part(stage).rename) for stage in stages},
            "rules": self._rules(),
            "accept": list(self.case.accept),
            "allowances": list(self.case.allowances),
            "train_mode": any(self.case.part(stage).train_mode for stage in stages),
            "float64_train_steps": self.case.part("train").float64_train_steps if "train" in stages else 0,
            "environment": self.environment(),
        }

    def _rules(self) -> list[str]:
        """The case's rules, files by their whole path."""
        folder = Path(getattr(sys.modules[type(self.case).__module__], "__file__", ".")).resolve().parent
        return [str(folder / rule) if rule.endswith(".py") else rule for rule in self.case.rules]

    def environment(self) -> dict[str, Any]:
        """Framework, versions, flags that change numbers, interpreter and machine of this side."""
        return {
            "framework": self.framework,
            "device": self.device,
            "versions": self.backend.versions(),
            "flags": self.backend.numerics_flags(),
            "python": platform.python_version(),
            "platform": platform.platform(),
            "processors": os.cpu_count(),
        }

    def prepare(self) -> dict[str, Any]:
        """Let the case make what it needs."""
        self.case.prepare()
        return {}

    def initialise(
        self, stage: str, arrays: str, layout: str, inputs: str, rounded_to: str | None = None
    ) -> dict[str, Any]:
        """Build the model of a stage's case and write its layout; on the reference side weights and inputs too."""
        case = self.fresh_case(stage)
        self.forget_model()
        model = self._construct(case)
        write_json(Path(layout), self.backend.describe_state(model))
        if self.side == "ref":
            save_npz(Path(arrays), rounded(self.backend.state_arrays(model), rounded_to or ""))
            if type(case).inputs is not Case.inputs:
                save_npz(Path(inputs), step_inputs(case))
        return {}

    def record(
        self,
        stage: str,
        dtype: str,
        path: str,
        weights: Mapping[str, Any],
        identity: Any,
        moved: bool = False,
        rounded_to: str | None = None,
        compatible: bool = False,
        plan: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Record one stage in one precision into `path`.

        Args:
            stage: its name.
            dtype: the precision.
            path: the recording.
            weights: the initial weights' file and hash, and names of the other side.
            identity: what the recording is known by.
            moved: start from weights and inputs moved by one unit in the last place.
            rounded_to: half precision that the inputs are rounded to, as the weights are.
            compatible: use paddle's accuracy-compatible kernels, where it has them.
            plan: fields of a `TrainingPlan`, for the train stage.
        """
        self.backend.use_accuracy_compatible(compatible)
        if self.ranks > 1:
            self.forget_model()  # one that was wrapped keeps the hooks that average its gradients
            path = str(rank_path(Path(path), self.rank))
        case = self.fresh_case(stage)
        definition = STAGE_BY_NAME[stage]
        started = time.perf_counter()
        self.backend.set_seed(case.seed)
        context = StageContext(
            case=case,
            framework=self.framework,
            backend=self.backend,
            dtype=dtype,
            device=self.device,
            build_model=functools.partial(self.build_model, case, stage, dtype, weights, moved),
            canonical=CanonicalNames.of(weights),
            progress=lambda text: self.emit("progress", text=f"{stage} {dtype}: {text}"),
            moved=moved,
            seed=case.seed,
            rounded_to=rounded_to or "",
            plan=TrainingPlan(**(plan or {})),
            rank=self.rank,
            ranks=self.ranks,
            points=lambda prefix, step, values: self.emit(
                "points", precision=dtype, prefix=prefix, step=step, values=values
            ),
        )
        checkpoints = CheckpointPlace(
            Path(path).with_suffix(".checkpoint"), lambda: self._made_by(case, stage, dtype, weights, identity)
        )
        context.checkpoints = checkpoints if self.ranks == 1 else None  # one of several ranks cannot go on alone
        casts = self._casts_counted(dtype)
        with self.backend.default_dtype(dtype), casts:
            definition.record(context)
            measure_draws(context, definition.record, self.forget_model if self.ranks > 1 else lambda: None)
        recording = context.recording
        recording.metadata = {
            **self._made_by(case, stage, dtype, weights, identity),
            "seconds": round(time.perf_counter() - started, 3),
            "casts_to_float32": getattr(casts, "count", 0),
            **recording.metadata,
        }
        recording.save(Path(path))
        checkpoints.remove()
        checkpoints.below("repeat").remove()
        return {name: recording.metadata[name] for name in ("seconds", "casts_to_float32")}

    def _made_by(self, case: Case, stage: str, dtype: str, weights: Mapping[str, Any], identity: Any) -> dict[str, Any]:
        """Metadata of a recording: what it is, and all that it depends on."""
        return {
            "format": 1,
            "side": self.side,
            "stage": stage,
            "case": self.case.name,
            "dtype": dtype,
            "seed": case.seed,
            "environment": self.environment(),
            "weights_sha256": weights.get("sha256"),
            "layer_classes": self.layer_classes() if STAGE_BY_NAME[stage].needs_model else {},
            "identity": identity,
            "code_sha256": self._code_hashes(case),
            "data_sha256": hash_paths(case.data_files()),
            "recorded_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "peak_device_memory_bytes": self.backend.peak_device_memory(),
        }

    def _casts_counted(self, dtype: str) -> contextlib.AbstractContextManager[Any]:
        """On the reference side in float64, counts what the model computes in float32 all the same."""
        if self.side != "ref" or dtype != "float64":
            return contextlib.nullcontext()
        counter: contextlib.AbstractContextManager[Any] = importlib.import_module(
            "twinalign.backends.torch_casts"
        ).CastCount()
        return counter

    def release(self) -> dict[str, Any]:
        """Give the model's memory back: the other side wants it."""
        self.forget_model()
        return {}

    def call(self, function: str, **arguments: Any) -> dict[str, Any]:
        """Call `module:name`, a function of this package, with this worker and what was sent; returns its answer."""
        module, _, name = function.partition(":")
        if not module.startswith("twinalign."):
            raise ValueError(f"{function}: not a function of twinalign")
        found: dict[str, Any] = getattr(importlib.import_module(module), name)(self, **arguments)
        return found

    def part_key(self, stage: str) -> str:
        """Name of the part of the case that defines a stage."""
        part = self.case.part(stage)
        return part.name or type(part).__name__

    def fresh_case(self, stage: str) -> Case:
        """A new instance of the case that defines `stage`: what one recording leaves on it must not reach the next."""
        case = load_case(self.case_reference, self.options).part(stage)
        if self.planted is not None:
            self.planted.spoil_case(case)
        return case

    def _construct(self, case: Case) -> Any:
        self.backend.set_seed(case.seed)
        model = case.reference() if self.side == "ref" else case.reproduced()
        if not self.backend.is_model(model):
            method = "reference" if self.side == "ref" else "reproduced"
            kind = f"{type(model).__module__}.{type(model).__qualname__}"
            raise InputError(
                f"{type(case).__name__}.{method}() returned {kind}, which is no {self.backend.MODEL_CLASS}; build the "
                f"{self.framework} model there"
            )
        if self.planted is not None:
            self.planted.spoil_model(case, model)
        return model

    def build_model(self, case: Case, stage: str, dtype: str, weights: Mapping[str, Any], moved: bool = False) -> Any:
        """The model with its initial weights; the object is reused between stages, its state is not."""
        key = (self.part_key(stage), dtype)
        if self._model is None or self._model[0] != key:
            self.forget_model()
            # Built in the default dtype, as the user's code is used to, and converted after.
            with self.backend.default_dtype("float32"):
                built = self._construct(case)
            self._model = key, self.backend.prepare_model(built, dtype, self.device)
        model = self._model[1]
        self.restore_weights(model, weights)
        if self.planted is not None:
            self.planted.spoil_weights(case, model)
        if moved:
            self.backend.load_state_arrays(model, dict(moved_arrays(self.backend.state_items(model), dtype)))
        self.backend.clear_gradients(model)
        return model

    def restore_weights(self, model: Any, weights: Mapping[str, Any]) -> None:
        """Give a model the initial weights of its part."""
        with np.load(weights["path"], allow_pickle=False) as stored:
            self.backend.load_state_arrays(model, dict(stored))

    def layer_classes(self) -> dict[str, dict[str, Any]]:
        """Of each class that the model's layers have, by full name: how many there are, and its base classes."""
        counts = Counter(type(layer) for layer in (self.backend.all_layers(self._model[1]) if self._model else []))
        return {
            _full_name(kind): {"count": count, "bases": [_full_name(base) for base in kind.__mro__[1:-1]]}
            for kind, count in counts.items()
        }

    def forget_model(self) -> None:
        """Let the next model be built anew."""
        self._model = None
        gc.collect()

    def _code_hashes(self, case: Case) -> dict[str, str]:
        """SHA-256 of every loaded source file that is twinalign's, the case's or beside neither Python nor packages."""
        own_packages = {"twinalign", *case.code_packages}
        files = set()
        for name, module in list(sys.modules.items()):
            path = getattr(module, "__file__", None)
            if not path or not path.endswith(".py"):
                continue
            path = os.path.realpath(path)
            if name.partition(".")[0] in own_packages or not path.startswith(tracebacks.LIBRARIES):
                files.add(Path(path))
        return hash_paths(files)


def _full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def main() -> None:
    """Serve requests until standard input closes."""
    end_with_parent()
    events: IO[str] = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    serve(sys.stdin, events, Worker)


if __name__ == "__main__":
    main()
