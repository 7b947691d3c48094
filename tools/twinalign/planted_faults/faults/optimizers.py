"""Optimizers with other settings."""

from collections.abc import Callable
from typing import Any

from twinalign.planted_faults.catalogue import Registration, in_case
from twinalign.planted_faults.fault_sites import CaseSite, Original, handed_to, replace_method, through
from twinalign.planted_faults.where_to_plant import Find, component

_DECAYS = ("_weight_decay", "_lars_weight_decay", "_regularization_coeff")
_MOMENTA = ("_momentum", "_lars_momentum")


def _setting(optimizer: Any, names: tuple[str, ...]) -> str | None:
    """The attribute of these that the optimizer has, as a number other than zero."""
    found = (name for name in names if isinstance(getattr(optimizer, name, None), float))
    return next((name for name in found if getattr(optimizer, name)), None)


def of_optimizer(such: Callable[[Any], Any] = lambda optimizer: True) -> Find:
    """The optimizer, where `such` holds of it."""
    return component("optimizer", lambda contents: such(contents.optimizer), needs="backward")


def has_setting(*names: str) -> Find:
    """The optimizer, where one of these attributes is a number other than zero."""
    return of_optimizer(lambda optimizer: _setting(optimizer, names))


def of_class(*kinds: str) -> Find:
    """The optimizer, where it is of one of these classes."""
    return of_optimizer(lambda optimizer: type(optimizer).__name__ in kinds)


def _scaled(fault: str, names: tuple[str, ...], cause: str) -> Registration:
    """A fault that is a factor: the first of these settings that the optimizer has is multiplied by it."""

    def plant(site: CaseSite, factor: float) -> None:
        def change(optimizer: Any) -> Any:
            name = _setting(optimizer, names) or ""
            setattr(optimizer, name, getattr(optimizer, name) * factor)
            return optimizer

        site.result("optimizer", change)

    return in_case("optimizer", has_setting(*names), cause, id=fault, how=handed_to(plant))


def set_attributes(site: CaseSite, **values: Any) -> None:
    """Set attributes of the optimizer after it was made."""

    def change(optimizer: Any) -> Any:
        for name, value in values.items():
            setattr(optimizer, name, value)
        return optimizer

    site.result("optimizer", change)


def with_values(fault: str, find: Find, cause: str) -> Registration:
    """A fault that is a mapping: so are attributes of the optimizer set after it was made."""
    how = handed_to(lambda site, values: set_attributes(site, **values))
    return in_case("optimizer", find, cause, id=fault, how=how)


_scaled("weight_decay_forgotten", _DECAYS, "decay_missing").add("There is no weight decay", 0.0)
_scaled("weight_decay_halved", _DECAYS, "decay_coefficient").add(
    "Weight decay is half as strong, as of a penalty that is halved", 0.5
)


@in_case("optimizer", of_class("AdamW"), "decay_as_l2")
@through(CaseSite.around, "optimizer")
def weight_decay_in_gradient(site: CaseSite, original: Original, parameters: list[Any], framework: str) -> Any:
    """Weight decay goes into the gradient, as Adam has it, and not beside it."""
    given = original(parameters, framework)
    return site.paddle.optimizer.Adam(
        given._learning_rate, given._beta1, given._beta2, given._epsilon, parameters, given._weight_decay
    )


def decay_spares(fault: str, cause: str) -> Registration:
    """A fault whose function says of a parameter whether AdamW's decay leaves it out."""

    def spare(site: CaseSite, spared: Callable[[Any], bool]) -> None:
        def run(original: Original, parameters: list[Any], framework: str) -> Any:
            given = original(parameters, framework)
            decayed = {parameter.name for parameter in parameters if not spared(parameter)}
            given._apply_decay_param_fun = decayed.__contains__
            return given

        site.around("optimizer", run)

    return in_case("optimizer", of_class("AdamW"), cause, id=fault, how=handed_to(spare))


def decay_reaches(fault: str, cause: str) -> Registration:
    """A fault whose function says of a parameter that LARS exempts whether its decay reaches it."""

    def reach(site: CaseSite, reached: Callable[[Any], bool]) -> None:
        def change(optimizer: Any) -> Any:
            step = optimizer._append_optimize_op

            def decayed(block: Any, pair: tuple[Any, Any]) -> Any:
                parameter, gradient = pair
                if len(parameter.shape) <= 1 and reached(parameter):
                    gradient = gradient + optimizer._lars_weight_decay * parameter
                return step(block, (parameter, gradient))

            optimizer._append_optimize_op = decayed
            return optimizer

        site.result("optimizer", change)

    return in_case("optimizer", has_setting("_lars_weight_decay"), cause, id=fault, how=handed_to(reach))


decay_spares("weight_decay_spares_vectors", "decay_missing_on_one_dimensional").add(
    "Weight decay spares biases and norms", lambda parameter: len(parameter.shape) <= 1
)
decay_reaches("weight_decay_reaches_vectors", "decay_on_one_dimensional").add(
    "Weight decay reaches biases and norms", lambda parameter: True
)
with_values("adam_beta1", has_setting("_beta1"), "adam_beta1").add("Adam's beta1 is 0.95", {"_beta1": 0.95})
with_values("adam_beta2", has_setting("_beta2"), "adam_beta2").add("Adam's beta2 is 0.99", {"_beta2": 0.99})
with_values("adam_epsilon", of_class("AdamW", "Adam"), "optimizer_epsilon").add(
    "Adam's epsilon is 1e-3", {"_epsilon": 1e-3}
)
with_values("momentum_by_nesterov", of_class("Momentum"), "nesterov").add(
    "Momentum is Nesterov's", {"_use_nesterov": True}
)
_scaled("momentum_lower", _MOMENTA, "momentum_value").add("The optimizer's momentum is 0.9 of what it should be", 0.9)
_scaled("momentum_forgotten", _MOMENTA, "momentum_value").add("The optimizer has no momentum", 0.0)
_scaled("trust_coefficient_tenfold", ("_trust_coefficient",), "lars_trust_coefficient").add(
    "LARS's trust coefficient is ten times as large", 10.0
)
in_case("optimizer", of_optimizer(), "parameters_left_out", id="parameter_left_out").add(
    "The optimizer is not given the last parameter",
    replace_method("optimizer", lambda original, parameters, framework: original(parameters[:-1], framework)),
)
in_case("optimizer", of_optimizer(), "gradient_clipped", id="gradients_clipped").add(
    "Gradients are clipped to a norm of 0.01",
    lambda site: set_attributes(site, _grad_clip=site.paddle.nn.ClipGradByGlobalNorm(0.01)),
)


@in_case("optimizer", of_optimizer(), "optimizer_stepped_twice")
@through(CaseSite.result, "optimizer")
def step_taken_twice(site: CaseSite, optimizer: Any) -> Any:
    """Every optimizer step is taken twice."""
    step = optimizer.step
    optimizer.step = lambda: (step(), step())
    return optimizer


@in_case("optimizer", of_class("AdamW", "Adam", "Momentum"), "learning_rate_of_some")
@through(CaseSite.around, "optimizer")
def rate_of_one_parameter(site: CaseSite, original: Original, parameters: list[Any], framework: str) -> Any:
    """One parameter moves at a tenth of the rate."""
    given = original(parameters, framework)
    parameters[len(parameters) // 2].optimize_attr["learning_rate"] = 0.1
    return given


@in_case("optimizer", of_class("AdamW", "Adam"), "bias_correction_missing")
@through(CaseSite.result, "optimizer")
def bias_correction_forgotten(site: CaseSite, optimizer: Any) -> Any:
    """Adam's moments are not corrected for their start at zero."""
    add = optimizer._add_accumulator

    def without(*arguments: Any, **keywords: Any) -> Any:
        name = keywords.get("name") or arguments[0]
        if name in ("beta1_pow_acc", "beta2_pow_acc"):
            keywords["fill_value"] = 0.0
        return add(*arguments, **keywords)

    optimizer._add_accumulator = without
    return optimizer
