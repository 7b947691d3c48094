"""What is tried against each fault, and in which order: edits alone, then several of them at once."""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from twinalign.edits.source import Edit, overlap

FaultKey = tuple[str, str, str]
"""A fault's layer in the port, its phase, and its cause."""
_ALONE_FIRST = 4
"""Edits that are tried alone before all are tried at once: one wrong line is commoner than two."""
_MOST_OF_LINE = 3
"""Edits of one line that are tried with the likeliest of the others, where lines are proven to be wrong together."""
_MOST_AT_ONCE = 3
"""Of edits with which the port runs, where all of them at once mend nothing."""
AS_CONVERTED = "the case gives layers of the port the weights of others"
_AS_IN_REFERENCE = "as the reference's source has it"


@dataclasses.dataclass(frozen=True)
class Proposal:
    """Edits that are tried as one, and the fault that they are for.

    Attributes:
        all_needed: whether a proven cause says that none of the edits can be left out.
    """

    key: FaultKey
    edits: tuple[Edit, ...]
    cause: str
    all_needed: bool = False


def key_of(fault: Mapping[str, Any]) -> FaultKey:
    """The key of a fault that is given as JSON."""
    return fault["paddle_layer"], fault["phase"], (fault["explanation"] or {"id": ""})["id"]


class Candidates:
    """Remembers what was tried, and what came of each edit that was tried alone."""

    def __init__(self) -> None:
        self._tried: set[tuple[FaultKey, tuple[Edit, ...]]] = set()
        self._left_by: dict[tuple[FaultKey, Edit], float | None] = {}
        """How far the port is off with an edit alone: infinitely if that changes nothing, None if it dies."""

    def next_for(self, fault: Mapping[str, Any]) -> Proposal | None:
        """The likeliest proposal that was not tried."""
        alone = list(dict.fromkeys(_alone(fault)))
        of_lines = next((one for one in self._of_lines(fault, alone) if not self.was_tried(one)), None)
        if of_lines is not None:
            # Which of two layers is meant may as well be wrong in the case; there the edit leaves the model as it is.
            in_case = (one for one in alone if one.cause == AS_CONVERTED and not self.was_tried(one))
            return next(in_case, of_lines) if _exchanges_names(of_lines.edits) else of_lines
        waiting = [one for one in alone if not self.was_tried(one)]
        if waiting and len(alone) - len(waiting) < _ALONE_FIRST:
            return waiting[0]
        at_once = (one for one in self._at_once(fault, alone, not waiting) if not self.was_tried(one))
        return next(itertools.chain(at_once, waiting), None)

    def was_tried(self, proposal: Proposal) -> bool:
        return (proposal.key, proposal.edits) in self._tried

    def note_tried(self, proposal: Proposal) -> None:
        self._tried.add((proposal.key, proposal.edits))

    def note_effect(self, proposal: Proposal, left: float | None) -> None:
        """Note how far the port is off with these edits: infinitely if they change nothing, None if it dies."""
        if len(proposal.edits) == 1:
            self._left_by[proposal.key, proposal.edits[0]] = left

    def _of_lines(self, fault: Mapping[str, Any], alone: Sequence[Proposal]) -> Iterator[Proposal]:
        """Where several lines of the port are proven to be wrong together: an edit of each, the likeliest first."""
        key, lines = key_of(fault), _proven_lines(fault)
        of_lines = [
            [
                one.edits[0]
                for one in alone
                if Path(one.edits[0].file).name == file and first <= one.edits[0].line <= last
            ]
            for file, first, last in lines
        ]
        if len(lines) < 2 or not all(of_lines):
            return
        likeliest = [edits[0] for edits in of_lines]
        others = [
            [*likeliest[:at], edit, *likeliest[at + 1 :]]
            for rank in range(1, _MOST_OF_LINE)
            for at, of_line in enumerate(of_lines)
            for edit in of_line[rank : rank + 1]
        ]
        for edits in map(tuple, [likeliest, *others]):
            if all(self._left_by.get((key, edit), 0.0) is not None for edit in edits) and not _overlapping(edits):
                yield Proposal(key, edits, _cause(fault), all_needed=True)

    def _at_once(self, fault: Mapping[str, Any], alone: Sequence[Proposal], all_known: bool) -> Iterator[Proposal]:
        """Where the reference's source differs in several places: all of them; then two or three, the nearest first.

        Of edits of the same text the likelier is taken.
        """
        key = key_of(fault)
        of_reference = {edit_of(found) for found in fault["reference_edits"]}
        may_help = [one for one in alone if self._left_by.get((key, one.edits[0]), 0.0) is not None]
        taken: list[Edit] = []
        for one in may_help:
            edit = one.edits[0]
            if edit in of_reference and not any(overlap(edit, other) for other in taken):
                taken.append(edit)
        cause = _cause(fault)
        if len(taken) > 1:
            yield Proposal(key, tuple(taken), cause)
        nearest = sorted(may_help, key=lambda one: self._left_by.get((key, one.edits[0])) or 0.0) if all_known else []
        for number in range(2, _MOST_AT_ONCE + 1):
            for several in itertools.combinations([one.edits[0] for one in nearest], number):
                if not _overlapping(several):
                    yield Proposal(key, several, cause)


def _exchanges_names(edits: Sequence[Edit]) -> bool:
    before, after = sorted(edit.before for edit in edits), sorted(edit.after for edit in edits)
    return before == after and all(name.isidentifier() for name in before)


def _overlapping(edits: Sequence[Edit]) -> bool:
    return len(set(edits)) < len(edits) or any(overlap(*pair) for pair in itertools.combinations(edits, 2))


def _proven_lines(fault: Mapping[str, Any]) -> list[tuple[str, int, int]]:
    """File name, first and last line of the port's lines that are proven to be what is wrong."""
    known = fault["explanation"]
    return list(map(tuple, known["evidence"].get("lines_of_port", ()))) if known else []


def edit_of(found: Mapping[str, Any]) -> Edit:
    """An edit from its JSON."""
    return Edit(found["file"], tuple(found["span"]), found["before"], found["after"])


def _alone(fault: Mapping[str, Any]) -> Iterator[Proposal]:
    key = key_of(fault)
    for found in filter(None, [fault["edit"], *fault["further_edits"]]):
        yield Proposal(key, (edit_of(found),), _cause(fault), all_needed=True)
    for found in fault["case_edits"]:
        yield Proposal(key, (edit_of(found),), AS_CONVERTED)
    for found in fault["reference_edits"]:
        yield Proposal(key, (edit_of(found),), _cause(fault))


def _cause(fault: Mapping[str, Any]) -> str:
    known = fault["explanation"]
    return f"{known['text']} [{known['id']}]" if known else _AS_IN_REFERENCE
