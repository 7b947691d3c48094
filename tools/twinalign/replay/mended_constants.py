"""The edit of a constructor of the port with which it makes the constant buffers that the reference's makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from twinalign.files.reader import read_arrays
from twinalign.patching import replaced
from twinalign.recorder.tables_without_partner import differ
from twinalign.replay.edits_of_component import Component
from twinalign.replay.noted_expressions import values_of
from twinalign.replay.rebuilt_code import editing_port


def values_in_construction(worker: Any, path: str, stage: str) -> dict[str, Any]:
    """The values in the code that builds the reference's model, as `noted_expressions.values_of` writes them."""
    return values_of(lambda: worker.construct(worker.fresh_case(stage)), path)


def constants_mended(
    worker: Any, stage: str, layer: str, reference: str, keys: Sequence[str], theirs: Mapping[str, Any], seconds: float
) -> dict[str, Any]:
    """Search the edit with which the constructor of a layer of the port makes the reference's buffers.

    Args:
        layer: path of the layer in the port.
        reference: file of the reference's values, in the port's layout, by the port's names.
        keys: those of them that the layer holds.
        theirs, seconds: as for `Component.mended`.
    """
    right = {key.rpartition(".")[2]: array for key, array in read_arrays(Path(reference)).items() if key in keys}
    with editing_port():
        build = builder(worker, stage, layer)

    def wrong() -> Set[Any]:
        made = {name: tensor for name, tensor in worker.backend.own_state(build()).items() if name in right}
        return {n for n in right if n not in made or differ(worker.backend.to_array(made[n]), right[n])}

    return Component(worker, build, wrong, [{name} for name in right]).mended(theirs, seconds)


def builder(worker: Any, stage: str, path: str) -> Callable[[], Any]:
    """Builds the layer of this path once more: alone, with what its class was given when the model was built.

    In the whole model where its class is made anew with each model.
    """
    case, backend = worker.fresh_case(stage), worker.backend
    kind = type(dict(backend.named_layers(worker.construct(case)))[path])
    given: dict[int, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {}
    original = kind.__init__

    def noting(self: Any, *arguments: Any, **keywords: Any) -> None:
        given.setdefault(id(self), (self, arguments, keywords))
        original(self, *arguments, **keywords)

    def in_model() -> Any:
        return dict(backend.named_layers(worker.construct(case)))[path]

    with replaced(kind, "__init__", noting):
        layer = in_model()
    if id(layer) not in given:
        return in_model
    _, arguments, keywords = given[id(layer)]

    def alone() -> Any:
        backend.set_seed(case.seed)
        with backend.building():
            return kind(*arguments, **keywords)

    return alone
