"""The engine: what is proven is stated, what is not stays unexplained, and nothing of the reference is changed."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.twinalign.causes.module_unit import ModuleUnit
from tests.twinalign.causes.units import Unit, explain, unit, values_of
from tests.twinalign.causes.units import case as fault
from twinalign.causes.layers.generic import is_writable
from twinalign.causes.layers.subject import LayerSubject
from twinalign.causes.layers.target import CONSTANTS, Target
from twinalign.causes.registry import Explanation
from twinalign.replay.budget import Budget

RNG = np.random.default_rng(5)
TOKENS = RNG.standard_normal((4, 6, 8))
IMAGES = RNG.standard_normal((2, 4, 8, 8))

UNITS = {
    "layer norm": (lambda: nn.LayerNorm(8), TOKENS),
    "linear": (lambda: nn.Linear(8, 24), TOKENS),
    "convolution": (lambda: nn.Conv2d(4, 6, 3, padding=1, groups=2), IMAGES),
    "batch norm": (lambda: nn.BatchNorm2d(4), IMAGES),
    "pooling": (lambda: nn.AvgPool2d(3, 2, 1), IMAGES),
    "gelu": (nn.GELU, TOKENS),
    "attention": (unit(lambda s, x: F.scaled_dot_product_attention(x, x, x)), TOKENS),
    "resize": (unit(lambda s, x: F.interpolate(x, scale_factor=1.5, mode="bilinear")), IMAGES),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", UNITS)
@pytest.mark.parametrize("phase", ["forward", "backward"])
@pytest.mark.parametrize("share", [1.0, 1e-4, 0.0], ids=["all", "slightly", "one-element"])
def test_what_no_cause_gives_stays_unexplained(name: str, phase: str, share: float) -> None:
    build, x = UNITS[name]
    examined = ModuleUnit(build(), [x], {}, phase=phase)
    port = {key: value.copy() for key, value in examined.reference.items() if value.dtype == np.float64}
    rng = np.random.default_rng(1)
    for key in port:
        if share:
            port[key] += share * rng.standard_normal(port[key].shape) * np.abs(port[key]).mean()
        else:
            port[key].flat[port[key].size // 2] += 0.01
    examined.port = port
    assert explain(examined) is None


def test_what_does_not_differ_is_not_explained() -> None:
    examined = ModuleUnit(nn.LayerNorm(8), [TOKENS], {})
    examined.port = dict(examined.reference)
    assert explain(examined) is None


def test_differences_of_rounding_are_not_explained() -> None:
    examined = ModuleUnit(nn.LayerNorm(8), [TOKENS], {})
    examined.port = {"output.0": examined.reference["output.0"] * (1 + 1e-13)}
    assert explain(examined) is None


class Restless(nn.Module):
    """Gives something else at every call."""

    calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return F.gelu(x) + self.calls


def test_a_reference_that_does_not_repeat_itself_proves_nothing() -> None:
    examined = ModuleUnit(Restless(), [TOKENS], {})
    examined.port = {"output.0": F.gelu(torch.from_numpy(TOKENS), approximate="tanh").numpy() + 2}
    assert explain(examined) is None


def test_two_causes_in_one_unit_are_both_found() -> None:
    def wrong(right: Unit) -> Unit:
        right.function = lambda s, x: F.gelu(s.norm(x), approximate="tanh") / 3.0
        right.norm.eps = 1e-3
        return right

    right = unit(lambda s, x: F.gelu(s.norm(x)) / 3.0, norm=nn.LayerNorm(8))
    examined, _ = values_of(fault("gelu_form+norm_epsilon", right, wrong, TOKENS))
    found = explain(examined)
    assert found is not None
    assert found.id == "gelu_form+norm_epsilon"
    assert found.text == (
        "GELU is in another form: the tanh approximation in place of the exact one; "
        "and the normalisation's epsilon has another value: 0.001 in place of 1e-05"
    )


@pytest.mark.parametrize(
    ("right", "words"),
    [
        (lambda s, x: (x * 0.5 @ x.transpose(-1, -2)) * 0.25, "8 (the port lacks the factors 0.5 and 0.25)"),
        (lambda s, x: (x / 3.0 @ x.transpose(-1, -2)).detach().clone() * 1.0, "3 (the port lacks the factor 0.333333)"),
    ],
    ids=["two", "one"],
)
def test_a_factor_is_told_by_what_the_port_lacks(right: Any, words: str) -> None:
    subject = LayerSubject(ModuleUnit(unit(right)(), [TOKENS], {}))
    assert subject.words_of_factor(float(words.partition(" ")[0])) == words


def test_the_place_is_named_where_there_are_several() -> None:
    line = sys._getframe().f_lineno + 1
    right = unit(lambda s, x: F.gelu(F.gelu(x) + 1))
    examined, _ = values_of(
        fault("gelu_form", right, lambda _: unit(lambda s, x: F.gelu(F.gelu(x) + 1, approximate="tanh"))(), TOKENS)
    )
    found = explain(examined)
    assert found is not None
    assert found.text.endswith(
        "the tanh approximation in place of the exact one, at gelu number 2 of 2 in the reference, line "
        f"{line} of test_layers.py: right = unit(lambda s, x: F.gelu(F.gelu(x) + 1))"
    )


def test_evidence_says_how_far_it_was_and_is() -> None:
    examined = ModuleUnit(nn.GELU(), [TOKENS], {})
    examined.port = {"output.0": F.gelu(torch.from_numpy(TOKENS), approximate="tanh").numpy()}
    found = explain(examined)
    assert found is not None
    assert found.confirmed
    assert found.evidence["differences"] == ["gelu_approximate"]
    expected = np.abs(examined.port["output.0"] - examined.reference["output.0"]).max()
    expected /= max(np.abs(value["output.0"]).max() for value in (examined.port, examined.reference))
    assert found.evidence["unexplained_error"] == pytest.approx(expected)
    assert found.evidence["remaining_error"] < 1e-15


def test_the_reference_is_left_as_it_was() -> None:
    module = nn.Sequential(nn.BatchNorm1d(8), nn.Dropout(0.0), nn.Linear(8, 8)).double()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    examined = ModuleUnit(module, [TOKENS[:, 0]], {}, training=True, phase="state")
    examined.port = {name: value + 0.1 for name, value in examined.reference.items() if name.startswith("buffer.")}
    generator = torch.random.get_rng_state()
    assert explain(examined) is None
    assert torch.equal(generator, torch.random.get_rng_state())
    assert module.training
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert not any(parameter.grad is not None for parameter in module.parameters())


def test_what_was_found_before_goes_first() -> None:
    examined = ModuleUnit(unit(lambda s, x: x * 2.0)(), [TOKENS], {})
    examined.port = {"output.0": TOKENS}
    plain = explain(examined)
    known = "the output is scaled by a factor: {} (the port lacks the factor 2)"
    led = explain(examined, [{"id": "output_scaled", "text": known.format(0.5)}])
    other = explain(examined, [{"id": "output_scaled", "text": known.format(0.25)}])
    assert plain == other
    assert plain is not None
    assert led is not None
    assert (plain.id, led.id) == ("factor_forgotten", "output_scaled")


def test_the_time_is_bounded() -> None:
    examined = ModuleUnit(nn.GELU(), [TOKENS], {})
    examined.port = {"output.0": examined.reference["output.0"] * 2.0}
    assert explain(examined) is not None
    budget = Budget(0.0)
    with budget.of_one():
        assert explain(examined, budget=budget) is None


def test_a_loss_that_is_no_module_is_explained() -> None:
    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(x, y)

    examined = ModuleUnit(loss, [TOKENS, TOKENS[::-1].copy()], {})
    examined.port = {"output.0": np.array(np.square(TOKENS - TOKENS[::-1]).sum())}
    found = explain(examined)
    assert found is not None
    assert found.id == "loss_reduction"


def contrast(one: np.ndarray, two: np.ndarray, other: np.ndarray) -> np.ndarray:
    """A contrastive loss that is not symmetric in its first two arguments, in numpy."""
    one, two, other = (x / np.sqrt((x**2).sum(1, keepdims=True)) for x in (one, two, other))
    return np.array((one @ other.T).diagonal().sum() + 2 * (two @ other.T).diagonal().sum())


def test_outputs_that_change_places_in_a_loss_are_found() -> None:
    def loss(*outputs: torch.Tensor) -> torch.Tensor:
        one, two, other = (F.normalize(x, dim=1) for x in outputs)
        return (one @ other.T).diagonal().sum() + 2 * (two @ other.T).diagonal().sum()

    outputs = [RNG.standard_normal((5, 8)) for _ in range(3)]
    examined = ModuleUnit(loss, outputs, {})
    np.testing.assert_allclose(examined.reference["output.0"], contrast(*outputs))
    examined.port = {"output.0": contrast(outputs[1], outputs[0], outputs[2])}
    found = explain(examined)
    assert found is not None
    assert found.id == "loss_arguments_swapped"
    assert found.text.endswith("are swapped: calls 1 and 2 of normalize")


def target(port: object, reference: object, name: str = "output.0") -> Target:
    return Target({name: np.array(port, float)}, {name: np.array(reference, float)})


def confirmed(given: Target, values: object, name: str = "output.0") -> bool:
    return given.prove({name: np.array(values, float)}).confirmed


def test_another_number_in_place_of_the_least_there_is_must_be_the_ports() -> None:
    least = np.finfo(np.float64).min
    given = target([0.0, -1.0], [0.0, least])
    assert given.wrong()
    assert given.reproduces_reference({"output.0": np.array([0.0, least])})
    assert given.prove({"output.0": np.array([0.0, -1.0])}).exact
    for other in (-2.0, 0.0, -1e4, least):
        assert not given.prove({"output.0": np.array([0.0, other])}).confirmed
        assert not target([0.0, -1.0], [0.0, 1e9]).prove({"output.0": np.array([0.0, other])}).confirmed


def test_what_is_rounding_beside_the_reference_is_no_number_of_the_ports() -> None:
    assert confirmed(target([1e-17, 0.0], [1.0, 1.0]), [0.0, 1e-17])


def test_a_thousandth_of_the_difference_is_too_much() -> None:
    given = target([1.0, 2.0], [1.0, 2.001])
    assert confirmed(given, [1.0, 2.0])
    assert confirmed(given, [1.0, 2.0 + 1e-9])
    assert not confirmed(given, [1.0, 2.0 + 1e-6])


def test_not_a_number_must_be_where_it_is_in_the_port() -> None:
    given = target([math.nan, 2.0, math.inf], [1.0, 2.0, 3.0])
    assert confirmed(given, [math.nan, 2.0, math.inf])
    assert not confirmed(given, [math.nan, math.nan, math.inf])
    assert not confirmed(given, [1.0, 2.0, math.inf])


def test_a_large_tensor_is_measured_to_its_end() -> None:
    rng = np.random.default_rng(0)
    port, reference, value = rng.standard_normal((3, 5, 40_000))
    proof = Target({"output.0": port}, {"output.0": reference}).prove({"output.0": value})
    scale = max(np.abs(port).max(), np.abs(reference).max())
    assert proof.before == np.abs(port - reference).max() / scale
    assert proof.after == np.abs(port - value).max() / scale
    assert proof.distance == pytest.approx(np.sqrt(np.mean(np.square((port - value) / scale))), rel=1e-12)
    value[:] = port
    value[-1, -1] += 1.0
    given = Target({"output.0": port}, {"output.0": reference})
    assert given.prove({"output.0": value}).after == pytest.approx(1.0 / scale, rel=1e-12)
    value[0, 0] = math.inf
    assert given.prove({"output.0": value}).after == 10.0


def test_another_shape_is_reproduced_by_that_shape_alone() -> None:
    given = target([[1.0, 2.0]], [1.0, 2.0])
    assert confirmed(given, [[1.0, 2.0]])
    assert not confirmed(given, [1.0, 2.0])


def test_what_is_right_must_stay_right() -> None:
    values = {"output.0": np.ones(3), "output.1": np.arange(3.0)}
    given = Target({**values, "output.0": np.zeros(3)}, values)
    assert given.prove({**values, "output.0": np.zeros(3)}).confirmed
    assert not given.prove({"output.0": np.zeros(3), "output.1": np.arange(3.0) + 0.1}).confirmed


def test_a_gradient_that_is_not_there_is_zero() -> None:
    name = "gradient.parameter.weight"
    given = Target({}, {name: np.ones(3)})
    assert given.wrong() == [name]
    assert given.prove({}).confirmed
    assert not given.prove({name: np.ones(3)}).confirmed


def test_gradients_that_cancel_are_rounding() -> None:
    one = {"gradient.input.0": np.ones(3), "gradient.parameter.bias": np.full(3, 1e-17)}
    other = {**one, "gradient.parameter.bias": np.full(3, -4e-17)}
    assert Target(one, other).wrong() == []


def test_the_operation_that_is_another_is_named() -> None:
    examined, _ = values_of(
        fault(
            "operation_swapped",
            unit(lambda s, x, y: torch.sin(x * y)),
            lambda _: unit(lambda s, x, y: torch.sin(x / y))(),
            TOKENS,
            TOKENS + 3,
        )
    )
    found = explain(examined)
    assert found is not None
    assert found.text == "another arithmetic operation is used: `/` in place of `*`"


def dice(number: float, below: float = 1.0) -> Any:
    """A Dice loss with the smoothing `number` above the line, `below` below it; and the loss by itself."""

    def loss(p: Any, t: Any, background: Any) -> Any:
        p = p.softmax(1)
        found = 1 - ((2 * (p * t).sum((1, 2)) + number) / ((p + t).sum((1, 2)) + below)).mean()
        return found + background, found, background

    return loss


def smoothed(right: Any, wrong: Any, of_constants: float = 0.0) -> Explanation | None:
    """What is found where the port's other part of the loss is off by so much relative."""
    rng = np.random.default_rng(3)
    probabilities = (rng.random((2, 16, 16)) < 0.3).astype(np.float64)
    inputs = [rng.standard_normal((2, 16, 16)), probabilities, np.array(0.9)]
    examined = ModuleUnit(right, inputs, {})
    inputs_of_port = [*inputs[:2], inputs[2] * (1 + of_constants)]
    examined.port = dict(ModuleUnit(wrong, inputs_of_port, {}).reference)
    return explain(examined)


@pytest.mark.parametrize("of_constants", [0.0, 1.2e-8], ids=["exact", "float32"])
@pytest.mark.parametrize("value", [1e-5, 0.01])
def test_another_smoothing_is_told_by_its_value(value: float, of_constants: float) -> None:
    found = smoothed(dice(1.0), dice(float(np.float32(value))), of_constants)
    assert found is not None
    assert found.id == "added_constant"
    line = dice.__code__.co_firstlineno + 5
    assert found.text == (
        f"a constant that is added or subtracted has another value: {value:.6g} in place of 1, at `+` number 1 of 3 in "
        f"the reference, line {line} of test_layers.py: "
        "found = 1 - ((2 * (p * t).sum((1, 2)) + number) / ((p + t).sum((1, 2)) + below)).mean()"
    )


def test_a_smoothing_may_be_another_in_all_its_places() -> None:
    found = smoothed(dice(1.0), dice(0.25, 0.25))
    assert found is not None
    assert found.text.startswith("a constant that is added or subtracted has another value: 0.25 in place of 1, at")


def test_whole_numbers_do_not_tell_what_was_truncated_to_them() -> None:
    def buckets(base: float) -> Any:
        return lambda s, x: (torch.log(x.abs() * 4 + 1) / math.log(base)).long()

    x = np.linspace(0, 2, 7).reshape(1, 7)
    examined = ModuleUnit(unit(buckets(4.0))(), [x], {})
    examined.port = {"output.0": buckets(16.0)(None, torch.from_numpy(x)).numpy()}
    assert explain(examined) is None


def test_a_number_whose_square_is_too_large_or_too_small_is_no_factor() -> None:
    assert not any(map(is_writable, (5e-305, -1e300, float("nan"), float("inf"), 0.0)))


@pytest.mark.slow
def test_a_number_that_nobody_writes_is_no_cause() -> None:
    assert smoothed(dice(1.0), dice(0.7391823)) is None


def test_only_causes_about_constants_are_excused_by_float32() -> None:
    given = target([1.0, 2.0], [1.0, 2.001])
    close = {"output.0": np.array([1.0, 2.0 + 1e-7])}
    assert not given.prove(close).confirmed
    excused = given.prove(close, CONSTANTS)
    assert excused.confirmed
    assert not excused.exact


@pytest.mark.parametrize(("factor", "found"), [(1.3, True), (1.2718281, False)])
def test_one_number_is_no_proof_of_a_factor_that_nobody_writes(factor: float, found: bool) -> None:
    examined = ModuleUnit(lambda x: x.sin().sum(), [TOKENS], {})
    examined.port = {name: value * factor for name, value in examined.reference.items()}
    explanation = explain(examined)
    assert (explanation is not None) == found
    assert explanation is None or explanation.id == "output_scaled"


def test_a_mask_of_zeros_and_infinities_is_compared_where_they_stand():
    one, other = ({"input.0": np.where(np.eye(3) > 0, -np.inf, 0.0)[rows]} for rows in ([0, 1, 2], [1, 0, 2]))
    given = Target(one, other)
    assert given.wrong() == ["input.0"]
    assert given.prove(one).confirmed
    assert not given.prove(other).confirmed
