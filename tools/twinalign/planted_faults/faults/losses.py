"""Losses with another scale, another direction or other targets."""

from collections.abc import Callable, Mapping
from typing import Any

from twinalign.planted_faults.case_contents import CaseContents
from twinalign.planted_faults.catalogue import Registration, in_case, in_model
from twinalign.planted_faults.fault_sites import CaseSite, ModelSite, Original, change_result, replace_during, through
from twinalign.planted_faults.where_to_plant import Find, component


def _loss(such: Callable[[CaseContents], Any] = lambda contents: True) -> Find:
    return component("loss", such, needs="loss")


def _calls(*names: str) -> Find:
    return _loss(lambda contents: contents.loss_functions & set(names))


def _each(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Change a loss, or every part of it."""
    return lambda losses: {k: change(v) for k, v in losses.items()} if isinstance(losses, Mapping) else change(losses)


@in_case("loss", _loss(), "loss_reduction", "loss_factor")
@through(CaseSite.around, "loss")
def loss_summed(site: CaseSite, original: Original, outputs: Any, inputs: Mapping[str, Any], framework: str) -> Any:
    """The loss is summed over the batch, not averaged."""
    batch = next(iter(inputs.values())).shape[0]
    return _each(lambda loss: loss * batch)(original(outputs, inputs, framework))


in_case("loss", _loss(), "loss_factor", "factor_wrong", "factor_forgotten", "output_scaled", id="loss_halved").add(
    "The loss lacks a factor of two", change_result("loss", _each(lambda loss: loss * 0.5))
)


_NAMES = ("temperature", "temp", "tau")


def _temperature(model: Any) -> str | None:
    return next((name for name in _NAMES if isinstance(getattr(model, name, None), float)), None)


@in_model(
    "loss",
    lambda contents: "" if "loss" in contents.stages and _temperature(contents.model) else None,
    "loss_temperature",
    named="loss",
)
def loss_temperature(site: ModelSite) -> None:
    """The temperature is half as high."""
    name = _temperature(site.model) or ""
    setattr(site.model, name, getattr(site.model, name) / 2)


def _replaced(name: str, fault: str, *causes: str) -> Registration:
    """A fault whose function `(original, x, ...)` takes the calls of a function that the loss calls."""
    how: Any = lambda run: replace_during("loss", {name: run})  # noqa: E731
    return in_case("loss", _calls(name), *causes, id=fault, how=how)


_replaced("normalize", "loss_without_normalisation", "normalize_missing").add(
    "The loss does not normalise what it compares", lambda original, x, *_, **__: x * 1
)
_replaced("normalize", "loss_normalises_over_batch", "normalize_axis").add(
    "The loss normalises over the batch, not over the features", lambda original, x, *_, **__: original(x, axis=0)
)
_replaced("logsumexp", "loss_over_wrong_axis", "reduction_axis", "axis_wrong").add(
    "The loss compares over the wrong axis", lambda original, x, *_, **__: original(x, axis=0)
)


@in_case("loss", _calls("take_along_axis", "cross_entropy"), "labels_shifted")
def loss_labels_shifted(site: CaseSite) -> None:
    """The labels belong to the sample beside."""

    def shift(original: Original, x: Any, labels: Any, *others: Any, **keywords: Any) -> Any:
        return original(x, labels.roll(1, axis=0), *others, **keywords)

    site.during("loss", {"take_along_axis": shift, "cross_entropy": shift})


_replaced("cross_entropy", "loss_labels_smoothed", "label_smoothing").add(
    "The labels are smoothed by 0.1", lambda original, *arguments, **keywords: original(*arguments, label_smoothing=0.1)
)


def _has_several_outputs(contents: CaseContents) -> bool:
    outputs = contents.outputs
    if not isinstance(outputs, Mapping) or len(outputs) < 2:
        return False
    first, second = list(outputs.values())[:2]
    return list(first.shape) == list(second.shape)


@in_case("loss", _loss(_has_several_outputs), "loss_arguments_swapped")
@through(CaseSite.around, "loss")
def loss_outputs_exchanged(site: CaseSite, original: Original, outputs: Any, inputs: Any, framework: str) -> Any:
    """The loss takes the first two outputs for each other."""
    first, second = list(outputs)[:2]
    return original({**outputs, first: outputs[second], second: outputs[first]}, inputs, framework)


def _has_parts(contents: CaseContents) -> bool:
    return isinstance(contents.losses, Mapping) and "loss" in contents.losses and len(contents.losses) > 2


@in_case("loss", _loss(_has_parts), "residual_missing", "term_missing")
@through(CaseSite.result, "loss")
def loss_one_sided(site: CaseSite, losses: Mapping[str, Any]) -> Mapping[str, Any]:
    """Only the first half of a symmetrised loss is taken."""
    first = next(value for name, value in losses.items() if name != "loss")
    return {**losses, "loss": first * 1}


_replaced("normalize", "loss_normalises_by_absolute_values", "normalize_power").add(
    "The loss divides vectors by the sum of their absolute values",
    lambda original, x, *others, **keywords: original(x, **{**keywords, "p": 1}),
)
_replaced("normalize", "loss_normalises_with_epsilon_added", "normalize_epsilon_form").add(
    "The loss adds an epsilon of 0.0001 to the length that it divides by",
    lambda original, x, *_, axis=1, **__: x / ((x * x).sum(axis=axis, keepdim=True).sqrt() + 1e-4),
)


@in_case("loss", _calls("cross_entropy"), "softmax_before_loss")
def loss_of_probabilities(site: CaseSite) -> None:
    """Probabilities are handed to a cross entropy that takes logits."""
    softmax = site.paddle.nn.functional.softmax
    site.during(
        "loss", {"cross_entropy": lambda original, x, *others, **keywords: original(softmax(x), *others, **keywords)}
    )


@in_case("loss", _calls("mse_loss"), "loss_swapped")
def loss_of_absolute_errors(site: CaseSite) -> None:
    """The absolute error is used in place of the squared error."""
    absolute = site.paddle.nn.functional.l1_loss
    site.during("loss", {"mse_loss": lambda original, x, target, *_, **__: absolute(x, target)})
