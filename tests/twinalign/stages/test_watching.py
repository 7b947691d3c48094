"""What a training loop may do with a model whose calls are watched."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest

from twinalign.backends import load_backend
from twinalign.conversion.canonical_names import CanonicalNames
from twinalign.stages.watching import run_training


def _model(framework: str) -> Any:
    if framework == "torch":
        import torch

        return torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh()), torch.ones
    import paddle

    return paddle.nn.Sequential(paddle.nn.Linear(2, 2), paddle.nn.Tanh()), paddle.ones


@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_a_copied_model_runs_on_its_own(framework: str) -> None:
    """A moving average begins as a deep copy, which must not call the layers that it was copied from."""
    model, ones = _model(framework)
    copies = []

    def train(framework: str, model: Any, record: Any, steps: int | None) -> dict[str, Any]:
        average = copy.deepcopy(model)
        assign(average[0].weight, 0.0 * array(model[0].weight))
        assign(average[0].bias, 0.0 * array(model[0].bias))
        copies.append(float(average(ones([1, 2])).abs().sum()))
        copies.append(float(model(ones([1, 2])).abs().sum()))
        return {}

    backend = load_backend(framework)
    assign, array = backend.assign, backend.to_array
    curves = run_training(SimpleNamespace(train=train, accept=()), framework, backend, model, CanonicalNames())
    assert copies[0] == 0.0 < copies[1]
    assert curves.points["batch_size"].tolist() == [1.0]  # the copy's call is none of the model's
    assert "forward" not in vars(model)


@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_a_model_in_float64_takes_batches_in_float32(framework: str) -> None:
    model, ones = _model(framework)
    backend = load_backend(framework)
    model = backend.prepare_model(model, "float64", "cpu")
    seen = []

    def train(framework: str, model: Any, record: Any, steps: int | None) -> dict[str, Any]:
        batch = ones([3, 2])
        batch.stop_gradient = False
        if framework == "torch":
            batch.requires_grad_()
        seen.append(backend.dtype_name(model(batch)))
        seen.append(backend.dtype_name(batch))  # itself stays as it is
        model(batch).sum().backward()
        seen.append(backend.dtype_name(batch.grad))
        return {}

    run_training(SimpleNamespace(train=train, accept=()), framework, backend, model, CanonicalNames())
    assert seen == ["float64", "float32", "float32"]


def test_a_number_is_assigned_to_a_parameter_without_axes() -> None:
    import numpy as np
    import paddle

    tensor = paddle.zeros([], "float64")
    load_backend("paddle").assign(tensor, np.array(2.5))
    assert (tensor.shape, tensor.item()) == ([], 2.5)


@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_the_norm_of_a_gradient_is_that_behind_what_a_subclass_does_before_its_step(framework: str) -> None:
    model, ones = _model(framework)
    backend = load_backend(framework)
    if framework == "torch":
        from torch import optim
    else:
        from paddle import optimizer as optim

    class Clipped(optim.SGD):  # type: ignore[misc, name-defined]
        def step(self) -> None:
            for parameter in backend.named_parameters(model).values():
                backend.set_gradient(parameter, 0.0 * backend.to_array(parameter))
            super().step()

    def train(framework: str, model: Any, record: Any, steps: int | None) -> dict[str, Any]:
        parameters = list(model.parameters())
        optimizer = Clipped(parameters, 0.1) if framework == "torch" else Clipped(0.1, parameters)
        model(ones([1, 2])).sum().backward()
        optimizer.step()
        return {}

    curves = run_training(SimpleNamespace(train=train, accept=()), framework, backend, model, CanonicalNames())
    assert curves.points["gradient_norm"].tolist() == [0.0]


def test_a_gradient_that_a_subclass_takes_away_before_its_step_does_not_count() -> None:
    import torch

    class WithoutBias(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            model[0].bias.grad = None
            return super().step(closure)

    model, ones = _model("torch")
    norms = []

    def train(framework: str, model: Any, record: Any, steps: int | None) -> dict[str, Any]:
        optimizer = WithoutBias(model.parameters(), 0.1)
        model(ones([1, 2])).sum().backward()
        norms.append(float(model[0].weight.grad.norm()))
        optimizer.step()
        return {}

    case = SimpleNamespace(train=train, accept=())
    curves = run_training(case, "torch", load_backend("torch"), model, CanonicalNames())
    assert curves.points["gradient_norm"].tolist() == [pytest.approx(norms[0])]


@pytest.mark.parametrize("framework", ["torch", "paddle"])
@pytest.mark.parametrize(("factor", "seen"), [(0.5, 0.5), (2.0, 1.0)], ids=["clips", "writes a decay into it"])
def test_the_norm_of_a_gradient_is_that_which_a_step_of_ones_own_leaves_if_it_clips(
    framework: str, factor: float, seen: float
) -> None:
    model, ones = _model(framework)
    backend = load_backend(framework)
    if framework == "torch":
        from torch import optim
    else:
        from paddle import optimizer as optim

    class Own(optim.Optimizer):  # type: ignore[misc, name-defined]
        def step(self) -> None:
            for parameter in backend.named_parameters(model).values():
                backend.set_gradient(parameter, factor * backend.to_array(parameter.grad))

    norms = []

    def train(framework: str, model: Any, record: Any, steps: int | None) -> dict[str, Any]:
        parameters = list(model.parameters())
        optimizer = Own(parameters, {"lr": 0.1}) if framework == "torch" else Own(0.1, parameters)
        model(ones([1, 2])).sum().backward()
        norms.append(sum(float((backend.to_array(one.grad) ** 2).sum()) for one in parameters) ** 0.5)
        optimizer.step()
        return {}

    curves = run_training(SimpleNamespace(train=train, accept=()), framework, backend, model, CanonicalNames())
    assert curves.points["gradient_norm"].tolist() == [pytest.approx(seen * norms[0])]


def test_a_frozen_layer_that_shares_names_with_a_trained_one_is_no_average() -> None:
    """A layer that subtracts a mean has a bias of three numbers, as the last one has."""
    import torch

    def distances(mean: Any) -> bool:
        model = torch.nn.ModuleDict({"mean": mean.requires_grad_(False), "tail": torch.nn.Conv2d(3, 3, 3)})

        def train(framework: str, model: Any, record: Any, steps: int | None) -> dict[str, Any]:
            optimizer = torch.optim.SGD(model["tail"].parameters(), 0.1)
            model["tail"](torch.ones(1, 3, 4, 4)).sum().backward()
            optimizer.step()
            return {}

        case = SimpleNamespace(train=train, accept=())
        return "ema_distance" in run_training(case, "torch", load_backend("torch"), model, CanonicalNames()).points

    assert not distances(torch.nn.Conv2d(3, 3, 1))
    assert distances(torch.nn.Conv2d(3, 3, 3))


@pytest.mark.parametrize("framework", ["torch", "paddle"])
@pytest.mark.parametrize(("has_mode", "counted"), [(False, [3.0, 4.0]), (True, [3.0])])
def test_batches_of_a_loop_that_leaves_the_mode_as_it_is_are_seen(
    framework: str, has_mode: bool, counted: list[float]
) -> None:
    """Evaluations do not count: they take no gradients, or come in another mode than the steps."""
    model, ones = _model(framework)
    backend = load_backend(framework)
    backend.set_training(model, False)

    def train(framework: str, model: Any, record: Any, steps: int | None) -> dict[str, Any]:
        if has_mode:
            model.train()
        model(ones([3, 2]))
        model.eval()
        model(ones([4, 2]))  # a step where the mode is left as it is, else an evaluation
        with backend.no_grad():
            model(ones([5, 2]))
        return {}

    curves = run_training(SimpleNamespace(train=train, accept=()), framework, backend, model, CanonicalNames())
    assert curves.points["batch_size"].tolist() == counted
