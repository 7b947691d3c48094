"""An optimizer's moments and constants: momentum, betas, bias correction, epsilon; the trust ratio of LARS."""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from twinalign.causes.component import enter_rows, fitted
from twinalign.causes.optimizer.subject import OptimizerSubject, step_cause
from twinalign.causes.registry import Variant
from twinalign.replay.changed_steps import Moment, StepChange

_Numbers = Sequence[float]
TRUST = ("trust_coefficient", "trust_coeff", "eta")
"""What optimizers call the trust coefficient of LARS."""
_MANY_STEPS = 10**9
"""After so many steps a bias correction is 1."""
_EPSILONS = (1e-8, 1e-6, 1e-5, 1e-7, 1e-10, 1e-9, 1e-4, 1e-3, 1e-12, 1e-15, 1e-16, 0.0)


def has(subject: OptimizerSubject, *names: str) -> bool:
    """Whether the groups of the reference's optimizer hold all of these settings."""
    group = next(iter(subject.group_of.values()), {})
    return all(name in group for name in names)


def present(subject: OptimizerSubject, name: str) -> Any:
    """A setting of the reference's first group, by its name or by name and place as in `betas.0`."""
    name, _, place = name.partition(".")
    value = next(iter(subject.group_of.values()))[name]
    return value[int(place)] if place else value


def port_numbers(subject: OptimizerSubject, *names: str) -> list[float]:
    """Numbers of these names that the port's optimizer holds."""
    found = map(subject.facts.get, names)
    return [float(value) for value in found if isinstance(value, (int, float)) and not isinstance(value, bool)]


def setting(subject: OptimizerSubject, name: str, value: Any, detail: str | None = None, says: str = "") -> Variant:
    """The variant in which every group has another value of a setting."""
    text = f"{says}{value:.6g} for {present(subject, name):.6g}" if detail is None else detail
    whole, _, place = name.partition(".")
    if place:
        value = tuple(value if at == int(place) else now for at, now in enumerate(present(subject, whole)))
    return subject.changed(text, settings=lambda moment: {whole: value})


def other_values(
    subject: OptimizerSubject, name: str, of_port: Sequence[str], usual: _Numbers, fit: bool = True, says: str = ""
) -> Iterator[Variant]:
    """A setting with the port's number, usual ones, and the one that fits; the text `says` first what it is."""
    if not has(subject, name.partition(".")[0]):
        return
    now = present(subject, name)
    candidates = dict.fromkeys([*port_numbers(subject, *of_port), *usual])
    yield from (setting(subject, name, value, says=says) for value in candidates if value != now)
    if fit:
        # A beta is fitted by its distance from 1.
        start = 1.0 - 1.5 * (1.0 - now) if "." in name else now or 0.5
        yield from fitted(subject, lambda value: setting(subject, name, value, says=says), start)


def _switched(subject: OptimizerSubject, name: str) -> Iterator[Variant]:
    if has(subject, name):
        now = bool(present(subject, name))
        yield setting(subject, name, not now, f"the {'reference' if now else 'port'} uses it")


def _accumulator_starts(subject: OptimizerSubject) -> Iterator[Variant]:
    def make(value: float, _: OptimizerSubject) -> Any:
        optimizer = subject.make_optimizer()
        for state in optimizer.state.values():
            state["sum"].fill_(value)
        return optimizer

    if has(subject, name := "initial_accumulator_value"):
        now = present(subject, name)
        for value in filter(lambda value: value != now, dict.fromkeys([*port_numbers(subject, name), 0.0, 0.1])):
            yield subject.changed(f"{value:.6g} for {now:.6g}", make=functools.partial(make, value))


_DEFAULTS = "rmsprop_adagrad_adadelta"
enter_rows("optimizer", OptimizerSubject, "change", (
    ("momentum_value", "the optimizer's momentum differs", {"difference": "sgd_momentum_class"},
     functools.partial(other_values, name="momentum", of_port=("momentum", "lars_momentum"),
                       usual=(0.9, 0.0, 0.99, 0.95, 0.8, 0.5, 0.996, 0.1))),
    # paddle's default first, then torch's
    ("rmsprop_smoothing", "the smoothing constant of the squared gradients differs", {"difference": _DEFAULTS},
     functools.partial(other_values, name="alpha", of_port=("rho",), usual=(0.95, 0.99, 0.9))),
    ("adadelta_smoothing", "the smoothing constant of the squared gradients and updates differs",
     {"difference": _DEFAULTS}, functools.partial(other_values, name="rho", of_port=("rho",), usual=(0.95, 0.9))),
    ("optimizer_epsilon", "the epsilon of the optimizer's denominator differs", {"difference": _DEFAULTS},
     functools.partial(other_values, name="eps", of_port=("epsilon", "eps"), usual=_EPSILONS, fit=False)),
    ("accumulator_start", "the sum of the squared gradients starts with another value", {"difference": _DEFAULTS},
     _accumulator_starts),
    ("adam_beta1", "the first beta differs", {},
     functools.partial(other_values, name="betas.0", of_port=("beta1",), usual=(0.9, 0.95, 0.8, 0.5, 0.99, 0.0))),
    ("adam_beta2", "the second beta differs", {},
     functools.partial(other_values, name="betas.1", of_port=("beta2",),
                       usual=(0.999, 0.95, 0.98, 0.99, 0.9, 0.9999))),
    ("nesterov", "Nesterov's form of momentum is used on one side only", {"difference": "momentum_equal"},
     functools.partial(_switched, name="nesterov")),
    ("amsgrad", "AMSGrad's maximum of the second moments is used on one side only", {"difference": "amsgrad"},
     functools.partial(_switched, name="amsgrad")),
    ("rmsprop_centered", "RMSprop's centering is used on one side only", {},
     functools.partial(_switched, name="centered")),
))  # fmt: skip


@step_cause(rank=1, where=lambda subject: has(subject, "betas"))
def adam_betas(subject: OptimizerSubject) -> Iterator[Variant]:
    """Both betas differ."""
    now = tuple(present(subject, "betas"))
    own = port_numbers(subject, "beta1", "beta2")
    for pair in dict.fromkeys([(now[1], now[0]), tuple(own), (0.9, 0.95), (0.9, 0.98), (0.5, 0.999), (0.9, 0.999)]):
        if len(pair) == 2 and pair != now:
            yield setting(subject, "betas", pair, f"{pair[0]:g}, {pair[1]:g} for {now[0]:g}, {now[1]:g}")


def _late(optimizer: Any, moments: list[Moment]) -> None:
    """Take a step as if many had been taken before."""
    moments = [moment for moment in moments if moment.gradient is not None]
    if any(not moment.state for moment in moments):
        # The state is made by a step that changes nothing else.
        given = [(moment, moment.parameter.grad) for moment in moments]
        for moment, gradient in given:
            moment.parameter.grad = gradient * 0.0
        optimizer.step()
        for moment, gradient in given:
            moment.parameter.data.copy_(moment.before)
            moment.parameter.grad = gradient
    for moment in moments:
        optimizer.state[moment.parameter]["step"] = optimizer.state[moment.parameter]["step"] * 0 + _MANY_STEPS
    optimizer.step()


@step_cause(difference="momentum_equal", where=lambda subject: has(subject, "dampening"))
def dampening(subject: OptimizerSubject) -> Iterator[Variant]:
    """The momentum's dampening differs."""
    momentum, now = float(present(subject, "momentum")), float(present(subject, "dampening"))
    yield from other_values(subject, "dampening", (), (0.0, momentum, 1.0 - momentum), fit=False)
    for value in filter(None, dict.fromkeys([now, momentum])):
        # torch's buffer begins with the first gradient as it is.
        yield subject.changed(
            f"{value:g}, from the first step on",
            settings=lambda of, v=value: {"dampening": 0.0, "weight_decay": of.group["weight_decay"] * (1.0 - v)},
            gradient=lambda moment, v=value: moment.gradient * (1.0 - v),
        )


def _with_rate_in_buffer(moment: Moment, outside: bool = False) -> None:
    # v = m v + rate g; w -= v, or w -= rate v, which differs from torch's once the rate changes.
    buffer = next((moment.state[name] for name in ("momentum_buffer", "mu") if name in moment.state), None)
    if buffer is None:
        return
    momentum = moment.group["momentum"]
    plain = buffer - momentum * moment.kept.get("plain", 0.0)
    moment.kept["plain"] = buffer.clone()
    velocity = momentum * moment.kept.get("velocity", 0.0) + moment.group["lr"] * plain
    moment.kept["velocity"] = moment.observed["velocity"] = velocity
    moment.parameter.data.copy_(moment.before - (moment.group["lr"] if outside else 1.0) * velocity)


@step_cause(rank=3)
def optimizer_setting(subject: OptimizerSubject) -> Iterator[Variant]:
    """A setting of the optimizer differs."""
    with_own_causes = {"lr", "weight_decay", "momentum", "eps", "alpha", "rho", "dampening", "initial_lr"}
    for name, now in next(iter(subject.group_of.values()), {}).items():
        is_number = isinstance(now, (int, float)) and not isinstance(now, bool) and math.isfinite(now)
        if name not in with_own_causes and is_number:
            yield from other_values(subject, name, (name,), (10 * now, now / 10), says=f"{name} ")


@step_cause(rank=-1)
def setting_not_scheduled(subject: OptimizerSubject) -> Iterator[Variant]:
    """A setting that the reference moves from step to step stays as it was in the first."""
    first = subject.settings[0]
    for name in next(iter(first.values()), {}):
        if any(of[one][name] != first[one][name] for of in subject.settings for one in of):
            yield subject.changed(name, settings=lambda moment, name=name: {name: first[moment.name][name]})


@step_cause(difference="rmsprop_adagrad_adadelta")
def epsilon_inside_root(subject: OptimizerSubject) -> Iterator[Variant]:
    """Epsilon is added under the square root of the second moment, not to the root."""
    # So in paddle's RMSProp, whose smoothing may be the port's as well, and in TensorFlow's optimizers.
    if not has(subject, "eps") or not (has(subject, "alpha") or has(subject, "betas")):
        return
    of_rmsprop = _root_of_rmsprop, port_numbers(subject, "rho")
    root, smoothings = (_root_of_adam, []) if has(subject, "betas") else of_rmsprop
    forms = {"": root}
    if root is _root_of_rmsprop and present(subject, "momentum"):
        forms["and the learning rate multiplied into the momentum buffer"] = functools.partial(root, inside=True)
    for (said, form), (size, epsilon) in itertools.product(forms.items(), _epsilons_of(subject, 1e-6).items()):
        detail, after = " ".join(filter(None, (size, said))), functools.partial(form, epsilon)
        yield subject.changed(detail, after=after)
        for alpha in smoothings:
            text = f"{detail or 'and'} with the smoothing {alpha:g}"
            yield subject.changed(text, settings=lambda moment, alpha=alpha: {"alpha": alpha}, after=after)


def _epsilons_of(subject: OptimizerSubject, *usual: float) -> dict[str, float]:
    epsilons = dict.fromkeys([now := present(subject, "eps"), *port_numbers(subject, "epsilon"), *usual])
    return {"" if epsilon == now else f"and is {epsilon:g}": epsilon for epsilon in epsilons}


def _root_of_rmsprop(epsilon: float, moment: Moment, inside: bool = False) -> None:
    group, state = moment.group, moment.state
    gradient = moment.gradient + group["weight_decay"] * moment.before
    variance = state["square_avg"] - state["grad_avg"] ** 2 if group.get("centered") else state["square_avg"]
    direction = (group["lr"] if inside else 1.0) * gradient / (variance + epsilon).sqrt()
    if group["momentum"]:
        direction = moment.kept["buffer"] = group["momentum"] * moment.kept.get("buffer", 0.0) + direction
    moment.parameter.data.copy_(moment.before - (1.0 if inside else group["lr"]) * direction)


def _root_of_adam(epsilon: float, moment: Moment) -> None:
    group, state, steps = moment.group, moment.state, float(moment.state["step"])
    first = state["exp_avg"] / (1.0 - group["betas"][0] ** steps)
    second = state["exp_avg_sq"] / (1.0 - group["betas"][1] ** steps)
    decay = group["lr"] * group["weight_decay"] if group.get("decoupled_weight_decay") else 0.0
    moment.parameter.data.copy_(moment.before * (1.0 - decay) - group["lr"] * first / (second + epsilon).sqrt())


def _norm_of_adamax(epsilon: float, moment: Moment) -> None:
    group, kept = moment.group, moment.kept
    gradient = moment.gradient + group["weight_decay"] * moment.before
    first, second = group["betas"]
    mean = kept["mean"] = first * kept.get("mean", gradient * 0.0) + (1.0 - first) * gradient
    norm = (second * kept.get("norm", gradient * 0.0) + epsilon).maximum(gradient.abs())
    kept["norm"] = moment.observed["infinity_norm"] = norm
    rate = group["lr"] / (1.0 - group["betas"][0] ** float(moment.state["step"]))
    moment.parameter.data.copy_(moment.before - rate * mean / norm)


def trust_name(subject: OptimizerSubject) -> str:
    """How the groups of a LARS call its trust coefficient; empty where it is no LARS."""
    return next((name for name in TRUST if has(subject, name, "momentum")), "")


def _other_coefficients(subject: OptimizerSubject) -> Iterator[Variant]:
    now = present(subject, trust_name(subject))
    usual = (0.001, 0.02, 0.01, 1.0, 10 * now, now / 10)
    yield from other_values(subject, trust_name(subject), (*TRUST, "lars_coeff"), usual)


class _Sizes(NamedTuple):
    """What a trust ratio may be made of: norms of weight, gradient and decayed gradient, and the group's numbers."""

    weight: float
    gradient: float
    decayed: float
    decay: float
    rate: float


def _sizes(moment: Moment) -> _Sizes:
    decay = float(moment.group.get("weight_decay", 0.0))
    decayed = moment.gradient + decay * moment.before
    weight, gradient, both = (float(tensor.norm()) for tensor in (moment.before, moment.gradient, decayed))
    return _Sizes(weight, gradient, both, decay, float(moment.group["lr"]))


@step_cause(where=trust_name)
def lars_trust_on_one_dimensional(subject: OptimizerSubject) -> Iterator[Variant]:
    """LARS rescales the one-dimensional parameters too, biases and scales of normalisation layers."""
    name = trust_name(subject)

    def gradient(moment: Moment, decayed: bool) -> Any:
        if moment.parameter.ndim > 1:
            return moment.gradient
        own = _sizes(moment)
        size = own.decayed if decayed else own.gradient
        ratio = moment.group[name] * own.weight / size if own.weight > 0 and size > 0 else 1.0
        return (moment.gradient + (own.decay * moment.before if decayed else 0.0)) * ratio

    yield subject.changed("", gradient=lambda moment: gradient(moment, False))
    yield subject.changed("and decays them", gradient=lambda moment: gradient(moment, True))


def _with_ratio(subject: OptimizerSubject, detail: str, ratio: Callable[[float, _Sizes], float]) -> Variant:
    """Another trust ratio, made of the coefficient and the sizes, by a coefficient that gives it in the reference."""
    name = trust_name(subject)

    def settings(moment: Moment) -> dict[str, float]:
        sizes = _sizes(moment)
        if moment.parameter.ndim <= 1 or not sizes.weight > 0 or not sizes.decayed > 0:
            return {}
        return {name: ratio(moment.group[name], sizes) * sizes.decayed / sizes.weight}

    return subject.changed(detail, settings=settings)


def _limited(coefficient: float, sizes: _Sizes) -> float:
    return min(coefficient * sizes.weight / sizes.decayed / sizes.rate, 1.0) if sizes.rate else 1.0


def _epsilons(subject: OptimizerSubject) -> dict[str, Callable[[float, _Sizes], float]]:
    def with_epsilon(epsilon: float, coefficient: float, sizes: _Sizes) -> float:
        return coefficient * sizes.weight / (sizes.decayed + epsilon)

    known = [*port_numbers(subject, "epsilon", "eps", "lars_eps"), 1e-8, 1e-9, 1e-6, 1e-5, 1e-3, 1.0]
    return {f"{epsilon:g}": functools.partial(with_epsilon, epsilon) for epsilon in known if epsilon}


def _ratios(
    ratios: Callable[[OptimizerSubject], Mapping[str, Callable[[float, _Sizes], float]]],
) -> Callable[[OptimizerSubject], dict[str, Variant]]:
    return lambda subject: {detail: _with_ratio(subject, detail, ratio) for detail, ratio in ratios(subject).items()}


enter_rows("optimizer", OptimizerSubject, "change", (
    ("bias_correction_missing", "the moments are not corrected for their start at zero",
     {"where": lambda s: has(s, "betas")}, lambda s: {"": StepChange(step=_late)}),
    ("rate_inside_momentum", "the learning rate is multiplied into the momentum buffer, not outside of it",
     {"where": lambda s: has(s, "momentum")}, lambda s: {"": StepChange(after=_with_rate_in_buffer)}),
    ("rate_twice", "the learning rate is multiplied in twice", {"rank": 1},
     lambda s: {"": StepChange(settings=lambda moment: {"lr": moment.group["lr"] ** 2}),
                "inside of the momentum buffer, and outside of it":
                    StepChange(after=functools.partial(_with_rate_in_buffer, outside=True))}),
    # max(beta2 u + eps, |g|) for max(beta2 u, |g| + eps): paddle's Adamax beside torch's.
    ("epsilon_in_maximum", "Adamax adds epsilon to the norm so far, not to the new gradient",
     {"difference": _DEFAULTS, "where": lambda s: type(s.make_optimizer()).__name__ == "Adamax"},
     lambda s: {detail: StepChange(after=functools.partial(_norm_of_adamax, epsilon))
                for detail, epsilon in _epsilons_of(s).items()}),
    ("lars_trust_coefficient", "the trust coefficient of LARS differs", {"where": trust_name}, _other_coefficients),
    ("lars_trust_missing", "the trust ratio of LARS is not applied", {"where": trust_name},
     _ratios(lambda s: {"": lambda c, of: 1.0, "its coefficient is": lambda c, of: c})),
    # The first is as the paper has it.
    ("lars_trust_denominator",
     "the trust ratio of LARS divides by another norm than that of the decayed gradient", {"where": trust_name},
     _ratios(lambda s: {"|g| + wd |w|": lambda c, of: c * of.weight / (of.gradient + of.decay * of.weight),
                        "|g|": lambda c, of: c * of.weight / of.gradient})),
    ("lars_epsilon", "an epsilon is added to the denominator of LARS's trust ratio", {"where": trust_name},
     _ratios(_epsilons)),
    ("lars_ratio_clipped", "the trust ratio of LARS is limited", {"where": trust_name},
     _ratios(lambda s: {"to 1": lambda coefficient, sizes: _limited(coefficient, sizes._replace(rate=1.0)),
                        "to the learning rate, as LARC has it": _limited})),
))  # fmt: skip
