"""Planting in the recorder process of the port; the functions here are called through `SideProcess.call`."""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from twinalign.case.definition import Case
from twinalign.planted_faults.case_contents import CaseContents, contents_of
from twinalign.planted_faults.catalogue import PlantableFault, catalogue
from twinalign.planted_faults.fault_sites import CaseSite, ModelSite, ProcessSite
from twinalign.planted_faults.interception import Interception

_KEPT = "contents of the case"


def explore(worker: Any, weights: Mapping[str, Any]) -> dict[str, Any]:
    """Return the id of every fault that applies to the case, with the place where it goes."""
    worker.kept[_KEPT] = found = contents_of(worker, weights)
    places = {fault.id: fault.find(found) for fault in catalogue().values()}
    return {"places": {name: place for name, place in places.items() if place is not None}}


def plant(worker: Any, fault: str) -> dict[str, Any]:
    """Spoil every case and model that the worker makes from now on, in one way."""
    unplant(worker)
    found: CaseContents = worker.kept[_KEPT]
    chosen = catalogue()[fault]
    place = chosen.find(found)
    if place is None:
        raise ValueError(f"{fault} does not apply to {found.case.name}")
    worker.planted = Planted(worker, chosen, place, found)
    return {}


def unplant(worker: Any) -> dict[str, Any]:
    """Take the planted fault out again."""
    if worker.planted is not None:
        worker.planted.close()
        worker.planted = None
    worker.forget_model()
    return {}


class Planted:
    """A fault at its place."""

    def __init__(self, worker: Any, fault: PlantableFault, path: str, found: CaseContents) -> None:
        """Plant what belongs to the process; the rest waits for cases and models."""
        self.fault, self.path, self.paddle = fault, path, worker.backend.paddle
        self._home = worker.part_key("forward" if fault.hook in ("model", "weights") else fault.stage)
        self._stack = contextlib.ExitStack()
        self._intercepted: set[str] = set()
        self._replacements: dict[str, Callable[..., Any]] = {}
        self._interception = Interception(self.paddle)
        if fault.hook == "process":
            fault.plant(ProcessSite(self.paddle, found, self._stack))

    def close(self) -> None:
        """Put the replaced functions back."""
        self._stack.close()

    def spoil_case(self, case: Case) -> None:
        """Change the methods of a case that was just loaded."""
        if self.fault.hook == "case" and self._is_home(case):
            self.fault.plant(CaseSite(self.paddle, case))

    def spoil_model(self, case: Case, model: Any) -> None:
        """Change a layer of a model that was just built."""
        if self.fault.hook == "model" and self._is_home(case):
            place = self._place(case, model)
            self.fault.plant(place)
            self._intercept(place)

    def spoil_weights(self, case: Case, model: Any) -> None:
        """Change parameters or buffers of a model that was just given its weights."""
        if self.fault.hook == "weights" and self._is_home(case):
            self.fault.plant(self._place(case, model))

    def _is_home(self, case: Case) -> bool:
        return (case.name or type(case).__name__) == self._home

    def _place(self, case: Case, model: Any) -> ModelSite:
        layer = model
        for step in filter(None, self.path.split(".")):
            layer = getattr(layer, step)
        return ModelSite(self.paddle, case, model, layer, self._interception, {})

    def _intercept(self, place: ModelSite) -> None:
        """Let the replacements take the calls that the layer's own code makes, and not those of layers below it."""
        if not place.replacements:
            return
        self._replacements = place.replacements
        below = [layer for layer in place.layer.sublayers() if layer is not place.layer]
        self._interception.follow([(False, layer) for layer in below] + [(True, place.layer)])
        for name in place.replacements.keys() - self._intercepted:
            self._intercepted.add(name)
            self._stack.enter_context(self._interception.intercepted([name], self._call))

    def _call(self, name: str, original: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> Any:
        return self._replacements[name](original, *arguments, **keywords)
