"""The edit inside of a function of the port with which it does, call by call, what the reference's in its place does.

The reference's component runs once. Whenever the reference's function is called there, the port's runs with each of its
edits on copies of what is given, under the same settings of the framework.
"""

import ast
import contextlib
import copy
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from twinalign.replay.edits_in_lines import told_inside
from twinalign.replay.evaluation_calls import is_kept, on_trial
from twinalign.replay.guarded import guarded
from twinalign.replay.helper_edits import (
    Edit,
    code_running,
    is_same,
    ranked_edits,
    read_off,
    with_edited_function,
)
from twinalign.replay.own_definitions import definition
from twinalign.replay.port_lines import LinesVariant
from twinalign.replay.rebuilt_code import compiled, running
from twinalign.replay.statement_edits import statement_edits
from twinalign.replay.wrong_results import needed_by_wrong

_SECONDS = 5.0
"""Of processor time, for all edits."""
_MOST_CALLS, _LEAST_WRONG = 12, 3
_DEEPEST = 5
_NEAR = 16
"""So many edits of statements are tried before others."""
_HOOK, _RESULT = "_twinalign_called", ".0"
Values = Mapping[str, np.ndarray]
Run = Callable[[LinesVariant | None, float], Values]


def edit_of_function(variant: LinesVariant, run: Run) -> Edit | None:
    """The edit of a function that stands as a whole in place of the reference's, or of one that it calls.

    None where none is known, or too few values tell. `run` gives the component's values under a variant (None: the
    reference's own).
    """
    calls = _Calls(variant)
    with contextlib.suppress(Exception), calls.followed():  # what is given may have no copy
        run(None, 0.0)
    right = run(None, 0.0)
    for edit in calls.fitting if calls.wrong >= _LEAST_WRONG else ():
        with contextlib.suppress(Exception):
            if is_same(run(with_edited_function(variant, edit), 0.0), right, calls.rounded):
                return edit
    return None


def told_with_edit(
    text: str, evidence: Mapping[str, Any], lines: LinesVariant, run: Run, many: bool
) -> tuple[str, dict[str, Any]] | None:
    """As `told_inside` for a component; `many`: whether its values are enough to tell the edits of what lines call."""
    if not lines.is_whole:
        return told_inside(text, evidence, lines, run) if many else None
    edit = lines.edit or edit_of_function(lines, run)
    return told_inside(text, evidence, lines, run, edit) if edit is not None else None


class _Calls:
    """The calls of the reference's function.

    Attributes:
        wrong: how many values the port's function has given that the reference's has not.
        rounded: whether some of its values are float32.
        fitting: the edits with which it has always given the reference's; none before the first call that tells.
    """

    def __init__(self, variant: LinesVariant) -> None:
        self._variant, self._line = variant, variant.lines[0]
        self.wrong, self.rounded, self.fitting = 0, False, list[Edit]()
        self._count, self._is_known, self._inside = 0, False, False
        self._until = time.process_time() + _SECONDS

    @contextlib.contextmanager
    def followed(self) -> Iterator[None]:
        """Inside the block the function's calls are looked at."""
        code = self._line.theirs
        own = code.tree.args
        positional: list[ast.expr] = [ast.Name(one.arg, ast.Load()) for one in (*own.posonlyargs, *own.args)]
        named = [ast.keyword(one.arg, ast.Name(one.arg, ast.Load())) for one in own.kwonlyargs]
        hand_on = ast.Return(ast.Call(ast.Name(_HOOK, ast.Load()), positional, named))
        made = compiled(code, {self._line.place: hand_on})
        with contextlib.ExitStack() as stack:
            for function in code.functions:
                own_code = FunctionType(
                    function.__code__,
                    function.__globals__,
                    function.__name__,
                    function.__defaults__,
                    function.__closure__,
                )
                own_code.__kwdefaults__ = function.__kwdefaults__
                self._function, self._original = function, own_code
                function.__globals__[_HOOK] = self._called
                stack.callback(function.__globals__.pop, _HOOK, None)
                stack.enter_context(running(function, made))
            yield

    def _called(self, *given: Any, **named: Any) -> Any:
        if not self._inside and self._count < _MOST_CALLS and (self.fitting or time.process_time() < self._until):
            self._count += 1
            self._inside = True
            try:
                self._examine(given, named)
            finally:
                self._inside = False
        return self._original(*given, **named)

    def _examine(self, given: Any, named: Any) -> None:
        right = _result(self._original, given, named)
        self.rounded |= any(value.dtype == np.float32 for value in right.values())
        with self._variant.apply():
            self._compare(right, given, named)

    def _compare(self, right: Values, given: Any, named: Any) -> None:
        port = self._values(None, given, named)
        wrong = [name for name in right if not is_same({name: port[name]}, {name: right[name]})]
        self.wrong += sum(right[name].size for name in wrong)
        if not wrong and not self._is_known:
            return
        if self._is_known:
            self.fitting = [edit for edit in self.fitting if self._fits(edit, right, given, named)]
            return
        self._is_known = True
        for edit in self._edits(right, wrong, given, named):
            if time.process_time() > self._until:
                return
            if self._fits(edit, right, given, named):
                self.fitting.append(edit)

    def _edits(self, right: Values, wrong: Sequence[str], given: Any, named: Any) -> Iterator[Edit]:
        """Statements elsewhere first, then what changes what only wrong results of the function need."""
        codes = code_running(self._variant, self._variant.helpers.alone)

        def remaining(edit: Edit) -> np.ndarray:
            found = self._values(edit, given, named)
            return np.concatenate([(found[n] - right[n]).ravel() for n in right if right[n].dtype.kind == "f"])

        results = {name.split(".")[2] for name in wrong if name.startswith(f"{_RESULT}.")}
        needed = needed_by_wrong(codes[0].tree, results) if codes else set()
        edits = ranked_edits(codes, [self._line.theirs.tree])
        statements = itertools.chain.from_iterable(map(statement_edits, codes))
        yield from itertools.islice(statements, _NEAR)
        yield from sorted(edits, key=lambda edit: bool(needed) and not edit.exchanges and edit.old not in needed)
        yield from statements
        for code in codes if not self.fitting else ():
            yield from read_off(code, remaining)

    def _fits(self, edit: Edit, right: Values, given: Any, named: Any) -> bool:
        try:
            return is_same(self._values(edit, given, named), right)
        except Exception:  # an edit may not run
            return False

    def _values(self, edit: Edit | None, given: Any, named: Any) -> Values:
        """What the port's function gives, inside of `apply`, with an edit in it or in what it calls."""
        made, scope = edit and definition(edit.edited, self._variant.helpers), self._function.__globals__
        if edit is not None and made is None:
            with with_edited_function(self._variant, edit).apply(), guarded():
                return _result(self._function, given, named)
        try:
            if made:
                exec(made, scope)
            with guarded():
                return _result(self._function, given, named)
        finally:
            if edit is not None and (own := definition(edit.code, self._variant.helpers)):
                exec(own, scope)


def _result(function: Any, given: Any, named: Any) -> Values:
    """What a function returns, and what it leaves of copies of what it is given."""
    state = np.random.get_state()
    own, own_named = _copied(given), _copied(named)
    found: dict[str, np.ndarray] = {}
    try:
        with on_trial():
            returned = function(*own, **own_named)
        _flatten((returned, own, own_named), "", found, _DEEPEST)
    finally:
        np.random.set_state(state)
    return found


def _copied(value: Any) -> Any:
    if hasattr(value, "detach") and hasattr(value, "requires_grad"):
        return value.detach().clone().requires_grad_(value.requires_grad)
    if type(value) in (list, tuple):
        return type(value)(_copied(one) for one in value)
    if type(value) is dict:
        return {key: _copied(one) for key, one in value.items()}
    return value if is_kept(value) else copy.deepcopy(value)


def _flatten(value: Any, name: str, found: dict[str, np.ndarray], deep: int) -> None:
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    if isinstance(value, (np.ndarray, np.generic, bool, int, float)):
        array = np.asarray(value)
        keeps = array.dtype == np.float32 or array.dtype.kind not in "fiub"
        found[name] = array if keeps else array.astype(np.float64)
    elif deep and hasattr(value, "state_dict") and hasattr(value, "modules"):
        _flatten(dict(value.state_dict()), name, found, deep)
    elif deep and isinstance(value, (list, tuple)):
        for number, one in enumerate(value):
            _flatten(one, f"{name}.{number}", found, deep - 1)
    elif deep and isinstance(value, Mapping):
        for key, one in value.items():
            _flatten(one, f"{name}.{key}", found, deep - 1)
    elif deep and hasattr(value, "__dict__") and not callable(value):
        _flatten(vars(value), name, found, deep - 1)
