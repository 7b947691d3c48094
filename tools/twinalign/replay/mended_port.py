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
import enum
import gc
import itertools
import math
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from twinalign.replay.aligned_code import Code, parsed
from twinalign.replay.case_run import CaseRun, KeptState
from twinalign.replay.code_lines import Function
from twinalign.replay.forced_call import ForcedCall
from twinalign.replay.forced_pass import Pairs, passed
from twinalign.replay.helper_edits import Edit, HelperEdit, ranked_edits
from twinalign.replay.judged_before import StandIns, with_those_around
from twinalign.replay.layer_calls import FORWARD, LOSS
from twinalign.replay.port_forward import ForcedForward
from twinalign.replay.port_own import own_forward
from twinalign.replay.port_passes import JUDGED, Forcing
from twinalign.replay.rebuilt_code import compiled, running
from twinalign.replay.slices import FAR, distances, outermost
from twinalign.replay.statement_edits import statement_edits
from twinalign.verdict.array_difference import difference

_LEFT = 1e-4
"""Share of a difference that an edit may leave: constants are written in some digits."""
_ROUNDING = 1e-11
"""Relative difference that rounding in a unit explains."""


def port_mended(
    worker: Any,
    stage: str,
    weights: Mapping[str, Any],
    number: int,
    names: Sequence[str],
    draws: Sequence[Mapping[str, Any]],
    pairs: Sequence[Sequence[Any]],
    theirs: Sequence[Sequence[Any]],
    inside: Mapping[str, Any] | None,
    of_gradients: bool,
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
        of_gradients: whether gradients alone differ.
        pairs: path in the port, ordinal, partner's number.
        theirs: `[file, first line, last line]` of the reference's code.
        inside: between which lines the unit's values go wrong, as `reference_confirm` has it.
        is_alone: whether nothing else of the port is wrong, so that the whole has to be right with the edit.
        right: `[file, first line, last line]` of the port's lines that do what the reference's do.
        seconds: of processor time.

    Returns:
        `text`, `lines_of_port` and `edit` of the edit; nothing without one.
    """
    until, found = time.process_time() + seconds, None
    try:
        unit = _Unit(worker, stage, weights, number, names, draws, pairs, of_gradients, is_alone)
    except Exception:  # a user's code may not run once more, or runs otherwise
        return {}
    codes = unit.codes()
    lines = {(at["file"], at["line"]) for at in [inside["unknown"]]} if inside else set()
    for edit in _edits(codes, _parsed(theirs), unit.distances(codes, lines), right, of_gradients):
        if time.process_time() > until:
            break
        fits = unit.fit(edit)
        if fits is Fit.ALL or (fits is Fit.VALUES and found is None):
            found = edit
        if fits is Fit.ALL:
            break
    return {"text": found.text, "lines_of_port": found.lines_of_port, "edit": found.to_json()} if found else {}


class Fit(enum.Enum):
    """What is right with an edit: nothing, values alone, or gradients as well, as far as they can be compared."""

    NOTHING, VALUES, ALL = range(3)


class _NotRepeatedError(Exception):
    """The unit does not run again as it ran before."""


@dataclasses.dataclass
class _Draw:
    """One draw of inputs, on which the unit runs."""

    run: CaseRun
    forcing: Forcing
    standing: StandIns
    right: Mapping[str, np.ndarray]
    """What the reference's forward, and its loss, return."""
    gradients: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    """Those of the reference's parameters."""
    pairs: Pairs = dataclasses.field(default_factory=dict)
    wrong: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Names of what differs in the unit without an edit → relative difference."""
    whole: float = 0.0
    """Relative difference of what the port returns without an edit."""
    gradient: float = math.inf
    """The same of its parameters' gradients."""
    children: frozenset[tuple[Any, ...]] = frozenset()
    """Number of the call of each layer inside, how many tensors it is given, and which of the reference's it is not."""


class _Unit:
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
        of_gradients: bool,
        is_alone: bool,
    ) -> None:
        self._of_gradients, self._is_alone = of_gradients, is_alone
        self._worker, self._number, self._names = worker, number, names
        run = CaseRun.of(worker, stage, weights)
        self._state = KeptState(run.backend)
        self._state.keep(run.backend.state_tensors(run.model))
        self._functions: dict[CodeType, Function] = {}
        self._moves = run.case.train_mode or any(one["moved"] for one in draws)
        """Whether a pass changes the model."""
        self._draws = [self._begun(dataclasses.replace(run, draw=one["draw"]), one, pairs) for one in draws]
        first = self._draws[0]
        if first.gradient <= _ROUNDING if of_gradients else not first.wrong:
            raise _NotRepeatedError

    def codes(self) -> list[Code]:
        """The port's own functions that the unit runs."""
        holders: dict[CodeType, list[FunctionType]] = {}
        for holder in gc.get_referrers(*self._functions) if self._functions else ():
            if isinstance(holder, FunctionType) and holder.__code__ in self._functions:
                holders.setdefault(holder.__code__, []).append(holder)
        made = (
            parsed(text.source, text.file, text.line, text.name, "paddle", functions=holders[code])
            for code, text in self._functions.items()
            if code in holders and text.source
        )
        return [one for one in made if one is not None]

    def distances(self, codes: Sequence[Code], lines: Collection[tuple[str, int]]) -> dict[int, int]:
        """How far each part of its functions is from what is wrong, `lines` included."""
        wrong, unit = self._draws[0].wrong, self._unit
        given = {child.path for child in unit.children for name in wrong if name.startswith(f"input.{child.label}.")}
        returns = not given
        classes: dict[str, set[str]] = {}
        for path, layer in self._worker.backend.named_layers(unit.layer) if unit.layer is not None else ():
            for part in path.split("."):
                classes.setdefault(part, set()).add(type(layer).__name__)
        own = [f"{type(unit.layer).__name__}.forward"] if unit.layer is not None else outermost(codes, classes)
        named = {next((part for part in reversed(path.split(".")) if not part.isdigit()), "") for path in given}
        return distances(codes, named, own if returns else [], lines, classes)

    def fit(self, edit: Edit) -> Fit:
        """Whether an edit mends the unit, on all draws.

        Either all of its values are the reference's then, or some are, and the port as a whole gives what the reference
        gives: where layers of another structure are paired, what they hand on can be another part of the model.
        """
        try:
            made = compiled(edit.edited, {})
            with contextlib.ExitStack() as stack:
                for function in edit.code.functions:
                    stack.enter_context(running(function, made))
                return self._fit()
        except Exception:  # an edit may not run
            return Fit.NOTHING

    def _fit(self) -> Fit:
        first = self._draws[0]
        if self._of_gradients:
            return Fit.ALL if all(self._has_right_gradients(draw) for draw in self._draws) else Fit.NOTHING
        left = [self._left(first)]
        if not left[0] < first.wrong.keys():
            return Fit.NOTHING
        left += [self._left(draw) for draw in self._draws[1:]]
        apart = [self._apart(draw) for draw in self._draws]
        pairs = zip(apart, self._draws, strict=True)
        if not all(one <= max(_ROUNDING, _LEFT * draw.whole) for one, draw in pairs):
            # With another fault behind it the whole is wrong still, but has to run.
            runs = not self._is_alone and all(map(math.isfinite, apart))
            return Fit.NOTHING if any(left) or not runs else Fit.ALL
        return Fit.ALL if not first.gradients or self._has_right_gradients(first) else Fit.VALUES

    def _begun(self, run: CaseRun, given: Mapping[str, Any], pairs: Sequence[Sequence[Any]]) -> _Draw:
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
        draw = _Draw(run, forcing, standing, right)
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
        self._unit = unit
        draw.wrong = {name: found.relative for name, found in unit.wrong_ends().items()}
        draw.children = _children(unit)
        draw.whole = self._apart(draw)
        draw.gradient = self._gradient_apart(draw) if draw.gradients else math.inf
        return draw

    def _again(self, draw: _Draw) -> CaseRun:
        """The draw with the model, and what else a run changes, as they were."""
        if self._moves:
            self._state.restore(draw.run.backend.state_tensors(draw.run.model))
        draw.run.backend.set_seed(draw.run.case.seed)
        self._worker.restore_attributes()
        return draw.run

    def _pass(self, draw: _Draw, is_followed: bool) -> ForcedForward:
        wanted = {self._number: self._names}
        forced = draw.forcing.begin(self._again(draw), draw.pairs, standing=draw.standing, wanted=wanted)
        forced.is_followed = is_followed
        return forced

    def _ended(self, forced: ForcedForward) -> ForcedCall | None:
        found = [unit for unit in forced.units if unit.call.number == self._number and unit.ended]
        return found[-1] if found else None

    def _left(self, draw: _Draw) -> set[str]:
        """Names of what still differs in the unit; raises `_NotRepeatedError` where it calls other layers."""
        forced = self._pass(draw, False)
        with self._worker.backend.no_grad():
            forced()
        unit = self._ended(forced)
        if unit is None or draw.children != _children(unit):
            raise _NotRepeatedError
        found = unit.wrong_ends().items()
        return {name for name, one in found if one.relative > max(_ROUNDING, _LEFT * draw.wrong.get(name, 0.0))}

    def _apart(self, draw: _Draw) -> float:
        """The greatest relative difference of what the port returns; infinite where that has another shape."""
        with self._worker.backend.no_grad():
            calls = list(draw.forcing.by_number.values())
            _, found = own_forward(self._again(draw), calls, lambda path: path, {})
        return max((difference(found[name], value).relative for name, value in draw.right.items()), default=math.inf)

    def _gradient_apart(self, draw: _Draw) -> float:
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

    def _has_right_gradients(self, draw: _Draw) -> bool:
        return self._gradient_apart(draw) <= max(_ROUNDING, _LEFT * draw.gradient)


def _children(unit: ForcedCall) -> frozenset[tuple[Any, ...]]:
    return frozenset((child.call.number, len(child.given), *sorted(child.lacking)) for child in unit.children)


def _edits(
    codes: Sequence[Code],
    theirs: Sequence[ast.AST],
    far: Mapping[int, int],
    right: Sequence[Sequence[Any]],
    of_gradients: bool,
) -> Iterator[Edit]:
    """Edits of functions, the nearest to wrong values first; `far`: of `distances`.

    One more number in a value may make up for a wrong one before it or behind it: that comes later. Last come edits of
    lines that are known to be right.
    """

    def order(edit: HelperEdit) -> tuple[bool, bool, int]:
        file, begin, end = edit.lines_of_port[0]
        if of_gradients and _stops(edit.old) > _stops(edit.new):  # of which there are few
            return False, False, -1
        is_right = any(Path(one[0]).name == file and one[1] <= begin and end <= one[2] for one in right)
        return is_right, _adds_number(edit), far.get(id(edit.old), FAR)

    edits = [(order(edit), edit) for edit in ranked_edits(codes, theirs)]
    edits.sort(key=lambda both: both[0])
    near = [edit for place, edit in edits if not any(place[:2]) and place[2] < FAR]
    statements = (edit for code in codes for edit in statement_edits(code))
    yield from itertools.chain(near, statements, (edit for _, edit in edits[len(near) :]))


def _stops(node: ast.AST) -> int:
    """How often code stops a gradient."""
    return sum(getattr(one, "attr", "") in ("detach", "stop_gradient") for one in ast.walk(node))


def _adds_number(edit: HelperEdit) -> bool:
    """Whether an edit only puts a number, or a sign, before or behind what is there."""
    if isinstance(edit.new, ast.UnaryOp):
        return edit.new.operand is edit.old
    sides = (edit.new.left, edit.new.right) if isinstance(edit.new, ast.BinOp) else ()
    added = [one for one in sides if one is not edit.old]
    return len(added) == 1 and isinstance(added[0], ast.Constant)


def _parsed(places: Iterable[Sequence[Any]]) -> list[ast.AST]:
    """The functions that stand in these lines of files."""
    found: list[ast.AST] = []
    for file in dict.fromkeys(place[0] for place in places):
        with contextlib.suppress(OSError, SyntaxError, ValueError):
            tree = ast.parse(Path(file).read_text(encoding="utf-8"))
            spans = [(first, last) for other, first, last in places if other == file]
            functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
            found += [one for one in functions if any(begin <= one.lineno <= end for begin, end in spans)]
    return found
