"""Forward passes of the port while wrong layers are located, which run in its process through `SideProcess.call`."""

import contextlib
import dataclasses
import functools
import math
import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.backends.layer_classes import full_name
from twinalign.files.recordings import save_npz
from twinalign.replay.case_run import MOVED, CaseRun
from twinalign.replay.forced_call import UnitFailedError
from twinalign.replay.forced_pass import Pairs, joining_path, passed
from twinalign.replay.judged_before import (
    Result,
    StandIns,
    clearly_wrong,
    distances_alone,
    last_to_end,
    results_of,
    with_those_around,
)
from twinalign.replay.layer_calls import FORWARD, LOSS, Call
from twinalign.replay.layers import KEPT, MOVES, WHOLE
from twinalign.replay.path_names import PathNames
from twinalign.replay.port_forward import ForcedForward
from twinalign.replay.port_own import own_forward, same_as_own
from twinalign.replay.regions import following
from twinalign.replay.repeated_calls import note_repeated
from twinalign.replay.tensor_store import TensorStore
from twinalign.replay.unused_results import leave_out_unused
from twinalign.verdict.case_allowances import bound_of_classes

_KERNELS, _OWN, _VALUES = "kernels called", "calls of the port's own pass", "values of the port's own pass"
_RUN = "the case as the forced pass has left it, its model as long as the worker has it"
JUDGED = "how the port has what its calls return, the pairs that were given up, and those that it ran with"
_MOST_KEPT = 24
"""So many wrong units may have their values of the port's own pass kept in memory."""


def port_own(
    worker: Any, stage: str, weights: Mapping[str, Any], folder: str, calls: Sequence[dict], rename: Mapping[str, str]
) -> dict[str, Any]:
    """Run the port as it is, and measure each output's distance from the reference's."""
    run = CaseRun.of(worker, stage, weights)
    known = [Call.from_json(call) for call in calls]
    names = PathNames.of(run, known, rename)
    with worker.kernels_noted() as kernels:
        found, _ = own_forward(run, known, names.reference_path, {})
    worker.kept[_KERNELS], worker.kept[_OWN], worker.kept[_VALUES] = frozenset(kernels), found, {}
    return _own_calls(found, names)


def _own_calls(found: Sequence[Call], names: PathNames) -> dict[str, Any]:
    paths = {call.path: names.reference_path(call.path) for call in found}
    return {"calls": [call.to_json() for call in found], "names": paths}


def port_whole(
    worker: Any, stage: str, weights: Mapping[str, Any], folder: str, units: Sequence[Sequence[Any]]
) -> dict[str, Any]:
    """Write the values of `own_forward` with these units, which are as `pairs` are below; run the port if need be."""
    values = worker.kept.pop(_VALUES, {})
    if not values.keys() >= {f"output.{number}.0" for *_, number in units}:
        run = CaseRun.of(worker, stage, weights)
        wanted = {(path, ordinal): number for path, ordinal, number in units}
        _, values = own_forward(run, (), lambda path: path, wanted)
    save_npz(Path(folder) / WHOLE, values)
    return {}


class Forcing:
    """What forced passes on the values of one pass of the reference share."""

    def __init__(self, worker: Any, folder: str, calls: Sequence[dict], moved: Sequence[str]) -> None:
        self._worker, self._moved = worker, frozenset(moved)
        values = Path(folder) / "reference"
        self.store, self._states = TensorStore(values / "values"), TensorStore(values / "state")
        self.by_number = {call["number"]: Call.from_json(call) for call in calls}

    @property
    def state_after(self) -> dict[str, np.ndarray]:
        """Name → buffer of the reference's that the pass has changed, as it is behind it."""
        found = {}
        for call in self.by_number.values():
            for name, number in call.state_after.items():
                found[f"{call.path}.{name}".removeprefix(".")] = self._states.read(number)
        return found

    def bound_of(self, layer: Any) -> float:
        """Greatest relative difference that constants kept in float32 explain in a layer, or in code outside layers."""
        inside = [] if layer is None else self._worker.backend.all_layers(layer)
        classes = [full_name(base) for inner in inside for base in type(inner).__mro__]
        # A function is called in a module's own code, or in the loss.
        own_code = layer is None or not full_name(type(layer)).startswith("paddle.")
        return bound_of_classes(classes, self._worker.kept.get(_KERNELS, ()) if own_code else ())

    def begin(self, run: CaseRun, partners: Pairs, **more: Any) -> ForcedForward:
        """The pass before it runs; `more` are further arguments of `ForcedForward`."""
        paired = {call.number for call in partners.values()}
        with_extra = {call.parent for call in self.by_number.values() if call.parent and call.number not in paired}
        behind = following(self.by_number.values(), paired)
        about = (self.store, self._states, partners, with_extra, behind, self._moved, self.bound_of)
        return ForcedForward(run, *about, **more)

    def keep(self, forced: ForcedForward) -> dict[str, Any]:
        """Keep the pass for `port_forced_backward`.

        Returns:
            `judged`: paths of the layers that were; `opened`: numbers of the calls that ran without their pairs.
        """
        leave_out_unused(self._worker, forced.run, forced.units)
        note_repeated(forced.units, self.by_number, self.store)
        state_alone = forced.wrong_in_state_alone
        self._worker.kept[KEPT] = (forced.run, self.store, forced.units, state_alone)
        judged = {unit.path for unit in forced.units if unit.ended and unit.layer is not None}
        return {"judged": sorted(judged), "opened": sorted(forced.given_up)}


def port_by_names(
    worker: Any,
    stage: str,
    weights: Mapping[str, Any],
    folder: str,
    calls: Sequence[dict],
    rename: Mapping[str, str],
    moved: Sequence[str],
) -> dict[str, Any]:
    """Run the port with the reference's inputs in every layer, as if layers of the same name were the pairs.

    Where nothing differs that was the port's own pass as well, else that follows.

    Returns:
        What `port_own` returns; `pairs`, as `port_forced_forward` takes them, and what that would return for them.
        Without `pairs` the forced pass is to be made again; nothing at all if the port is not one for such a pass.
    """
    run, worker.kept[_RUN] = CaseRun.of(worker, stage, weights), None
    forcing = Forcing(worker, folder, calls, moved)
    known = list(forcing.by_number.values())
    names = PathNames.of(run, known, rename)
    partners = _of_same_names(run, known, names)
    if partners is None or moved or run.case.train_mode:  # what a pass changes, the next one would meet
        return {}
    buffers = [tensor for tensor in run.backend.state_tensors(run.model).values() if not run.backend.trainable(tensor)]
    sums, worker.kept[_KERNELS] = [run.backend.checksum(tensor) for tensor in buffers], ()
    forced = forcing.begin(run, partners, alone=dict.fromkeys(forcing.by_number, math.inf))
    try:
        with worker.kernels_noted() as kernels:
            forced()
    except UnitFailedError:
        return {}
    worker.kept[_KERNELS] = frozenset(kernels)
    wrong = [unit for unit in forced.units if unit.differences]
    if forced.left_out or joining_path(forced.units) or sums != [run.backend.checksum(tensor) for tensor in buffers]:
        return {}
    if any(unit.bound != forcing.bound_of(unit.layer) for unit in wrong):  # the kernels were not known before
        return {}
    worker.kept[_VALUES] = {}
    if not wrong and forced.tensors.as_alone and len(forced.units) == len(known) == forced.calls:
        own = same_as_own(forced.units)
    else:
        worker.backend.set_seed(run.case.seed)
        worker.restore_attributes()
        units = {(unit.path, unit.call.ordinal): unit.call.number for unit in wrong[:_MOST_KEPT]}
        own, worker.kept[_VALUES] = own_forward(run, known, names.reference_path, units)
    worker.kept[_OWN] = own
    answer = _own_calls(own, names)
    alone = distances_alone(own, partners)
    if not all(clearly_wrong(alone.get(number, 0.0), bound) for number, bound in forced.assumed.items()):
        return answer
    met = [(call.path, call.ordinal) for call in own if (call.path, call.ordinal) in partners]
    pairs = sorted(((*place, partners[place].number) for place in met), key=lambda pair: pair[2])
    worker.kept[JUDGED] = _judged(forced)
    worker.kept[_RUN] = dataclasses.replace(run, model=weakref.ref(run.model))
    return {**answer, "pairs": pairs, "left_out": {}, **forcing.keep(forced)}


def port_past_its_crash(
    worker: Any,
    stage: str,
    weights: Mapping[str, Any],
    folder: str,
    calls: Sequence[dict],
    rename: Mapping[str, str],
    moved: Sequence[str],
) -> dict[str, Any]:
    """Run a port that raises by itself, with the reference's values in the layers of the same names.

    A layer that returns another shape, on which the port crashes later, hands on the reference's values here.

    Returns:
        What `port_by_names` returns; the calls are those that were judged.
    """
    run = CaseRun.of(worker, stage, weights)
    forcing = Forcing(worker, folder, calls, moved)
    known = list(forcing.by_number.values())
    names = PathNames.of(run, known, rename)
    worker.kept[_RUN], worker.kept[_KERNELS] = None, ()
    alone = dict.fromkeys(forcing.by_number, math.inf)
    forced, left_out = passed(
        lambda pairs: forcing.begin(CaseRun.of(worker, stage, weights), pairs, alone=alone),
        _known_names(run, names, known),
    )
    worker.kept[_OWN], worker.kept[_VALUES] = own, _ = same_as_own(forced.units), {}
    worker.kept[JUDGED] = _judged(forced)
    pairs = sorted(((u.path, u.call.ordinal, u.call.number) for u in forced.units), key=lambda pair: pair[2])
    return {**_own_calls(own, names), "pairs": pairs, "left_out": left_out | forced.left_out, **forcing.keep(forced)}


def _judged(forced: ForcedForward) -> tuple[dict[int, Result], frozenset[int], frozenset[tuple[str, int]]]:
    return results_of(forced.units), frozenset(forced.given_up), frozenset(forced.pairs)


def _paths(run: CaseRun) -> list[str]:
    """Of what the port calls: its forward, its loss and its layers."""
    return [FORWARD, LOSS, *(path for path, _ in run.backend.named_layers(run.model))]


def _known_names(run: CaseRun, names: PathNames, calls: Sequence[Call]) -> Pairs:
    """Calls of the reference with those of the port that have their names, where no other layer has the same."""
    paths = _paths(run)
    times = Counter(map(names.reference_path, paths))
    own = {names.reference_path(path): path for path in paths if times[names.reference_path(path)] == 1}
    return {(own[call.path], call.ordinal): call for call in calls if call.path in own}


def _of_same_names(run: CaseRun, calls: Sequence[Call], names: PathNames) -> Pairs | None:
    """Every call of the reference with that of the port that has its name; None if names do not pair them all."""
    by_path: dict[str, list[Call]] = {}
    for call in calls:
        by_path.setdefault(call.path, []).append(call)
    paths = _paths(run)
    theirs = [name for name in map(names.reference_path, paths) if name in by_path]
    if len(theirs) != len(set(theirs)) or set(theirs) != by_path.keys():
        return None
    return {(path, call.ordinal): call for path in paths for call in by_path.get(names.reference_path(path), ())}


def _unchanged(worker: Any) -> CaseRun | None:
    """The run of `port_by_names` once more, whose model has its initial weights still, if there was one to its end."""
    run: CaseRun | None = worker.kept.get(_RUN)
    model = run.model() if run is not None else None
    if run is None or model is None:
        return None
    worker.backend.set_seed(run.case.seed)
    worker.restore_attributes()
    return dataclasses.replace(run, model=model)


def _move_constants(run: CaseRun, moves: Path) -> None:
    """Move the port's parameters as the reference has moved its own; raises ValueError where only a part of one is."""
    parameters = run.backend.named_parameters(run.model)
    with np.load(moves, allow_pickle=False) as known:
        for name, tensor in parameters.items():
            parts = run.canonical.parts(name)
            if any(part.name in known for part in parts):
                move = run.canonical.from_reference(name, known)
                if move is None:
                    raise ValueError(f"{name}: the reference moves a part of it alone")
                run.backend.assign(tensor, run.backend.to_array(tensor) + move)


def port_forced_forward(
    worker: Any,
    stage: str,
    weights: Mapping[str, Any],
    folder: str,
    calls: Sequence[dict],
    pairs: Sequence[Sequence[Any]],
    moved: Sequence[str],
    wanted: Sequence[tuple[int, Sequence[str]]] = (),
    gradients: bool = True,
    draw: int = 0,
) -> dict[str, Any]:
    """Run the port with the reference's inputs in every layer.

    Args:
        pairs: path in the port, ordinal, partner's number.
        moved: the reference's names of parameters and buffers that its pass has changed.
        wanted: on the second draw of inputs, numbers of calls with the values that are to be kept of each.
        gradients: whether `port_forced_backward` is to judge gradients; else only what is wanted runs.
        draw: of the inputs, as `CaseRun` takes it.

    Returns:
        `left_out`: path of a layer → why it was not judged; what `Forcing.keep` returns; `lacking` alone if what is
        wanted does not run without the values of the whole pass.
    """
    forcing, kept = Forcing(worker, folder, calls, moved), dict(wanted)
    known = forcing.by_number  # without what a pass that ended early did not come to
    partners = {(path, ordinal): known[number] for path, ordinal, number in pairs if number in known}

    def begin(standing: StandIns | None, partners: Pairs) -> ForcedForward:
        run = (standing and _unchanged(worker)) or CaseRun.of(worker, stage, weights)
        run = dataclasses.replace(run, draw=draw)
        if draw == MOVED:
            _move_constants(run, Path(folder) / MOVES)
        alone = {} if wanted else distances_alone(worker.kept[_OWN], partners)
        return forcing.begin(run, partners, wanted=kept, alone=alone, standing=standing)

    standing = None
    if not gradients:
        results, given_up, _ = worker.kept[JUDGED]
        needed = with_those_around(kept, forcing.by_number)
        standing = StandIns(results, given_up, needed, last_to_end(kept, forcing.by_number))
    with worker.backend.no_grad() if standing else contextlib.nullcontext():
        forced, left_out = passed(functools.partial(begin, standing), partners)
    if standing and (left_out or not {unit.call.number for unit in forced.units if unit.ended}.issuperset(kept)):
        return {"lacking": True}
    if not wanted:
        worker.kept[JUDGED] = _judged(forced)
    return {"left_out": left_out | forced.left_out, **forcing.keep(forced)}
