"""LARS that rescales its steps differently."""

from collections.abc import Callable
from typing import Any

from twinalign.planted_faults.catalogue import Registration, in_case
from twinalign.planted_faults.fault_sites import CaseSite, handed_to
from twinalign.planted_faults.faults.optimizers import has_setting

Ratio = Callable[[Any, float, float, float], float]


def _rescaled(site: CaseSite, ratio: Ratio, one_dimensional: bool) -> None:
    """Write LARS's step anew, with `ratio(optimizer, |w|, |g|, |g + decay w|)`."""

    def change(optimizer: Any) -> Any:
        @site.paddle.no_grad()
        def step(block: Any, pair: tuple[Any, Any]) -> None:
            parameter, gradient = pair
            if parameter.ndim > 1 or one_dimensional:
                decay = optimizer._lars_weight_decay if parameter.ndim > 1 else 0.0
                decayed = gradient + decay * parameter
                lengths = [float((tensor**2).sum().sqrt()) for tensor in (parameter, gradient, decayed)]
                gradient = decayed * (ratio(optimizer, *lengths) if lengths[0] > 0 and lengths[2] > 0 else 1.0)
            buffer = optimizer._get_accumulator("mu", parameter)
            buffer.set_value(buffer * optimizer._lars_momentum + gradient)
            parameter.set_value(parameter - buffer * optimizer.get_lr())

        optimizer._append_optimize_op = step
        return optimizer

    site.result("optimizer", change)


def _ratio(cause: str, fault: str = "", one_dimensional: bool = False) -> Registration:
    """A fault whose function `(optimizer, |w|, |g|, |g + decay w|)` gives the factor by which LARS rescales a step."""

    def plant(site: CaseSite, ratio: Ratio) -> None:
        _rescaled(site, ratio, one_dimensional)

    find = has_setting("_trust_coefficient")
    return in_case("optimizer", find, cause, id=fault, how=handed_to(plant))


_ratio("lars_trust_missing", "trust_ratio_forgotten").add(
    "LARS does not rescale its steps: it is SGD with momentum", lambda optimizer, weight, gradient, decayed: 1.0
)


@_ratio("lars_trust_denominator")
def trust_ratio_of_the_paper(optimizer: Any, weight: float, gradient: float, decayed: float) -> float:
    """LARS's trust ratio divides by the sum of both norms, as the paper has it."""
    return optimizer._trust_coefficient * weight / (gradient + optimizer._lars_weight_decay * weight)


_ratio("lars_epsilon", "trust_ratio_with_epsilon").add(
    "LARS's trust ratio has an epsilon of 0.001 in its denominator",
    lambda optimizer, weight, gradient, decayed: optimizer._trust_coefficient * weight / (decayed + 1e-3),
)


@_ratio("lars_ratio_clipped")
def trust_ratio_limited(optimizer: Any, weight: float, gradient: float, decayed: float) -> float:
    """LARS's trust ratio is limited to the learning rate, as LARC has it."""
    rate = optimizer.get_lr()
    return min(optimizer._trust_coefficient * weight / decayed / rate, 1.0) if rate else 1.0


_ratio("lars_trust_on_one_dimensional", "trust_ratio_of_vectors", one_dimensional=True).add(
    "LARS rescales the steps of biases and norms too",
    lambda optimizer, weight, gradient, decayed: optimizer._trust_coefficient * weight / decayed,
)
