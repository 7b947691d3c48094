"""Running statistics and averaged networks that move wrongly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twinalign.averaging import averaging_method
from twinalign.selftest.catalogue import in_case, in_model
from twinalign.selftest.faults.weights import BATCH_NORM
from twinalign.selftest.places import CasePlace, ModelPlace, in_training, layers
from twinalign.selftest.survey import LayerFacts, Survey

_RUNNING = in_training(layers(BATCH_NORM))
_AVERAGED = ("momentum_encoder*", "(forward)", "*teacher*", "*target*", "*ema*", "*key*")


@in_model("state", _RUNNING, causes=("batch_norm_momentum",))
def batch_norm_momentum_inverted(place: ModelPlace) -> None:
    """A batch norm's momentum has the other framework's meaning."""
    place.layer._momentum = 1 - place.layer._momentum


@in_model("state", _RUNNING, causes=("batch_norm_momentum",))
def batch_norm_momentum_of_tensorflow(place: ModelPlace) -> None:
    """A batch norm's running statistics move with 0.99."""
    place.layer._momentum = 0.99


def _is_own(facts: LayerFacts) -> bool:
    # paddle's own layers have the biased variance already, and differ from torch's by it.
    return not type(facts.layer).__module__.startswith("paddle.")


@in_model("state", in_training(layers(BATCH_NORM, _is_own)), causes=("running_variance_biased",))
def running_variance_biased(place: ModelPlace) -> None:
    """A batch norm's running variance moves by the biased variance, as paddle's own does."""
    layer = place.layer

    def run(original: Callable[..., Any], x: Any) -> Any:
        before = layer._variance.clone()
        output = original(x)
        if layer.training:
            count = x.size // x.shape[1]
            moved = layer._variance - before * layer._momentum
            layer._variance.set_value(before * layer._momentum + moved * ((count - 1) / count))
        return output

    place.forward(run)


def _restoring(place: ModelPlace, original: Callable[..., Any], x: Any) -> Any:
    before = place.layer._mean.clone(), place.layer._variance.clone()
    output = original(x)
    place.layer._mean.set_value(before[0])
    place.layer._variance.set_value(before[1])
    return output


@in_model("state", _RUNNING, causes=("running_statistics_frozen", "batch_norm_momentum"))
def running_statistics_stand_still(place: ModelPlace) -> None:
    """A batch norm's running statistics do not move."""
    place.forward(lambda original, x: _restoring(place, original, x))


@in_model("state", _RUNNING, causes=("running_statistics_twice",))
def running_statistics_move_twice(place: ModelPlace) -> None:
    """A batch norm's running statistics move twice a call."""

    def run(original: Callable[..., Any], x: Any) -> Any:
        if place.layer.training:
            original(x.detach())
        return original(x)

    place.forward(run)


@in_model("state", _RUNNING, causes=("running_mean_frozen", "running_statistics_frozen"))
def running_mean_stands_still(place: ModelPlace) -> None:
    """A batch norm's running mean does not move."""

    def run(original: Callable[..., Any], x: Any) -> Any:
        before = place.layer._mean.clone()
        output = original(x)
        place.layer._mean.set_value(before)
        return output

    place.forward(run)


def _averaging(survey: Survey) -> str | None:
    return "" if survey.averaging_method() and survey.case.train_mode else None


def _around_averaging(place: ModelPlace, replacement: Callable[..., Any]) -> None:
    name = averaging_method(place.model) or ""
    original = getattr(place.model, name)
    object.__setattr__(place.model, name, lambda *arguments: replacement(original, *arguments))


@in_model("state", _averaging, causes=("ema_inverted",), also=_AVERAGED)
def averaging_inverted(place: ModelPlace) -> None:
    """The averaged network takes 1 - m of itself and m of the trained one."""
    _around_averaging(place, lambda original, m: original(1 - m))


@in_model("state", _averaging, causes=("ema_momentum", "ema_term_missing"), also=_AVERAGED)
def averaging_copies(place: ModelPlace) -> None:
    """The averaged network is a copy of the trained one."""
    _around_averaging(place, lambda original, m: original(0.0))


@in_model("state", _averaging, causes=("ema_not_moved", "ema_momentum"), also=_AVERAGED)
def averaging_stands_still(place: ModelPlace) -> None:
    """The averaged network does not move."""
    _around_averaging(place, lambda original, m: None)


@in_model("state", _averaging, causes=("ema_momentum",), also=_AVERAGED)
def averaging_twice(place: ModelPlace) -> None:
    """The averaged network moves twice a step."""
    _around_averaging(place, lambda original, m: (original(m), original(m)))


@in_case("state", _averaging, causes=("ema_not_moved",), also=_AVERAGED)
def averaging_after_the_keys(place: CasePlace) -> None:
    """The averaged network moves after it was used, not before."""

    def run(original: Callable[..., Any], model: Any, *arguments: Any, **keywords: Any) -> Any:
        name = averaging_method(model) or ""
        update = getattr(model, name)
        waiting: list[float] = []
        object.__setattr__(model, name, waiting.append)
        try:
            return original(model, *arguments, **keywords)
        finally:
            object.__delattr__(model, name)
            for m in waiting:
                update(m)

    place.around("forward", run)


@in_model("state", _averaging, causes=("ema_buffers",), also=_AVERAGED)
def averaging_moves_statistics_too(place: ModelPlace) -> None:
    """The running statistics are averaged as the parameters are."""

    def run(original: Callable[..., Any], m: float) -> None:
        original(m)
        pairs = _networks(place.model)
        for (name, q), k in pairs:
            if name.endswith(("_mean", "_variance")):
                k.set_value(k * m + q * (1 - m))

    _around_averaging(place, run)


def _networks(model: Any) -> list[tuple[tuple[str, Any], Any]]:
    """Named parameters of the trained network beside those of the averaged one: the two children that agree in them."""
    named = [list(child.named_parameters()) for child in model.children()]
    for index, first in enumerate(named):
        for second in named[index + 1 :]:
            if [name for name, _ in first] == [name for name, _ in second] and first:
                trained, averaged = sorted((first, second), key=lambda part: all(p.stop_gradient for _, p in part))
                return list(zip(trained, [parameter for _, parameter in averaged], strict=True))
    return []
