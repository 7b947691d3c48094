"""How outputs get their names, how a model is called, and how a side's state is named after the reference."""

from __future__ import annotations

import dataclasses
import re
from collections import OrderedDict, namedtuple
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

from twinalign.backends import backend_of_side
from twinalign.case.calling import call_model, named_values, on_cpu
from twinalign.case.definition import Case, stages_of
from twinalign.case.loading import set_option
from twinalign.conversion.canonical_names import CanonicalNames
from twinalign.errors import InputError
from twinalign.files.recordings import Recording, random_projections
from twinalign.stages.backward import record_backward
from twinalign.stages.context import StageContext, scalar_loss, step_inputs
from twinalign.stages.forward import record_forward
from twinalign.stages.metric import record_metric


@dataclasses.dataclass
class Output:
    logits: Any
    hidden: Any = None


class OnGpu:
    """Stands for a tensor on a GPU, of which only `cpu` works."""

    def cpu(self) -> str:
        return "on the CPU"


def test_what_a_metric_is_given_is_on_the_cpu_in_the_same_containers() -> None:
    point = namedtuple("point", ["x", "y"])
    given = {"a": OnGpu(), "b": [OnGpu(), 3], "c": (point(OnGpu(), None), Output(OnGpu(), "text"))}
    moved = on_cpu(OrderedDict(given))
    cpu = "on the CPU"
    assert moved == OrderedDict(a=cpu, b=[cpu, 3], c=(point(cpu, None), Output(cpu, "text")))
    assert isinstance(moved, OrderedDict)
    assert isinstance(given["a"], OnGpu)  # the recorded outputs stay as they are


Pair = namedtuple("Pair", ["left", "right"])


def names(value: Any, prefix: str = "") -> list[str]:
    return [name for name, _ in named_values(value, lambda leaf: isinstance(leaf, np.ndarray), prefix)]


def test_leaves_are_named_by_their_path() -> None:
    x = np.zeros(2)
    assert names(x, "output") == ["output"]
    assert names({"a": x, "b": [x, (x, 1.5)]}) == ["a", "b.0", "b.1.0", "b.1.1"]
    assert names(Output(x), "out") == ["out.logits"]
    assert names(Pair(x, x)) == ["left", "right"]
    assert names(OrderedDict(z=x, a=x)) == ["z", "a"]


def test_leaf_without_numbers_is_refused_by_name() -> None:
    with pytest.raises(
        TypeError, match=r"^a\.1: str is not a tensor, array, number, tuple, list or dictionary of them$"
    ):
        names({"a": [np.zeros(1), "text"]})


class Model:
    """A model of either framework, as far as calling it goes."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    def forward(self, x: Any, mask: Any = None) -> Any:
        return x, mask


def test_inputs_go_by_keyword_where_names_fit_and_by_order_elsewhere() -> None:
    assert call_model(Model(), {"mask": 2, "x": 1}) == (1, 2)
    assert call_model(Model(), {"image": 1, "other": 2}) == (1, 2)


def test_inputs_that_forward_has_no_parameter_for_are_the_losss() -> None:
    assert call_model(Model(), {"labels": 3, "x": 1, "mask": 2}) == (1, 2)
    assert call_model(Model(), {"image": 1, "other": 2, "labels": 3}) == (1, 2)


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ({"part": torch.ones(())}, "a dict of ['part']"),
        ((torch.ones(()),), "a tuple"),
        (0.5, "a float"),
        (None, "a NoneType"),
    ],
)
def test_what_loss_returns_has_to_be_differentiable(returned: object, said: str) -> None:
    tensor = torch.ones(())
    assert scalar_loss(tensor) is scalar_loss({"part": 1, "loss": tensor}) is tensor
    told = f'loss() returned {said}; return the tensor to differentiate, or {{"loss": that tensor}} with further parts'
    with pytest.raises(InputError, match=f"^{re.escape(told)}$"):
        scalar_loss(returned)


def context(names: CanonicalNames) -> StageContext:
    return StageContext(Case(), "paddle", None, "float32", "cpu", lambda: None, names, lambda text: None, Recording())  # type: ignore[arg-type]


def test_state_of_the_port_is_recorded_under_the_references_names_and_layout() -> None:
    recorded = context(CanonicalNames({"fc.weight": [["head.weight", True]], "bn._mean": [["bn.running_mean", False]]}))
    weight = np.arange(6.0).reshape(2, 3)
    arrays = {"fc.weight": weight, "bn._mean": np.zeros(2), "own.scratch": np.ones(1)}
    recorded.add_state(("parameter.", key, array) for key, array in arrays.items())
    assert list(recorded.recording.arrays) == ["parameter.head.weight", "parameter.bn.running_mean"]
    np.testing.assert_array_equal(recorded.recording.arrays["parameter.head.weight"], weight.T)


def test_the_count_of_batches_has_no_partner() -> None:
    recorded = context(CanonicalNames())
    recorded.add_state(
        [("buffer.", "bn.num_batches_tracked", np.array(3)), ("buffer.", "bn.running_mean", np.zeros(2))]
    )
    assert list(recorded.recording.arrays) == ["buffer.bn.running_mean"]


def test_methods_switch_stages_on() -> None:
    class Three(Case):
        def inputs(self, rng: Any) -> Any:
            return {}

    class More(Three):
        def loss(self, outputs: Any, inputs: Any, framework: str) -> Any:
            return outputs

        def dataset(self, framework: str, split: str) -> Any:
            return []

    class Composite(More):
        def part(self, stage: str) -> Case:
            return Trainer() if stage == "train" else self

    class Trainer(Three):
        def train(self, framework: str, model: Any, record: Any, steps: int | None = None) -> Any:
            return {}

    assert stages_of(Three()) == ["forward"]
    assert stages_of(More()) == ["forward", "data", "loss"]
    assert stages_of(Composite()) == ["forward", "data", "loss", "train"]


def test_options_keep_the_type_that_they_have() -> None:
    case = Case()
    set_option(case, "steps", "5")
    set_option(case, "train_mode", "true")
    assert (case.steps, case.train_mode) == (5, True)
    with pytest.raises(InputError, match=r"^--set steps=many: int expected$"):
        set_option(case, "steps", "many")
    with pytest.raises(InputError, match=r"^--set inputs: case  has no such option"):
        set_option(case, "inputs", "x")


def test_a_model_without_trainable_parameters_has_no_optimizer_stage() -> None:
    context = StageContext(
        case=Case(),
        framework="torch",
        backend=backend_of_side("ref"),
        dtype="float32",
        device="cpu",
        build_model=torch.nn.ReLU,
        canonical=CanonicalNames({}),
        progress=lambda text: None,
    )
    with pytest.raises(InputError, match="torch model has no trainable parameters for optimizer"):
        record_backward(context)


@pytest.mark.parametrize("named", [False, True], ids=["tensor", "dictionary"])
def test_the_effect_of_the_inputs_is_measured_whatever_the_form_of_the_outputs(named: bool) -> None:
    class Doubled(Case):
        def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
            return {"x": rng.standard_normal((2, 3), dtype=np.float32)}

        def forward(self, model: object, inputs: Mapping[str, torch.Tensor], framework: str) -> object:
            return {"logits": inputs["x"] * 2} if named else inputs["x"] * 2

    case = Doubled()
    context = StageContext(
        case=case,
        framework="torch",
        backend=backend_of_side("ref"),
        dtype="float32",
        device="cpu",
        build_model=torch.nn.Identity,
        canonical=CanonicalNames({}),
        progress=lambda text: None,
    )
    record_forward(context)
    first, second = (step_inputs(case, step)["x"].astype(np.float64) for step in (0, 1))
    expected = np.linalg.norm(second - first) / np.linalg.norm(first)
    assert context.recording.metadata["effect_of_inputs"] == pytest.approx(expected, rel=1e-6)


class Keeping(torch.nn.Module):
    """Keeps what its parameter gives while it is in eval mode, as LeViT keeps its attention biases."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(3))
        self.kept: torch.Tensor | None = None

    def train(self, mode: bool = True) -> Keeping:
        if mode:
            self.kept = None
        return super().train(mode)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.kept is None or self.training:
            self.kept = self.scale * 2
        return x * self.kept


def test_a_model_that_keeps_values_in_eval_mode_takes_steps() -> None:
    class Steps(Case):
        train_mode = False
        steps = 2

        def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
            return {"x": np.ones((2, 3), np.float32)}

        def loss(self, outputs: Any, inputs: Mapping[str, Any], framework: str) -> Any:
            return outputs.sum()

        def optimizer(self, parameters: Any, framework: str) -> Any:
            return torch.optim.SGD(parameters, lr=0.25)

    context = StageContext(
        case=Steps(),
        framework="torch",
        backend=backend_of_side("ref"),
        dtype="float32",
        device="cpu",
        build_model=Keeping,
        canonical=CanonicalNames({}),
        progress=lambda text: None,
    )
    record_backward(context)
    losses = [float(context.recording.arrays[f"step{step}.loss"]) for step in range(2)]
    assert losses == [12.0, 0.0]  # the gradient is 4 for each of three scales, which fall from 1 to 0


def test_the_metric_names_its_plain_numbers_and_what_entered_the_model() -> None:
    class Measured(Case):
        def evaluate(self, model: Any, framework: str, dtype: str) -> dict[str, Any]:
            batch = torch.arange(64.0, dtype=getattr(torch, dtype)).reshape(2, 32)
            return {"output": model[0](batch), "best": model(batch).max().item(), "least": np.float32(1), "count": 2}

    recorded = StageContext(
        case=Measured(),
        framework="torch",
        backend=backend_of_side("ref"),
        dtype="float64",
        device="cpu",
        build_model=lambda: torch.nn.Sequential(torch.nn.Linear(32, 3), torch.nn.ReLU()).double(),
        canonical=CanonicalNames({}),
        progress=lambda text: None,
    )
    record_metric(recorded)
    metadata = recorded.recording.metadata
    assert metadata["numbers"] == ["best", "least"]
    entered = [random_projections(np.arange(64.0)).tolist()]
    assert metadata["entered"] == 2 * entered  # once into the first layer, once into the whole, which calls it
