"""Records optimizer steps on given gradients, and the schedule alone, on one side."""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.case.definition import Case
from twinalign.case.moved_values import scaled_by_pattern
from twinalign.conversion.canonical_names import CanonicalNames
from twinalign.files.recordings import Recording, sample
from twinalign.replay.noted_expressions import kept_values, values_of
from twinalign.replay.noted_functions import noted, unnoted
from twinalign.replay.running_functions import functions_of
from twinalign.verdict.array_difference import distance, root_mean_square

STAGE = "backward"
MOST_STEPS = 6
"""State, bias correction and a second learning rate show within so many steps."""
LEAST_STEPS = 3
OTHER_SIZES = (1.0, 1e3, 1e-3, 30.0, 1 / 30, 300.0)
"""Of gradients, so that a bound that those of the first step keep, or never keep, shows."""
SCHEDULED_STEPS = 32
"""Steps for which the schedule is asked, if it answers for so many."""
RATE_TOLERANCE = 1e-6
"""Relative to the greatest value: schedulers may compute rates in float32."""
_SMALL = 200_000
# Paddle's kernels take momentum, decay and betas in float32. Measured over six steps of SGD with momentum, Nesterov,
# Adam, AdamW, NAdam and Adagrad: updates 6e-8 of their root mean square, moments 2e-7, second moments 1.3e-5.
FLOORS = {"update": 1e-6, "moment1": 1e-6, "velocity": 1e-6, "moment2": 1e-4, "infinity_norm": 1e-6}
_EPSILON = float(np.finfo(np.float64).eps)


@noted
def record_steps(
    worker: Any,
    weights: Mapping[str, Any],
    initial: str,
    gradients: str,
    path: str = "",
    rates: list[float] | None = None,
    sizes: Sequence[float] = (),
    is_enough: Callable[[Mapping[str, np.ndarray], int], bool] = lambda arrays, step: False,
) -> dict[str, Any]:
    """Take optimizer steps in float64 on the reference's gradients; record samples of all parameters and state.

    Names and layout in the file are the reference's: `start.PARAMETER`, then `STEP.parameter.PARAMETER` and
    `STEP.QUANTITY.PARAMETER` for the optimizer's state.

    Args:
        weights: as for `Worker.build_model`.
        path: of the file, if one is written.
        initial: the `.npz` file of the reference's weights, from which both sides start.
        gradients: the `.npz` file of the reference's gradients, by reference name.
        rates: learning rate of each step, so that a wrong schedule does not count; None: the schedule's own.
        sizes: what all gradients of each step are multiplied by; empty: 1.
        is_enough: asked behind each step, with what is recorded and its number, whether it was the last one.

    Returns:
        `rates` that were used, `facts` of the optimizer, its `parameters`, and `unnamed` ones, which have no
        counterpart in the reference and so no gradient.
    """
    backend, case = worker.backend, worker.fresh_case(STAGE)
    recording, used = Recording(), list[float]()
    with (
        backend.default_dtype("float64"),
        np.load(gradients, allow_pickle=False) as given,
        np.load(initial, allow_pickle=False) as begin,
    ):
        model, parameters, optimizer = start(worker, case, weights)
        names = CanonicalNames.of(weights)
        known = {key: parameter for key, parameter in parameters.items() if names.parts(key)}
        for key in known:
            backend.assign(known[key], names.from_reference(key, begin))
        _record(recording, names, _items("start", backend, known))
        for step in range(min(max(case.steps, LEAST_STEPS), MOST_STEPS) if rates is None else len(rates)):
            if _scheduled(case, optimizer, step, worker.framework, backend) is None:
                break
            if rates is not None and backend.learning_rate(optimizer) != rates[step]:
                backend.set_learning_rate(optimizer, rates[step])
            used.append(backend.learning_rate(optimizer))
            _give_gradients(backend, names, known, given, step, sizes[step] if sizes else 1.0)
            optimizer.step()
            backend.clear_gradients(model)
            state = itertools.chain(_items("parameter", backend, parameters), backend.optimizer_items(model, optimizer))
            _record(recording, names, ((f"{step}.{quantity}", key, array) for quantity, key, array in state))
            if is_enough(recording.arrays, step):
                break
    if path:
        recording.save(Path(path))
    trained = [part.name for key in known if backend.trainable(known[key]) for part in names.parts(key)]
    found = {"rates": used, "facts": backend.optimizer_facts(optimizer), "parameters": list(dict.fromkeys(trained))}
    return {**found, "unnamed": [key for key in parameters if key not in known]}


def _items(label: str, backend: Any, parameters: Mapping[str, Any]) -> Iterator[tuple[str, str, np.ndarray]]:
    return ((label, key, backend.to_array(parameter)) for key, parameter in parameters.items())


def _give_gradients(
    backend: Any,
    names: CanonicalNames,
    parameters: Mapping[str, Any],
    given: Mapping[str, np.ndarray],
    step: int,
    size: float,
) -> None:
    """Let each parameter have its gradient for a step, `size` times what is `given` by the reference's names."""
    for key, parameter in parameters.items():
        own = [part.name for part in names.parts(key) if part.name in given]
        array = names.from_reference(key, {name: size * scaled_by_pattern(given[name], step) for name in own})
        if array is not None and backend.trainable(parameter):
            backend.set_gradient(parameter, array)


def _record(recording: Recording, names: CanonicalNames, items: Iterable[tuple[str, str, np.ndarray]]) -> None:
    """Record a sample of each tensor, in the reference's layout."""
    for label, name, array in names.to_reference(items):
        recording.add(f"{label}.{name}", np.asarray(sample(array), np.float64))


@noted
def record_schedule(worker: Any, weights: Mapping[str, Any], used: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """Run the schedule alone: the learning rate that it sets in each step, and every value that it returns.

    `used` is called when the rate of a step is read.

    Returns:
        `values`: name → one number for each step that the schedule answers for; `initial`: the rate before the first
        step; `factor`: what its first group multiplies the optimizer's own rate by; `steps`: the case's number of
        steps; `own`: whether the case defines a schedule.
    """
    case = worker.fresh_case(STAGE)
    with worker.backend.default_dtype("float64"):
        _, _, optimizer = start(worker, case, weights)
        initial, factor = worker.backend.learning_rate(optimizer), worker.backend.rate_factor(optimizer)
        values = ask_schedule(case, optimizer, worker.backend, worker.framework, used=used)
    own = type(case).schedule is not Case.schedule
    return {"values": values, "initial": initial, "factor": factor, "steps": case.steps, "own": own}


def ask_schedule(
    case: Case,
    optimizer: Any,
    backend: Any,
    framework: str,
    steps: int = SCHEDULED_STEPS,
    used: Callable[[], None] = lambda: None,
) -> dict[str, list[float]]:
    """What the schedule sets and returns in each step; it may refuse steps beyond those of the case."""
    values: dict[str, list[float]] = {"learning_rate": []}
    for step in range(max(steps, case.steps)):
        found = _scheduled(case, optimizer, step, framework, backend)
        if found is None:
            break
        used()
        for name, value in found.items():
            values.setdefault(name, []).append(value)
    return values


def values_in_steps(worker: Any, path: str, **given: Any) -> dict[str, Any]:
    """The values in the code that takes the steps of `record_steps`, as `values_of` writes them.

    Where they are too many, those of the steps that `keep_run` knows, of some parameters.
    """
    found = values_of(functools.partial(unnoted(record_steps), worker, **given), path)
    return found if found["expressions"] else kept_values(worker, path)


def _scheduled(case: Case, optimizer: Any, step: int, framework: str, backend: Any) -> dict[str, float] | None:
    """The rate that the schedule sets and what it returns; None where it ends with the case's steps.

    Beyond those its rate may be no number: a root of what is left of the training is complex there.
    """
    try:
        returned = case.schedule(optimizer, step, framework) or {}
        values = {"learning_rate": backend.learning_rate(optimizer), **returned}
        return {name: float(value) for name, value in values.items()}
    except Exception:
        if step < case.steps:
            raise
        return None


def of_schedule_alone(worker: Any, weights: Mapping[str, Any]) -> set[str]:
    """Names of the port's functions that only the schedule calls, whose rates are given to the optimizer anyway."""
    case = worker.fresh_case(STAGE)
    runs = (lambda: record_schedule(worker, weights=weights)), (lambda: start(worker, case, weights))
    both, of_optimizer = ({code.name for code in functions_of(run, "paddle")} for run in runs)
    return both - of_optimizer


def start(worker: Any, case: Case, weights: Mapping[str, Any]) -> tuple[Any, dict[str, Any], Any]:
    """The model with its initial weights in float64, its parameters by name, and their optimizer."""
    backend = worker.backend
    backend.set_seed(case.seed)
    model = worker.build_model(case, STAGE, "float64", weights)
    backend.set_training(model, case.train_mode)
    parameters = backend.named_parameters(model)
    return model, parameters, case.optimizer([p for p in parameters.values() if backend.trainable(p)], worker.framework)


class GradientsOfSteps:
    """Gradients by name, scaled for each step; small ones are kept: a search takes the same steps hundreds of times."""

    def __init__(self, given: Mapping[str, np.ndarray]) -> None:
        self._given = given
        self._small: dict[tuple[str, int], np.ndarray] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._given

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def of_step(self, name: str, step: int) -> np.ndarray:
        """As `scaled_by_pattern`; not to be written to."""
        if (known := self._small.get((name, step))) is not None:
            return known
        made = scaled_by_pattern(self._given[name], step)
        if made.size <= _SMALL:
            made.flags.writeable = False
            self._small[name, step] = made
        return made


def until(arrays: Mapping[str, np.ndarray], last: int) -> dict[str, np.ndarray]:
    """What was recorded up to a step."""
    steps = {key: key.partition(".")[0] for key in arrays}
    return {key: array for key, array in arrays.items() if steps[key] == "start" or int(steps[key]) <= last}


def quantities(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What is compared: `STEP.update.PARAMETER`, the change of a parameter in a step, and the recorded state."""
    found = {}
    for key, array in arrays.items():
        step, _, rest = key.partition(".")
        quantity, _, name = rest.partition(".")
        if step == "start":
            continue
        if quantity == "parameter":
            before = f"start.{name}" if step == "0" else f"{int(step) - 1}.parameter.{name}"
            found[f"{step}.update.{name}"] = array - arrays[before]
        else:
            found[key] = array
    return found


def floors_of(compared: Mapping[str, np.ndarray], recorded: Mapping[str, np.ndarray]) -> dict[str, float]:
    """What rounding and float32 constants may leave of the reference's `quantities`, from the recording they are of."""
    floors = {}
    for key, array in compared.items():
        step, quantity, name = key.split(".", 2)
        floors[key] = FLOORS[quantity] * root_mean_square(array)
        if quantity == "update":
            floors[key] += 4 * _EPSILON * root_mean_square(recorded[f"{step}.parameter.{name}"])
    return floors


def differing_quantities(reference: Mapping[str, np.ndarray], port: Mapping[str, np.ndarray]) -> dict[str, float]:
    """`STEP.QUANTITY.PARAMETER` → relative difference, for what differs by more than rounding.

    State that the port keeps for no parameter at all does not count: a framework need not keep state that it does not
    use.
    """
    compared, other = quantities(reference), quantities(port)
    kept = {key.split(".", 2)[1] for key in other}
    floors = floors_of(compared, reference)
    found = {}
    for key, array in compared.items():
        if key not in other and key.split(".", 2)[1] not in kept:
            continue
        difference = distance(array, other.get(key))
        if difference > floors[key]:
            found[key] = difference / (root_mean_square(array) or 1.0)
    return found


def wrong_values(reference: Mapping[str, Sequence[float]], port: Mapping[str, Sequence[float]]) -> list[str]:
    """Names of the scheduled values that differ in a step that both sides answer for, or that one side lacks."""
    wrong = [name for name in {**reference, **port} if name not in reference or name not in port]
    for name in reference.keys() & port.keys():
        steps = min(len(reference[name]), len(port[name]))
        one, other = np.asarray(reference[name][:steps]), np.asarray(port[name][:steps])
        if not np.allclose(one, other, rtol=RATE_TOLERANCE, atol=RATE_TOLERANCE * np.abs(one).max(initial=0.0)):
            wrong.append(name)
    return sorted(wrong, key=lambda name: (name != "learning_rate", name))
