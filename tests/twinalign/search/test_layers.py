"""Wrong layers are found one by one: each alone, several at once, and none in a faultless port."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from twinalign.processes.side_process import SideProcess
from twinalign.recorder.recorder import RunSettings
from twinalign.reports.fault_facts import entries
from twinalign.search.faults import where_in_unit
from twinalign.search.layer_faults import LayerFaults
from twinalign.search.locator import LocateResult, locate
from twinalign.terminal import show
from twinalign.terminal.faults import fault_text

PAIRS = Path(__file__).with_name("pairs.py")
BATCH_NORM = {("part1.norm", "state"), ("part2.norm", "state")}
"""paddle's own running variance, n / (n - 1) away from torch's: there in every pair that trains."""


@pytest.fixture
def located(tmp_path: Path) -> Callable[[str], LocateResult]:
    """Locate in one of the pairs."""
    return lambda case: locate(RunSettings(f"{PAIRS}:{case}", tmp_path / "out"))


def places(result: LocateResult) -> set[tuple[str, str]]:
    return {(fault.paddle_layer, fault.phase) for fault in result.faults}


def cause(result: LocateResult, layer: str, phase: str) -> str | None:
    (fault,) = (f for f in result.faults if (f.paddle_layer, f.phase) == (layer, phase))
    return fault.explanation.id if fault.explanation else None


def test_a_port_without_faults_has_none(located: Callable[[str], LocateResult]) -> None:
    result = located("Evaluating")
    assert result.faults == []
    assert result.verdict == "aligned"
    (layers,) = result.layers.values()
    # Every layer has its partner: a shared one, one that returns nothing, one with keywords and a dictionary.
    assert layers.matching.alone == {"reference": [], "paddle": []}
    assert {"shared", "silent", "split", "part1.act"} <= {port.path for _, port in layers.matching.pairs}


def test_values_on_disk_are_the_activations_once_and_are_removed(
    located: Callable[[str], LocateResult], tmp_path: Path
) -> None:
    (layers,) = located("Evaluating").layers.values()
    assert 0 < layers.bytes_on_disk <= 1.1 * layers.activation_bytes + 128 * 200  # with the heads of the files
    assert not list((tmp_path / "out" / "locate").rglob("*.np[yz]"))


@pytest.mark.slow
def test_four_faults_at_once_are_all_found_though_one_hides_another(located: Callable[[str], LocateResult]) -> None:
    result = located("Several")
    assert places(result) == {("part1", "forward"), ("", "forward"), ("norm", "forward"), *BATCH_NORM}
    assert cause(result, "norm", "forward") == "norm_epsilon"
    assert cause(result, "", "forward") == "gelu_form"
    assert result.verdict == "diverged"


def test_a_stop_gradient_too_many_is_found_in_the_code_around_the_layers(
    located: Callable[[str], LocateResult],
) -> None:
    result = located("Detached")
    assert places(result) == {("part2", "backward"), *BATCH_NORM}


def test_frozen_parameters_are_found(located: Callable[[str], LocateResult]) -> None:
    result = located("Frozen")
    assert places(result) == {("head", "backward")}
    assert set(result.faults[0].evidence["values"]) == {"gradient.parameter.weight", "gradient.parameter.bias"}


def test_statistics_that_move_otherwise_do_not_hide_a_wrong_gradient(located: Callable[[str], LocateResult]) -> None:
    assert places(located("FrozenNorm")) == {("part1.norm", "backward"), *BATCH_NORM}


def test_an_accepted_convention_does_not_hide_another_cause_in_the_same_layer(
    located: Callable[[str], LocateResult],
) -> None:
    result = located("AcceptingMomentum")
    assert result.verdict == "diverged"
    (wrong,) = [fault for fault in result.faults if "accepted" not in fault.evidence]
    assert wrong.explanation is not None
    assert wrong.explanation.id == "batch_norm_momentum+running_variance_biased"
    assert wrong.evidence["accepted_causes"] == ["running_variance_biased"]


@pytest.mark.slow
def test_a_convention_that_the_case_accepts_does_not_decide(located: Callable[[str], LocateResult]) -> None:
    found = located("Net")
    assert found.verdict == "diverged"
    # What the reader needs to keep it is said with it.
    assert {fault.evidence["convention"] for fault in found.faults} == {"bn_running_var_biased"}
    entry = entries(fault.to_json() for fault in found.faults)[0]
    assert 'write in the case: accept = ("bn_running_var_biased",)' in fault_text("1.", entry).plain
    # What the case accepts is counted; nobody looks for its cause, layer by layer.
    accepted = located("Accepting")
    assert accepted.faults == []
    assert accepted.verdict == "aligned"
    (layers,) = accepted.layers.values()
    assert layers.accepted == {"bn_running_var_biased": ["part1.norm", "part2.norm"]}
    shown = Console(record=True, width=200)
    show(accepted, shown)
    text = "accepted as bn_running_var_biased, and not looked into, in 2 layers: part1.norm, part2.norm"
    assert text in shown.export_text().splitlines()


def test_one_cause_in_many_layers_is_found_once_and_is_one_entry(located: Callable[[str], LocateResult]) -> None:
    result = located("Momenta")
    assert places(result) == BATCH_NORM
    # Statistics begin at 0 and 1, so what paddle's float32 momentum changes is most of what the cause leaves.
    assert {fault.explanation.id for fault in result.faults} == {"batch_norm_momentum+running_variance_biased"}
    (entry,) = entries(fault.to_json() for fault in result.faults)
    assert entry["also"] == ["part2.norm"]
    assert "   the same in 1 more: part2.norm" in fault_text("1.", entry).plain.splitlines()


def test_the_cause_of_one_layer_is_tried_first_on_the_others(located: Callable[[str], LocateResult]) -> None:
    tried = {}
    with pytest.MonkeyPatch.context() as patch:
        ask = SideProcess.call
        patch.setattr(SideProcess, "call", lambda side, function, **values: _noted(tried, ask, side, function, values))
        located("Momenta")
    known = [[explanation["id"] for explanation in values["known"]] for values in tried["reference_explain"]]
    assert known == [[], ["batch_norm_momentum+running_variance_biased"]]


def test_only_the_stages_that_are_asked_for_are_run(tmp_path: Path) -> None:
    tried: dict[str, list[dict[str, Any]]] = {}
    with pytest.MonkeyPatch.context() as patch:
        ask = SideProcess.call
        patch.setattr(SideProcess, "call", lambda side, function, **values: _noted(tried, ask, side, function, values))
        settings = RunSettings(f"{PAIRS}:EvaluatingEpsilon", tmp_path / "out", stages=("forward",))
        assert places(locate(settings)) == {("norm", "forward")}
    assert [values["stage"] for values in tried["reference_forward"]] == ["forward"]
    assert "reference_backward" not in tried


def _noted(tried: dict[str, list[Any]], ask: Any, side: Any, function: Any, values: dict[str, Any]) -> Any:
    tried.setdefault(function.__name__, []).append(values)
    return ask(side, function, **values)


@pytest.mark.slow
def test_a_port_in_another_form_is_judged_in_its_own(tmp_path: Path) -> None:
    def located(case: str) -> LocateResult:
        return locate(RunSettings(f"{Path(__file__).with_name('form_cases.py')}:{case}", tmp_path / case))

    right = located("Tokens")
    (layers,) = right.layers.values()
    assert (right.faults, layers.left_out) == ([], {})
    assert {"blocks.0", "blocks.1.norm", "blocks.1.conv"} <= {port.path for _, port in layers.matching.pairs}
    wrong = located("WrongTokens")
    assert {cause(wrong, f"blocks.{number}.norm", "forward") for number in (0, 1)} == {"norm_epsilon"}
    assert len(wrong.faults) == 2


@pytest.mark.parametrize(("case", "found"), [("Positions", set()), ("WrongPositions", {("norm", "forward")})])
def test_what_one_side_has_once_and_the_other_for_each_sample_is_the_same(
    case: str, found: set[tuple[str, str]], tmp_path: Path
) -> None:
    result = locate(RunSettings(f"{Path(__file__).with_name('form_cases.py')}:{case}", tmp_path / "out"))
    assert places(result) == found
    (layers,) = result.layers.values()
    assert {"words", "places", "norm", "head"} <= layers.judged - layers.left_out.keys()


@pytest.mark.parametrize(
    ("case", "given"), [("More", "2 tensors, in the reference 1"), ("Fewer", "1 tensor, in the reference 2")]
)
def test_a_model_that_returns_another_number_of_tensors_is_at_fault_and_not_the_loss_that_gets_them(
    case: str, given: str, tmp_path: Path
) -> None:
    result = locate(RunSettings(f"{Path(__file__).with_name('form_cases.py')}:{case}", tmp_path / "out"))
    assert places(result) == {("", "forward")}
    assert result.faults[0].suggestion.startswith("return as many tensors as the reference does")
    (layers,) = result.layers.values()
    reason = f"it is given {given}, because the model returns another number of them"
    assert layers.left_out == {"(loss)": reason}


def test_code_that_changes_in_place_what_layers_return_is_judged_on_copies(tmp_path: Path) -> None:
    result = locate(RunSettings(f"{Path(__file__).with_name('form_cases.py')}:InPlace", tmp_path / "out"))
    assert places(result) == {("norm", "forward")}
    assert cause(result, "norm", "forward") == "norm_epsilon"
    (layers,) = result.layers.values()
    assert layers.left_out == {}


def test_lengths_kept_as_floating_point_are_not_moved_by_noise(tmp_path: Path) -> None:
    result = locate(RunSettings(f"{Path(__file__).with_name('whole_number_cases.py')}:Lengths", tmp_path / "out"))
    assert places(result) == {("", "forward")}
    assert cause(result, "", "forward") == "position_embedding_missing"


_MASKED = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.moves = nn.Parameter(torch.randn(3, 3))

    def forward(self, x, mask):
        alpha = x[:, 0]
        for t in range(1, x.shape[1]):
            new = torch.tanh(alpha @ self.moves) + x[:, t]
            alpha = torch.where(mask[:, t : t + 1] > 0, new, alpha)
        return alpha
"""


def test_a_mask_that_is_the_same_on_every_draw_makes_no_other_slice_a_cause(tmp_path: Path) -> None:
    port = _MASKED.replace("torch.where(mask[:, t : t + 1] > 0, new, alpha)", "new").replace("torch", "paddle")
    port = port.replace("nn.Parameter(paddle.randn(3, 3))", "self.create_parameter([3, 3])")
    (tmp_path / "net_source.py").write_text(_MASKED, encoding="utf-8")
    (tmp_path / "net_port.py").write_text(port.replace("nn.Module", "nn.Layer"), encoding="utf-8")
    case = f"{Path(__file__).with_name('whole_number_cases.py')}:Unmasked"
    result = locate(RunSettings(case, tmp_path / "out", options={"folder": str(tmp_path)}))
    (fault,) = result.faults
    assert fault.explanation is not None
    assert fault.explanation.id == "line_of_port"
    assert "`alpha = new` in place of `alpha = torch.where(" in fault.explanation.text


_FOLDED = """
import functools
import paddle
from paddle import nn


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.moves = self.create_parameter([3, 3])
        self.fold = functools.reduce  # which the reference has no such attribute to run with

    def forward(self, x, mask):
        return self.fold(lambda alpha, new: paddle.tanh(alpha @ self.moves) + new, x.unbind(1))
"""


@pytest.mark.slow
def test_a_mask_that_is_the_same_on_every_draw_is_drawn_anew_to_tell_named_causes_apart(tmp_path: Path) -> None:
    (tmp_path / "net_source.py").write_text(_MASKED, encoding="utf-8")
    (tmp_path / "net_port.py").write_text(_FOLDED, encoding="utf-8")
    case = f"{Path(__file__).with_name('whole_number_cases.py')}:Unmasked"
    (fault,) = locate(RunSettings(case, tmp_path / "out", options={"folder": str(tmp_path)})).faults
    assert fault.explanation is not None
    # On the recorded mask other slices of it do the same, of its columns that are one in every row.
    assert fault.explanation.text.startswith("one step of the code differs: line 15 of net_source.py: ")
    assert fault.explanation.text.endswith("`where`: left out, `input` is what remains")
    assert "rivals" not in fault.explanation.evidence


@pytest.mark.parametrize(
    ("case", "found"),
    [
        ("Penalty", {("", "forward")}),
        pytest.param("Opened", {("", "forward")}, marks=pytest.mark.slow),
        pytest.param("WrongCritic", {("critic", "forward")}, marks=pytest.mark.slow),
        pytest.param("Right", set(), marks=pytest.mark.slow),
    ],
)
def test_code_that_differentiates_its_layers_is_judged_with_them(
    tmp_path: Path, case: str, found: set[tuple[str, str]]
) -> None:
    result = locate(RunSettings(f"{Path(__file__).with_name('differentiating_cases.py')}:{case}", tmp_path / "out"))
    assert places(result) == found
    (layers,) = result.layers.values()
    if case != "WrongCritic":
        opened = "first" if case == "Opened" else "critic"
        assert layers.left_out[opened].endswith("it was judged with the code around it")


@pytest.mark.parametrize(("case", "found"), [("Apart", set()), ("WrongApart", {("", "forward")})])
def test_a_layer_that_takes_another_size_than_its_partner_is_left_out_by_name(
    case: str, found: set[tuple[str, str]], tmp_path: Path
) -> None:
    result = locate(RunSettings(f"{Path(__file__).with_name('form_cases.py')}:{case}", tmp_path / "out"))
    assert places(result) == found
    (layers,) = result.layers.values()
    reason = "it takes [2, 4, 6] where its counterpart takes [2, 5, 6]; its own code was judged with the code around it"
    assert layers.left_out == {"block": reason, "block.fc": reason}
    shown = Console(record=True, width=200)
    show(result, shown)
    lines = shown.export_text().splitlines()
    assert f"not judged alone: block, block.fc: {reason}" in lines
    assert lines[-1].endswith("; 3 layers judged alone")


@pytest.mark.slow
def test_layers_that_hold_other_parts_give_way_to_what_is_inside_them(tmp_path: Path) -> None:
    def located(case: str) -> tuple[LocateResult, LayerFaults]:
        result = locate(RunSettings(f"{Path(__file__).with_name('form_cases.py')}:{case}", tmp_path / case))
        return result, *result.layers.values()

    right, layers = located("Stages")
    assert right.faults == []
    assert {"stages.0", "stages.1"} <= layers.left_out.keys()
    assert layers.left_out["stages.0"].startswith("it returns [2, 4, 4] where its counterpart returns [2, 4, 2, 6];")
    assert {"stages.0.block.norm", "stages.1.block", "stages.1.block.fc"} <= layers.judged
    wrong, _ = located("WrongStages")
    assert {(*place, cause(wrong, *place)) for place in places(wrong)} == {
        (f"stages.{number}.block.norm", "forward", "norm_epsilon") for number in (0, 1)
    }


def test_a_layer_that_has_weights_of_its_own_is_not_blamed_for_them(tmp_path: Path) -> None:
    result = locate(RunSettings(f"{Path(__file__).with_name('form_cases.py')}:OwnWeights", tmp_path / "out"))
    (layers,) = result.layers.values()
    assert ("one", "head") in {(ours.path, port.path) for ours, port in layers.matching.pairs}
    assert places(result) == {("", "forward")}
    assert layers.left_out == {"head": "it has weights of its own: none of the reference's were proven to be its"}


def test_a_layer_that_has_weights_of_its_own_is_told_where_nothing_else_is_wrong(tmp_path: Path) -> None:
    result = locate(RunSettings(f"{Path(__file__).with_name('form_cases.py')}:WrongNorm", tmp_path / "out"))
    assert places(result) == {("norm", "forward")}
    assert result.verdict == "diverged"
    (fault,) = result.faults
    assert fault.explanation is None
    assert "it has weights of its own: none of the reference's were proven to be its" in fault.evidence["notes"]


def test_what_stops_halfway_is_not_judged_by_its_gradients(tmp_path: Path) -> None:
    result = locate(RunSettings(f"{Path(__file__).with_name('form_cases.py')}:Stopped", tmp_path / "out"))
    assert places(result) == {("0", "forward")}
    (layers,) = result.layers.values()
    assert layers.left_out["(forward)"].endswith("ValueError: too small; what comes after it was not judged")


def test_a_layer_that_one_side_lacks_is_called_so() -> None:
    layers = SimpleNamespace(
        faults=[], to_json=lambda: {"layers": [], "without_partner": {"reference": ["bn2"], "paddle": ["a", "b"]}}
    )
    console = Console(record=True, width=200)
    show(LocateResult("case", layers={"part": layers}), console)  # type: ignore[dict-item]
    shown = console.export_text()
    assert "1 layer of the reference without a counterpart in the port (left out, or written as code): bn2" in shown
    assert "2 layers of the port without a counterpart in the reference (added" in shown


def test_the_command_writes_the_contract(twinalign: Any, tmp_path: Path) -> None:
    finished = twinalign("locate", f"{PAIRS}:Epsilon", "--json", tmp_path / "found.json", "--set", "train_mode=false")
    assert finished.returncode == 1, finished.stderr
    assert "norm LayerNorm  ✗ forward" in finished.stdout
    assert "the normalisation's epsilon has another value: 1e-05 in place of 1e-06" in finished.stdout
    found = json.loads((tmp_path / "found.json").read_text())
    assert (found["case"], found["verdict"], len(found["faults"])) == ("net", "diverged", 1)
    fault = found["faults"][0]
    assert (fault["reference_layer"], fault["paddle_layer"], fault["phase"]) == ("norm", "norm", "forward")
    assert fault["explanation"]["id"] == "norm_epsilon"
    assert fault["explanation"]["confirmed"] is True
    assert fault["evidence"]["values"]["output.0"]["relative"] > 1e-5


def test_layers_of_other_names_are_matched_by_order_and_by_rename(located: Callable[[str], LocateResult]) -> None:
    result = located("Renamed")
    (layers,) = result.layers.values()
    assert places(result) == {("last", "forward")}
    assert set(layers.matching.how.values()) == {"name", "order"}


def test_every_buffer_that_differs_is_named() -> None:
    """The running mean is first, and often differs within what is allowed; the variance is what is wrong."""
    assert where_in_unit("norm", {"buffer.running_var": {}}) == "its buffer running_var"
    both = {"buffer.running_mean": {}, "buffer.running_var": {}}
    assert where_in_unit("norm", both) == "its buffers running_mean, running_var"


_IN_A_FUNCTION = """
def Net():
    import torch
    import torch.nn.functional as F
    from torch import nn

    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.moves = nn.Parameter(torch.randn(3, 3))

        def forward(self, x, mask):
            h = F.softplus(torch.tanh(x @ self.moves))
            h = h * torch.exp(-h)
            return h.sum(1)

    return Inner()
"""


@pytest.mark.parametrize(
    ("where", "paddle", "functional"),
    [("module", "P", "FF"), ("around", "paddle", "F"), ("around", "P", "FF"), ("inside", "P", "FF")],
)
def test_lines_of_a_port_are_read_with_the_names_that_they_have_there(
    where: str, paddle: str, functional: str, tmp_path: Path
) -> None:
    imports = f"import paddle as {paddle}\nimport paddle.nn.functional as {functional}\n"
    port = _IN_A_FUNCTION.replace(
        "    import torch\n    import torch.nn.functional as F\n    from torch import nn\n", ""
    )
    port = port.replace("nn.Parameter(torch.randn(3, 3))", "self.create_parameter([3, 3])").replace(
        "F.", f"{functional}."
    )
    port = port.replace("torch.exp(-h)", "torch.exp(-0.9 * h)").replace("torch.", f"{paddle}.")
    port = port.replace("nn.Module", f"{'paddle' if where == 'inside' else paddle}.nn.Layer")
    places = {"module": "\n", "around": "def Net():\n", "inside": "        def forward(self, x, mask):\n"}
    indent = {"module": "", "around": "    ", "inside": "            "}[where]
    port = port.replace(places[where], places[where] + textwrap.indent(imports, indent), 1)
    port = "import paddle\n" + port if where == "inside" else port
    (tmp_path / "net_source.py").write_text(_IN_A_FUNCTION, encoding="utf-8")
    (tmp_path / "net_port.py").write_text(port, encoding="utf-8")
    case = f"{Path(__file__).with_name('whole_number_cases.py')}:Unmasked"
    (fault,) = locate(RunSettings(case, tmp_path / "out", options={"folder": str(tmp_path)})).faults
    assert fault.explanation is not None
    assert fault.explanation.id == "line_of_port"
    assert "-0.9 * h" in fault.explanation.text


_TWO_OF_A_KIND = """
import torch
from torch import nn


def squash(x):
    return x / (1.0 + (x * x).sum(-1, keepdim=True))


class Part(nn.Module):
    def forward(self, x):
        return squash(2.0 * x)


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.u = nn.Parameter(torch.randn(3))
        self.v = nn.Parameter(torch.randn(3))
        self.table = nn.Embedding(8, 2)
        self.part = Part()

    def forward(self, x, mask):
        kinds = mask.long() + 1
        rows = self.table(kinds + torch.arange(5)).sum(-1)
        x = squash(x)
        high = torch.view_as_complex(torch.stack([x * self.u, x], -1))
        low = torch.view_as_complex(torch.stack([x, x * self.v], -1))
        both = torch.view_as_real(high * low).sum(-1)
        return self.part(both + rows.unsqueeze(-1)).sum(1)


Net = Inner
"""
_SPELLED = {
    "nn.Parameter(torch.randn(3))": "self.create_parameter([3], default_initializer=nn.initializer.Normal())",
    "nn.Module": "nn.Layer",
    "mask.long()": "mask.astype('int64')",
    "view_as": "as",
    "from torch": "from paddle",
    "torch": "paddle",
}


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ("x * self.v", "x * self.u", "x * self.u"),  # then nothing uses the other one, and its gradient follows
        ("paddle.as_complex(paddle.stack([x * self.u, x", "paddle.as_complex(paddle.stack([x * self.v, x", "self.v, x"),
        ("(1.0 + ", "(0.5 + ", "0.5 + "),  # in a function that a unit and its child call
        ("kinds + paddle.arange(5)", "kinds", "one term of a sum is left out"),  # whole numbers stay whole
    ],
)
def test_a_line_is_found_where_two_places_use_one_thing(right: str, wrong: str, told: str, tmp_path: Path) -> None:
    port = _TWO_OF_A_KIND
    for theirs, ours in _SPELLED.items():
        port = port.replace(theirs, ours)
    assert right in port
    (tmp_path / "net_source.py").write_text(_TWO_OF_A_KIND, encoding="utf-8")
    (tmp_path / "net_port.py").write_text(port.replace(right, wrong), encoding="utf-8")
    case = f"{Path(__file__).with_name('whole_number_cases.py')}:Unmasked"
    faults = locate(RunSettings(case, tmp_path / "out", options={"folder": str(tmp_path)})).faults
    assert faults
    for fault in faults:
        assert fault.explanation is not None, fault
        assert told in fault.explanation.text, fault


def test_another_kind_of_layer_in_place_of_the_references_is_named_and_edited(tmp_path: Path) -> None:
    case = f"{Path(__file__).with_name('kind_cases.py')}:Kinds"
    faults = locate(RunSettings(case, tmp_path / "out")).faults
    found = {fault.paddle_layer: fault.explanation.text for fault in faults if fault.explanation}
    is_used = "another kind of layer is used: "
    assert found == {
        "1": f"{is_used}LayerNorm(normalized_shape=[8], epsilon=1e-05) in place of Identity()",
        "2": f"{is_used}CELU(alpha=0.5) in place of ELU(alpha=1.0)",
        "3": f"{is_used}AvgPool2D(kernel_size=3, stride=2, padding=1) in place of "
        "MaxPool2d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=False)",
        "4": f"{is_used}Softmax(axis=-1) in place of Softplus(beta=1.0, threshold=20.0)",
    }
    edits = {fault.paddle_layer: fault.edit["after"] for fault in faults if fault.edit}
    assert edits == {
        "1": "nn.Identity()",
        "2": "nn.ELU()",
        "3": "nn.MaxPool2D(kernel_size=2, stride=2)",
        "4": "nn.Softplus()",
    }
