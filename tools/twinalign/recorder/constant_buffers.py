"""Buffers that each side's constructor computes: masks, tables of positions, indices.

They are the same with every seed, so a port can have them wrong, and the reference's values in their place would hide
it: whoever trains the port from its own weights has the wrong ones. So the port keeps its own values of those that
differ. Running statistics and what is drawn at random are given to the port as the parameters are.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.backends.state_layout import StateEntry
from twinalign.conversion.initial_weights import WeightFiles
from twinalign.files.reader import read_arrays
from twinalign.files.recordings import save_npz
from twinalign.processes.side_process import SideProcess
from twinalign.recorder.tables_without_partner import differ, share_tables
from twinalign.sides import SIDES

_FEW, _SEEDS = 8, 6
"""Of so few elements, which may be signs, so many seeds are tried before they count as constant."""


def settle_constants(
    processes: Mapping[str, SideProcess],
    stage: str,
    files: Mapping[str, WeightFiles],
    given: dict[str, Any],
    release: Callable[[SideProcess], Any] | None,
) -> None:
    """Let the port keep its own values of constant buffers that differ, and share tables without a partner.

    Args:
        given: what `convert_weights` returned. The port's weights are written anew without these buffers; its side is
            given their names as `own_buffers`, and the file of the reference's values as `constants`; and what
            `share_tables` gives it.
        release: lets a side forget its model, where the memory is not enough for two; None if it is.
    """
    if "paddle" not in given or any(side not in processes or not processes[side].alive for side in SIDES):
        return

    def ask(side: str, function: Callable[..., dict[str, Any]], **arguments: Any) -> list[str]:
        answer = processes[side].call(function, stage=stage, **arguments)
        if release is not None:
            release(processes[side])
        return list(answer["keys"])

    layouts = [json.loads(files[side].layout.read_text(encoding="utf-8")) for side in SIDES]
    _keep_own(ask, files, layouts[1], given)
    share_tables(ask, layouts, files["ref"].arrays.with_name(f"{files['ref'].arrays.stem}_tables.npz"), given["paddle"])


def _keep_own(
    ask: Callable[..., list[str]],
    files: Mapping[str, WeightFiles],
    own_layout: Sequence[Mapping[str, Any]],
    given: Mapping[str, Any],
) -> None:
    port, canonical = given["paddle"], given["paddle"]["canonical"]
    layout = map(StateEntry.of, own_layout)
    # One tensor for one of the reference's, which is stored and not trained.
    fixed = [entry.key for entry in layout if entry.persistent and (entry.role == "buffer" or entry.trainable is False)]
    names = {key: canonical[key][0][0] for key in fixed if len(canonical.get(key, ())) == 1}
    differ = ask("paddle", differing_buffers, weights=port["path"], keys=list(names)) if names else []
    names = {key: names[key] for key in differ}
    if not names:
        return
    constant = ask("ref", constant_buffers, weights=str(files["ref"].arrays), keys=list(names.values()))
    own = [key for key, name in names.items() if name in constant]
    if own:
        own = ask("paddle", constant_buffers, weights=None, keys=own)
    if own:
        weights, arrays = Path(port["path"]), read_arrays(Path(port["path"]))
        port["own_buffers"], port["constants"] = own, str(weights.with_name(f"{weights.stem}_constants.npz"))
        save_npz(Path(port["constants"]), {key: arrays[key] for key in own})
        save_npz(weights, {key: array for key, array in arrays.items() if key not in own})


def differing_buffers(worker: Any, stage: str, weights: str, keys: Sequence[str]) -> dict[str, Any]:
    """`keys` of these buffers to which the port's constructor gives other values than the weights do; in its side."""
    model = worker.freshly_built(worker.fresh_case(stage), stage)
    converted = read_arrays(Path(weights))
    own = {key: array for key, array in worker.backend.state_items(model) if key in keys}
    known = [key for key in keys if key in converted and key in own and own[key].shape == converted[key].shape]
    return {"keys": [key for key in known if differ(own[key], converted[key])]}


def constant_buffers(worker: Any, stage: str, weights: str | None, keys: Sequence[str]) -> dict[str, Any]:
    """`keys` of these buffers that no seed changes, beside parameters that a seed does change; in either side.

    Args:
        weights: file of the values with the case's own seed; None for those of a freshly built model. Beside
            parameters that no seed changes, which were loaded, buffers may be running statistics that were loaded too.
    """
    case = worker.fresh_case(stage)
    if weights is None:
        first = {k: np.array(array) for k, array in worker.backend.state_items(worker.freshly_built(case, stage))}
    else:
        first = dict(read_arrays(Path(weights)))
    other = worker.construct(case, 1)
    again = dict(worker.backend.state_items(other))
    entries = {entry.key: entry for entry in map(StateEntry.of, worker.backend.describe_state(other))}
    parameters = [entry for entry in entries.values() if entry.role == "parameter" and entry.key in first]

    def drawn_beside(path: str) -> bool:
        inside = [entry for entry in parameters if f"{entry.layer}.".startswith(f"{path}." if path else "")]
        if not inside and path:
            return drawn_beside(path.rpartition(".")[0])
        return any(not np.array_equal(first[entry.key], again[entry.key]) for entry in inside)

    held = [key for key in keys if key in first and key in again and not differ(first[key], again[key])]
    few = {key for key in held if first[key].size <= _FEW and first[key].dtype.kind == "f"}
    for seed in range(2, _SEEDS) if few else ():
        drawn = dict(worker.backend.state_items(worker.construct(case, seed)))
        few -= (changed := {key for key in few if differ(first[key], drawn[key])})
        held = [key for key in held if key not in changed]
    return {"keys": [key for key in held if drawn_beside(entries[key].layer)]}
