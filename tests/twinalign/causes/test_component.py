"""The search for causes outside the model goes on where one of them cannot be tried."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from twinalign.causes.component import Component, _ExaminedComponent
from twinalign.causes.registry import Cause, Variant


class Constant(Component):
    def __init__(self) -> None:
        self.port = self.reference = {"x": np.zeros(1)}
        self.floors = {}

    def run(self) -> Mapping[str, np.ndarray]:
        return self.reference


def raising(component: Any) -> Iterator[Variant]:
    yield component.variant("before")
    raise RuntimeError("Trying to backward through the graph a second time")


def plain(component: Any) -> Iterator[Variant]:
    yield component.variant("after")


def test_a_cause_that_raises_while_it_looks_for_variants_leaves_the_others_to_be_tried() -> None:
    causes = [Cause(find.__name__, "train", "a cause", Constant, find) for find in (raising, plain)]
    found = [variant.detail for _, variant in _ExaminedComponent(Constant(), causes).candidates()]
    assert found == ["before", "after"]
