"""What is known is not computed again: layers of the port run once, or twice if another one is wrong."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.twinalign.search.counted_cases import COUNTS
from twinalign.causes.layers.mended import _needless, _Result
from twinalign.processes.side_process import ChildError
from twinalign.recorder.recorder import Recorder, RunSettings
from twinalign.replay.case_run import MOVED, PLAIN, REDRAWN
from twinalign.replay.forced_call import ForcedCall
from twinalign.replay.judged_before import able_to_stand, clearly_wrong, distances_alone, last_to_end, stands_for
from twinalign.replay.layer_calls import Call, Tensor
from twinalign.search.causes_of_layers import CauseSearch
from twinalign.search.faults import Fault
from twinalign.search.layer_faults import LayerFaults
from twinalign.search.layers import locate_layers

CASES = Path(__file__).with_name("counted_cases.py")


def runs_of_layers(case: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Counter[str], LayerFaults]:
    counts = folder / "counts"
    monkeypatch.setenv(COUNTS, str(counts))
    recorder = Recorder(RunSettings(f"{CASES}:{case}", folder / "out", ("forward",), sequential=True))
    with recorder.running() as weights:
        part = weights[recorder.description["parts"]["forward"]]
        counts.unlink(missing_ok=True)
        found = locate_layers(recorder.processes, "forward", part, folder / "values", rename={})
    return Counter(counts.read_text().split()), found


@pytest.mark.slow
def test_each_layer_of_a_right_port_runs_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, found = runs_of_layers("Right", tmp_path, monkeypatch)
    assert not found.faults
    assert {name: count for name, count in runs.items() if "ref" not in name} == dict.fromkeys("0123", 1)
    assert max(found.inherited.values()) < 1e-12
    assert len(found.matching.pairs) == 7  # the pseudo-call, both containers, four layers


@pytest.mark.slow
def test_a_right_layer_runs_once_more_in_the_port_s_own_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, found = runs_of_layers("Wrong", tmp_path, monkeypatch)
    causes = {fault.paddle_layer: fault.explanation and fault.explanation.id for fault in found.faults}
    assert causes == {"0.1": "norm_epsilon", "0.3": "norm_epsilon"}
    assert all(fault.evidence["whole_reproduced"] for fault in found.faults)
    assert runs["0"] == runs["2"] == 2
    # A wrong one also without its pair, which decides whether what is behind it agrees then, and on the second draw.
    assert 2 < runs["1"] <= 5
    assert found.inherited["0.0"] < 1e-12 < 1e-6 < found.inherited["0.1"]


@pytest.mark.slow
def test_the_second_draw_ends_behind_the_last_wrong_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, found = runs_of_layers("WrongEarly", tmp_path, monkeypatch)
    (fault,) = found.faults
    assert fault.explanation is not None
    assert fault.explanation.id == "norm_epsilon"
    assert "notes" not in fault.evidence  # of a cause that one draw alone has proven
    # Two draws, and with the cause the whole, one sample and that with noise; not once more without the cause.
    assert runs["ref.0"] == 5
    # Not on the second draw, but on one sample without the cause.
    assert runs["ref.2"] == runs["ref.3"] == 5
    assert runs["2"] == runs["3"] == runs["0"] == 2  # what is not wrong does not run on the second draw


def test_calls_of_which_a_pass_keeps_no_values_say_what_they_are_given() -> None:
    known = {number: Call(number, "x", "Layer", around, 0) for number, around in enumerate([None, 0, 1, 1, 0, 4])}
    assert last_to_end([2, 3], known) == 3
    assert last_to_end([1, 3], known) == 1  # it ends when what it calls has
    assert last_to_end([0, 5], known) == 0
    assert last_to_end([2, 5], known) == 5
    call = Call(1, "x", "Layer", 0, 0, [Tensor(None, [2], "float64")], [Tensor(7, [2], "float64", sample=[1.0])])
    assert Call.from_json(json.loads(json.dumps(call.to_json()))) == call


@dataclasses.dataclass
class _Sides:
    """Both sides on a second draw, on which the port does not run without everything; notes what they are asked."""

    asked: list[str] = dataclasses.field(default_factory=list)

    def ask(self, side: str, function: Any, text: str, **given: Any) -> dict[str, Any]:
        self.asked.append(f"{function.__name__} {given.get('gradients', '')}".strip())
        return {}

    def forward(self, calls: Any, folder: Path, gradients: bool, **given: Any) -> dict[str, Any]:
        self.asked.append(f"port {gradients}")
        return {} if gradients else {"lacking": True}

    def backward(self, back: Any, folder: Path) -> dict[str, Any]:
        return {"suspects": [{"call": 3, "children": [], "facts": {"epsilon": 2.0}}]}


def test_where_the_wrong_units_do_not_run_alone_everything_runs(tmp_path: Path) -> None:
    sides = _Sides()
    search = CauseSearch(sides.ask, sides.forward, sides.backward, tmp_path, [], [], [])
    suspect = {"call": 3, "children": [], "facts": {"epsilon": 1.0}, "differences": {"output.0": {}}}
    found = search._second_draw([(Fault("x", "x", "forward", None, {}), suspect)])
    assert found == {3: {**suspect, "facts": {"epsilon": 2.0}, "phase": "forward"}}
    second = "reference_second_forward"
    assert sides.asked == [f"{second} False", "port False", f"{second} True", "port True", "reference_second_backward"]


@pytest.mark.parametrize("side", ["reference", "port"])
def test_where_a_side_does_not_run_on_inputs_drawn_anew_the_case_s_own_are_taken(tmp_path: Path, side: str) -> None:
    draws: list[int] = []

    def ask(_: str, function: Any, text: str, **given: Any) -> dict[str, Any]:
        if "draw" in given:
            draws.append(given["draw"])
        return {"unlike": "it raises"} if side == "reference" and given.get("draw") == REDRAWN else {}

    def forward(calls: Any, folder: Path, draw: int, **given: Any) -> dict[str, Any]:
        if draw == REDRAWN:
            raise ChildError("forward", "it raises", died=False)
        return {}

    search = CauseSearch(ask, forward, _Sides().backward, tmp_path, [], [], [])
    suspect = {"call": 3, "children": [], "facts": {}, "differences": {"output.0": {}}}
    fault = Fault("x", "x", "forward", None, {})
    assert list(search._second_draw([(fault, suspect)])) == [3]
    assert draws == [REDRAWN, PLAIN]
    assert "notes" not in fault.evidence


def test_where_gradients_differ_parameters_of_one_value_are_moved_if_both_sides_run_then(tmp_path: Path) -> None:
    draws: list[int] = []

    def ask(_: str, function: Any, text: str, **given: Any) -> dict[str, Any]:
        if "draw" in given:
            draws.append(given["draw"])
        return {}

    def forward(calls: Any, folder: Path, draw: int, **given: Any) -> dict[str, Any]:
        if draw == MOVED:
            raise ChildError("forward", "the reference moves a part of it alone", died=False)
        return {}

    def backward(back: Any, folder: Path) -> dict[str, Any]:
        different = {"output.0": {}, "gradient.input.0": {}}
        return {"suspects": [{"call": 3, "children": [], "facts": {}, "differences": different}]}

    search = CauseSearch(ask, forward, backward, tmp_path, [], [], [])
    suspect = {"call": 3, "children": [], "facts": {}, "differences": {"gradient.parameter.x": {}}}
    found = search._second_draw([(Fault("x", "x", "backward", None, {}), suspect)])
    assert draws == [MOVED, REDRAWN]
    # What a cause must give there is also what only differs there.
    assert list(found[3]["differences"]) == ["gradient.parameter.x", "output.0"]


def test_a_copy_of_a_layer_without_a_cause_of_its_own_names_the_cause_of_the_first(tmp_path: Path) -> None:
    found = {"id": "line_of_port", "text": "a line differs", "confirmed": True, "evidence": {}}
    nothing = {"right": False, "left": 1.0, "stopped": None, "refuted": [], "right_lines": [], "explanation": None}
    answers = iter([{**nothing, "explanation": found}, nothing, nothing])
    search = CauseSearch(lambda *_, **__: next(answers), None, None, tmp_path, [], [], [])  # type: ignore[arg-type]
    suspect = {"layer": "port.Block", "functions": [{"source": "..."}], "facts": {"width": 2}, "differences": {}}
    paths = ("student.0", "teacher.0", "teacher.1")
    asked = [(Fault(path, path, "state", None, {}), {**suspect, "call": at}) for at, path in enumerate(paths)]
    asked[2][1]["functions"] = [{"source": "other"}]
    search.explain(asked)
    assert [fault.evidence.get("notes") for fault, _ in asked] == [
        None,
        ["same code as student.0, whose cause does not suffice here: a line differs"],
        [],
    ]


class _Array:
    """A tensor of no framework."""

    def __init__(self, *shape: int) -> None:
        self.shape, self.version = shape, 0


def unit(number: int = 1, around: ForcedCall | None = None, shape: tuple[int, ...] = (2,)) -> ForcedCall:
    call = Call(number, str(number), "Layer", None, 0, [Tensor(0, [2], "float64")], [Tensor(1, [2], "float64")])
    found = ForcedCall(call, str(number), object(), around, 1e-10)
    found.inputs, found.handed_on, found.versions, found.signature = [_Array(*shape)], [_Array(2)], [0, 0], ("x",)
    found.ended = True
    return found


def stands(before: ForcedCall, again: ForcedCall, given_up: Sequence[int] = ()) -> bool:
    return stands_for(before, again, dict.fromkeys(given_up), lambda tensor: tensor.version)


def test_a_unit_stands_for_itself_only_where_it_would_compute_the_same() -> None:
    before, inner = unit(), unit(2)
    before.children = [inner]
    assert stands(before, unit())
    other_arguments = unit()
    other_arguments.signature = (np.zeros(2),)
    assert not stands(before, other_arguments)
    assert not stands(before, unit(shape=(1, 2)))  # the port's own values, in an unknown form
    assert not stands(before, unit(around=unit(0)))  # called by other code
    assert not stands(before, unit(), given_up=[2])
    before.given_up = {3}
    assert not stands(before, unit())
    assert stands(before, unit(), given_up=[3])
    before.handed_on[0].version = 1  # changed in place by the code around it
    assert not stands(before, unit(), given_up=[3])


def test_what_changes_the_model_or_draws_random_numbers_runs_again() -> None:
    outer, moves, draws, plain = unit(0), unit(1), unit(2), unit(3)
    draws.call.random = True
    outer.children = [moves, draws, plain]
    assert able_to_stand(outer, ["1.running_mean", "30.weight"]) == {3: plain}


def test_the_port_s_own_pass_says_what_is_clearly_wrong() -> None:
    def call(*samples: float) -> Call:
        return Call(4, "x", "Layer", None, 0, [], [Tensor(None, [2], "float64", sample=list(samples))])

    partners = {("x", 0): call(1.0, 2.0)}
    assert distances_alone([call(1.0, 2.0)], partners) == {4: 0.0}
    assert clearly_wrong(distances_alone([call(1.0, 2.1)], partners)[4], 1e-10)
    assert not clearly_wrong(distances_alone([call(1.0, 2.0 + 1e-9)], partners)[4], 1e-10)
    empty = Call(4, "x", "Layer", None, 0, [], [Tensor(None, [0], "float64")])
    assert distances_alone([empty], {("x", 0): empty}) == {4: 0.0}


class _Whole:
    """A model that adds to each sample what its causes say, and counts its passes; `mixed` also what the batch is."""

    def __init__(self, batch: int, mixed: bool = False) -> None:
        self.batch, self.mixed, self.passes = batch, mixed, 0
        self.sample: _Whole | None = None

    def on_one_sample(self) -> _Whole:
        self.sample = _Whole(1, self.mixed)
        return self.sample

    def __call__(self, mends: Sequence[Any], perturbation: float = 0.0) -> Mapping[str, np.ndarray]:
        self.passes += 1
        values = np.arange(1.0, 4.0) * (1 + perturbation) + sum(mend.adds for mend in mends) + self.mixed * self.batch
        return {"(forward).0": np.tile(values, (self.batch, 1))}


class _Mend:
    def __init__(self, number: int, adds: float) -> None:
        self.suspect, self.phase, self.adds = {"call": number}, "forward", adds


@pytest.mark.parametrize(("mixed", "passes"), [(False, 3), (True, 5)])
def test_one_sample_shows_which_causes_are_needed_unless_samples_depend_on_each_other(mixed: bool, passes: int) -> None:
    whole, mends = _Whole(4, mixed), [_Mend(1, 0.5), _Mend(2, 0.0), _Mend(3, 0.25)]
    mended = whole(mends)
    result = _Result(whole, mends, mended, mended)  # type: ignore[arg-type]
    assert _needless(result) == [[2, "forward"]]
    assert (
        whole.passes == passes
    )  # with all causes, with noise, without each that one sample does not show to be needed
