"""Weight decay that reaches other parameters, or comes in at another point of the step."""

from collections.abc import Callable
from typing import Any

from twinalign.planted_faults.catalogue import in_case
from twinalign.planted_faults.fault_sites import CaseSite, Original, through
from twinalign.planted_faults.faults.optimizer_steps import around_steps, with_gradients
from twinalign.planted_faults.faults.optimizers import decay_reaches, decay_spares, of_class


def _is_bias(parameter: Any) -> bool:
    return ".b_" in parameter.name  # paddle's names: linear_0.b_0, layer_norm_0.b_0


decay_spares("weight_decay_spares_biases", "decay_missing_on_bias").add("Weight decay spares biases", _is_bias)
decay_spares("weight_decay_spares_layer_norms", "decay_missing_on_norm").add(
    "Weight decay spares the layer norms", lambda parameter: parameter.name.startswith("layer_norm")
)
decay_spares("weight_decay_spares_scales", "decay_missing_on_scale").add(
    "Weight decay spares the scales of normalisation layers",
    lambda parameter: len(parameter.shape) <= 1 and not _is_bias(parameter),
)
decay_spares("weight_decay_spares_matrices", "decay_missing_on_weight").add(
    "Weight decay reaches biases and norms alone", lambda parameter: len(parameter.shape) > 1
)
decay_spares("weight_decay_spares_tokens", "decay_missing_on_embedding").add(
    "Weight decay spares tokens and position embeddings", lambda parameter: len(parameter.shape) == 3
)
decay_reaches("weight_decay_reaches_biases", "decay_on_bias").add("Weight decay reaches biases", _is_bias)
decay_reaches("weight_decay_reaches_scales", "decay_on_other_parameters").add(
    "Weight decay reaches the scales of batch norms", lambda parameter: not _is_bias(parameter)
)


def _decoupled(site: CaseSite, share: Callable[[Any, float], float], after: bool = False) -> None:
    """Take the decay out of the optimizer, and shrink parameters by `share(optimizer, coefficient)` beside the step."""
    kept: dict[int, float] = {}

    def run(optimizer: Any, step: Callable[[], None]) -> None:
        coefficient = kept.setdefault(id(optimizer), optimizer._weight_decay)
        optimizer._weight_decay = 0.0
        if after:
            step()
        for parameter in with_gradients(optimizer):
            parameter.set_value(parameter * (1.0 - share(optimizer, coefficient)))
        if not after:
            step()

    around_steps(site, site.paddle.no_grad()(run))


@in_case("optimizer", of_class("AdamW"), "decay_after_step")
def weight_decay_after_the_step(site: CaseSite) -> None:
    """AdamW shrinks the weights after the step, not before it."""
    _decoupled(site, lambda optimizer, coefficient: optimizer.get_lr() * coefficient, after=True)


in_case("optimizer", of_class("AdamW"), "decay_without_rate", id="weight_decay_without_rate").add(
    "AdamW's decay is not multiplied by the learning rate",
    lambda site: _decoupled(site, lambda optimizer, coefficient: coefficient),
)


@in_case("optimizer", of_class("Momentum"), "decay_decoupled")
@through(CaseSite.around, "optimizer")
def weight_decay_beside_the_gradient(site: CaseSite, original: Original, parameters: list[Any], framework: str) -> Any:
    """SGD's weight decay shrinks the weights beside the gradient, and does not pass through the momentum."""
    given = original(parameters, framework)
    coefficient, rate, momentum = given._regularization_coeff, given._learning_rate, given._momentum
    plain = site.paddle.optimizer.Momentum(rate, momentum, parameters=parameters)
    step = plain.step

    @site.paddle.no_grad()
    def decoupled() -> None:
        for parameter in with_gradients(plain):
            parameter.set_value(parameter * (1.0 - plain.get_lr() * coefficient))
        step()

    plain.step = decoupled
    return plain
