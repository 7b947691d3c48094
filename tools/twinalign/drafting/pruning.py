"""What ran with the model and makes no difference to it: found by leaving it out and running the model again.

Libraries such as transformers build a model through thousands of lines that document, check, log or register. A trial
tells them from what the model computes: a package without them, still in torch, must have the same first weights from
the same seed, and give the same outputs and gradients to the bit. Functions that were handed tensors, and those of the
model's own module, are not tried: what they do may depend on the inputs.
"""

import ast
import contextlib
import itertools
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from twinalign.drafting.module_source import first_line
from twinalign.drafting.observed_model import observe_lines
from twinalign.drafting.one_pass import CANDIDATE, Inputs, behaviour_of, behaviour_of_reference, prepare
from twinalign.drafting.package import BUILD, build_source
from twinalign.drafting.selected_files import files_of
from twinalign.drafting.selection import Cuts, Selection, qualified_name
from twinalign.drafting.untaken_branches import came_to
from twinalign.processes.guardian import temporary_folder
from twinalign.processes.side_process import ChildError, SideProcess

WORTH_LINES = 4000
"""Fewer lines are drafted in less time than the trials take."""
_SECONDS = 60.0
_MOST_NEEDED = 2


def pruned(
    reference: str,
    observed: Mapping[str, Any],
    inputs: Inputs,
    parts: Mapping[str, str],
    python: str | None,
    progress: Callable[[str, str], None] = lambda side, text: None,
    seconds: float = _SECONDS,
) -> Selection:
    """The selection of what a model needs without what makes no difference to it; functions are tried for `seconds`.

    `observed` is what `observe_model` says of the `reference` and its `parts`, and `python` the interpreter that has
    torch. A selection of fewer than `WORTH_LINES` lines loses decorators alone, and only where it imports another
    package that needs torch, which no port can have.
    """
    whole = Selection(observed)
    files, _ = files_of(whole)
    large = sum(text.count("\n") for text in files.values()) >= WORTH_LINES
    if not large and not _imports_others(whole, files):
        return whole
    progress("ref", "leaving out what makes no difference to the model, by running it without")
    ran = _lines_that_ran(reference, whole, inputs, parts, python) if large else {}
    with (
        temporary_folder("twinalign-trials-") as folder,
        contextlib.closing(_Trials(folder, inputs, parts, python)) as trials,
    ):
        expected = trials.expected(reference)

        def same(cuts: Cuts) -> bool:
            while (said := trials.behaviour(Selection(observed, cuts))) != expected:
                taken = came_to(said)
                if taken is None:
                    return False
                ran[taken[0]].append(taken[1])  # a port's modules have other names, which some code asks for
            return True

        decorators = _most(_decorators(whole, observed["made"]), lambda some: same(Cuts(some, ran=ran)))
        if decorators is None:
            return whole
        if not large:
            return Selection(observed, Cuts(decorators))
        functions = _functions(Selection(observed, Cuts(decorators, ran=ran)), observed["handled"])
        emptied = _left_out(functions, lambda some: same(Cuts(decorators, some, ran)), time.monotonic() + seconds)
        return Selection(observed, Cuts(decorators, emptied, ran))


def _imports_others(whole: Selection, files: Mapping[str, str]) -> bool:
    """Whether a file imports a package that needs torch and of which nothing is taken along."""
    others = {name.partition(".")[0] for name in whole.modules} - {name.partition(".")[0] for name in whole.needed}
    lines = re.compile(rf"^\s*(?:import|from) (?:{'|'.join(map(re.escape, others))})\b", re.MULTILINE)
    return bool(others) and any(lines.search(text) for text in files.values())


def _lines_that_ran(
    reference: str, whole: Selection, inputs: Inputs, parts: Mapping[str, str], python: str | None
) -> dict[str, list[int]]:
    """Of the modules that are needed beside the model's own, which stays as it was written."""
    own = {module for module, _ in whole.named}
    names = {whole.modules[name]: name for name in whole.needed if name not in own}
    with SideProcess("ref", python=python) as process:
        ran = process.call(observe_lines, reference=reference, inputs=inputs, parts=parts, files=sorted(names))
    return {names[file]: lines for file, lines in ran.items()}


def _most(candidates: Sequence[str], same: Callable[[frozenset[str]], bool]) -> frozenset[str] | None:
    """All candidates but those few that are needed: one that documents may not even run where its library is not whole.

    None where more of them are needed.
    """
    for count in range(min(len(candidates), _MOST_NEEDED) + 1):
        for needed in itertools.combinations(candidates, count):
            if same(found := frozenset(candidates) - set(needed)):
                return found
    return None


def _left_out(
    candidates: Sequence[tuple[str, str]], same: Callable[[frozenset[tuple[str, str]]], bool], deadline: float
) -> frozenset[tuple[str, str]]:
    """Functions that can be left out together: first all of a module, and where that fails halves of them."""
    found: frozenset[tuple[str, str]] = frozenset()
    groups = [list(group) for _, group in itertools.groupby(candidates, key=lambda candidate: candidate[0])]
    groups.sort(key=len, reverse=True)  # many small groups are soon done, and the last is popped first
    while groups and time.monotonic() < deadline:
        group = groups.pop()
        if same(found | set(group)):
            found |= set(group)
        elif len(group) > 1:
            groups += [group[len(group) // 2 :], group[: len(group) // 2]]
    return found


def _decorators(selection: Selection, made: Mapping[str, Sequence[str]]) -> list[str]:
    """Full names of the decorators that are kept, but torch's, the standard library's, and those that make something
    else than a function.
    """
    found: set[str] = set()
    needed: set[str] = set()
    for module, kept in selection.needed.items():
        source = selection.source(module)
        for statement in kept.statements:
            of = statement if isinstance(statement, ast.ClassDef) else None
            methods = selection.body_of(module, of) if of else []
            for node, owner in [(statement, None), *((node, of) for node in methods)]:
                if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                    names = {
                        selection.name_of_decorator(source, one) for one in selection.decorators(source, node, owner)
                    }
                    found |= names
                    needed |= names if qualified_name(node, owner) in made.get(module, ()) else set()
    foreign = {*sys.stdlib_module_names, "torch", "typing_extensions"}
    return sorted(
        name
        for name in found - needed
        if "." in name and name.partition(".")[0] not in foreign and not name.endswith((".setter", ".getter"))
    )


def _functions(selection: Selection, handled: Mapping[str, Sequence[int]]) -> list[tuple[str, str]]:
    """Functions that ran, outside of the model's own module, and were never handed a tensor."""
    own = {module for module, _ in selection.named}
    found = []
    for module, needed in selection.needed.items():
        if module in own:
            continue
        for statement in sorted(needed.statements, key=lambda one: one.lineno):
            of = statement if isinstance(statement, ast.ClassDef) else None
            nodes = selection.body_of(module, of) if of else [statement]
            found += [
                (module, qualified_name(node, of))
                for node in nodes
                if isinstance(node, ast.FunctionDef) and first_line(node) not in handled.get(module, ())
            ]
    return found


class _Trials:
    """Runs packages in forks of a process that has imported torch."""

    def __init__(self, folder: Path, inputs: Inputs, parts: Mapping[str, str], python: str | None) -> None:
        self._folder, self._inputs, self._parts, self._python = folder, inputs, parts, python
        self._count = 0
        self._process: SideProcess | None = None

    def expected(self, reference: str) -> str:
        """What the reference does."""
        given = {"reference": reference, "inputs": self._inputs, "parts": self._parts}
        return str(self._forked().call(behaviour_of_reference, **given)["digest"])

    def behaviour(self, selection: Selection) -> str:
        """What the package's model does, as a digest, or why it does not run."""
        self._count += 1
        place = self._folder / str(self._count)
        for path, text in {**files_of(selection)[0], f"{BUILD}.py": build_source(selection)}.items():
            file = place / CANDIDATE / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        try:
            given = {"folder": str(place), "inputs": self._inputs, "kinds": list(self._parts)}
            return str(self._forked().call(behaviour_of, **given)["digest"])
        except ChildError as error:
            if error.died:
                self.close()
            return error.reason

    def _forked(self) -> SideProcess:
        """A fresh fork."""
        if self._process is None:
            self._process = SideProcess("ref", python=self._python, threads=1, forks=True)
            self._process.call(prepare)
        else:
            self._process.again()
        return self._process

    def close(self) -> None:
        if self._process is not None:
            self._process.close()
        self._process = None
