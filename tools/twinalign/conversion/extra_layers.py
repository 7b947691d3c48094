"""Layers of the port that the reference lacks, proven to matter: such a port is another network."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from twinalign.conversion.fingerprints import all_agree, fingerprint
from twinalign.conversion.layers_to_match import Matchable, surplus
from twinalign.conversion.remote_model import BothModels, Run
from twinalign.conversion.storage import RAW

_MOST_TRIED = 8
"""Each takes a run of the port."""


def extra_layers(trial: BothModels, reference: Sequence[Matchable], paddle: Sequence[Matchable]) -> list[Matchable]:
    """The port's layers for which the reference has nothing, and on whose weights depends what the port returns.

    None of a tensor with as many elements as one of the reference's, which may stand for it (an embedding that is used
    once more at the end), and none that may hold some of the reference's weights that have no place in the port.
    """
    mine, other = (
        [matchable for found, _ in alone.values() for matchable in found]
        for alone in (surplus(reference, paddle), surplus(paddle, reference))
    )
    sizes = {math.prod(shape) for matchable in reference for _, shape in matchable.signature[1]}
    extra = [
        matchable
        for found, count in surplus(paddle, reference).values()
        for matchable in found
        if count == len(found)
        and any(part.entry.role == "parameter" for part in matchable.stored)
        and math.prod(matchable.loose_signature[1][-1][1]) not in sizes
        and not _may_hold(matchable, mine, other)
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


def _may_hold(layer: Matchable, mine: Sequence[Matchable], other: Sequence[Matchable]) -> bool:
    """Whether a layer of the port may hold weights of the reference's layers without a partner, `mine`.

    One side may hold in one layer what the other holds in several, side by side (q, k and v) or one after the other
    (two Linear layers in a row); `other` are the port's layers without a partner.
    """
    shape = layer.loose_signature[1][-1][1]
    shapes, others = (
        [shape for matchable in of_side if matchable.kind != RAW for _, shape in matchable.signature[1]]
        for of_side in (mine, other)
    )
    loose = sum(math.prod(size) for matchable in mine if matchable.kind == RAW for _, size in matchable.signature[1])
    if loose >= math.prod(shape) or len(shape) < 2:
        return bool(mine)

    def together(same: Callable[[tuple[int, ...]], tuple[int, ...]]) -> tuple[int, int]:
        """Elements on either side of the tensors that could be put beside this one."""
        left, right = (
            sum(math.prod(one) for one in of_side if len(one) == len(shape) and same(one) == same(shape))
            for of_side in (shapes, others)
        )
        return left, right

    beside, below = together(lambda one: one[1:]), together(lambda one: (one[0], *one[2:]))
    in_a_row = any(one[1:2] == shape[1:2] for one in shapes) and any(one[:1] == shape[:1] for one in shapes)
    return beside[0] == beside[1] or below[0] == below[1] or in_a_row
