"""Running statistics and averaged networks that move wrongly."""

from collections.abc import Callable
from typing import Any

from twinalign.case.averaging import averaging_method
from twinalign.patching import replaced
from twinalign.planted_faults.case_contents import CaseContents, LayerFacts
from twinalign.planted_faults.catalogue import Registration, in_case, in_model
from twinalign.planted_faults.fault_sites import CaseSite, ModelSite, Original, handed_to, set_attributes, through
from twinalign.planted_faults.faults.weights import BATCH_NORM
from twinalign.planted_faults.where_to_plant import in_training, layers

_RUNNING = in_training(layers(BATCH_NORM))
_AVERAGED = ("momentum_encoder*", "(forward)", "*teacher*", "*target*", "*ema*", "*key*")


@in_model("state", _RUNNING, "batch_norm_momentum")
def batch_norm_momentum_inverted(site: ModelSite) -> None:
    """A batch norm's momentum has the other framework's meaning."""
    site.layer._momentum = 1 - site.layer._momentum


in_model("state", _RUNNING, "batch_norm_momentum", id="batch_norm_momentum_of_tensorflow").add(
    "A batch norm's running statistics move with 0.99", set_attributes(_momentum=0.99)
)


def _is_own(facts: LayerFacts) -> bool:
    # paddle's own layers have the biased variance already, and differ from torch's by it.
    return not type(facts.layer).__module__.startswith("paddle.")


def _variance_moves(site: ModelSite, original: Original, x: Any, change: Callable[[Any, float], Any]) -> Any:
    """Add `change(what was added, 1 - momentum)` to the running variance in the stead of what was added."""
    layer = site.layer
    kept = layer._variance * layer._momentum
    output = original(x)
    if layer.training:
        layer._variance.set_value(kept + change(layer._variance - kept, 1 - layer._momentum))
    return output


@in_model("state", in_training(layers(BATCH_NORM, _is_own)), "running_variance_biased")
@through(ModelSite.forward)
def running_variance_biased(site: ModelSite, original: Original, x: Any) -> Any:
    """A batch norm's running variance moves by the biased variance, as paddle's own does."""
    count = x.size // x.shape[1]
    return _variance_moves(site, original, x, lambda moved, rate: moved * ((count - 1) / count))


def _restored(site: ModelSite, *names: str) -> None:
    def run(original: Original, x: Any) -> Any:
        before = {name: getattr(site.layer, name).clone() for name in names}
        output = original(x)
        for name, value in before.items():
            getattr(site.layer, name).set_value(value)
        return output

    site.forward(run)


@in_model("state", _RUNNING, "running_statistics_frozen", "batch_norm_momentum")
def running_statistics_stand_still(site: ModelSite) -> None:
    """A batch norm's running statistics do not move."""
    _restored(site, "_mean", "_variance")


@in_model("state", _RUNNING, "running_statistics_twice")
@through(ModelSite.forward)
def running_statistics_move_twice(site: ModelSite, original: Original, x: Any) -> Any:
    """A batch norm's running statistics move twice a call."""
    if site.layer.training:
        original(x.detach())
    return original(x)


in_model("state", _RUNNING, "running_statistics_frozen", id="running_mean_stands_still").add(
    "A batch norm's running mean does not move", lambda site: _restored(site, "_mean")
)


def _averaging(contents: CaseContents) -> str | None:
    return "" if contents.averaging_method() and contents.case.train_mode else None


def _around_averaging(site: ModelSite, replacement: Callable[..., Any]) -> None:
    name = averaging_method(site.model) or ""
    original = getattr(site.model, name)
    object.__setattr__(site.model, name, lambda *arguments: replacement(original, *arguments))


def _average(fault: str, *causes: str) -> Registration:
    """A fault whose function `(original, m)` takes the calls of the method that moves the averaged network."""
    how = handed_to(_around_averaging)
    return in_model("state", _averaging, *causes, also=_AVERAGED, id=fault, how=how)


_average("averaging_inverted", "ema_inverted").add(
    "The averaged network takes 1 - m of itself and m of the trained one", lambda original, m: original(1 - m)
)
_average("averaging_copies", "ema_momentum", "ema_term_missing").add(
    "The averaged network is a copy of the trained one", lambda original, m: original(0.0)
)
_average("averaging_stands_still", "ema_not_moved", "ema_momentum").add(
    "The averaged network does not move", lambda original, m: None
)
_average("averaging_twice", "ema_momentum").add(
    "The averaged network moves twice a step", lambda original, m: (original(m), original(m))
)


@in_case("state", _averaging, "ema_not_moved", also=_AVERAGED)
@through(CaseSite.around, "forward")
def averaging_after_the_keys(site: CaseSite, original: Original, model: Any, *arguments: Any, **keywords: Any) -> Any:
    """The averaged network moves after it was used, not before."""
    name = averaging_method(model) or ""
    update = getattr(model, name)
    waiting: list[float] = []
    with replaced(model, name, waiting.append):
        outputs = original(model, *arguments, **keywords)
    for m in waiting:
        update(m)
    return outputs


@in_model("state", _averaging, "ema_buffers", also=_AVERAGED)
@through(_around_averaging)
def averaging_moves_statistics_too(site: ModelSite, original: Original, m: float) -> None:
    """The running statistics are averaged as the parameters are."""
    original(m)
    for (name, q), k in _networks(site.model):
        if name.endswith(("_mean", "_variance")):
            k.set_value(k * m + q * (1 - m))


def _networks(model: Any) -> list[tuple[tuple[str, Any], Any]]:
    """Named parameters of the trained network beside those of the averaged one: the two children that agree in them."""
    named = [list(child.named_parameters()) for child in model.children()]
    for index, first in enumerate(named):
        for second in named[index + 1 :]:
            if [name for name, _ in first] == [name for name, _ in second] and first:
                trained, averaged = sorted((first, second), key=lambda part: all(p.stop_gradient for _, p in part))
                return list(zip(trained, [parameter for _, parameter in averaged], strict=True))
    return []


@in_model("state", in_training(layers(BATCH_NORM, _is_own)), "running_variance_deviation")
@through(ModelSite.forward)
def running_variance_by_deviation(site: ModelSite, original: Original, x: Any) -> Any:
    """A batch norm's running variance moves by the batch's standard deviation."""
    return _variance_moves(site, original, x, lambda moved, rate: (moved / rate).sqrt() * rate)
