"""Both backends answer alike: every function of the protocol, on a small model of each framework."""

from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np
import pytest

from twinalign.backends import backend_of_side, load_backend
from twinalign.backends.protocol import Backend
from twinalign.backends.state_layout import tied_keys


@pytest.fixture(params=["torch", "paddle"])
def backend(request: pytest.FixtureRequest) -> Backend:
    return load_backend(request.param)


def layers(backend: Backend) -> Any:
    """The framework's module of layers."""
    if backend.FRAMEWORK == "torch":
        import torch

        return torch.nn
    import paddle

    return paddle.nn


def small_model(backend: Backend) -> Any:
    """A linear layer, a batch norm and another linear layer."""
    nn = layers(backend)
    norm = nn.BatchNorm1d if backend.FRAMEWORK == "torch" else nn.BatchNorm1D
    return nn.Sequential(nn.Linear(3, 4), norm(4), nn.Linear(4, 2))


def adam(backend: Backend, model: Any, rate: float = 0.1) -> Any:
    parameters = list(backend.named_parameters(model).values())
    if backend.FRAMEWORK == "torch":
        import torch

        return torch.optim.Adam(parameters, lr=rate)
    import paddle

    return paddle.optimizer.Adam(rate, parameters=parameters)


def tensor(backend: Backend, values: Any, dtype: str = "float64") -> Any:
    return backend.to_tensor(np.asarray(values), dtype, "cpu")


def has_gpu(backend: Backend) -> bool:
    if backend.FRAMEWORK == "torch":
        import torch

        return torch.cuda.is_available()
    import paddle

    return paddle.is_compiled_with_cuda() and paddle.device.cuda.device_count() > 0


def gradients_given(backend: Backend, model: Any) -> None:
    """Every parameter gets a gradient of ones."""
    for parameter in backend.named_parameters(model).values():
        backend.set_gradient(parameter, np.ones(tuple(parameter.shape)))


# process


def test_a_checksum_is_another_one_once_elements_change_places(backend: Backend) -> None:
    values = np.arange(12.0).reshape(4, 3)
    own = tensor(backend, values)
    assert backend.checksum(own) == backend.checksum(tensor(backend, values))
    for other in (values[[1, 0, 2, 3]], np.roll(values, 1), values + np.eye(4, 3)):
        assert backend.checksum(own) != backend.checksum(tensor(backend, other))
    assert backend.checksum(tensor(backend, values * np.nan)) == -1.0


def test_versions_and_settings_are_text_and_numbers(backend: Backend) -> None:
    assert {backend.FRAMEWORK, "numpy"} <= set(backend.versions())
    assert backend.numerics_flags()["default_dtype"] == "float32"
    assert backend.MODEL_CLASS.startswith(f"{backend.FRAMEWORK}.nn.")
    assert backend.peak_device_memory() >= 0
    assert set(backend.communication_backends()) <= {"gloo", "nccl"}


def test_the_cpu_works_and_a_gpu_is_refused_where_there_is_none(backend: Backend) -> None:
    backend.try_path("cpu", "float32")
    backend.configure("cpu", None)
    assert "cpu" in str(backend.device_of("cpu"))
    if has_gpu(backend):
        assert "gpu" in str(backend.device_of("gpu")).replace("cuda", "gpu")
    else:
        with pytest.raises(RuntimeError, match=f"{backend.FRAMEWORK} sees no GPU"):
            backend.device_of("gpu")


def test_a_draw_changes_the_state_of_the_generators_and_a_seed_brings_it_back(backend: Backend) -> None:
    backend.set_seed(7)
    before = backend.random_state()
    assert backend.random_state() == before
    first = dict(backend.state_items(small_model(backend)))
    assert backend.random_state() != before
    backend.set_seed(7)
    assert backend.random_state() == before
    again = dict(backend.state_items(small_model(backend)))
    assert all((first[name] == again[name]).all() for name in first)


def test_layers_are_made_in_the_default_dtype_and_the_former_one_returns(backend: Backend) -> None:
    with backend.default_dtype("float64"):
        assert dict(backend.state_items(small_model(backend)))["0.weight"].dtype == np.float64
    assert dict(backend.state_items(small_model(backend)))["0.weight"].dtype == np.float32


def test_a_tensor_of_a_number_that_asks_for_float32_is_float64_in_a_float64_run(backend: Backend) -> None:
    framework = importlib.import_module(backend.FRAMEWORK)
    make = framework.tensor if backend.FRAMEWORK == "torch" else framework.to_tensor
    with backend.default_dtype("float64"):
        found = [backend.to_array(make(24, dtype=dtype)) for dtype in (framework.float32, framework.int32)]
    assert [array.dtype for array in found] == [np.float64, np.int32]
    assert backend.to_array(make(24, dtype=framework.float32)).dtype == np.float32


@pytest.mark.parametrize(
    "written", ["concat([a, b], axis=1)", "stack([a, b])", "matmul(a, b)", "add_n([a, b])", "lerp(a, b, 0.5)"]
)
def test_paddle_joins_arrays_in_float32_with_what_is_made_beside_them_in_a_float64_run(written: str) -> None:
    import paddle

    with load_backend("paddle").default_dtype("float64"):
        a = paddle.to_tensor(np.full((2, 2), 0.1, np.float32), stop_gradient=False)
        b = paddle.ones([2, 2], dtype=a.dtype)  # float64
        made = eval(f"paddle.{written}")
        made.sum().backward()
        assert (made.dtype, a.grad.dtype) == (paddle.float64, paddle.float32)
        wide = eval(f"paddle.{written}", {"paddle": paddle, "a": a.astype("float64"), "b": b})
        np.testing.assert_array_equal(made.numpy(), wide.numpy())


WITH_FLOATS = "x*f, f*x, x/2, 2/x, f-x, x-f, x**0.5, f**x, x//f, f//x, x%f, x+f, f+x, x/x, x*2, 2-x"


@pytest.mark.parametrize("written", WITH_FLOATS.split(", "))
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_whole_numbers_beside_floats_become_the_default_dtype(written: str, dtype: str) -> None:
    """A table of positions, `arange(n) * (-log(10000) / n)`: paddle alone makes float32 of it, whatever the default."""
    values = []
    for framework in ("torch", "paddle"):
        with load_backend(framework).default_dtype(dtype):
            x = importlib.import_module(framework).arange(1, 6)
            values.append(eval(written, {"x": x, "f": -math.log(1e4) / 32}).numpy())
    expected, found = values
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol={"float32": 1e-6, "float64": 1e-14}[dtype])


def test_switching_the_accuracy_compatible_kernels_back_leaves_the_flags_as_they_were(backend: Backend) -> None:
    before = backend.numerics_flags()
    backend.use_accuracy_compatible(True)
    backend.use_accuracy_compatible(False)
    assert backend.numerics_flags() == before


# tensors


@pytest.mark.parametrize(
    ("given", "asked", "kept"),
    [
        ("float32", "float64", "float64"),
        ("float64", "float32", "float32"),
        ("float32", "bfloat16", "float32"),  # numpy's nearest to bfloat16
        ("int64", "float32", "int64"),
        ("bool", "float64", "bool"),
    ],
)
def test_arrays_become_tensors_and_arrays_again(backend: Backend, given: str, asked: str, kept: str) -> None:
    array = np.array([[0, 1, 2], [3, 0, 5]]).astype(given)
    found = tensor(backend, array, asked)
    assert backend.is_tensor(found)
    assert not backend.is_tensor(array)
    for values in (backend.to_array(found), backend.to_array(backend.to_tensor_like(array, found))):
        assert values.dtype == np.dtype(kept)
        assert (values == array).all()
    if asked != "bfloat16":
        assert (backend.values_of(found) == array).all()


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_what_numpy_cannot_share_is_copied(dtype: str) -> None:
    import paddle

    backend, values = load_backend("paddle"), paddle.to_tensor([0.0, 1.0]).astype(dtype)
    assert backend.values_of(values).tolist() == backend.to_array(values).tolist()


def test_a_copy_does_not_follow_what_is_assigned(backend: Backend) -> None:
    parameter = backend.named_parameters(small_model(backend))["0.bias"]
    copy = backend.to_array(parameter)
    backend.assign(parameter, np.arange(4.0))
    assert backend.to_array(parameter).tolist() == [0.0, 1.0, 2.0, 3.0]
    assert backend.to_array(parameter).dtype == copy.dtype == np.float32
    assert copy.tolist() != [0.0, 1.0, 2.0, 3.0]


def test_a_conjugate_that_torch_has_only_noted_is_an_array() -> None:
    import torch

    backend, values = load_backend("torch"), torch.tensor([1.0 + 2.0j])
    assert backend.to_array(values.conj()).tolist() == [1.0 - 2.0j]
    assert backend.to_array(values.conj().imag).tolist() == [-2.0]


def test_a_change_in_place_is_counted(backend: Backend) -> None:
    parameter = backend.named_parameters(small_model(backend))["0.bias"]
    before = backend.version(parameter)
    with backend.no_grad():
        parameter.add_(tensor(backend, np.ones(4), "float32"))
    assert backend.version(parameter) == before + 1


def test_tensors_are_found_in_nested_containers_in_order(backend: Backend) -> None:
    a, b, c = (tensor(backend, [value]) for value in (1.0, 2.0, 3.0))
    found = backend.tensors_in({"x": [a, (b, "text")], "y": None, "z": {"c": c}})
    assert [backend.to_array(one).item() for one in found] == [1.0, 2.0, 3.0]


def test_gradients_reach_what_is_differentiable_alone(backend: Backend) -> None:
    x = backend.detached(tensor(backend, [1.0, 2.0]), True)
    fixed = backend.detached(x, False)
    assert (backend.differentiable(x), backend.differentiable(fixed)) == (True, False)
    with backend.no_grad():
        assert not backend.differentiable(x * x)
    (x * x * fixed).sum().backward()
    assert backend.to_array(x.grad).tolist() == [2.0, 8.0]


def test_an_output_that_is_given_twice_counts_twice(backend: Backend) -> None:
    x, unused = (backend.detached(tensor(backend, np.arange(3.0)), True) for _ in range(2))
    y = x * x
    seeds = [tensor(backend, np.full(3, value)) for value in (1.0, 10.0, 100.0)]
    found, nothing = backend.gradients([y, x * 3, y], [x, unused], seeds)
    assert backend.to_array(found).tolist() == [30.0, 101 * 2 + 30.0, 101 * 4 + 30.0]
    assert nothing is None


# models


def test_layers_and_what_they_hold(backend: Backend) -> None:
    model = small_model(backend)
    assert backend.is_model(model)
    assert not backend.is_model(adam(backend, model))
    assert [path for path, _ in backend.named_layers(model)] == ["", "0", "1", "2"]
    assert len(backend.all_layers(model)) == 4
    norm = dict(backend.named_layers(model))["1"]
    assert set(backend.own_buffers(norm)) < set(backend.own_state(norm))
    assert backend.own_state(model) == {}
    names = [f"{layer}.{name}" for layer in "012" for name in ("weight", "bias")]
    assert list(backend.named_parameters(model)) == names
    assert all(backend.trainable(parameter) for parameter in backend.named_parameters(model).values())
    assert len(backend.floating_buffers(model)) == 2
    keys = [entry["key"] for entry in backend.describe_state(model)]
    assert keys == list(backend.state_tensors(model)) == [key for key, _ in backend.state_items(model)]
    not_stored = {"persistent" if backend.FRAMEWORK == "torch" else "persistable": False}
    model.register_buffer("table", tensor(backend, np.ones(3)), **not_stored)
    assert len(backend.floating_buffers(model)) == 2  # the other side may hold it as a plain attribute


def test_a_shared_parameter_has_a_second_key(backend: Backend) -> None:
    model = small_model(backend)
    assert tied_keys(backend.state_tensors(model)) == set()
    nn = layers(backend)
    one = nn.Linear(3, 3)
    assert tied_keys(backend.state_tensors(nn.Sequential(one, nn.ReLU(), one))) == {"2.weight", "2.bias"}


def test_the_state_is_loaded_whole_and_nothing_else(backend: Backend) -> None:
    model = small_model(backend)
    moved = {name: (array + 1).astype(array.dtype) for name, array in backend.state_items(model)}
    backend.load_state_arrays(model, moved)
    assert all((array == moved[name]).all() for name, array in backend.state_items(model))
    for wrong in (
        {name: array for name, array in moved.items() if name != "0.weight"},
        {**moved, "3.weight": moved["0.weight"]},
        {**moved, "0.weight": moved["0.weight"][:1]},
    ):
        with pytest.raises(RuntimeError, match=r"[03]\.weight"):
            backend.load_state_arrays(model, wrong)


def test_a_model_is_moved_to_a_precision_and_a_mode(backend: Backend) -> None:
    model = backend.prepare_model(small_model(backend), "float64", "cpu")
    assert {a.dtype for _, a in backend.state_items(model) if a.dtype.kind == "f"} == {np.dtype("float64")}
    for training in (False, True):
        backend.set_training(model, training)
        assert {layer.training for layer in backend.all_layers(model)} == {training}


def test_every_call_of_a_layer_is_observed_inside_the_block(backend: Backend) -> None:
    model, seen = small_model(backend), []
    x = tensor(backend, np.ones((2, 3)), "float32")
    with backend.observing(model, lambda path, layer, given, returned: seen.append((path, given, returned))):
        model(x)
    model(x)
    assert [path for path, _, _ in seen] == ["0", "1", "2", ""]
    assert [list(returned[0].shape) for _, _, returned in seen] == [[2, 4], [2, 4], [2, 2], [2, 2]]
    assert all(len(given) == 1 for _, given, _ in seen)


# optimizers


def test_gradients_are_listed_until_they_are_cleared(backend: Backend) -> None:
    model = small_model(backend)
    assert list(backend.gradient_items(model)) == []
    model(tensor(backend, np.ones((2, 3)), "float32")).sum().backward()
    assert [name for name, _ in backend.gradient_items(model)] == list(backend.named_parameters(model))
    backend.clear_gradients(model)
    assert list(backend.gradient_items(model)) == []
    gradients_given(backend, model)
    backend.clear_gradients(model)
    assert list(backend.gradient_items(model)) == []


def test_groups_that_join_later_are_held(backend: Backend) -> None:
    first, *later = backend.named_parameters(small_model(backend)).values()
    groups = [{"params": [first]}]
    if backend.FRAMEWORK == "torch":
        import torch

        optimizer: Any = torch.optim.SGD(groups, 0.1)
        optimizer.add_param_group({"params": later})
    else:
        import paddle

        optimizer = paddle.optimizer.SGD(0.1, parameters=groups)
        optimizer._add_param_group({"params": later, "weight_decay": None, "grad_clip": None})
    assert [id(p) for p in backend.held_parameters(optimizer)] == [id(p) for p in (first, *later)]


def test_an_optimizer_steps_at_the_rate_that_is_set(backend: Backend) -> None:
    model = small_model(backend)
    optimizer = adam(backend, model)
    assert [id(p) for p in backend.held_parameters(optimizer)] == [
        id(p) for p in backend.named_parameters(model).values()
    ]
    assert backend.learning_rate(optimizer) == pytest.approx(0.1)
    backend.set_learning_rate(optimizer, 0.5)
    assert backend.learning_rate(optimizer) == pytest.approx(0.5)
    before = dict(backend.state_items(model))["0.bias"]
    gradients_given(backend, model)
    optimizer.step()
    # Adam's first step is as long as the rate, whatever the gradient.
    assert before - dict(backend.state_items(model))["0.bias"] == pytest.approx(np.full(4, 0.5), rel=1e-4)


def test_of_several_groups_the_rate_is_the_first_ones(backend: Backend) -> None:
    model = small_model(backend)
    parameters = list(backend.named_parameters(model).values())
    if type(parameters[0]).__module__.startswith("torch"):
        import torch

        groups = [{"params": parameters[:1], "lr": 0.02}, {"params": parameters[1:], "lr": 0.1}]
        optimizer: Any = torch.optim.SGD(groups, lr=0.1)
    else:
        import paddle

        groups = [{"params": parameters[:1], "learning_rate": 0.2}, {"params": parameters[1:]}]
        optimizer = paddle.optimizer.SGD(0.1, parameters=groups)
    assert backend.learning_rate(optimizer) == pytest.approx(0.02)
    backend.set_learning_rate(optimizer, 0.04)
    assert backend.learning_rate(optimizer) == pytest.approx(0.04)
    assert sorted(backend.learning_rates(optimizer)) == pytest.approx([0.04, 0.2])


def test_the_moving_averages_have_names_that_both_sides_share(backend: Backend) -> None:
    model = small_model(backend)
    optimizer = adam(backend, model)
    assert list(backend.optimizer_items(model, optimizer)) == []
    gradients_given(backend, model)
    optimizer.step()
    parameter = backend.named_parameters(model)["2.bias"]
    averages = {n: backend.to_array(average) for n, average in backend.optimizer_averages(optimizer, parameter)}
    assert set(averages) == {"moment1", "moment2"}
    assert averages["moment1"] == pytest.approx(np.full(2, 0.1), rel=1e-4)
    assert averages["moment2"] == pytest.approx(np.full(2, 0.001), rel=1e-4)
    items = {(quantity, name) for quantity, name, _ in backend.optimizer_items(model, optimizer)}
    assert items == {(q, name) for q in averages for name in backend.named_parameters(model)}


def test_an_optimizer_says_its_class_and_numbers(backend: Backend) -> None:
    facts = backend.optimizer_facts(adam(backend, small_model(backend)))
    assert facts["class"].rpartition(".")[2] == "Adam"
    assert facts["beta1"] == 0.9
    assert facts["beta2"] == 0.999


# training and distributed


def test_steps_are_watched_inside_the_block(backend: Backend) -> None:
    model = small_model(backend)
    early = adam(backend, model)
    seen: list[tuple[str, int]] = []
    gradients_given(backend, model)
    with backend.watching_steps(lambda o: seen.append(("before", id(o))), lambda o: seen.append(("after", id(o)))):
        late = adam(backend, model)
        for optimizer in (early, late):
            optimizer.step()
    early.step()
    assert seen == [(when, id(o)) for o in (early, late) for when in ("before", "after")]


def test_norms_and_distances_are_summed_up_in_float64(backend: Backend) -> None:
    large, small = tensor(backend, [1e30, 0.0], "float32"), tensor(backend, [3.0, 4.0], "float32")
    assert backend.norms([]) == []
    assert backend.norms([large, small]) == pytest.approx([1e30, 5.0])
    zeros = tensor(backend, [0.0, 0.0], "float32")
    assert backend.distance([(small, zeros), (zeros, small)]) == pytest.approx(50.0**0.5)


def test_a_loss_layer_takes_inputs_to_the_loss(backend: Backend) -> None:
    model = small_model(backend)

    def run(model: Any, inputs: Any) -> tuple[Any, Any]:
        outputs = model(inputs["x"])
        return (outputs, "losses"), outputs.sum()

    step = backend.loss_layer(model, run)
    loss = step({"x": tensor(backend, np.ones((2, 3)), "float32")})
    loss.backward()
    assert step.model is model
    assert step.seen[1] == "losses"
    assert backend.to_array(step.seen[0]).sum() == pytest.approx(backend.to_array(loss), abs=1e-5)
    assert len(list(backend.gradient_items(model))) == 6


@pytest.mark.parametrize(("side", "framework"), [("ref", "torch"), ("paddle", "paddle")])
def test_a_side_has_the_backend_of_its_framework(side: str, framework: str) -> None:
    backend = backend_of_side(side)
    assert framework == backend.FRAMEWORK


def test_a_model_that_asks_for_the_version_of_its_state_takes_its_own_arrays() -> None:
    """torchvision's MNASNet refuses a state without the versions that `state_dict` keeps beside its tensors."""
    import torch
    import torchvision

    backend, model = load_backend("torch"), torchvision.models.mnasnet0_5(num_classes=2)
    arrays = dict(backend.state_items(model))
    with pytest.raises(ValueError, match="version should be set to 1 or 2 instead of None"):
        model.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
    backend.load_state_arrays(model, {name: array + 1 for name, array in arrays.items()})
    np.testing.assert_array_equal(dict(backend.state_items(model))["layers.0.weight"], arrays["layers.0.weight"] + 1)
