"""The loop that proves causes, on outcomes that are given."""

from __future__ import annotations

import dataclasses
import math
import time
from typing import Any

import numpy as np
import pytest

from twinalign.causes.layers.explaining import ALMOST
from twinalign.causes.layers.target import CONSTANTS, Target
from twinalign.causes.proving import Examined, Outcome, Wanted, again, every, prove
from twinalign.causes.registry import Cause
from twinalign.replay.budget import Budget, set_budget_of_next
from twinalign.reports.fault_facts import facts


@dataclasses.dataclass(frozen=True)
class Variant:
    detail: str
    lines: tuple[int, ...] = ()


class Given(Examined):
    """What is examined, with an outcome for each variant, by its detail; what has none does not run."""

    def __init__(self, outcomes: dict[str, Outcome], pairs: dict[str, Outcome] | None = None) -> None:
        self.outcomes, self.pairs = outcomes, pairs or {}
        self.tried: list[str] = []

    def candidates(self, wanted: Wanted = every) -> Any:
        for detail in ("a1", "a2", "b1", "c1"):
            name = f"cause_{detail[0]}"
            cause = self.kind(_CAUSES.setdefault(name, Cause(name, "forward", f"{name} is so", object, list)))
            if wanted(cause):
                yield cause, Variant(detail)

    def kind(self, cause: Cause) -> Cause:
        return cause

    def attempt(self, causes: Any, variant: Variant) -> Outcome | None:
        self.tried.append(variant.detail)
        return {**self.outcomes, **self.pairs}.get(variant.detail)

    def together(self, one: Variant, other: Variant) -> list[Variant]:
        return [Variant(f"{one.detail}&{other.detail}")] if self.pairs else []


_CAUSES: dict[str, Cause] = {}
WRONG = Outcome(False, False, 1.0, distance=1.0)


def proven(remaining: float, exact: bool = False) -> Outcome:
    return Outcome(True, exact, remaining, {"remaining_error": remaining})


def test_the_first_exact_cause_is_stated_and_nothing_is_tried_after_it() -> None:
    examined = Given({"a1": WRONG, "b1": proven(0.0, exact=True), "c1": proven(0.0, exact=True)})
    found = prove(examined)
    assert found is not None
    assert (found.id, found.text, found.evidence) == ("cause_b", "cause_b is so: b1", {"remaining_error": 0.0})
    assert examined.tried == ["a1", "a2", "b1"]


@pytest.mark.parametrize(
    ("clearly_less", "within", "best"),
    [(1.0, False, "b1"), (0.1, False, "a1"), (1.0, True, "a2")],
)
def test_without_an_exact_one_the_best_is_stated(clearly_less: float, within: bool, best: str) -> None:
    examined = Given({"a1": proven(1e-3), "a2": proven(0.9e-3), "b1": proven(0.5e-3)})
    examined.clearly_less, examined.within_one_cause = clearly_less, within  # type: ignore[misc]
    found = prove(examined)
    assert found is not None
    assert found.text.endswith(best)


def test_two_causes_are_tried_where_none_alone_is_proven() -> None:
    far, near = dataclasses.replace(WRONG, distance=0.8), dataclasses.replace(WRONG, distance=0.3)
    examined = Given({"a1": far, "b1": near}, {"b1&c1": proven(0.0)})
    found = prove(examined)
    assert found is not None
    assert (found.id, found.text) == ("cause_b+cause_c", "cause_b is so: b1; and cause_c is so: c1")
    assert examined.tried[4:] == ["b1&a1", "b1&a2", "b1&c1"], "the closest is the first of the two"


def test_nothing_is_stated_where_nothing_is_proven() -> None:
    assert prove(Given({"a1": WRONG})) is None


def test_a_spent_budget_ends_the_search_and_says_what_was_not_tried() -> None:
    examined, budget = Given({"a1": proven(0.0, exact=True)}), Budget(0.0)
    with budget.of_one():
        assert prove(examined, budget) is None
        assert examined.not_tried == "some of the known causes, and two of them together"
        stopped = budget.stopped(examined.not_tried)
    assert stopped is not None
    assert "--explain-seconds 120 " in stopped
    assert prove(Given({"a1": proven(0.0, exact=True)}), Budget(60.0)) is not None


def test_one_place_takes_no_more_than_half_of_what_is_left_and_no_more_than_its_own_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr(time, "process_time", lambda: now)
    budget = Budget(60.0)
    for lasts, left in ((20.0, 40.0), (20.0, 20.0), (10.0, 10.0), (5.0, 5.0)):
        with budget.of_one():
            now += lasts - 0.1
            assert not budget.is_spent
            now += 0.1
            assert budget.is_spent
        assert budget.left == pytest.approx(left)


def test_a_cause_with_many_places_leaves_time_for_others_and_these_for_edits(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "process_time", lambda: now)

    class Slow(Given):
        def kind(self, cause: Cause) -> Cause:
            return dataclasses.replace(cause, alone=True) if cause.id == "cause_c" else cause

        def attempt(self, causes: Any, variant: Variant) -> Outcome | None:
            nonlocal now
            now += 6.0
            return super().attempt(causes, variant)

    examined = Slow({})
    assert prove(examined) is None
    assert examined.tried == ["a1", "b1", "c1", "a2"]


def test_what_is_known_of_something_like_it_is_tried_first_and_suffices() -> None:
    class Knowing(Given):
        def known(self) -> Any:
            for explanation in (
                {"id": "cause_c", "text": "cause_c is so: another detail"},
                {"id": "cause_c", "text": "cause_c is so: c1"},
            ):
                found = again(self, explanation)
                if found is not None:
                    yield found, found[0][1]

    examined = Knowing({"a1": proven(0.0, exact=True), "c1": proven(1e-9)})
    found = prove(examined)
    assert found is not None
    assert (found.text, examined.tried) == ("cause_c is so: c1", ["c1"])
    # Where it does not hold, the others are tried as ever.
    other = Knowing({"a1": proven(0.0, exact=True)})
    found = prove(other)
    assert found is not None
    assert (found.text, other.tried) == ("cause_a is so: a1", ["c1", "a1"])


def test_other_causes_that_fit_are_said_if_other_inputs_tell_them_apart() -> None:
    class WithOtherInputs(Given):
        has_other_inputs = True

        def same(self, one: Variant, other: Variant) -> bool:
            return {one.detail, other.detail} == {"a1", "c1"}

    exact = {name: proven(0.0, exact=True) for name in ("a1", "b1", "c1")}
    examined = WithOtherInputs({**exact, "a2": proven(1e-9)})
    found = prove(examined)
    assert found is not None
    assert (found.text, found.evidence["rivals"]) == ("cause_a is so: a1", ["cause_b is so: b1"])
    assert prove(WithOtherInputs({"a1": proven(0.0, exact=True), "c1": exact["c1"]})).evidence == {  # type: ignore[union-attr]
        "remaining_error": 0.0
    }


class Edits(Given):
    """Causes that are tried alone, of which those of one letter give the same on other inputs."""

    def kind(self, cause: Cause) -> Cause:
        return dataclasses.replace(cause, alone=True)

    def same(self, one: Variant, other: Variant, share: float = 0.0) -> bool:
        return one.detail[0] == other.detail[0]


def test_other_edits_that_fit_are_said_and_so_is_whether_other_inputs_tell_them_apart() -> None:
    found = prove(Edits({name: proven(0.0, exact=True) for name in ("a1", "a2", "b1")}))
    assert found is not None
    assert found.text == "cause_a is so: a1"
    assert (found.evidence["rivals"], found.evidence["alike"]) == (["cause_b is so: b1"], ["cause_a is so: a2"])
    lines = facts({"phase": "forward", "evidence": {}, "explanation": found.to_json()})
    assert [line.rpartition(": cause_")[2] for line in lines] == ["b is so: b1", "a is so: a2"]


@pytest.mark.parametrize(("lines", "told"), [((1, 2), False), ((2,), True), ((), True)])
def test_lines_that_do_nothing_beside_the_cause_are_not_said_to_give_the_same(
    lines: tuple[int, ...], told: bool
) -> None:
    class Lines(Edits):
        def candidates(self, wanted: Wanted = every) -> Any:
            return [
                (cause, dataclasses.replace(variant, lines={"a1": (1,), "a2": lines}.get(variant.detail, ())))
                for cause, variant in super().candidates(wanted)
            ]

    found = prove(Lines({name: proven(0.0, exact=True) for name in ("a1", "a2")}))
    assert found is not None
    assert ("alike" in found.evidence) is told


def test_the_cause_itself_is_not_said_to_give_the_same() -> None:
    class Same(Edits):
        def candidates(self, wanted: Wanted = every) -> Any:
            return [(cause, Variant("a1", (at,))) for at, (cause, _) in enumerate(super().candidates(wanted))][:2]

    found = prove(Same({"a1": proven(0.0, exact=True)}))
    assert found is not None
    assert "alike" not in found.evidence


@pytest.mark.parametrize(("exact", "holds", "stated"), [(True, True, True), (False, True, False), (True, False, False)])
def test_two_edits_must_give_the_port_as_strictly_as_one(exact: bool, holds: bool, stated: bool) -> None:
    class Elsewhere(Edits):
        def holds(self, variant: Variant) -> bool:
            return holds

    found = prove(Elsewhere({"a1": WRONG, "b1": WRONG}, {"a1&b1": proven(0.0, exact=exact)}))
    assert (found is not None) == stated


class WithLines(Given):
    """Causes of which the first is a line of the port's code; `c` does the same on other inputs, the others do not."""

    def kind(self, cause: Cause) -> Cause:
        is_line = cause.id == "cause_a"
        return dataclasses.replace(cause, alone=is_line, own_code=is_line, rank=4 if cause.id == self.generic else 0)

    generic = ""

    def same(self, one: Variant, other: Variant, share: float = 0.0) -> bool:
        return other.detail == "c1"


def test_a_line_of_the_port_takes_the_name_of_a_cause_that_does_the_same_elsewhere() -> None:
    outcomes = {"a2": proven(0.0, exact=True), "b1": proven(0.0, exact=True), "c1": proven(0.0, exact=True)}
    examined = WithLines(outcomes)
    found = prove(examined)
    assert found is not None
    assert found.text == "cause_c is so: c1"
    assert examined.line is not None
    assert examined.line[1].text == "cause_a is so: a2"


def test_a_line_of_the_port_stands_where_others_only_fit_these_inputs() -> None:
    found = prove(WithLines({"a1": proven(0.0, exact=True), "b1": proven(0.0, exact=True)}))
    assert found is not None
    assert found.id == "cause_a"


def test_a_line_of_the_port_says_more_than_a_cause_that_fits_any_code() -> None:
    examined = WithLines({"a1": proven(0.0, exact=True), "c1": proven(0.0, exact=True)})
    examined.generic = "cause_c"
    found = prove(examined)
    assert found is not None
    assert found.id == "cause_a"


def test_of_rivals_only_those_that_fit_exactly_are_measured() -> None:
    class Noting(Given):
        has_other_inputs = True

        def attempt(self, causes: Any, variant: Variant) -> Outcome | None:
            self.tried.append(f"{variant.detail}{' only if exact' if self.only_exact else ''}")
            return self.outcomes.get(variant.detail)

    examined = Noting({"a2": proven(0.0, exact=True)})
    assert prove(examined) is not None
    assert examined.tried == ["a1", "a2", "b1 only if exact", "c1 only if exact"]


def test_a_sample_shows_what_is_far_from_the_port() -> None:
    port = np.linspace(1.0, 2.0, 30_000)
    target = Target({"output.0": port}, {"output.0": port + 0.1})
    assert target.is_far({"output.0": port - 0.1}, CONSTANTS, ALMOST)
    assert target.is_far({"output.0": port + 0.02}, CONSTANTS, ALMOST)
    assert not target.is_far({"output.0": port + 1e-3}, CONSTANTS, ALMOST), "constants in float32 may be why"
    assert not target.is_far({"output.0": port}, CONSTANTS, ALMOST)
    assert not target.is_far({"output.0": port[:-1]}, CONSTANTS, ALMOST), "left to the whole comparison"


@pytest.mark.parametrize(("seconds", "of_one"), [(60.0, 20.0), (30.0, 15.0), (240.0, 80.0), (math.inf, 20.0)])
def test_more_time_for_all_is_more_time_for_one(seconds: float, of_one: float, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.process_time", lambda: now[0])
    budget = Budget(seconds)
    with budget.of_one():
        now[0] = of_one - 0.1
        assert not budget.is_spent
        now[0] = of_one
        assert budget.is_spent


def test_what_reads_a_wrong_part_is_searched_for_a_shorter_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.process_time", lambda: now[0])
    monkeypatch.setattr("twinalign.replay.budget.BUDGET", budget := Budget(60.0))
    set_budget_of_next(None, 6.0)
    with budget.of_one():
        now[0] = 5.9
        assert not budget.is_spent
        now[0] = 6.0
        assert budget.is_spent
    set_budget_of_next(None, math.inf)
    with budget.of_one():
        now[0] = 25.9
        assert not budget.is_spent
