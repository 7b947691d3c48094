"""The edit of a constructor of the port with which it makes tables that the reference has, in any arrangement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

from twinalign.recorder.tables_without_partner import read_tables, tables_of, with_values_of
from twinalign.replay.edits_of_component import Component
from twinalign.replay.helper_edits import Edit
from twinalign.replay.mended_constants import builder
from twinalign.replay.mended_port import PortUnit
from twinalign.replay.ordered_edits import Fit
from twinalign.replay.rebuilt_code import editing_port


def tables_mended(
    worker: Any,
    stage: str,
    layer: str,
    tables: str,
    keys: Sequence[str],
    unit: Mapping[str, Any],
    theirs: Mapping[str, Any],
    seconds: float,
) -> dict[str, Any]:
    """Search the edit with which a layer's constructor makes the reference's tables, and the layer is right.

    Args:
        layer: path of the layer in the port.
        tables: file of those of the reference's tables that have no partner.
        keys: names of the port's that the layer holds.
        unit: what `PortUnit` takes of the wrong layer.
        theirs, seconds: as for `Component.mended`.
    """
    names = {key.rpartition(".")[2] for key in keys}
    right = [one for some in read_tables(tables).values() for one in some]
    with editing_port():
        try:
            build, wrong_unit = builder(worker, stage, layer), PortUnit(worker, stage, **unit)
        except Exception:  # a user's code may not run once more, or runs otherwise
            return {}

    def wrong() -> Set[Any]:
        made = tables_of(worker.backend, build(), ())
        found = {name: worker.backend.to_array(made[name]) for name in names if name in made}
        return {name for name in names if name not in found or with_values_of(found[name], right) is None}

    def accepts(edit: Edit) -> bool:
        return wrong_unit.fit(edit) in (Fit.UNIT, Fit.ALL)

    return Component(worker, build, wrong, [{name} for name in sorted(names)], accepts=accepts).mended(theirs, seconds)
