"""Optimizers with other settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twinalign.selftest.catalogue import in_case
from twinalign.selftest.places import CasePlace, Find, component

_DECAYS = ("_weight_decay", "_lars_weight_decay", "_regularization_coeff")
_MOMENTA = ("_momentum", "_lars_momentum")


def _setting(optimizer: Any, names: tuple[str, ...]) -> str | None:
    """The attribute of these that the optimizer has, as a number other than zero."""
    found = (name for name in names if isinstance(getattr(optimizer, name, None), float))
    return next((name for name in found if getattr(optimizer, name)), None)


def _optimizer(such: Callable[[Any], Any] = lambda optimizer: True) -> Find:
    return component("optimizer", lambda survey: such(survey.optimizer), needs="backward")


def _has(*names: str) -> Find:
    return _optimizer(lambda optimizer: _setting(optimizer, names))


def _is(*kinds: str) -> Find:
    return _optimizer(lambda optimizer: type(optimizer).__name__ in kinds)


def _scale(place: CasePlace, names: tuple[str, ...], factor: float) -> None:
    def change(optimizer: Any) -> Any:
        name = _setting(optimizer, names) or ""
        setattr(optimizer, name, getattr(optimizer, name) * factor)
        return optimizer

    place.result("optimizer", change)


def _set(place: CasePlace, **values: Any) -> None:
    def change(optimizer: Any) -> Any:
        for name, value in values.items():
            setattr(optimizer, name, value)
        return optimizer

    place.result("optimizer", change)


@in_case("optimizer", _has(*_DECAYS), causes=("decay_missing",))
def weight_decay_forgotten(place: CasePlace) -> None:
    """There is no weight decay."""
    _scale(place, _DECAYS, 0.0)


@in_case("optimizer", _has(*_DECAYS), causes=("decay_coefficient",))
def weight_decay_halved(place: CasePlace) -> None:
    """Weight decay is half as strong, as of a penalty that is halved."""
    _scale(place, _DECAYS, 0.5)


@in_case("optimizer", _is("AdamW"), causes=("decay_as_l2",))
def weight_decay_in_gradient(place: CasePlace) -> None:
    """Weight decay goes into the gradient, as Adam has it, and not beside it."""

    def run(original: Callable[..., Any], parameters: list[Any], framework: str) -> Any:
        given = original(parameters, framework)
        return place.paddle.optimizer.Adam(
            given._learning_rate, given._beta1, given._beta2, given._epsilon, parameters, given._weight_decay
        )

    place.around("optimizer", run)


@in_case("optimizer", _is("AdamW"), causes=("decay_missing_on_one_dimensional",))
def weight_decay_spares_vectors(place: CasePlace) -> None:
    """Weight decay spares biases and norms."""

    def run(original: Callable[..., Any], parameters: list[Any], framework: str) -> Any:
        given = original(parameters, framework)
        decayed = {parameter.name for parameter in parameters if len(parameter.shape) > 1}
        given._apply_decay_param_fun = decayed.__contains__
        return given

    place.around("optimizer", run)


@in_case("optimizer", _has("_lars_weight_decay"), causes=("decay_on_one_dimensional",))
def weight_decay_reaches_vectors(place: CasePlace) -> None:
    """Weight decay reaches biases and norms."""

    def change(optimizer: Any) -> Any:
        step = optimizer._append_optimize_op

        def decayed(block: Any, pair: tuple[Any, Any]) -> Any:
            parameter, gradient = pair
            if len(parameter.shape) <= 1:
                gradient = gradient + optimizer._lars_weight_decay * parameter
            return step(block, (parameter, gradient))

        optimizer._append_optimize_op = decayed
        return optimizer

    place.result("optimizer", change)


@in_case("optimizer", _has("_beta1"), causes=("adam_beta1",))
def adam_beta1(place: CasePlace) -> None:
    """Adam's beta1 is 0.95."""
    _set(place, _beta1=0.95)


@in_case("optimizer", _has("_beta2"), causes=("adam_beta2",))
def adam_beta2(place: CasePlace) -> None:
    """Adam's beta2 is 0.99."""
    _set(place, _beta2=0.99)


@in_case("optimizer", _is("AdamW", "Adam"), causes=("optimizer_epsilon",))
def adam_epsilon(place: CasePlace) -> None:
    """Adam's epsilon is 1e-3."""
    _set(place, _epsilon=1e-3)


@in_case("optimizer", _is("Momentum"), causes=("nesterov",))
def momentum_by_nesterov(place: CasePlace) -> None:
    """Momentum is Nesterov's."""
    _set(place, _use_nesterov=True)


@in_case("optimizer", _has(*_MOMENTA), causes=("momentum_value",))
def momentum_lower(place: CasePlace) -> None:
    """The optimizer's momentum is 0.9 of what it should be."""
    _scale(place, _MOMENTA, 0.9)


@in_case("optimizer", _has(*_MOMENTA), causes=("momentum_value",))
def momentum_forgotten(place: CasePlace) -> None:
    """The optimizer has no momentum."""
    _scale(place, _MOMENTA, 0.0)


@in_case("optimizer", _has("_trust_coefficient"), causes=("lars_trust_coefficient",))
def trust_coefficient_tenfold(place: CasePlace) -> None:
    """LARS's trust coefficient is ten times as large."""
    _scale(place, ("_trust_coefficient",), 10.0)


@in_case("optimizer", _optimizer(), causes=("parameters_left_out",))
def parameter_left_out(place: CasePlace) -> None:
    """The optimizer is not given the last parameter."""
    place.around("optimizer", lambda original, parameters, framework: original(parameters[:-1], framework))


@in_case("optimizer", _optimizer(), causes=("gradient_clipped",))
def gradients_clipped(place: CasePlace) -> None:
    """Gradients are clipped to a norm of 0.01."""
    _set(place, _grad_clip=place.paddle.nn.ClipGradByGlobalNorm(0.01))


@in_case("optimizer", _optimizer(), causes=("optimizer_stepped_twice",))
def step_taken_twice(place: CasePlace) -> None:
    """Every optimizer step is taken twice."""

    def change(optimizer: Any) -> Any:
        step = optimizer.step
        optimizer.step = lambda: (step(), step())
        return optimizer

    place.result("optimizer", change)


@in_case("optimizer", _is("AdamW", "Adam", "Momentum"), causes=("learning_rate_of_some",))
def rate_of_one_parameter(place: CasePlace) -> None:
    """One parameter moves at a tenth of the rate."""

    def run(original: Callable[..., Any], parameters: list[Any], framework: str) -> Any:
        given = original(parameters, framework)
        parameters[len(parameters) // 2].optimize_attr["learning_rate"] = 0.1
        return given

    place.around("optimizer", run)


@in_case("optimizer", _is("AdamW", "Adam"), causes=("bias_correction_missing",))
def bias_correction_forgotten(place: CasePlace) -> None:
    """Adam's moments are not corrected for their start at zero."""

    def change(optimizer: Any) -> Any:
        add = optimizer._add_accumulator

        def without(*arguments: Any, **keywords: Any) -> Any:
            name = keywords.get("name") or arguments[0]
            if name in ("beta1_pow_acc", "beta2_pow_acc"):
                keywords["fill_value"] = 0.0
            return add(*arguments, **keywords)

        optimizer._add_accumulator = without
        return optimizer

    place.result("optimizer", change)
