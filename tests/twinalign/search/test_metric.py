"""Wrong metrics are located and explained on the reference's outputs; a wrong model is not counted against them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import metric_faults  # noqa: E402

from twinalign.recorder.recorder import RunSettings  # noqa: E402
from twinalign.search.components import ComponentContext  # noqa: E402
from twinalign.search.faults import Fault  # noqa: E402
from twinalign.search.locator import locate as whole_case  # noqa: E402
from twinalign.search.metric import locate_metric  # noqa: E402

CASE = HERE / "metric_case.py"


def locate(processes: Any, folder: Path, name: str, fault: str, **known: bool) -> list[Fault]:
    folder.mkdir()
    rng = np.random.default_rng(1)
    state = {} if name.startswith("Outputs") else {"0.weight": rng.standard_normal((5, 5)), "1.weight": np.ones(5)}
    statistics = (
        {} if name.startswith("Outputs") else {"1.bias": np.zeros(5), "mean": 0.1 * np.ones(5), "variance": np.ones(5)}
    )
    given: dict[str, Any] = {}
    for side, spelled in (("ref", "1.running_{}"), ("paddle", "1._{}")):
        own = {"mean": spelled.format("mean"), "variance": spelled.format("var" if side == "ref" else "variance")}
        arrays = {own.get(key, key): array for key, array in {**state, **statistics}.items()}
        if side == "ref" and state:
            arrays["1.num_batches_tracked"] = np.array(0)
        if side == "paddle" and state:
            arrays["0.weight"] = arrays["0.weight"].T
        np.savez(folder / f"{side}.npz", **arrays)
        given[side] = {"path": str(folder / f"{side}.npz")}
    given["paddle"]["canonical"] = {name: [[name, name == "0.weight"]] for name in (*state, "1.bias")}
    sides = processes(f"{CASE}:{name}", {"fault": fault})
    return locate_metric(ComponentContext(sides, folder, ("forward", "metric"), {"metric": given}, **known))


@pytest.mark.parametrize("fault", [name for name in metric_faults.METRICS if name != "unknown"])
def test_a_wrong_metric_is_explained(processes: Any, folder: Path, fault: str) -> None:
    (found,) = locate(processes, folder, "Outputs", fault)
    assert (found.reference_layer, found.phase) == ("metric", "metric")
    assert found.explanation is not None, found.evidence
    assert found.explanation.id == fault, found.explanation
    assert found.evidence["on_reference_outputs"]


@pytest.mark.parametrize("fault", ["metric_top_k", "metric_drop_last"])
def test_names_of_results_may_have_the_sign_at(processes: Any, folder: Path, fault: str) -> None:
    (found,) = locate(processes, folder, "OutputsNamedWithAt", fault)
    assert found.explanation is not None, found.evidence
    assert found.explanation.id == fault


@pytest.mark.parametrize("fault", ["metric_drop_last", "metric_mean_of_batches", "metric_labels"])
def test_an_output_without_rows_goes_along(processes: Any, folder: Path, fault: str) -> None:
    (found,) = locate(processes, folder, "OutputsWithLoss", fault)
    assert found.explanation is not None, found.evidence
    assert found.explanation.id == fault


@pytest.mark.parametrize(
    "fault", ["metric_top_k", "metric_temperature", "metric_normalize", "metric_names", "evaluation_mode"]
)
def test_a_wrong_evaluation_is_explained(processes: Any, folder: Path, fault: str) -> None:
    (found,) = locate(processes, folder, "Features", fault)
    assert found.explanation is not None, found.evidence
    assert found.explanation.id == fault, found.explanation


@pytest.mark.parametrize("name", ["Outputs", "Features"])
def test_a_right_metric_is_no_alarm(processes: Any, folder: Path, name: str) -> None:
    assert locate(processes, folder, name, "") == []


def test_a_metric_that_no_cause_makes_is_unexplained(processes: Any, folder: Path) -> None:
    (found,) = locate(processes, folder, "Outputs", "unknown")
    assert found.explanation is None
    assert found.evidence["values"]


def test_a_wrong_argument_of_what_no_cause_knows_is_told(processes: Any, folder: Path) -> None:
    (found,) = locate(processes, folder, "Features", "unknown")
    assert found.explanation is not None
    (_, line, _) = found.explanation.evidence["lines_of_port"][0]
    assert found.explanation.evidence["helper_edit"] == {"before": "1", "after": "0"}
    assert '"unknown": {"shift": 1}' in CASE.read_text().splitlines()[line - 1]


@pytest.mark.parametrize("name", ["Features", "Accuracies"])
def test_a_wrong_model_is_not_counted_against_the_metric(processes: Any, folder: Path, name: str) -> None:
    assert locate(processes, folder, name, "layer") == []


def test_what_an_evaluation_does_with_the_outputs_counts(processes: Any, folder: Path) -> None:
    (found,) = locate(processes, folder, "Features", "scaled_features", explain=False)
    assert set(found.evidence["values"]) >= {"metric.features"}
    assert found.evidence["on_reference_outputs"]


@pytest.mark.parametrize("known", [True, False])
def test_numbers_of_a_wrong_model_count_only_if_no_layer_is_known_to_be_wrong(
    processes: Any, folder: Path, known: bool
) -> None:
    # The port's evaluation calls other layers than the reference's, so nothing can be put in place of what they return.
    found = locate(processes, folder, "Accuracies", "layer_called_alone", is_wrong_before=known, explain=False)
    assert [fault.evidence["on_reference_outputs"] for fault in found] == ([] if known else [False])


def test_an_array_that_a_method_of_a_right_model_returns_is_located(tmp_path: Path) -> None:
    found = whole_case(RunSettings(f"{HERE / 'sampling_cases.py'}:Sampled", tmp_path / "out"))
    assert [(fault.paddle_layer, fault.phase) for fault in found.faults] == [("metric", "metric")]
