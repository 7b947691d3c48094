"""The edit of the port's own code with which a wrong unit gives what the reference's gives, found in the port itself.

A port may be built otherwise than the reference: other layers inside of others, a layer in place of a function. Then
no line of the port can stand in the reference. But the port can be edited: each small edit of the functions that the
unit runs is tried in the forced pass, in which the unit has the reference's inputs and its layers hand on what the
reference's return.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import itertools
import math
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import CodeType
from typing import Any

import numpy as np

from twinalign.patching import replaced
from twinalign.replay.aligned_code import Code
from twinalign.replay.arguments_of_layers import arguments_of_layers
from twinalign.replay.case_run import CaseRun, KeptState
from twinalign.replay.code_lines import Function
from twinalign.replay.distances_in_units import classes_of_layers, distances_in
from twinalign.replay.drawn_unit import ROUNDING, Draw, allowed, children_of
from twinalign.replay.forced_call import ForcedCall
from twinalign.replay.forced_pass import Pairs, passed
from twinalign.replay.grafts import grafts
from twinalign.replay.helper_edits import Edit, HelperEdit
from twinalign.replay.judged_before import StandIns, with_those_around
from twinalign.replay.kept_edits import keep_edit
from twinalign.replay.layer_calls import FORWARD, LOSS
from twinalign.replay.misplaced_arguments import other_arguments
from twinalign.replay.noted_values import values_in
from twinalign.replay.ordered_edits import Fit, edited, in_turn, ordered_edits, parsed_at
from twinalign.replay.other_layers import OtherLayer, calls_of_other_layers
from twinalign.replay.places_of_edits import Unit, found_anyhow, trials_of
from twinalign.replay.port_forward import ForcedForward
from twinalign.replay.port_own import own_forward
from twinalign.replay.port_passes import JUDGED, Forcing
from twinalign.replay.rebuilt_code import editing_port
from twinalign.replay.running_functions import Ran, codes_running, functions_of
from twinalign.replay.slices import kept_parts, lines_of, shared_distances
from twinalign.replay.statement_edits import StatementEdit
from twinalign.replay.statement_pairs import statement_edits_by_pairs
from twinalign.verdict.array_difference import difference

NOT_ON_DRAW = {"not_on_draw": True}
"""Answered where a unit runs on the case's inputs, and not on the others that were asked for."""
_LATER = 2
"""So many steps farther count functions that build the model."""
_OF_MODEL = "_model", "_untouched", "_attributes"
"""What the process keeps of a model that it has built."""


def port_mended(
    worker: Any,
    stage: str,
    weights: Mapping[str, Any],
    number: int,
    names: Sequence[str],
    draws: Sequence[Mapping[str, Any]],
    pairs: Sequence[Sequence[Any]],
    theirs: Mapping[str, Any],
    inside: Mapping[str, Any] | None,
    phase: str,
    is_alone: bool,
    right: Sequence[Sequence[Any]],
    seconds: float,
) -> dict[str, Any]:
    """Search the edit of the port's code with which the unit of one call is right; runs in the port's process.

    Args:
        number: of the reference's call.
        names: of the values that differ.
        draws: `draw`, and of the reference's pass on it the `folder`, `calls` and `moved`, as `port_forced_forward`
            takes them, and `gradients`: an `.npz` file with those of its parameters, or an empty text.
        phase: `forward`, or `backward` where gradients alone differ, or `state` where buffers do.
        pairs: path in the port, ordinal, partner's number.
        theirs: of the reference, `code`, `[file, first line, last line]` of each function, and `values` of `values_of`.
        inside: between which lines the unit's values go wrong, as `reference_confirm` has it.
        is_alone: whether nothing else of the port is wrong, so that the whole has to be right with the edit.
        right: `[file, first line, last line]` of the port's lines that do what the reference's do.
        seconds: of processor time.

    Returns:
        `text`, `lines_of_port` and `edit` of the edit; without one `near`, lines of what the wrong values are made of.
        `NOT_ON_DRAW` if it runs on the first draw alone.
    """
    with editing_port():
        try:
            unit = PortUnit(worker, stage, weights, number, names, draws, pairs, phase, is_alone)
        except _NotOnDrawError:
            return NOT_ON_DRAW
        except Exception:  # a user's code may not run once more, or runs otherwise
            return {}
        return keep_edit(worker, _searched(unit, theirs, inside, right, phase == "backward", seconds))


def _searched(
    unit: PortUnit,
    theirs: Mapping[str, Any],
    inside: Mapping[str, Any] | None,
    right: Sequence[Sequence[Any]],
    of_gradients: bool,
    seconds: float,
) -> dict[str, Any]:
    codes = unit.codes()
    lines = {(at["file"], at["line"]) for at in [inside["unknown"]]} if inside else set()
    far = unit.distances(codes, lines)
    values, trees = theirs["values"], parsed_at(theirs["code"])
    grafted = [] if of_gradients else grafts(codes, unit.values, values["functions"], far, unit.delay)
    of_pairs = statement_edits_by_pairs(codes, trees, values["functions"], far)
    pairs = (edit for edit in of_pairs if type(edit) is HelperEdit and unit.makes_no_layer(edit))

    def edits(far: Mapping[int, int]) -> Iterable[Edit]:
        near = sorted((one for one in grafted if id(one.old) in far), key=lambda one: far[id(one.old)])
        found = in_turn(near, ordered_edits(codes, trees, far, right, of_gradients, unit.delay, unit.ran))
        return itertools.chain(pairs, unit.of_other_layers(codes), filter(unit.makes_no_layer, found))

    placed = unit.placed(codes, far, pairs)
    trials = functools.cache(functools.partial(trials_of, placed, values)) if placed else lambda: None
    found = found_anyhow(placed, trials, values, trees, grafted, far, edits, unit.fit, seconds)
    return found or {"near": lines_of(codes, far)}


class _NotRepeatedError(Exception):
    """The unit does not run again as it ran before."""


class _NotOnDrawError(Exception):
    """The unit runs on its inputs, and not on others."""


class PortUnit:
    """A wrong unit of the port, which runs again with edits of its code."""

    def __init__(
        self,
        worker: Any,
        stage: str,
        weights: Mapping[str, Any],
        number: int,
        names: Sequence[str],
        draws: Sequence[Mapping[str, Any]],
        pairs: Sequence[Sequence[Any]],
        phase: str,
        is_alone: bool,
    ) -> None:
        self._phase, self._is_alone = phase, is_alone
        began = time.process_time()
        self._ending: int | None = None
        self._worker, self._stage, self._number, self._names = worker, stage, number, names
        self._build = functools.partial(CaseRun.of, worker, stage, weights)
        run = self._build()
        self._made = functions_of(self._construct, "paddle")
        """Functions that build the model, which has to be built anew with an edit in one of them."""
        self._layers = {part for path, _ in worker.backend.named_layers(run.model) for part in path.split(".")}
        self._state = KeptState(run.backend)
        self._state.keep(run.backend.state_tensors(run.model))
        self._functions: dict[CodeType, Function] = {}
        self._draws: list[Draw] = []
        for one in draws:
            try:
                self._draws.append(self._begun(dataclasses.replace(run, draw=one["draw"]), one, pairs))
            except Exception as error:
                if not self._draws:
                    raise
                raise _NotOnDrawError from error
        first = self._draws[0]
        if first.gradient <= ROUNDING if phase == "backward" else not first.wrong:
            raise _NotRepeatedError
        self.ran = Ran.of(lambda: (self._construct(), self._left(first)))
        self.values = values_in(lambda: (self._construct(), self._left(first)))
        self._seconds = time.process_time() - began

    def codes(self) -> list[Code]:
        """The port's own functions that the unit runs, and those that build the model."""
        running = codes_running(self._functions, "paddle")
        known = set(map(_place, running))
        return [*running, *(code for code in self._made if _place(code) not in known)]

    def delay(self, code: Code) -> int:
        """How much later a function is looked at: one that builds the model takes longer to try."""
        return _LATER if self._is_of_construction(code) else 0

    def makes_no_layer(self, edit: Edit) -> bool:
        """Whether an edit stands in something else than the making of a layer, which would get other weights."""
        if not self._is_of_construction(edit.code):
            return True
        node = edit.node if isinstance(edit, StatementEdit) else edit.old
        stored = [one for one in ast.walk(edit.code.tree) if isinstance(one, ast.Assign)]
        return not any(
            getattr(one.targets[0], "attr", "") in self._layers and any(inner is node for inner in ast.walk(one))
            for one in stored
        )

    def _is_of_construction(self, code: Code) -> bool:
        return _place(code) in map(_place, self._made)

    def _construct(self) -> Any:
        return self._worker.construct(self._worker.fresh_case(self._stage))

    def distances(self, codes: Sequence[Code], lines: Collection[tuple[str, int]]) -> dict[int, int]:
        """How far each part of its functions is from what is wrong, `lines` included."""
        if self._phase == "state":
            layers = [layer for _, layer in self._worker.backend.named_layers(self._draws[0].run.model)]
            kept = {name for layer in layers for name in self._worker.backend.own_buffers(layer)}
            return shared_distances(codes, [list(kept_parts(codes, kept))], self._classes())
        return distances_in(self._unit, self._draws[0].wrong, codes, lines, self._classes())

    def _classes(self) -> dict[str, set[str]]:
        return classes_of_layers(self._worker.backend, self._unit.layer)

    def placed(self, codes: Sequence[Code], far: Mapping[int, int], pairs: Iterable[HelperEdit]) -> Unit | None:
        """The unit as `found_by_values` takes it; None where it is not wrong in its values."""
        if self._phase != "forward":
            return None
        backend, first = self._worker.backend, self._draws[0]
        own = [code for code in codes if not self._is_of_construction(code)]
        more = arguments_of_layers(own, backend.named_layers(first.run.model))
        likely = itertools.chain(more, other_arguments(own, far, self.ran), pairs)
        left, like = functools.partial(self._left, first), backend.to_tensor_like
        return Unit(own, left, lambda: not left(), self.fits_whole, self.values, like, self._classes(), likely)

    def of_other_layers(self, codes: Sequence[Code]) -> Iterator[Edit]:
        """Edits that call a layer which the port does not call, in place of another."""
        return calls_of_other_layers(codes, self._worker.backend.named_layers(self._draws[0].run.model), self._called)

    def fit(self, edit: Edit) -> Fit:
        """Whether an edit mends the unit, on all draws.

        Either all of its values are the reference's then, or some are, and the port as a whole gives what the reference
        gives: where layers of another structure are paired, what they hand on can be another part of the model.
        """
        try:
            with edited(edit, self._seconds):
                if isinstance(edit, OtherLayer):
                    return (
                        Fit.ALL if all(self._apart(one) <= allowed(one.whole) for one in self._draws) else Fit.NOTHING
                    )
                if not self._is_of_construction(edit.code):
                    return self._fit()
                with self._built_anew():
                    return self._fit()
        except Exception:  # an edit may not run
            return Fit.NOTHING

    def fits_whole(self, edit: Edit) -> Fit:
        """The same of an edit that has to mend all values: the first wrong one is enough to refute it, and says nothing
        of others."""
        with replaced(self, "_ending", self._number):
            found = self.fit(edit)
        return Fit.NOTHING if found is Fit.BROKEN else found

    @contextlib.contextmanager
    def _built_anew(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for name in _OF_MODEL:
                stack.enter_context(replaced(self._worker, name, None))
            run = self._build()
            state = KeptState(run.backend)
            state.keep(run.backend.state_tensors(run.model))
            stack.enter_context(replaced(self, "_state", state))
            for draw in self._draws:
                stack.enter_context(replaced(draw, "run", dataclasses.replace(run, draw=draw.run.draw)))
            yield

    def _fit(self) -> Fit:
        first = self._draws[0]
        if self._phase != "forward":
            is_right = self._has_right_gradients if self._phase == "backward" else self._has_right_state
            return Fit.ALL if all(map(is_right, self._draws)) else Fit.NOTHING
        left = [self._left(first)]
        if not left[0] < first.wrong.keys():
            return Fit.BROKEN if left[0] - first.wrong.keys() else Fit.NOTHING
        left += [self._left(draw) for draw in self._draws[1:]]
        apart = [self._apart(draw) for draw in self._draws]
        pairs = zip(apart, self._draws, strict=True)
        if not all(one <= allowed(draw.whole) for one, draw in pairs):
            # With another fault behind it the whole is wrong still, but has to run.
            runs = not self._is_alone and all(map(math.isfinite, apart))
            return Fit.NOTHING if any(left) or not runs else Fit.UNIT
        return Fit.ALL if not first.gradients or self._has_right_gradients(first) else Fit.VALUES

    def _begun(self, run: CaseRun, given: Mapping[str, Any], pairs: Sequence[Sequence[Any]]) -> Draw:
        """A draw with what differs on it; raises `_NotRepeatedError` where the unit does not run."""
        forcing = Forcing(self._worker, given["folder"], given["calls"], given["moved"])
        known = forcing.by_number
        results, given_up, ran = self._worker.kept[JUDGED]
        standing = StandIns(results, given_up, with_those_around([self._number], known), self._number)
        ends = {call.path: call for call in known.values() if call.path in (FORWARD, LOSS)}
        right = {
            f"{path}.{at}": forcing.store.read(tensor.number)
            for path, call in ends.items()
            for at, tensor in enumerate(call.outputs)
            if tensor.number is not None
        }
        draw = Draw(run, forcing, standing, right)
        if given["gradients"]:
            with np.load(given["gradients"], allow_pickle=False) as stored:
                draw.gradients = dict(stored)

        def begin(partners: Pairs) -> ForcedForward:
            draw.pairs = partners
            return self._pass(draw, True)

        partners = {(path, ordinal): known[at] for path, ordinal, at in pairs if at in known and (path, ordinal) in ran}
        with self._worker.backend.no_grad():
            forced, _ = passed(begin, partners)
        unit = self._ended(forced)
        if unit is None:
            raise _NotRepeatedError
        self._functions |= unit.functions
        self._unit, self._called = unit, {one.path for one in forced.units}
        draw.wrong = {name: found.relative for name, found in unit.wrong_ends().items()}
        draw.children = children_of(unit)
        # What the unit keeps, and keeps right as it is, has to stay so.
        state = {f"state.{name}": array for name, array in forcing.state_after.items()}
        apart = self._all_apart(draw, right | state)
        draw.whole = max((apart[name] for name in right), default=0.0)
        state = {name: array for name, array in state.items() if name in draw.returned}  # no count of batches, say
        if self._phase == "state":
            draw.wrong = {name: apart[name] for name in right | state if apart[name] > ROUNDING}
        draw.right |= {name: array for name, array in state.items() if apart[name] <= ROUNDING or draw.wrong.get(name)}
        draw.gradient = self._gradient_apart(draw) if draw.gradients else math.inf
        return draw

    def _again(self, draw: Draw) -> CaseRun:
        """The draw with the model, and what else a run changes, as they were: with an edit it may change more."""
        self._state.restore(draw.run.backend.state_tensors(draw.run.model))
        draw.run.backend.set_seed(draw.run.case.seed)
        self._worker.restore_attributes()
        return draw.run

    def _pass(self, draw: Draw, is_followed: bool) -> ForcedForward:
        wanted = {self._number: self._names}
        forced = draw.forcing.begin(self._again(draw), draw.pairs, standing=draw.standing, wanted=wanted)
        forced.is_followed, forced.tensors.ending = is_followed, self._ending
        return forced

    def _ended(self, forced: ForcedForward) -> ForcedCall | None:
        found = [unit for unit in forced.units if unit.call.number == self._number and unit.ended]
        return found[-1] if found else None

    def _left(self, draw: Draw) -> set[str]:
        """Names of what still differs in the unit; raises `_NotRepeatedError` where it calls other layers."""
        forced = self._pass(draw, False)
        with self._worker.backend.no_grad():
            forced()
        unit = self._ended(forced)
        if unit is None or draw.children != children_of(unit):
            raise _NotRepeatedError
        found = unit.wrong_ends().items()
        return {name for name, one in found if one.relative > allowed(draw.wrong.get(name, 0.0))}

    def _apart(self, draw: Draw) -> float:
        """The greatest relative difference of what the port returns; infinite where that has another shape."""
        return max(self._all_apart(draw, draw.right).values(), default=0.0)

    def _all_apart(self, draw: Draw, right: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Name of a value of the port's own pass → its relative difference, infinite where one side alone has it, but
        for what the port has without an edit as well."""
        with self._worker.backend.no_grad():
            calls = list(draw.forcing.by_number.values())
            _, found = own_forward(self._again(draw), calls, lambda path: path, {})
        draw.returned = draw.returned or frozenset(found)
        known = {name: difference(found[name], value).relative for name, value in right.items() if name in found}
        return dict.fromkeys([*right, *(found.keys() - draw.right.keys() - draw.returned)], math.inf) | known

    def _gradient_apart(self, draw: Draw) -> float:
        """The relative difference of all parameters' gradients together: some alone are nothing but rounding."""
        run, backend = self._again(draw), self._worker.backend
        backend.clear_gradients(run.model)
        with backend.default_dtype(run.dtype):
            outputs, loss = run.through(lambda path, layer, forward, given, named: forward(*given, **named))
            (loss if run.has_loss else run.stand_in_loss(outputs)).backward()
        items = (("", name, array) for name, array in backend.gradient_items(run.model))
        own = {name: array for _, name, array in run.canonical.to_reference(items)}
        backend.clear_gradients(run.model)
        pairs = [(own.get(name, np.zeros_like(array)), array) for name, array in draw.gradients.items()]
        ours, theirs = (np.concatenate([one[side].ravel() for one in pairs]) for side in (0, 1))
        return difference(ours, theirs).relative if ours.shape == theirs.shape else math.inf

    def _has_right_state(self, draw: Draw) -> bool:
        """Whether all that is kept is right with the edit, and what is returned as it was."""
        before = {**dict.fromkeys(draw.right, draw.whole), **draw.wrong}
        return all(one <= allowed(before[name]) for name, one in self._all_apart(draw, draw.right).items())

    def _has_right_gradients(self, draw: Draw) -> bool:
        return self._gradient_apart(draw) <= allowed(draw.gradient)


def _place(code: Code) -> tuple[str, int]:
    return code.file, code.tree.lineno
