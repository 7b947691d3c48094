"""Any one edit of the unit's program, from a closed vocabulary: what is tried where no named cause gives the port.

Each edit says, for one call, what is done in its place. Calls of one line that run again, in a loop or in another call,
are edited together first, then each alone; calls at the frontier (`Program.frontier`) come before all others.
"""

from collections.abc import Callable, Iterator

from twinalign.causes.layers.changed_calls import forward, state
from twinalign.causes.layers.edit import Edit, Edits, name_of
from twinalign.causes.layers.program import Operation, Program, program_of
from twinalign.causes.layers.program_edits import NO_STEPS, VOCABULARY, gradients, readers_exchanged
from twinalign.causes.layers.subject import CallVariant, LayerSubject


def edits_of(program: Program, backward: bool) -> Iterator[Edit]:
    """Every edit; at the frontier first where the forward pass is wrong, the gradient's first where it is not."""
    frontier = program.operations if backward else program.frontier()
    keys = {operation.key for operation in frontier}
    behind = [operation for operation in program.operations if operation.key not in keys]
    for operations in (frontier, behind):
        for kind in (gradients, *VOCABULARY) if backward else VOCABULARY:
            # Values that the port has, too, may be exchanged where they are read.
            chosen = program.operations if kind is readers_exchanged else operations
            chosen = [
                one for one in chosen if one.line and (one.name not in NO_STEPS or (backward and one.name == "detach"))
            ]
            for edit in _together_and_alone(program, kind, chosen):
                if kind is not readers_exchanged or (operations is frontier) == (not keys.isdisjoint(edit.changes)):
                    yield edit


def _together_and_alone(program: Program, kind: Callable[..., Edits], operations: list[Operation]) -> Edits:
    found: dict[tuple[str, str, int, str], list[Edit]] = {}
    for operation in reversed(operations):
        for edit in kind(program, operation):
            text = f"{operation.line}, `{name_of(operation)}`"
            found.setdefault(
                (operation.line, name_of(operation), operation.group, f"{text}: {edit.detail}"), []
            ).append(edit)
    for (*_, text), same in found.items():
        changes = {key: change for edit in same for key, change in edit.changes.items()}
        yield Edit(text, changes, frozenset().union(*(edit.reads for edit in same)))
        if 1 < len(same) <= 6:
            for number, edit in enumerate(reversed(same), start=1):
                yield Edit(f"{text}, time {number} of {len(same)}", edit.changes, edit.reads)


def _variants(subject: LayerSubject) -> Iterator[CallVariant]:
    for edit in edits_of(program_of(subject), subject.backward):
        yield CallVariant(edit.detail, edit.changes, subject.module, edit.reads)


@forward(alone=True)
def edited_program(subject: LayerSubject) -> Iterator[CallVariant]:
    """One step of the code differs."""
    return _variants(subject)


@state(alone=True)
def edited_program_of_buffers(subject: LayerSubject) -> Iterator[CallVariant]:
    """One step of the code that updates buffers differs."""
    return _variants(subject)
