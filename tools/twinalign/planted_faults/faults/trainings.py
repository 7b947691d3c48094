"""Training loops that go another way."""

import contextlib
from collections.abc import Callable
from typing import Any

from twinalign.case.averaging import averaging_method
from twinalign.patching import family, replaced
from twinalign.planted_faults.case_contents import CaseContents
from twinalign.planted_faults.catalogue import Registration, in_case
from twinalign.planted_faults.fault_sites import CaseSite, Original, handed_to, through
from twinalign.planted_faults.where_to_plant import component

TRAINING = component("train", lambda contents: True, needs="train")


def _patched(site: CaseSite, method: str, replacement: Callable[..., Any]) -> None:
    """Let `replacement(original, optimizer, *arguments)` take the calls of a method of all optimizers in training."""

    def run(original: Original, *arguments: Any, **keywords: Any) -> Any:
        base = site.paddle.optimizer.Optimizer
        with contextlib.ExitStack() as stack:
            for kind in family(base):
                if method in vars(kind):
                    stack.enter_context(replaced(kind, method, _bound(vars(kind)[method], replacement)))
            return original(*arguments, **keywords)

    site.around("train", run)


def _bound(original: Original, replacement: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: Any, *arguments: Any, **keywords: Any) -> Any:
        return replacement(original, self, *arguments, **keywords)

    return call


in_case("train", TRAINING, "training_rate", id="training_rate_higher").add(
    "Training runs at a rate that is a tenth higher than it says",
    lambda site: _patched(site, "set_lr", lambda original, optimizer, rate: original(optimizer, 1.1 * rate)),
)
in_case("train", TRAINING, "gradients_accumulate", id="training_keeps_gradients").add(
    "Gradients are not cleared between steps",
    lambda site: _patched(site, "clear_grad", lambda original, optimizer, *_, **__: None),
)


@in_case("train", TRAINING, "step_skipped")
def training_skips_steps(site: CaseSite) -> None:
    """Every other optimizer step is left out."""
    counts: dict[int, int] = {}

    def step(original: Original, optimizer: Any) -> None:
        counts[id(optimizer)] = counts.get(id(optimizer), 0) + 1
        if counts[id(optimizer)] % 2:
            original(optimizer)

    _patched(site, "step", step)


@in_case("train", TRAINING, "evaluation_mode")
@through(CaseSite.around, "train")
def training_in_evaluation_mode(
    site: CaseSite, original: Original, framework: str, model: Any, *others: Any, **keywords: Any
) -> Any:
    """Training runs in evaluation mode."""
    model.eval()
    with replaced(model, "train", lambda: None):
        return original(framework, model, *others, **keywords)


def _around_averaging(site: CaseSite, replacement: Callable[[Callable[[float], None], float], Any]) -> None:
    """Let `replacement(update, m)` take the calls of the method that moves the averaged network in training."""

    def run(original: Original, framework: str, model: Any, *others: Any, **keywords: Any) -> Any:
        name = averaging_method(model) or ""
        update = getattr(model, name)
        with replaced(model, name, lambda m: replacement(update, m)):
            return original(framework, model, *others, **keywords)

    site.around("train", run)


def _average(fault: str, cause: str) -> Registration:
    find = component("train", CaseContents.averaging_method, needs="train")
    return in_case("train", find, cause, id=fault, how=handed_to(_around_averaging))


_average("training_averages_inversely", "ema_inverted").add(
    "In training the averaged network takes 1 - m of itself", lambda update, m: update(1 - m)
)


@in_case("train", TRAINING, "curve_scaled")
@through(CaseSite.around, "train")
def training_reports_half(
    site: CaseSite, original: Original, framework: str, model: Any, record: Any, *others: Any, **keywords: Any
) -> Any:
    """The loss curve shows half the loss."""
    halved = _Told(record, lambda name, value: value / 2 if name == "loss" else value)
    return original(framework, model, halved, *others, **keywords)


class _Told:
    """A record that is told `change(name, value)` where the loop says the value."""

    def __init__(self, record: Any, change: Callable[[str, Any], Any]) -> None:
        self._record, self._change = record, change

    def __getattr__(self, name: str) -> Any:
        return getattr(self._record, name)

    def __call__(self, name: str, value: Any) -> None:
        self._record(name, self._change(name, value))


@in_case("train", TRAINING, "step_twice")
@through(_patched, "step")
def training_takes_steps_twice(site: CaseSite, original: Original, optimizer: Any) -> None:
    """Every optimizer step is taken twice in training."""
    original(optimizer)
    original(optimizer)


@in_case("train", TRAINING, "training_rates")
def training_rate_constant(site: CaseSite) -> None:
    """The learning rate stays what it was in the first step of the training."""
    first: list[float] = []

    def keep(original: Original, optimizer: Any, rate: float) -> None:
        first.append(rate)
        original(optimizer, first[0])

    def run(original: Original, framework: str, model: Any, record: Any, *others: Any, **keywords: Any) -> Any:
        told: dict[str, Any] = {}
        rates = ("rate", "lr", "learning_rate")
        constant = _Told(record, lambda name, value: told.setdefault(name, value) if name in rates else value)
        return original(framework, model, constant, *others, **keywords)

    _patched(site, "set_lr", keep)
    site.around("train", run)


@in_case("train", component("train", CaseContents.averaging_method, needs="train"), "ema_first_copied")
def training_copies_first(site: CaseSite) -> None:
    """In training the first update of the averaged network copies the trained one."""
    later: list[float] = []

    def update(original: Callable[[float], None], m: float) -> None:
        later.append(m)
        original(m if len(later) > 1 else 0.0)

    _around_averaging(site, update)


_average("training_averages_never", "ema_momentum").add(
    "In training the averaged network does not move", lambda update, m: None
)
