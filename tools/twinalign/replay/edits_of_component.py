"""The search for the edit of the port's own code that mends a component, which runs again with each."""

from __future__ import annotations

import ast
import dataclasses
import functools
import itertools
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from twinalign.replay.aligned_code import Code
from twinalign.replay.grafts import Graft, grafts
from twinalign.replay.guarded import LONGEST
from twinalign.replay.helper_edits import Edit, HelperEdit
from twinalign.replay.kept_edits import keep_edit, kept_edits
from twinalign.replay.noted_values import values_in
from twinalign.replay.ordered_edits import (
    Fit,
    answer_of,
    edited,
    fitting_edit,
    in_turn,
    ordered_edits,
    parsed_at,
    remembered,
)
from twinalign.replay.places_of_edits import Unit, found_anyhow, trials_of
from twinalign.replay.rebuilt_code import editing_port
from twinalign.replay.running_functions import Ran, functions_of
from twinalign.replay.slices import (
    FAR,
    called_by,
    callers_of,
    distances,
    named_parts,
    outermost,
    shared_distances,
    wrong_parts,
)
from twinalign.replay.statement_edits import StatementEdit
from twinalign.replay.statement_pairs import statement_edits_by_pairs
from twinalign.replay.value_trials import Trials

_LATE = FAR
_OF_LIKELY = 0.6
"""Share of the time for edits that are likely whatever the code is, or by how it reads beside the reference's."""
_OF_OTHERS = 0.6
"""And for all others, at least."""
_SIDE = "framework"
"""Parameter of a case's methods that asks for a side."""


class _Order:
    """How late edits of a component are tried: what is used rightly, or made of what is wrong before, behind others.

    So is what is nearer to something that is right than to all that is wrong: an edit of it would change that as well.
    """

    def __init__(
        self,
        trials: Callable[[], Trials | None],
        own: Sequence[Code],
        far: Mapping[int, int],
        far_from_right: Mapping[int, int],
    ) -> None:
        """`far`, `far_from_right`: of each part from what is wrong, and from what is right beside it."""
        self._trials, self._own = trials, {id(code) for code in own}
        self._of_right = {part for part, steps in far_from_right.items() if steps <= far.get(part, FAR)}

    def delay(self, code: Code) -> int:
        """By how many steps farther a function counts as being: few faults are in the case's own, and in layers'."""
        is_right = (places := self._trials()) is not None and places.returns_rightly(code)
        return 0 if id(code) in self._own and not is_right else _LATE

    def late(self, edit: Edit) -> int:
        """From 0, as `Trials.lateness` has it."""
        if self.delay(edit.code):
            return 2
        if id(edit.old if isinstance(edit, HelperEdit) else edit.node) in self._of_right:
            return 1
        places = self._trials() if isinstance(edit, HelperEdit) else None
        return places.lateness(edit.code, edit.old) if places is not None else 0  # type: ignore[union-attr]

    def near(self, grafted: Sequence[Graft], far: Mapping[int, int]) -> list[Graft]:
        """Grafts of what is wrong, the likelier and the nearer first."""
        found = [(self.late(one), at + far[id(one.old)], one) for at, one in enumerate(grafted) if id(one.old) in far]
        return [one for _, _, one in sorted(found, key=lambda ranked: ranked[:2])]


@dataclasses.dataclass
class Component:
    """A component of the port that can run again.

    Attributes:
        worker: of the port's process.
        run: runs it.
        wrong: runs it and returns the names of what is not as the reference's; may raise.
        names: of each thing that is wrong, as code may call it: all of them are made of what is to be found.
        right: names of what is right beside it.
        of_layers: names of classes and functions that compute what is known to be right.
        first: as `wrong`, of what `run` begins with; None if that is all.
        elsewhere: as `wrong`, on what shows more than was recorded; an edit ought to make that right as well.
        likely: of its functions and the reference's, edits that are tried first.
        accepts: whether an edit with which it is right counts.
    """

    worker: Any
    run: Callable[[], Any]
    wrong: Callable[[], Set[Any]]
    names: Sequence[Collection[str]]
    of_layers: Collection[str] = ()
    first: Callable[[], Set[Any]] | None = None
    elsewhere: Callable[[], Set[Any]] = frozenset
    likely: Callable[[Sequence[Code], Sequence[ast.AST]], Iterable[Edit]] = lambda codes, theirs: ()
    accepts: Callable[[Edit], bool] = lambda edit: True
    right: Collection[str] = ()

    def mended(self, theirs: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """The edit with which it is right, as `fitting_edit` has it; nothing where it does not run again as it did.

        `theirs`: of the reference, the `code`, `[file, first line, last line]` of each function, and the `values`, as
        `values_of` has them; and `lines` of the port, in this form, which a cause has named.
        """
        with editing_port():
            try:
                began = time.process_time()
                codes, ran = functions_of(self.run, "paddle"), Ran.of(self.run)
                before = self.wrong()
                if not codes or not before:
                    return {}
                before |= self.elsewhere()
                taken = time.process_time() - began
            except Exception:  # a user's code may not run once more
                return {}
            far = self._distances(codes)
            values, trees = theirs["values"], parsed_at(theirs["code"])
            named, own = values_in(self.run), self._beside_layers(codes)
            files = {code.file for code in codes} | {file for file, _ in ran.lines}
            fit = remembered(functools.partial(self._fit, before, files, taken))
            first = self.first or self.wrong
            like = self.worker.backend.to_tensor_like
            unit = Unit(own, first, lambda: not first(), fit, named, like, late=lambda edit: order.late(edit))
            trials = functools.cache(functools.partial(trials_of, unit, values))
            order = _Order(trials, own, far, distances(codes, named_parts(codes, self.right), {}))
            grafted = grafts(codes, named, values["functions"], far, order.delay, order.late)
            pairs = sorted(statement_edits_by_pairs(codes, trees, values["functions"], far), key=order.late)

            def edits(far: Mapping[int, int]) -> Iterable[Edit]:
                others = ordered_edits(codes, trees, far, delays=order.delay, ran=ran, late=order.late)
                found = itertools.chain(in_turn(order.near(grafted, far), others), filter(order.late, pairs))
                return (edit for edit in found if not _asks_for_side(edit))

            def likely() -> Iterator[Edit]:
                yield from reversed(kept_edits(self.worker))  # which have mended another part
                yield from self.likely(codes, trees)
                named_lines = theirs.get("lines", ())
                yield from (one for one in (edits(far) if named_lines else ()) if _stands_in(one, named_lines))
                theirs_first = in_turn(pairs, order.near(grafted, far))
                small = ordered_edits(codes, trees, far, delays=order.delay, ran=ran, late=order.late)
                found = itertools.filterfalse(order.late, in_turn(theirs_first, small))
                yield from itertools.filterfalse(_asks_for_side, found)

            began = time.process_time()
            found = _first(likely(), fit, _OF_LIKELY * seconds)
            if isinstance(graft := found.get("made"), Graft):  # a smaller edit says more
                found = fitting_edit(itertools.chain([graft], edits(far)), fit, seconds)
            left = max(seconds - (time.process_time() - began), _OF_OTHERS * seconds)
            anyhow = functools.partial(found_anyhow, unit, trials, values, trees, grafted)
            return keep_edit(self.worker, found or anyhow(far, edits, fit, left))

    def _distances(self, codes: Sequence[Code]) -> dict[int, int]:
        """Of each part of the code from what is wrong; that of the farthest where several things are."""
        roots = [found for names in self.names if (found := list(named_parts(codes, names)))]
        return shared_distances(codes, roots or [list(wrong_parts(codes, (), outermost(codes, {}), ()))], {})

    def _is_of_case(self, code: Code) -> bool:
        case = sys.modules[type(self.worker.case).__module__]
        return code.file == Path(str(case.__file__)).name

    def _is_of_layer(self, code: Code) -> bool:
        name = code.name.partition(".")[0]  # a case may have the name of its model's class
        is_case = name == type(self.worker.case).__name__ and self._is_of_case(code)
        return name in self.of_layers and not is_case

    def _beside_layers(self, codes: Sequence[Code]) -> list[Code]:
        """The functions that run without those of layers around them, and none of the case's own."""
        waiting = [code for code in codes if self._is_of_case(code) or not callers_of(code, codes)]
        found: list[Code] = []
        while waiting:
            code = waiting.pop()
            if all(code is not other for other in found) and not self._is_of_layer(code):
                found.append(code)
                waiting += called_by(code, codes)
        return [code for code in found if not self._is_of_case(code)]

    def _fit(self, before: Set[Any], files: Set[str], seconds: float, edit: Edit) -> Fit:
        is_own, beyond = True, set[Any]()
        try:
            with edited(edit, seconds):
                left = (self.first or self.wrong)()
            if not left:
                with edited(edit, seconds + LONGEST):  # what is right so far has an end
                    left = self.wrong()
                    # What calls the reference's own code gives what it gives.
                    is_own = bool(left) or {file for file, _ in Ran.of(self.run).lines} <= files
                    beyond = set(self.elsewhere()) if is_own and not left else beyond
        except Exception:  # an edit may not run
            return Fit.NOTHING
        if not left and is_own and beyond <= before and self.accepts(edit):
            return Fit.HERE if beyond else Fit.ALL
        return Fit.NOTHING if left <= before else Fit.BROKEN


def _first(edits: Iterable[Edit], fit: Callable[[Edit], Fit], seconds: float) -> dict[str, Any]:
    """What `answer_of` has of the first edit with which all is right; `seconds`: of processor time."""
    until = time.process_time() + seconds
    in_time = itertools.takewhile(lambda edit: time.process_time() < until, edits)
    return next((answer_of(one, Fit.ALL) for one in in_time if fit(one) is Fit.ALL), {})


def _stands_in(edit: Edit, lines: Iterable[Sequence[Any]]) -> bool:
    file, begin, end = edit.lines_of_port[0]
    return any(Path(str(one)).name == file and first <= begin and end <= last for one, first, last in lines)


def _asks_for_side(edit: Edit) -> bool:
    """Whether an edit stands where a method of the case chooses between both sides."""
    if not any(one.arg == _SIDE for one in edit.code.tree.args.args):
        return False
    written = [edit.node] if isinstance(edit, StatementEdit) else [edit.old, edit.new]
    if any(getattr(one, "id", "") == _SIDE for node in written for one in ast.walk(node)):
        return True
    choices = [one for one in ast.walk(edit.code.tree) if isinstance(one, (ast.IfExp, ast.Compare))]
    asking = [one for one in choices if any(getattr(name, "id", "") == _SIDE for name in ast.walk(one))]
    return any(one is written[0] for choice in asking for one in ast.walk(choice))
