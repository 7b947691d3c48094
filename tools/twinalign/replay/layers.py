"""Functions that run in a side's process while wrong layers are located, through `SideProcess.call`."""

import contextlib
import dataclasses
import math
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.backends.layer_classes import full_name
from twinalign.case.definition import Case
from twinalign.files.recordings import save_npz
from twinalign.replay.aligned_code import last_part
from twinalign.replay.case_run import MOVED, PLAIN, CaseRun
from twinalign.replay.forced_call import LONGEST_REASON, ForcedCall
from twinalign.replay.judged_before import last_to_end, with_those_around
from twinalign.replay.layer_calls import LOSS, Call
from twinalign.replay.mask_forms import OtherTruths
from twinalign.replay.noted_expressions import values_of
from twinalign.replay.port_backward import ForcedBackward
from twinalign.replay.reaching import handed_without_effect, without_effect
from twinalign.replay.reference_pass import ReferencePass
from twinalign.replay.repeated_calls import added_up, children_of
from twinalign.replay.repeating import NotRepeatedError, not_repeated
from twinalign.replay.rerun_unit import PERTURBATION, RerunUnit
from twinalign.replay.shared_values import narrowed_down
from twinalign.replay.table_lines import constructor_of
from twinalign.replay.wrong_unit import constants_in_float32, phase_of
from twinalign.verdict.allowances import ALWAYS, resolve
from twinalign.verdict.array_difference import difference, root_mean_square

KEPT, SECOND = "locate", "locate on a second draw"
MOVES = "moves.npz"
"""File with the moves of parameters that begin with one value, in the folder of a second draw."""
WHOLE = "whole.npz"
"""File with what the port's whole pass gives, for the reference to reproduce."""

FLOOR_FACTOR = 16.0
"""A difference counts if it is more than this many times the reference's response to the perturbation."""
LARGEST_OF_CONSTANTS = 1e-5
"""Constants kept in float32 cannot explain relative differences above this."""
_FLIPPED = 1e-3
"""An element that noise changes more, relative to the tensor's root mean square, depends on a choice between equals."""
_OTHERS = 4
"""So many times as many elements as noise flips may differ elsewhere: one draw of noise flips half of the equals."""


def reference_forward(worker: Any, stage: str, weights: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """Run the reference forward and keep its values in `folder`."""
    shutil.rmtree(folder, ignore_errors=True)
    run = CaseRun.of(worker, stage, weights)
    found = ReferencePass(run, Path(folder) / "reference")
    worker.kept[KEPT] = found
    return found.forward()


def reference_backward(worker: Any, gradients: str | None) -> dict[str, Any]:
    """Run the reference backward; the gradients of its parameters go to the .npz file `gradients`, if one is given."""
    found: dict[str, Any] = worker.kept[KEPT].backward(Path(gradients) if gradients else None)
    return found


def reference_second_forward(
    worker: Any,
    folder: str,
    gradients: bool,
    wanted: Sequence[int] | None,
    opened: Sequence[int],
    draw: int = PLAIN,
    key: str = SECOND,
) -> dict[str, Any]:
    """Run the reference forward on a second draw of inputs; returns what `reference_forward` does.

    With `gradients` what comes next is `reference_second_backward`; else the pass ends behind the last of these calls.

    Args:
        wanted: numbers of the calls whose units the port is to run, if not all: no other values are kept.
        opened: numbers of the calls that it makes without their pairs.
        draw: of the inputs, as `CaseRun` takes it.
        key: under which the pass, and with it its values, is kept until another has it.

    Returns:
        `unlike` alone, in words, if that pass cannot stand beside the first.
    """
    first: ReferencePass = worker.kept[KEPT]
    second = worker.kept[key] = ReferencePass(dataclasses.replace(first.run, draw=draw), Path(folder) / "reference")
    open_calls: set[int] = set()
    if wanted is not None:
        calls = {call.number: call for call in first.stack.calls}
        second.kept = with_those_around(wanted, calls).union(opened)
        if not gradients:
            second.last = last_to_end(wanted, calls)
            open_calls = with_those_around([second.last], calls) - {second.last}
    first.store.discard()
    _restore(worker, first)
    if draw == MOVED:
        second.move_constants(Path(folder) / MOVES)
    try:
        with contextlib.nullcontext() if gradients else first.backend.no_grad():
            found = second.forward()
    except Exception as error:  # the user's code may not take these inputs
        _restore(worker, second if second.moved else first)
        return {"unlike": f"the reference raises {type(error).__name__}: {error}"[:LONGEST_REASON]}
    if not gradients:
        _restore(worker, first)
    forms = [[_form(call, call.number not in open_calls) for call in one.stack.calls] for one in (first, second)]
    forms[0] = forms[0] if second.last is None else forms[0][: max(len(forms[1]), second.last + 1)]
    if forms[0] != forms[1]:
        _restore(worker, second)
        return {"unlike": "the reference calls other layers, or has other shapes"}
    both = zip(first.stack.calls, second.stack.calls, strict=False)
    pairs = [two for one, other in both for two in zip(one.outputs, other.outputs, strict=False)]
    if draw != PLAIN and any(np.isfinite(one.sample).all() > np.isfinite(other.sample).all() for one, other in pairs):
        _restore(worker, second)
        return {"unlike": "the reference gives values that are not finite"}
    return found


def reference_second_backward(worker: Any, gradients: str | None = None, key: str = SECOND) -> dict[str, Any]:
    """Run the reference backward on the second draw, as `reference_backward` does."""
    found: dict[str, Any] = worker.kept[key].backward(Path(gradients) if gradients else None)
    _restore(worker, worker.kept[key])
    return found


def reference_forgets(worker: Any, keys: Sequence[str]) -> dict[str, Any]:
    """Give up what further passes have kept under these keys."""
    for key in keys:
        worker.kept.pop(key, None)
    return {}


def reference_values(worker: Any, path: str) -> dict[str, Any]:
    """The values in the reference's own code on the case's inputs, as `noted_expressions.values_of` writes them."""
    first: ReferencePass = worker.kept[KEPT]
    run = dataclasses.replace(first.run, draw=0)

    def forward() -> None:
        _restore(worker, first)
        worker.backend.set_seed(run.case.seed)
        try:
            with worker.backend.no_grad(), worker.backend.default_dtype(run.dtype):
                run.through(lambda _, layer, forward, given, named: forward(*given, **named))
        finally:
            _restore(worker, first)

    return values_of(forward, path, lambda: worker.construct(worker.fresh_case(run.stage)))


def _restore(worker: Any, reference: ReferencePass) -> None:
    """Give the model its initial weights again if a pass has changed them, and its attributes."""
    worker.restore_attributes()
    if reference.moved:
        worker.restore_weights(reference.run.model, reference.run.weights)


def _other_masks(unit: ForcedCall) -> list[list[Any]]:
    """Number of the call, place, and values of each tensor that the port is given as a mask of another kind."""
    return [
        [*map(int, place.split(".")[1:]), form.to_json()]
        for place, form in unit.layouts.items()
        if isinstance(form, OtherTruths) and place.startswith("input.")
    ]


def _form(call: Call, ended: bool) -> tuple[str, list[list[int]]]:
    return call.path, [tensor.shape for tensor in (*call.inputs, *(call.outputs if ended else ()))]


_LARGEST_TABLE = 1 << 18
"""Elements of a tensor that is written for the search."""


def port_forced_backward(
    worker: Any,
    folder: str,
    gradients: Mapping[str, tuple[int, float]],
    parameters: Mapping[str, tuple[list[int], float, list[float]]],
    uneven: Sequence[str] = (),
) -> dict[str, Any]:
    """Judge the gradients; returns every unit that differs anywhere, and writes its values into `folder`.

    Without gradients, outputs alone are judged. `uneven`: layers, by their paths in the port, that the two sides call
    unequally often: that is a fault of the code that calls them, and the sums of their gradients differ in any case.
    """
    run, store, units, state_alone = worker.kept.pop(KEPT)
    judged = ForcedBackward(run, store, gradients, parameters, Path(folder), uneven)
    judged(units, state_alone)
    told = [unit for unit in (*units, *state_alone) if unit.differences or unit.wanted]
    wrong = sorted(told, key=lambda unit: unit.call.number)
    suspects = [_reported(run, unit, Path(folder)) for unit in wrong]
    return {"suspects": suspects, "left_out": judged.left_out}


def _reported(run: CaseRun, unit: ForcedCall, folder: Path) -> dict[str, Any]:
    own = f"output.{unit.call.number}."
    save_npz(folder / f"{unit.call.number}_port.npz", unit.port)
    save_npz(folder / f"{unit.call.number}_reference.npz", unit.reference)
    tables = _tables(run, unit)
    save_npz(folder / f"{unit.call.number}_tables.npz", tables)
    save_npz(folder / f"{unit.call.number}_alone.npz", _weights_alone(run, unit))
    in_forward = any(phase_of(name) == "forward" for name in unit.differences)
    return {
        "call": unit.call.number,
        "path": unit.path,
        "layer": full_name(type(unit.layer)) if unit.layer is not None else unit.path,
        "children": [call.number for _, call in children_of(unit)],
        "child_paths": [child.path for child, _ in children_of(unit)],
        "differences": {name: found.to_json() for name, found in unit.differences.items()},
        "added_up": added_up(unit),
        "unknown": sorted({*unit.lacking, *unit.not_judged}),
        "stored": len(run.backend.own_state(unit.layer)) if unit.layer is not None else 0,
        "notes": unit.notes,
        "forms": [place.replace(own, "output.") for place in unit.layouts if place.startswith(own)],
        "other_masks": [place for one in (unit, *unit.children) for place in _other_masks(one)],
        "steps": [dataclasses.asdict(step) for step in unit.steps] if in_forward else [],
        "functions": [dataclasses.asdict(found) for found in unit.functions.values() if found.source],
        "facts": facts_of(unit.layer),
        "own_names": _own_names(run, unit),
        "constructor": constructor_of(unit.layer) if tables else {},
    }


def _own_names(run: CaseRun, unit: ForcedCall) -> dict[str, str]:
    """Names of parameters and buffers that a layer holds itself → in the reference, where they differ alone."""
    found = {}
    for name in run.backend.own_state(unit.layer) if unit.layer is not None else ():
        parts = run.canonical.parts(f"{unit.path}.{name}".lstrip("."))
        plain = [one for one in parts if not one.transposed and (one.rows, one.place, one.shapes) == (None,) * 3]
        if len(parts) == len(plain) == 1:
            found[name.lstrip("_")] = last_part(plain[0].name)
    return {name: other for name, other in found.items() if name != other}


def _weights_alone(run: CaseRun, unit: ForcedCall) -> dict[str, np.ndarray]:
    """What a layer of paddle's own stores and the reference does not; of another layer, what such layers in it do."""
    if unit.layer is None:
        return {}
    whole = full_name(type(unit.layer)).startswith("paddle.")
    found: dict[str, np.ndarray] = {}
    for path, layer in [("", unit.layer)] if whole else unit.layer.named_children():
        if full_name(type(layer)).startswith("paddle."):
            for name, tensor in run.backend.own_state(layer).items():
                key = f"{path}.{name}".lstrip(".")
                if not run.canonical.parts(f"{unit.path}.{key}".lstrip(".")):
                    found[key.lstrip("_")] = run.backend.to_array(tensor)
    return found


def _tables(run: CaseRun, unit: ForcedCall) -> dict[str, np.ndarray]:
    """Tensors of a user's layer that conversion does not set: not stored, or constant buffers that differ."""
    layer, backend = unit.layer, run.backend
    if layer is None or full_name(type(layer)).startswith("paddle."):
        return {}
    own = [name for name in run.weights.get("own_buffers", ()) if name.rpartition(".")[0] == unit.path]
    stored = backend.state_tensors(layer).keys() - {name.rpartition(".")[2] for name in own}
    held = {**vars(layer), **backend.own_buffers(layer)}
    found = {name: value for name, value in held.items() if name not in stored and backend.is_tensor(value)}
    return {
        name: backend.to_array(tensor) for name, tensor in found.items() if math.prod(tensor.shape) <= _LARGEST_TABLE
    }


def facts_of(layer: Any) -> dict[str, Any]:
    """Settings of a layer by name, and its `extra_repr`."""
    if layer is None:
        return {}
    simple = (bool, int, float, str)
    facts: dict[str, Any] = {}
    for name, value in vars(layer).items():
        plain: Any = value if isinstance(value, simple) else None
        if isinstance(value, (list, tuple)) and all(isinstance(item, simple) for item in value):
            plain = list(value)
        if plain is not None and name not in ("training", "_full_name", "_helper"):
            facts[name.lstrip("_")] = plain
    try:
        facts["extra_repr"] = " ".join(str(layer.extra_repr()).split())
    except Exception:  # a user's extra_repr may raise anything
        facts["extra_repr"] = ""
    return facts


def reference_confirm(worker: Any, folder: str, suspects: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """For each suspect the `phases` in which its difference is more than rounding, and its `differences`.

    Values and gradients that are wrong on their way, and change nothing behind it, are no difference. If a suspect's
    own code is wrong in the forward pass, `inside` names the lines between which that begins. One whose counterpart
    does not run again has `left_out`, the reason, in their place.
    """
    reference: ReferencePass = worker.kept[KEPT]
    _restore(worker, reference)
    answers = []
    for report in suspects:
        try:
            answers.append(_confirmed(reference, report, Path(folder), _allowed(worker.case, report["path"])))
        except NotRepeatedError as error:
            answers.append({"left_out": str(error)})
        except Exception as error:  # a user's code may not run twice
            text = f"the reference's counterpart does not run again: {type(error).__name__}: {error}"
            answers.append({"left_out": text[:LONGEST_REASON]})
    of_gradients = [at for at, answer in enumerate(answers) if answer.get("phases") == ["backward"]]
    harmless = without_effect(reference, [suspects[at] for at in of_gradients], Path(folder)) if of_gradients else []
    for at, is_harmless in zip(of_gradients, harmless, strict=True):
        if is_harmless:
            answers[at]["phases"] = []
    of_values = [at for at, answer in enumerate(answers) if "forward" in answer.get("phases", ())]
    harmless = handed_without_effect(reference, [suspects[at] for at in of_values], Path(folder))
    for at, is_harmless in zip(of_values, harmless, strict=True):
        if is_harmless:
            answers[at]["phases"].remove("forward")
    _restore(worker, reference)
    return {"answers": answers}


def _confirmed(reference: ReferencePass, report: Mapping[str, Any], folder: Path, allowed: float) -> dict[str, Any]:
    phases, differences = _phases_beyond_rounding(reference, report, folder, allowed)
    inside = None
    if "forward" in phases and report["steps"]:
        unit = RerunUnit(reference, report, folder, "forward")
        inside = narrowed_down(report["steps"], unit.intermediates(), unit.given())
    return {"phases": phases, "differences": differences, "inside": inside}


def _phases_beyond_rounding(
    reference: ReferencePass, report: Mapping[str, Any], folder: Path, allowed: float
) -> tuple[list[str], dict[str, Any]]:
    """Phases in which the unit is wrong, and its differences; those known by projections only are measured in full."""
    phases, measured = [], dict(report["differences"])
    for phase in ("forward", "state", "backward"):
        apart = {name: found for name, found in report["differences"].items() if phase_of(name) == phase}
        if not apart:
            continue
        unit = RerunUnit(reference, report, folder, phase)
        for name in (n for n in apart if n.startswith("gradient.parameter.") and n in unit.reference):
            measured[name] = apart[name] = difference(unit.port[name], unit.reference[name]).to_json()
        if _beyond_rounding(unit, apart, allowed):
            phases.append(phase)
        elif reason := not_repeated(unit):  # then what noise changes says nothing of rounding
            raise NotRepeatedError(reason)
    # What code around the layers does to their state shows in what they give in evaluation mode behind it.
    apart = report["differences"]
    if "state" in phases and all(name.startswith("eval.") for name in apart if phase_of(name) == "forward"):
        phases = [p for p in phases if p != "forward" or not any(name.startswith("state.") for name in apart)]
    return phases, measured


def _allowed(case: Case, path: str) -> float:
    """Greatest relative difference that the case's allowances permit a unit in float64."""
    name = "loss" if path == LOSS else "output"
    named = [allowance for allowance in resolve(case.allowances) if allowance.id not in ALWAYS]
    return max((allowance.bound for allowance in named if allowance.covers(name)), default=0.0)


def _beyond_rounding(unit: RerunUnit, apart: Mapping[str, Mapping[str, Any]], allowed: float) -> bool:
    """Whether any difference is more than rounding, epsilons kept in float32 and the allowances explain."""
    # Different shapes, or NaN on one side, need no measurement.
    if any(found["text"] or name not in unit.port for name, found in apart.items()):
        return True
    noise = unit.run(perturbation=PERTURBATION)
    if any(name not in noise for name in apart):
        return True
    floors = {
        name: max(
            FLOOR_FACTOR * difference(noise[name], unit.reference[name]).rms, allowed * (found["reference_rms"] or 0.0)
        )
        for name, found in apart.items()
    }
    least = max(_FLIPPED, 10.0 * allowed)
    if any(_elsewhere(unit.port[name], unit.reference[name], noise[name], least) for name in apart):
        return True
    if all(found["rms"] <= floors[name] for name, found in apart.items()):
        return False
    if max(found["rms"] / (found["reference_rms"] or np.inf) for found in apart.values()) > LARGEST_OF_CONSTANTS:
        return True
    with constants_in_float32():
        rounded = unit.run()
    return any(difference(unit.port[name], rounded[name]).rms > floors[name] for name in apart)


def _elsewhere(port: np.ndarray, reference: np.ndarray, noise: np.ndarray, least: float) -> bool:
    """Whether noise flips few elements, and the port differs in far more others by `least`, relative to the values."""
    if not port.shape == reference.shape == noise.shape or not np.isfinite(reference).all():
        return False
    limit = least * root_mean_square(reference)
    flipped = np.abs(noise - reference) > limit
    apart = (np.abs(port - reference) > limit) & ~flipped
    return bool(flipped.any()) and int(apart.sum()) > _OTHERS * int(flipped.sum())
