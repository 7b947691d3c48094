"""The table for a pull request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.twinalign.reports.runs import located, rich_summary, scalar, stage, summary, tensor
from twinalign.reports.fault_facts import remarks
from twinalign.reports.language import language
from twinalign.reports.markdown import markdown
from twinalign.reports.shown_values import plain
from twinalign.reports.summary import unlocated
from twinalign.reports.tables import comparison_markdown
from twinalign.verdict.compare import compare_files


def test_table_for_a_pull_request() -> None:
    stages = {
        "forward": stage([tensor("logits"), tensor("features", number=1)]),
        "data": stage([tensor("image", max_abs=0.0, mean_abs=0.0, fp64_rel=None, noise_ratio=None)]),
        "metric": stage([scalar("top1", 58.25, 58.5)]),
    }
    assert markdown(summary(stages)).splitlines() == [
        "**made_up**: The port is aligned with its reference in forward, data and metric.",
        "",
        "| stage | tensors | greatest mean diff | float64 differs by | times the noise | reprod_log 1e-6 | verdict |",
        "| --- | ---: | ---: | ---: | ---: | --- | --- |",
        "| forward | 2 | 4.69e-07 | 2e-13 | 0.667 | failed | aligned |",
        "| data | 1 | 0 | bit-equal | – | failed | aligned |",
        "| metric | 1 | 2.34e-07 | 1e-13 | 0.333 | failed | aligned |",
        "",
        "| metric | reference | port | difference | verdict |",
        "| --- | ---: | ---: | ---: | --- |",
        "| metric: top1 | 58.25 | 58.5 | 0.25 | aligned |",
        "",
        "torch 2.15.0, numpy 2.4.6; paddle 3.3.1, numpy 2.4.6",
    ]


def test_what_is_at_fault() -> None:
    lines = markdown(rich_summary()).splitlines()
    start = lines.index("At fault:")
    assert lines[start + 2 : start + 4] == [
        "- **blocks.1.norm LayerNorm** (forward): the normalisation's epsilon has another value: "
        "1e-05 in place of 1e-06",
        "- **dataset.train** (data): unexplained; first differs in step jitter, on sample 0",
    ]


def test_what_is_open_has_its_reason() -> None:
    drawn = tensor("features", "inconclusive", reason="drawn at random: *so*")
    found = summary({"forward": stage([tensor("logits"), drawn], "inconclusive")}, "inconclusive")
    found["stages"]["forward"]["notes"] = ["set the rates to 0"]
    lines = markdown(found).splitlines()
    start = lines.index("- **forward: features**: drawn at random: \\*so\\*")
    assert lines[start + 1] == "  - set the rates to 0"


def test_nan_on_one_side_is_not_bit_equal() -> None:
    nan = tensor("logits", "diverged", basis="structure", max_abs=0.0, mean_abs=0.0, fp64_rel=None, noise_ratio=None)
    lines = markdown(summary({"forward": stage([nan, tensor("rate", max_abs=0.0)], "diverged")}, "diverged"))
    assert "| forward | 2 | – | – | – | failed | diverged |" in lines


def test_equal_in_float32_alone_is_not_bit_equal() -> None:
    loss = tensor("loss", max_abs=0.0, mean_abs=0.0, fp64_rel=3.5e-8, noise_ratio=None)
    lines = markdown(summary({"loss": stage([loss])})).splitlines()
    assert "| loss | 1 | 0 | 3.5e-08 | – | failed | aligned |" in lines


def test_bugs_come_before_conventions_and_the_loss_is_the_loss_stages() -> None:
    found = rich_summary()
    norm, data = found["located"]["faults"][:2]
    other = {**norm["explanation"], "id": "momentum", "text": "momentum"}
    convention = {
        **norm,
        "explanation": other,
        "paddle_layer": "bn1",
        "evidence": {**norm["evidence"], "convention": "momentum"},
    }
    accepted = {**norm, "paddle_layer": "bn2", "evidence": {**norm["evidence"], "accepted": "momentum"}}
    loss = {**data, "paddle_layer": "loss", "phase": "forward", "evidence": {"paddle_class": "(loss)"}}
    conventions = [
        {**convention, "explanation": {**norm["explanation"], "text": f"with {number}"}} for number in range(30)
    ]
    found["located"]["faults"] = [accepted, *conventions, norm, loss]
    lines = [line for line in markdown(found).splitlines() if line.startswith("- **")]
    assert lines[0].startswith("- **blocks.1.norm LayerNorm** (forward): ")
    assert lines[1] == "- **loss** (loss stage): unexplained"
    assert "paddle's own convention" in lines[2]
    assert not any("bn2" in line for line in lines)  # of more than are shown, what is accepted goes first
    # With one cause they are one entry.
    found["located"]["faults"] = [accepted, *[convention] * 30, norm]
    lines = [line for line in markdown(found).splitlines() if line.startswith("- **")]
    assert [line.partition(" LayerNorm")[0] for line in lines] == ["- **blocks.1.norm", "- **bn1", "- **bn2"]
    assert lines[1].startswith("- **bn1 LayerNorm (+29)** (forward): ")


def test_names_do_nothing_in_markdown() -> None:
    found = summary({"metric": stage([scalar("a|b\n| c `d` <img src=x> [e](f) @g \u202e", 1.0, 2.0)])})
    found["case"] = "**x**\n# y"
    text = markdown(found)
    assert "\\*\\*x\\*\\*\\x0a\\# y" in text.replace("\\\\", "\\")
    assert "<img" not in text.replace("\\<", "")
    row = next(line for line in text.splitlines() if "metric: a" in line)
    assert row.replace("\\|", "").count("|") == 6
    assert "\u202e" not in text


def test_addresses_in_names_make_no_links() -> None:
    assert plain("see https://a.b or www.a.b, a::b") == r"see https\://a.b or www\.a.b, a::b"


def test_names_do_nothing_in_the_table_of_a_comparison(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **{"[a](https://b) | *c*": np.ones(2)})
    found = compare_files(tmp_path / "a.npz", tmp_path / "a.npz").to_json()
    table = comparison_markdown(found, "<b>title</b>")
    assert table.startswith("## \\<b\\>title\\</b\\>\n")
    assert "\n| \\[a\\](https\\://b) \\| \\*c\\* | aligned | " in table


def test_what_was_not_checked_is_said_in_the_language() -> None:
    found = {**summary({"forward": stage([tensor("logits")])}), "not_checked": ["loss", "train", "training_mode"]}
    (line,) = (line for line in markdown(found).splitlines() if line.startswith("Not checked"))
    assert line.replace("\\", "") == (
        "Not checked: loss and train (the case defines no such stage, or it was left out); training mode, with its "
        "batch statistics and running statistics (train_mode = True in the case)."
    )
    assert "未检查" in markdown(found, "zh")
    assert "Not checked" not in markdown({**found, "not_checked": []})


def accepted_stage() -> dict[str, Any]:
    mean, variance = (
        tensor(f"buffer.{name}", "diverged", max_abs=3e-5, mean_abs=2e-5, fp64_rel=3.18e-5, noise_ratio=590.0)
        for name in ("running_mean", "running_var")
    )
    return stage([tensor("logits"), {**mean, "accepted": "bn_momentum"}, {**variance, "accepted": "bn_momentum"}])


def test_what_is_accepted_is_said_and_left_out_of_the_figures() -> None:
    lines = markdown(summary({"forward": accepted_stage()})).splitlines()
    assert lines[0] == "**made_up**: The port is aligned with its reference in forward. (2 accepted: bn_momentum)"
    assert lines[4] == "| forward | 3 | 2.34e-07 | 1e-13 | 0.333 | failed | aligned (2 accepted: bn_momentum) |"


def test_accepted_findings_come_last_and_are_marked() -> None:
    found = located()
    found["faults"][0]["evidence"]["accepted"] = "bn_momentum"
    lines = markdown(summary({"forward": stage([tensor("a", "diverged")], "diverged")}, "diverged", located=found))
    listed = [line for line in lines.splitlines() if line.startswith("- ")]
    assert listed[0].startswith("- **dataset.train**")
    assert listed[1].endswith("(accepted by the case as bn_momentum)")


def test_a_name_is_bold_and_makes_neither_entities_nor_formulas() -> None:
    found = {**summary({"forward": stage([tensor("a")])}), "case": " a&lt; $x$ "}
    assert markdown(found).startswith("**a\\&lt; \\$x\\$**: ")


def test_chinese_has_its_own_signs() -> None:
    found = {**summary({"forward": stage([tensor("a")])}), "not_checked": ["loss", "training_mode"]}
    (line,) = (line for line in markdown(found, "zh").splitlines() if line.startswith("未检查"))
    assert "）；训练模式" in line


@pytest.mark.parametrize(
    ("name", "of", "meaning"),
    [
        (
            "step1.parameter.fc.weight",
            "backward",
            "Layers are compared with the initial weights, so a difference from a later step comes from the optimizer "
            "or from what the step changes.",
        ),
        (
            "step0.gradient.fc.weight",
            "backward",
            "Every layer and part is right by itself on the reference's inputs, so the difference comes from something "
            "that none of them covers.",
        ),
        (
            "curve.loss",
            "train",
            "Layers are compared with the initial weights, so a difference that starts later in a training comes from "
            "its loop, the optimizer or what the steps change.",
        ),
    ],
)
def test_where_it_starts_is_said_where_nothing_was_located(name: str, of: str, meaning: str) -> None:
    nothing = {"case": "made_up", "verdict": "aligned", "faults": [], "layers": {}}
    stages = {"forward": stage([tensor("a")]), of: stage([tensor("right"), tensor(name, "diverged")], "diverged")}
    found = summary(stages, "diverged", located=nothing)
    expected = f"Nothing was located. Stage {of} diverges, first in {name}. {meaning}"
    assert expected in markdown(found)
    assert unlocated(found, language("en")) == expected
    if meaning.startswith("Every layer"):
        found["located"] = {**nothing, "not_searched": {"metric": "the search failed"}}
        meant = "What was searched is right on the reference's inputs, so the difference may come from what could not"
        assert meant in unlocated(found, language("en"))
    if "layer and part" in meaning:
        part = {"layers": [], "left_out": {"": "on the reference's values it raises ValueError: no graph"}}
        left_out = {**found, "located": {**nothing, "layers": {"made_up": part}}}
        said = " so the difference comes from what was not judged alone."
        assert unlocated(left_out, language("en")).endswith(said)
        (line,) = remarks(left_out["located"])
        assert line.startswith("not judged alone: the model itself: on the reference's values it raises")
    assert unlocated({**found, "located": located()}, language("en")) == ""
    assert unlocated({**found, "located": None}, language("en")) == ""
