"""Results of layers are used again where an evaluation gives them the same, in whatever order it calls them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from twinalign.backends import load_backend
from twinalign.patching import replaced
from twinalign.replay.evaluation_calls import EvaluationCalls, KeptResults, is_kept, on_trial


class Layer:
    def __init__(self) -> None:
        self.calls, self.state = 0, 0.0

    def forward(self, x: torch.Tensor, factor: float = 1.0) -> torch.Tensor:
        self.calls += 1
        return x * factor + self.state


@pytest.fixture
def results() -> KeptResults:
    return KeptResults(load_backend("torch"))


def called(around: Any, layer: Layer, value: float, **keywords: float) -> float:
    return float(around("policy", layer, layer.forward, (torch.tensor([value]),), keywords))


def test_calls_in_another_order_return_what_they_are_given(results: KeptResults) -> None:
    layer = Layer()
    first, second = results.of_run(None), results.of_run(None)
    assert [called(first, layer, value) for value in (1.0, 1.0, 2.0, 3.0)] == [1.0, 1.0, 2.0, 3.0]
    assert [called(second, layer, value) for value in (1.0, 2.0, 3.0, 4.0)] == [1.0, 2.0, 3.0, 4.0]
    assert layer.calls == 5


def test_other_arguments_and_other_models_are_calls_of_their_own(results: KeptResults) -> None:
    layer = Layer()
    assert called(results.of_run(None), layer, 2.0) == 2.0
    assert called(results.of_run(None), layer, 2.0, factor=3.0) == 6.0
    assert called(results.of_run(1), layer, 2.0) == 2.0
    assert layer.calls == 3


def test_a_layer_that_changes_between_two_like_calls_is_called_twice(results: KeptResults) -> None:
    layer = Layer()
    around = results.of_run(None)
    assert called(around, layer, 2.0) == 2.0
    layer.state = 1.0
    assert called(around, layer, 2.0) == 3.0
    again = results.of_run(None)
    assert [called(again, layer, 2.0), called(again, layer, 2.0)] == [2.0, 3.0]


class Pair:
    """A model that returns a dictionary, filled in this order, and is wrong by this factor."""

    training = False

    def __init__(self, names: str, factor: float = 1.0) -> None:
        self.names, self.factor = names, factor

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {name: x * self.factor * (1 + "ab".index(name)) for name in self.names}


def test_the_reference_s_results_take_their_places_by_name() -> None:
    x, backend, told = torch.tensor([1.0, 2.0], dtype=torch.float64), load_backend("torch"), "call"
    reference = EvaluationCalls(backend, "cpu", told)
    layer = Pair("ab")
    reference.around("", layer, layer.forward, (x,), {})
    port, wrong = EvaluationCalls(backend, "cpu", told, reference.arrays), Pair("ba", 3.0)
    given = port.around("", wrong, wrong.forward, (x,), {})
    assert {name: tensor.tolist() for name, tensor in given.items()} == {"a": [1.0, 2.0], "b": [2.0, 4.0]}
    assert list(given) == ["b", "a"]


def test_what_runs_on_trial_gets_the_results_that_are_kept(results: KeptResults) -> None:
    layer = Layer()
    around = results.of_run(None)
    for _ in range(3):
        with on_trial():
            assert called(around, layer, 2.0) == 2.0
    assert called(around, layer, 2.0) == 2.0
    assert layer.calls == 1


def test_a_model_whose_layers_are_wrapped_need_not_be_copied() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(1, 1))
    assert not is_kept(model)
    with replaced(model[0], "forward", model[0].forward):
        assert is_kept(model)
    assert not is_kept([1.0])
