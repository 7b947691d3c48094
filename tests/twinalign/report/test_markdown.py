"""The table for a pull request."""

from __future__ import annotations

from tests.twinalign.report.runs import rich_summary, scalar, stage, summary, tensor
from twinalign.report.markdown import markdown


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
        "| metric | reference | port | difference |",
        "| --- | ---: | ---: | ---: |",
        "| metric: top1 | 58.25 | 58.5 | 0.25 |",
        "",
        "torch 2.15.0, numpy 2.4.6; paddle 3.3.1, numpy 2.4.6",
    ]


def test_what_is_at_fault() -> None:
    lines = markdown(rich_summary()).splitlines()
    start = lines.index("At fault:")
    assert lines[start + 2 : start + 4] == [
        "- **blocks.1.norm** (forward): the normalisation's epsilon has another value: 1e-05 in place of 1e-06",
        "- **dataset.train** (data): unexplained",
    ]


def test_names_do_nothing_in_markdown() -> None:
    found = summary({"metric": stage([scalar("a|b\n| c `d` <img src=x> [e](f) @g \u202e", 1.0, 2.0)])})
    found["case"] = "**x**\n# y"
    text = markdown(found)
    assert "\\*\\*x\\*\\*\\x0a\\# y" in text.replace("\\\\", "\\")
    assert "<img" not in text.replace("\\<", "")
    row = next(line for line in text.splitlines() if "metric: a" in line)
    assert row.replace("\\|", "").count("|") == 5
    assert "\u202e" not in text


def test_what_was_not_checked_is_said_in_the_language() -> None:
    found = {**summary({"forward": stage([tensor("logits")])}), "not_checked": ["loss", "train", "training_mode"]}
    (line,) = (line for line in markdown(found).splitlines() if line.startswith("Not checked"))
    assert line.replace("\\", "") == (
        "Not checked: loss and train (the case defines no such stage, or it was left out); training mode, with its "
        "batch statistics and running statistics (train_mode = True in the case)."
    )
    assert "未检查" in markdown(found, "zh")
    assert "Not checked" not in markdown({**found, "not_checked": []})
