"""Layers of the port that the reference lacks, proven to matter: such a port is another network."""

import math
from collections.abc import Sequence
from typing import Any

from twinalign.conversion.fingerprints import all_agree, fingerprint
from twinalign.conversion.layers_to_match import Matchable, surplus
from twinalign.conversion.remote_model import BothModels, Run

_MOST_TRIED = 8
"""Each takes a run of the port."""


def extra_layers(trial: BothModels, reference: Sequence[Matchable], paddle: Sequence[Matchable]) -> list[Matchable]:
    """The port's layers for which the reference has nothing, and on whose weights depends what the port returns.

    None where some of the reference's weights have no place in the port: what one side holds in two layers, the other
    may hold in one. None of a tensor with as many elements as one of the reference's, which may stand for it (an
    embedding that is used once more at the end).
    """
    if surplus(reference, paddle):
        return []
    sizes = {math.prod(shape) for matchable in reference for _, shape in matchable.signature[1]}
    extra = [
        matchable
        for found, count in surplus(paddle, reference).values()
        for matchable in found
        if count == len(found)
        and any(part.entry.role == "parameter" for part in matchable.stored)
        and math.prod(matchable.loose_signature[1][-1][1]) not in sizes
    ]
    colours = {matchable.name: matchable.name for matchable in paddle}

    if not extra:
        return []
    returned_by = trial.run([{"colours": {}}, {"colours": colours}])
    compared = len(returned_by[0].outputs)  # the port may have more, as auxiliary heads are

    def found_in(run: Run) -> list[dict[str, Any]]:
        return [fingerprint(array) for array in run.outputs[:compared]]

    before = found_in(returned_by[1])
    if not before or not all_agree(before, found_in(trial.run_paddle({"colours": colours}))):  # it draws random numbers
        return []
    return [
        matchable
        for matchable in extra[:_MOST_TRIED]
        if not all_agree(
            before, found_in(trial.run_paddle({"colours": {**colours, matchable.name: f"{matchable.name}, changed"}}))
        )
    ]
