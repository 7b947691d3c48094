"""Wrong input pipelines are located at the step, and explained; right ones are no alarm, unknown faults stay so."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import data_faults  # noqa: E402

from twinalign.search.components import ComponentContext  # noqa: E402
from twinalign.search.data import locate_data, same  # noqa: E402
from twinalign.search.faults import Fault  # noqa: E402

CASE = f"{HERE / 'data_case.py'}:Pipeline"
# What each wrong step is called: the name that locate must give.
STEP_OF = {
    "resize": "resize", "crop": "crop", "flip": "flip", "jitter": "jitter", "argument": "jitter", "blur": "blur",
    "grayscale": "grayscale", "solarize": "solarize", "decode": "load", "normalize": "normalize",
    "normalized": "normalize", "normalization": "normalize", "scale": "to_tensor", "layout": "to_tensor",
}  # fmt: skip


@pytest.fixture
def found(processes: Any, folder: Path) -> Any:
    def locate(fault: str, **options: str) -> list[Fault]:
        return locate_data(ComponentContext(processes(CASE, {"fault": fault, **options}), folder, ("forward", "data")))

    return locate


@pytest.mark.slow
@pytest.mark.parametrize("fault", [name for name in data_faults.STEPS if name != "unknown"])
def test_a_wrong_step_is_named_and_explained(found: Any, fault: str) -> None:
    faults = found(fault)
    assert [f.reference_layer for f in faults] == ["dataset.train"]
    assert faults[0].explanation is not None, faults[0].evidence
    assert faults[0].explanation.id == fault.split()[0], faults[0].explanation
    expected = STEP_OF.get(fault.partition("_")[0])
    if expected:
        assert faults[0].evidence["step"] == expected


def test_what_is_missing_on_both_sides_is_the_same() -> None:
    gaps = np.array([1.0, np.nan, 3.0, np.inf])
    assert same(gaps, gaps * (1 + 1e-8))
    assert not same(gaps, np.array([1.0, 2.0, 3.0, np.inf]))
    assert not same(gaps, np.array([1.0, np.nan, 3.5, np.inf]))


def test_a_right_pipeline_is_no_alarm(found: Any) -> None:
    assert found("") == []


def test_a_step_that_no_cause_makes_is_unexplained(found: Any) -> None:
    (fault,) = found("unknown")
    assert fault.explanation is None
    assert fault.evidence["step"] == "normalize"
    assert fault.evidence["first_difference"] == [0, 0, 1]


def test_both_images_are_kept_side_by_side(found: Any) -> None:
    (fault,) = found("resize_interpolation nearest")
    pictures = [np.asarray(Image.open(path)) for path in fault.evidence["pictures"]]
    arrays = [np.load(path) for path in fault.evidence["arrays"]]
    assert all((picture == array).all() for picture, array in zip(pictures, arrays, strict=True))
    assert (pictures[0] != pictures[1]).any()
    assert fault.evidence["sample"] == 0


def test_two_wrong_steps_are_both_found(found: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    blur, mean = data_faults.STEPS["blur_sigma"], data_faults.STEPS["normalize_mean"]
    monkeypatch.setitem(data_faults.STEPS, "both", lambda chain, index: mean(blur(chain, index), index))
    faults = found("both")
    assert [(f.evidence["step"], f.explanation.id) for f in faults] == [
        ("blur", "blur_sigma"),
        ("normalize", "normalize_mean"),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("fault", data_faults.SAMPLES)
def test_wrong_samples_are_told_from_wrong_pixels(found: Any, fault: str) -> None:
    (fault_found,) = found(fault)
    assert fault_found.explanation is not None, fault_found.evidence
    assert fault_found.explanation.id == fault.split()[0], fault_found.explanation
    kind = "sample" if fault.endswith("sample") else "labels" if fault[0] in "lc" else "order"
    assert fault_found.evidence["kind"] == kind


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "known", "text"),
    [
        ("channels_linear sample", "hook", "a number (port = 1.10619 x reference)"),
        (
            "normalization_constants odd",
            "nothing",
            "a number (channel 0: port = 1.09048 x reference +0.261905; channel 1: port = 1.06667 x reference "
            "+0.12381; channel 2: port = 1.07143 x reference -0.114286)",
        ),
        (
            "normalization_constants odd",
            "hook",
            "(mean 0.43, 0.43, 0.43 and deviation 0.21, 0.21, 0.21 "
            "for mean 0.485, 0.456, 0.406 and deviation 0.229, 0.224, 0.225)",
        ),
    ],
)
def test_constants_that_nobody_knows_are_not_named(found: Any, fault: str, known: str, text: str) -> None:
    (fault_found,) = found(fault, known=known)
    assert fault_found.explanation is not None
    assert fault_found.explanation.text.endswith(text)


def test_samples_of_one_rank_are_known_that_the_reference_has_far_behind_those_that_are_compared(found: Any) -> None:
    (fault,) = found("sampler_shard of four", data_samples="3")
    assert fault.evidence["order"] == [0, 4, 8]
    assert fault.explanation is not None
    assert fault.explanation.id == "sampler_shard"


@pytest.mark.parametrize("fault", ["order_shifted", "order_swapped", "drop_last"])
def test_the_order_is_seen_within_batches(found: Any, fault: str) -> None:
    (fault_found,) = found(fault, batch="2", data_samples="3")
    assert fault_found.evidence["kind"] == "order"
    assert fault_found.explanation.id == fault


@pytest.mark.parametrize("fault", ["resize_interpolation", "step_missing", "step_arguments", "normalize_mean"])
def test_steps_of_a_compose_are_found_without_help(found: Any, fault: str) -> None:
    (fault_found,) = found(fault, known="compose")
    assert fault_found.explanation is not None, fault_found.evidence
    # The steps are objects with attributes: another mean is also told as that.
    assert fault_found.explanation.id == ("step_arguments" if fault == "normalize_mean" else fault)
    expected = {"normalize_mean": "Normalize", "step_missing": "CenterCrop"}.get(fault, "Resize")
    assert fault_found.evidence["step"] == expected


def test_a_right_compose_is_no_alarm(found: Any) -> None:
    assert found("", known="compose") == []


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["resize_interpolation nearest", "blur_sigma", "channels_reversed"])
def test_a_pipeline_whose_steps_are_unknown_is_explained_as_a_whole(found: Any, fault: str) -> None:
    (fault_found,) = found(fault, known="nothing")
    assert fault_found.explanation is not None, fault_found.evidence
    assert fault_found.explanation.id == fault.split()[0], fault_found.explanation
    assert fault_found.evidence["step"] == "(sample)"


RECORDS = """
import numpy as np


def encode(event, length=4):
    ids = np.zeros(length, "int64")
    ids[:] = event["items"][-length:]
    return {"items": ids, "price": np.log1p(event["price"]).astype("float32"), "label": np.int64(event["label"])}
"""
RECORDS_CASE = """
import importlib

import numpy as np

from twinalign import Case


class Records(Case):
    def reference(self): ...

    def reproduced(self): ...

    def dataset(self, framework, split):
        module = importlib.import_module("NAME_ref" if framework == "torch" else "NAME_port")
        rng = np.random.default_rng(0)
        for _ in range(8):
            items = rng.integers(0, 50, 9)
            yield module.encode({"items": items, "price": rng.uniform(1, 9), "label": rng.integers(0, 2)})
"""


@pytest.mark.parametrize(
    ("line", "wrong"),
    [("[-length:]", "[:length]"), ("np.log1p(", "np.log("), ('np.int64(event["label"])', "np.int64(1)")],
)
@pytest.mark.parametrize("splits", [("train",), ("train", "val")])
def test_a_line_that_makes_a_sample_is_named_whatever_the_samples_hold(
    processes: Any, folder: Path, splits: tuple[str, ...], line: str, wrong: str
) -> None:
    own, name = folder.parent, folder.parent.name  # processes are shared, and import a module once
    (own / f"{name}_ref.py").write_text(RECORDS)
    (own / f"{name}_port.py").write_text(RECORDS.replace(line, wrong))
    (own / "case.py").write_text(RECORDS_CASE.replace("NAME", name) + f"\n    splits = {splits!r}\n")
    folder.mkdir()
    found = locate_data(ComponentContext(processes(f"{own / 'case.py'}:Records", {}), folder, ("data",)))
    assert [fault.paddle_layer for fault in found] == [f"dataset.{split}" for split in splits]
    for fault in found:
        assert fault.explanation is not None, fault.evidence
        assert fault.explanation.id == "line_of_port"
        assert f"of {name}_port.py" in fault.explanation.text


@pytest.mark.slow
def test_a_line_is_not_named_by_a_number_that_stands_nowhere(processes: Any, folder: Path) -> None:
    """log10 is 0.4343 times the logarithm, which says less than the line does."""
    own, name = folder.parent, folder.parent.name
    prices = RECORDS.replace('np.log1p(event["price"])', 'np.log(event["price"] * np.arange(1.0, 9.0))')
    (own / f"{name}_ref.py").write_text(prices)
    (own / f"{name}_port.py").write_text(prices.replace("np.log(", "np.log10("))
    (own / "case.py").write_text(RECORDS_CASE.replace("NAME", name))
    folder.mkdir()
    fault, *_ = locate_data(ComponentContext(processes(f"{own / 'case.py'}:Records", {}), folder, ("data",)))
    assert fault.explanation is not None
    assert "`np.log10(" in fault.explanation.text


SUMS = """
import numpy as np


def encode(event, length=4):
    total = 0.0
    for item in event["items"][:length]:
        total += float(item)
        if item > 40:
            break
    return {"total": np.float64(total), "price": np.float64(event["price"])}
"""
STOPPED_SUMS = """
import numpy as np


def encode(event, length=4):
    values = np.zeros(1)
    for number in range(length):
        if event["items"][number] > 40:
            break
        values[0] = values[0] + 1.0 * event["items"][number]
    return {"total": np.float64(values[0]), "price": np.float64(event["price"])}
"""


@pytest.mark.slow
def test_one_wrong_number_is_no_proof_of_what_makes_the_right_ones_wrong(processes: Any, folder: Path) -> None:
    """Without its sum the reference gives the 0 of the only wrong sample, and of all the others too."""
    own, name = folder.parent, folder.parent.name
    (own / f"{name}_ref.py").write_text(SUMS)
    (own / f"{name}_port.py").write_text(STOPPED_SUMS)
    case = RECORDS_CASE.replace("NAME", name).replace("for _ in range(8):", "for at in range(8):")
    case = case.replace("items = rng.integers(0, 50, 9)", "items = np.array([45 if at == 2 else 3, 7, 9, 2])")
    (own / "case.py").write_text(case)
    folder.mkdir()
    fault, *_ = locate_data(ComponentContext(processes(f"{own / 'case.py'}:Records", {}), folder, ("data",)))
    assert fault.explanation is None or "the port lacks `total" not in fault.explanation.text
