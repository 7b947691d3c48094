"""Proves causes outside the model: in the optimizer, its schedule, the input pipeline, the metric and the training.

The reference's component runs again with something changed. The change is the cause if the result equals the port's
values up to rounding.
"""

import abc
import contextlib
import dataclasses
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from twinalign.case.loading import kept_modules
from twinalign.causes.proving import REDUCTION, SHARE, Candidate, Examined, Outcome, Wanted, every, prove
from twinalign.causes.registry import Cause, Explanation, Variant, Within, cause, enter, known_causes
from twinalign.patching import replaced
from twinalign.replay.aligned_code import Code
from twinalign.replay.budget import BUDGET
from twinalign.replay.edits_in_lines import proof_of
from twinalign.replay.fitting import fitting_number
from twinalign.replay.function_edits import told_with_edit
from twinalign.replay.guarded import LONGEST, bounded
from twinalign.replay.lines_of_components import lines_of_component
from twinalign.replay.noted_expressions import keep_run
from twinalign.replay.port_code import PORT_CODE
from twinalign.replay.port_lines import LinesVariant, values_under
from twinalign.replay.proven_before import lines_proven, note_proven, was_proven
from twinalign.replay.running_functions import functions_of
from twinalign.replay.several_lines import MANY_VALUES, MANY_WRONG, SHARE_OF_LINES
from twinalign.verdict.array_difference import distance, root_mean_square

CLEARLY_LESS = 0.1
"""A later proven cause replaces an earlier one if it leaves less than this share of its remainder."""
_DECIMAL = re.compile(r"\d+\.\d+")


class Component(abc.ABC):
    """A part of the reference that can run again with something changed.

    Attributes:
        port, reference: both sides' values by name; the port's are to be reproduced.
        floors: for each name, the root mean square that rounding may leave.
        impatient: whether `run` may leave out values once one is refuted.
        fits: whether it runs fast enough for constants to be fitted.
        told: numbers that either side's component says of itself, whether or not they stand in its code.
        code: the reference's own functions that run.
    """

    port: Mapping[str, np.ndarray]
    reference: Mapping[str, np.ndarray]
    floors: Mapping[str, float]
    impatient = False
    fits = True
    told: Collection[float] = ()
    code: Sequence[Code] | None = None

    @abc.abstractmethod
    def run(self) -> Mapping[str, np.ndarray]:
        """Values under the names of `port`, with the present change."""

    def begins(self) -> Mapping[str, np.ndarray]:
        """The first of these values, which show whether another form of the code computes the same."""
        return self.run()

    def tries(self, phase: str) -> bool:
        """Whether causes of a phase are tried, once the component has run."""
        return True

    def holds_everywhere(self) -> bool:
        """Whether the present change also reproduces what the port has beyond `port`."""
        return True

    def variant(self, detail: str, **values: Any) -> Variant:
        """The variant that gives attributes of the component other values."""

        @contextlib.contextmanager
        def apply() -> Iterator[None]:
            with contextlib.ExitStack() as stack:
                for name, value in values.items():
                    stack.enter_context(replaced(self, name, value))
                yield

        return Within(detail, apply)


Pairs = Iterator[tuple[str, Any]]
Others = Mapping[str, Any] | Iterable[tuple[str, Any] | Variant]
"""What is other in each variant, by its detail, or the variant itself."""
Row = tuple[str, str, Mapping[str, Any], Callable[[Any], Others]]
"""Id and sentence of a cause, further fields of `Cause`, and its variants for a component."""


def enter_rows(
    phase: str, subject: type[Component], attribute: str, rows: Iterable[Row], of: Callable[[Any], Any] | None = None
) -> None:
    """Enter causes whose variants give an attribute what is in the rows, or is made `of` that, or are there already."""

    def enter_row(identifier: str, text: str, facts: Mapping[str, Any], variants: Callable[[Any], Others]) -> None:
        def find(component: Component) -> Iterator[Variant]:
            others = variants(component)
            for item in others.items() if isinstance(others, Mapping) else others:
                detail, other = item if isinstance(item, tuple) else ("", item)
                value = of(other) if of else other
                yield other if isinstance(other, Within) else component.variant(detail, **{attribute: value})

        enter(Cause(identifier, phase, text, subject, find, **facts))

    for row in rows:
        enter_row(*row)


@dataclasses.dataclass(frozen=True)
class Remainder:
    """Whether a cause is proven, and the greatest share of a difference that it leaves."""

    proven: bool
    share: float


def remainder(component: Component, values: Mapping[str, np.ndarray]) -> Remainder:
    """Judge values by all of the port's, including those that equal the reference's."""
    found = [_remainder_of(component, name, values.get(name)) for name in component.port]
    return Remainder(all(one.proven for one in found), max((one.share for one in found), default=0.0))


def is_refuted(component: Component, values: Mapping[str, np.ndarray]) -> bool:
    """Whether one of these values differs from the port's, so that the others need not be computed."""
    return any(name in component.port and not _remainder_of(component, name, v).proven for name, v in values.items())


def allowed_remainder(before: float, floor: float) -> float:
    """Root mean square that may remain of a difference that is above its floor."""
    return max(SHARE * before, min(floor, REDUCTION * before))


def _remainder_of(component: Component, name: str, value: np.ndarray | None) -> Remainder:
    port, floor = component.port[name], component.floors.get(name, 0.0)
    before, after = distance(component.reference.get(name), port), distance(value, port)
    if before <= floor:
        return Remainder(after <= floor, 0.0)
    allowed = allowed_remainder(before, floor)
    share = 0.0 if after == 0.0 else after / before if np.isfinite(before) else after
    return Remainder(bool(after <= allowed and np.isfinite(after)), float(share))


def wrong_names(component: Component) -> list[str]:
    """Names in which the port differs by more than rounding."""
    theirs, floors = component.reference, component.floors
    return [name for name, port in component.port.items() if distance(theirs.get(name), port) > floors.get(name, 0.0)]


@kept_modules()  # whose functions are edited
def explain(component: Component, *phases: str) -> dict[str, Any]:
    """Prove why the port's component differs.

    Returns:
        `explanation`: the first cause that leaves no difference, else the one that leaves least, if one is proven.
        `stopped`: what was not tried and why, if anything. `left`: seconds for further causes.
    """
    found, stopped, wrong, began = None, None, wrong_names(component), time.process_time()
    if wrong and not repeats(component):
        stopped = "no cause can be tried: the reference's component gives something else when it runs again"
    elif wrong:
        seconds = LONGEST + 2 * (time.process_time() - began)  # it has run twice
        with BUDGET.of_one(), replaced(component, "run", bounded(component.run, seconds)):
            causes = {(c.id, c.find): c for phase in filter(component.tries, phases) for c in known_causes(phase)}
            examined = _ExaminedComponent(component, causes.values())
            found = prove(examined, BUDGET)
            if found is not None and examined.line is None and isinstance(examined.applied, LinesVariant):
                found = _told_inside(component, found, examined.applied)
            note_proven(found, examined.applied)
            stopped = BUDGET.stopped(examined.not_tried)
    return {"explanation": found.to_json() if found else None, "stopped": stopped, "left": BUDGET.left}


def _told_inside(component: Component, found: Explanation, lines: LinesVariant) -> Explanation:
    many = sum(map(np.size, component.reference.values())) > MANY_VALUES
    told = told_with_edit(found.text, found.evidence, lines, partial(values_under, component.run), many)
    return Explanation(found.id, told[0], evidence=told[1]) if told else found


class _ExaminedComponent(Examined):
    sentence = "{text} ({detail})"
    clearly_less = CLEARLY_LESS
    known_exactly = True

    def __init__(self, component: Component, causes: Iterable[Cause]) -> None:
        self._component, self._causes = component, causes

    def candidates(self, wanted: Wanted = every) -> Iterator[Candidate]:
        for known in filter(wanted, self._causes):
            with contextlib.suppress(Exception):  # what a cause runs to find its variants may not run
                yield from ((known, variant) for variant in known.variants(self._component))

    def known(self) -> Iterator[tuple[Sequence[Candidate], Variant]]:
        for one in filter(lambda one: one.own_code, self._causes):
            yield from (([(one, v)], v) for v in lines_proven(self._component.begins, self._component.code))
        named = self.candidates(lambda one: not one.own_code and was_proven(one.id))
        yield from (([one], one[1]) for one in named if was_proven(one[0].id, one[1]))

    def may_name(self, line: Any, variant: Any) -> bool:
        said, values = map(float, _DECIMAL.findall(variant.detail)), self._component.port.values()
        stands = (n in self._component.told or line.has_number(n) for n in said)
        return sum(map(np.size, values)) > 4 and all(stands)  # a few values fit by chance

    def attempt(self, causes: Sequence[Cause], variant: Variant) -> Outcome | None:
        component = self._component
        component.impatient = True
        try:
            with variant.apply():
                found = remainder(component, component.run())
                if not found.proven or not component.holds_everywhere():
                    return None
        except Exception:  # the reference does not run with this change, so it is not what the port does
            return None
        finally:
            component.impatient = False
        evidence = {"unexplained_error": 1.0, "remaining_error": found.share, **proof_of(variant)}
        wrong = sum(np.size(component.port[name]) for name in wrong_names(component))
        many = isinstance(variant, LinesVariant) and wrong >= MANY_WRONG
        return Outcome(True, found.share <= (SHARE_OF_LINES if many else SHARE), found.share, evidence)


def repeats(component: Component) -> bool:
    """Whether the reference's component gives what was recorded of it when it runs again."""
    found: list[Mapping[str, np.ndarray]] = []
    component.code = functions_of(lambda: found.append(component.run())) if PORT_CODE else None
    keep_run(getattr(component, "once", component.run))  # what is run for each edit of the port
    values = found[0] if found else component.run()
    return all(
        distance(values.get(name), reference)
        <= max(component.floors.get(name, 0.0), 1e-12 * root_mean_square(reference))
        for name, reference in component.reference.items()
        if name in component.port
    )


def fitted(component: Component, make: Callable[[float], Variant], start: float) -> Iterator[Variant]:
    """The variant whose constant fits the port best (Gauss-Newton from `start`); none if the reference does not run."""
    if component.fits and (value := fitting_number(lambda value: _residual(component, make(value)), start)) is not None:
        yield make(value)


def _residual(component: Component, variant: Variant) -> np.ndarray:
    with variant.apply():
        values = component.run()
    ports = {name: np.asarray(component.port[name], dtype=np.float64) for name in wrong_names(component)}
    scales = {name: distance(component.reference[name], port) * np.sqrt(port.size) for name, port in ports.items()}
    return np.concatenate([((values[name] - port) / scales[name]).ravel() for name, port in ports.items()])


def line_of_port(component: Component) -> Iterator[Variant]:
    """A line of the port computes something else."""
    runs = partial(values_under, component.begins), partial(values_under, component.run)
    return lines_of_component(PORT_CODE, component.code, *runs, partial(_gives, component, component.port))


def _gives(component: Component, wanted: Mapping[str, np.ndarray], variant: Variant) -> bool:
    try:
        with replaced(component, "impatient", True), replaced(component, "port", wanted), variant.apply():
            return remainder(component, component.run()).proven
    except Exception:  # a line may need what the reference's function does not have
        return False


for _phase in ("optimizer", "data", "metric", "train"):
    cause(_phase, Component, alone=True, own_code=True)(line_of_port)
