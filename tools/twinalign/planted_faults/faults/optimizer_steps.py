"""Steps of an optimizer that are given other gradients, go another way, or keep other moments."""

from collections.abc import Callable
from typing import Any

from twinalign.planted_faults.catalogue import in_case
from twinalign.planted_faults.fault_sites import CaseSite, Original, through
from twinalign.planted_faults.faults.optimizers import has_setting, of_class, of_optimizer, set_attributes, with_values


def around_steps(site: CaseSite, run: Callable[[Any, Callable[[], None]], None]) -> None:
    """Let `run(optimizer, step)` take every step of the optimizer."""

    def change(optimizer: Any) -> Any:
        step = optimizer.step
        optimizer.step = lambda: run(optimizer, step)
        return optimizer

    site.result("optimizer", change)


def with_gradients(optimizer: Any) -> list[Any]:
    """The parameters that have a gradient in this step."""
    return [parameter for parameter in optimizer._parameter_list if parameter.grad is not None]


def _gradients(site: CaseSite, change: Callable[[Any, Any], Any]) -> None:
    """Give the optimizer `change(parameter, gradient)` in each gradient's stead; what was recorded stays."""

    def run(optimizer: Any, step: Callable[[], None]) -> None:
        kept = [(parameter, parameter.grad.clone()) for parameter in with_gradients(optimizer)]
        for parameter, gradient in kept:
            parameter.grad.set_value(change(parameter, gradient))
        step()
        for parameter, gradient in kept:
            parameter.grad.set_value(gradient)

    around_steps(site, run)


@in_case("optimizer", of_optimizer(), "gradient_not_cleared")
def gradients_add_up(site: CaseSite) -> None:
    """The optimizer's gradients add up from step to step."""
    sums: dict[str, Any] = {}

    def add(parameter: Any, gradient: Any) -> Any:
        sums[parameter.name] = gradient + sums.get(parameter.name, 0.0)
        return sums[parameter.name]

    _gradients(site, add)


_WITH_MOMENTS = has_setting("_beta1", "_momentum", "_lars_momentum")
"""In plain SGD a scaled gradient is the same as a scaled rate."""


in_case("optimizer", _WITH_MOMENTS, "gradient_sign", id="gradients_climb").add(
    "The optimizer climbs where it should descend", lambda site: _gradients(site, lambda parameter, gradient: -gradient)
)
in_case("optimizer", _WITH_MOMENTS, "gradient_scaled", id="gradients_summed_not_averaged").add(
    "The optimizer is given four times the gradient, as of accumulation that is not divided",
    lambda site: _gradients(site, lambda parameter, gradient: gradient * 4.0),
)


@in_case("optimizer", of_optimizer(), "gradient_clipped_each")
def gradients_clipped_one_by_one(site: CaseSite) -> None:
    """Every gradient is clipped to a norm of 0.01 by itself."""
    # paddle's own ClipGradByNorm has no kernel for float64 on a CPU.
    _gradients(site, lambda parameter, gradient: gradient * min(1.0, 0.01 / max(1e-30, float(gradient.norm()))))


in_case("optimizer", of_optimizer(), "gradient_clipped_by_value", id="gradients_clipped_by_value").add(
    "The elements of gradients are clipped to 0.001",
    lambda site: set_attributes(site, _grad_clip=site.paddle.nn.ClipGradByValue(0.001)),
)


def _has_a_pair(optimizer: Any) -> bool:
    """Two parameters of one shape; with L2 decay the velocities do not tell whose gradient they were given."""
    shapes = [tuple(parameter.shape) for parameter in optimizer._parameter_list]
    return len(shapes) > len(set(shapes)) and not _l2(optimizer)


@in_case("optimizer", of_optimizer(_has_a_pair), "parameters_exchanged")
@through(around_steps)
def gradients_of_another_parameter(site: CaseSite, optimizer: Any, step: Callable[[], None]) -> None:
    """Two parameters of one shape are given each other's gradients."""
    seen: dict[tuple[int, ...], Any] = {}
    for parameter in with_gradients(optimizer):
        other = seen.setdefault(tuple(parameter.shape), parameter)
        if other is not parameter:
            break
    own, others = parameter.grad.clone(), other.grad.clone()
    parameter.grad.set_value(others)
    other.grad.set_value(own)
    step()
    parameter.grad.set_value(own)
    other.grad.set_value(others)


@in_case("optimizer", of_optimizer(), "learning_rate_factor")
@through(around_steps)
def rate_doubled_in_the_step(site: CaseSite, optimizer: Any, step: Callable[[], None]) -> None:
    """Parameters move at twice the rate that the optimizer tells."""
    rate = optimizer.get_lr()
    optimizer.set_lr(2.0 * rate)
    step()
    optimizer.set_lr(rate)


with_values("adam_betas", has_setting("_beta1"), "adam_betas").add(
    "Adam's betas are 0.5 and 0.9", {"_beta1": 0.5, "_beta2": 0.9}
)
with_values("adam_keeps_the_maximum", of_class("AdamW", "Adam"), "amsgrad").add(
    "Adam divides by the greatest second moment so far", {"_amsgrad": True}
)


@in_case("optimizer", of_class("AdamW"), "epsilon_inside_root")
def adam_epsilon_inside_root(site: CaseSite) -> None:
    """Adam adds epsilon to the second moment, before the root."""

    def run(optimizer: Any, step: Callable[[], None]) -> None:
        before = {parameter.name: parameter.clone() for parameter in with_gradients(optimizer)}
        step()
        for parameter in with_gradients(optimizer):
            of = {
                name: optimizer._get_accumulator(name, parameter)
                for name in ("moment1", "moment2", "beta1_pow_acc", "beta2_pow_acc")
            }
            # The powers are those of the next step already.
            first = of["moment1"] / (1 - of["beta1_pow_acc"].item() / optimizer._beta1)
            second = of["moment2"] / (1 - of["beta2_pow_acc"].item() / optimizer._beta2)
            rate = optimizer.get_lr()
            shrunk = before[parameter.name] * (1 - rate * optimizer._weight_decay)
            parameter.set_value(shrunk - rate * first / (second + optimizer._epsilon).sqrt())

    around_steps(site, site.paddle.no_grad()(run))


def _momentum_steps(site: CaseSite, move: Callable[[Any, Any, Any, Any], tuple[Any, Any]]) -> None:
    """Let `move(optimizer, parameter, gradient, velocity)` say what parameter and velocity become."""
    velocities: dict[str, Any] = {}

    def run(optimizer: Any, step: Callable[[], None]) -> None:
        given = [(p, p.clone(), p.grad + _l2(optimizer) * p) for p in with_gradients(optimizer)]
        step()
        for parameter, before, gradient in given:
            velocity = velocities.get(parameter.name, gradient * 0.0)
            moved, velocities[parameter.name] = move(optimizer, before, gradient, velocity)
            parameter.set_value(moved)
            optimizer._get_accumulator("velocity", parameter).set_value(velocities[parameter.name])

    around_steps(site, site.paddle.no_grad()(run))


def _l2(optimizer: Any) -> float:
    return float(getattr(optimizer, "_regularization_coeff", 0.0))


@in_case("optimizer", of_class("Momentum"), "rate_inside_momentum")
@through(_momentum_steps)
def momentum_holds_the_rate(
    site: CaseSite, optimizer: Any, parameter: Any, gradient: Any, velocity: Any
) -> tuple[Any, Any]:
    """The learning rate is multiplied into the momentum buffer."""
    velocity = optimizer._momentum * velocity + optimizer.get_lr() * gradient
    return parameter - velocity, velocity


@in_case("optimizer", of_class("Momentum"), "dampening")
@through(_momentum_steps)
def momentum_is_an_average(
    site: CaseSite, optimizer: Any, parameter: Any, gradient: Any, velocity: Any
) -> tuple[Any, Any]:
    """The momentum buffer is an average: the gradient enters it with 1 - m."""
    velocity = optimizer._momentum * velocity + (1 - optimizer._momentum) * gradient
    return parameter - optimizer.get_lr() * velocity, velocity


@in_case("optimizer", of_class("Momentum"), "other_optimizer")
@through(CaseSite.around, "optimizer")
def adam_for_momentum(site: CaseSite, original: Original, parameters: list[Any], framework: str) -> Any:
    """Adam is used in place of SGD with momentum."""
    given = original(parameters, framework)
    return site.paddle.optimizer.Adam(given._learning_rate, parameters=parameters, weight_decay=_l2(given))
