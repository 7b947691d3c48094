"""The page shows what summary.json says, harmlessly, and asks for nothing outside of itself."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.twinalign.reports.runs import backward, rich_summary, scalar, stage, summary, tensor
from twinalign.errors import InputError
from twinalign.files.recordings import Recording
from twinalign.reports import load_summary, write_report
from twinalign.reports.plots import _power_of_ten
from twinalign.reports.stage_tables import FULL_ROWS

pytestmark = pytest.mark.usefixtures("kept_processes")

HOSTILE = "</td></script><script>alert(1)</script><img src=x onerror=alert(2)>"
LIMIT = 2_000_000


def write_page(folder: Path, found: dict[str, Any], code: str = "en") -> str:
    (folder / "summary.json").write_text(json.dumps(found))
    return write_report(folder, code).read_text(encoding="utf-8")


def test_page_says_the_verdict_and_marks_what_differs(tmp_path: Path) -> None:
    page = write_page(tmp_path, rich_summary())
    assert "The port has diverged from its reference: first in stage forward." in page
    assert '<tr class="diverged">' in page
    assert re.search(r'<tr class="differs"><th scope="row">python<td>3\.11\.7<td>3\.12\.1', page)
    assert not re.search(r'<tr class="differs"><th scope="row">(framework|default_dtype)', page)


@pytest.mark.parametrize(
    ("verdicts", "whole", "expected"),
    [
        (["aligned"], "aligned", "The port is aligned with its reference in forward."),
        (["aligned"] * 3, "aligned", "The port is aligned with its reference in forward, data and metric."),
        (["aligned"] * 6, "aligned", "The port is aligned with its reference in all 6 stages."),
        (
            ["inconclusive", "diverged"],
            "diverged",
            "The port has diverged from its reference: first in stage data.",
        ),
        (
            ["aligned", "inconclusive"],
            "inconclusive",
            "It is not yet clear whether the port is aligned: see stage data first.",
        ),
        ([], "aligned", "No stage was run."),
    ],
)
def test_the_verdict_in_one_sentence(verdicts: list[str], whole: str, expected: str, tmp_path: Path) -> None:
    names = ("forward", "data", "metric", "loss", "backward", "train")
    stages = {name: stage([tensor("x")], verdict) for name, verdict in zip(names, verdicts, strict=False)}
    assert f'<h1 class="{whole}">{expected}</h1>' in write_page(tmp_path, summary(stages, whole))


def test_names_from_recordings_are_shown_harmlessly(tmp_path: Path) -> None:
    found = summary({"forward": stage([tensor(HOSTILE), tensor("a\u202eb\x00\ud800"), tensor("n" * 10_000)])})
    found["case"] = HOSTILE
    page = write_page(tmp_path, found)
    assert page.count("<script") == 1
    assert "<img" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert r"a\u202eb\x00\ud800" in page
    assert "n" * 160 + "… (+9840)" in page
    assert "n" * 161 not in page


def test_page_asks_for_nothing(rich_report: Callable[[str], Path]) -> None:
    page = rich_report("en").read_text(encoding="utf-8")
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy[1].replace("&#39;", "'").split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == "data:"
    for tag, rule in (("style", "style-src"), ("script", "script-src")):
        (block,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        assert rules[rule] == f"'sha256-{base64.b64encode(hashlib.sha256(block.encode()).digest()).decode()}'"
    assert not re.search(r"(?:src|href)=[\"'](?!#|data:image/png;base64,)", page)
    assert not re.search(r"\s(?:style|on\w+)=", page)
    assert set(re.findall(r"https?://[^\"' ]+", page)) <= {"http://www.w3.org/2000/svg"}


def test_every_plot_has_words_and_ids_of_its_own(rich_report: Callable[[str], Path]) -> None:
    page = rich_report("en").read_text(encoding="utf-8")
    plots = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(plots) >= 9
    assert all(re.search(r'role="img".*?<title .*?</title><desc .{30,}?</desc>', plot) for plot in plots)
    ids = re.findall(r'\sid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert not re.search(r"#0000", "".join(plots))  # every colour is the page's


@pytest.mark.slow
def test_same_run_gives_same_page(rich_run: Path) -> None:
    assert write_report(rich_run).read_bytes() == write_report(rich_run).read_bytes()


@pytest.mark.slow
def test_page_of_a_run_as_large_as_moco_stays_small(tmp_path: Path) -> None:
    """MoCo v3's ViT-Small has 3,267 tensors in its backward stage; this has 4,346 in all."""
    found = rich_summary()
    found["stages"]["backward"] = stage(backward(360))
    page = write_page(tmp_path, found)
    assert len(page.encode()) <= LIMIT
    count = len(found["stages"]["backward"]["tensors"])
    assert count == 4326
    assert f"The reasons for {count - FULL_ROWS} aligned tensors are left out here; summary.json has them." in page
    assert page.count("<th scope=row>") == sum(len(stage["tensors"]) for stage in found["stages"].values())


@pytest.mark.slow
def test_what_is_too_much_for_a_page_is_counted(tmp_path: Path) -> None:
    many = [tensor(f"{i}." + "n" * 150, number=i) for i in range(6000)]
    many += [tensor(f"wrong.{i}" + "n" * 150, "diverged", i) for i in range(6000)]
    page = write_page(tmp_path, summary({"backward": stage(many, "diverged")}, "diverged"))
    assert len(page.encode()) <= LIMIT
    shown = page.count("<th scope=row>")
    assert f"{12000 - shown} tensors are not on this page; summary.json has them" in page
    assert f"{6000 - shown} of them are not aligned." in page


def test_numbers_that_json_lacks(tmp_path: Path) -> None:
    odd = tensor("odd", "diverged", max_abs=float("nan"), fp64_rel=float("inf"), noise_ratio=None)
    page = write_page(tmp_path, summary({"forward": stage([odd], "diverged")}, "diverged"))
    assert "float64 runs differ by at most Infinity" in page
    assert "<td>NaN" in page


def test_curves_without_their_recordings(tmp_path: Path) -> None:
    page = write_page(tmp_path, summary({"train": stage([scalar("outcome.top1", 80.0, 81.0)])}))
    assert "The recordings of the training cannot be read here" in page
    assert "train_ref.npy" in page


def test_layers_that_are_too_many_are_counted(tmp_path: Path) -> None:
    found = rich_summary()
    layers = found["located"]["layers"]["made_up"]["layers"]
    clean = {**layers[1], "wrong": []}
    layers += [{**clean, "paddle_layer": f"deep.{i}.{j}.x"} for i in range(100) for j in range(20)]
    page = write_page(tmp_path, found)
    assert re.search(r"\d+ right layers are not shown; summary.json has them.", page)
    assert re.search(r'<li class="wrong"><div><span class="heat h4"></span><bdi>norm</bdi>', page)


def test_a_path_of_many_dots(tmp_path: Path) -> None:
    found = rich_summary()
    found["located"]["layers"]["made_up"]["layers"][3]["paddle_layer"] = "." * 10_000
    write_page(tmp_path, found)


def test_folder_without_a_run(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"summary\.json: no finished run there; give the --out folder of `twinalign run`$"
    ):
        load_summary(tmp_path)


def test_summary_of_another_form(tmp_path: Path) -> None:
    found = rich_summary()
    del found["stages"]["forward"]["tensors"]
    (tmp_path / "summary.json").write_text(json.dumps(found))
    with pytest.raises(InputError, match=r"summary\.json: stages\.forward is not as summary\.schema\.json requires"):
        load_summary(tmp_path)


def test_command(twinalign: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text(json.dumps(rich_summary()))
    assert "| forward | 20 |" in twinalign("report", tmp_path, "--md", "-").stdout
    assert not (tmp_path / "report.html").exists()
    assert twinalign("report", tmp_path).stdout.strip() == str(tmp_path / "report.html")
    asked = twinalign("report", tmp_path, "--md", "new/table.md", "--junit", "new/tests.xml", "--lang", "zh")
    assert asked.stdout.split() == ["new/table.md", "new/tests.xml"]
    assert "| 前向 | 20 |" in (tmp_path / "new" / "table.md").read_text()
    for arguments in (["nowhere"], [tmp_path, "--md", tmp_path], [tmp_path, "--lang", "fr"]):
        wrong = twinalign("report", *arguments)
        assert wrong.returncode == 2
        assert "Traceback" not in wrong.stderr


ODD = (None, 0.0, 1.0, 1.7976931348623157e308, 5e-324, 1e-300, "NaN", "Infinity", "-Infinity", 1e-7)
NUMBERS = ("max_abs", "mean_abs", "max_rel", "noise_ratio", "fp64_rel", "floor_rms", "floor_max", "reference_max")


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.filterwarnings("error")
def test_numbers_of_any_size(seed: int, tmp_path: Path) -> None:
    """A port that is wrong has numbers that no axis was made for, and no number at all."""
    rng = random.Random(seed)
    found = rich_summary()
    for one in found["stages"].values():
        for t in one["tensors"]:
            t.update({key: rng.choice(ODD) for key in NUMBERS})
            t.update({f"{side}_value": rng.choice(ODD) for side in ("reference", "reproduced")})
            t.update(rng.choice([{}, {"shape": None, "worst_index": None}, {"shape": [0, 3]}]))
    for layer in found["located"]["layers"]["made_up"]["layers"]:
        layer["inherited_error"] = rng.choice([value for value in ODD if not isinstance(value, str)])
    curve = np.array([rng.choice([np.nan, np.inf, 1e308, -1e308, 0.0, 5e-324]) for _ in range(30)])
    for side in ("ref", "paddle"):
        rng.shuffle(curve)
        arrays = {"curve.loss": curve, "repeat.curve.loss": curve[::-1], "curve.flat": np.full(3, np.nan)}
        Recording(arrays).save(tmp_path / f"train_{side}.npy")
    assert "<h1" in write_page(tmp_path, found)


def test_nothing_is_imported_before_a_page_is_made() -> None:
    """A reviewer verifies with numpy, click and fastjsonschema; and a run that is compared draws nothing yet."""
    modules = "twinalign.runs.run_stages, twinalign.bundle.verifying, twinalign.cli.run, twinalign.cli.report"
    code = f"import sys, {modules}\nprint(*{{'matplotlib', 'jinja2', 'markupsafe'}} & set(sys.modules))"
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert finished.stdout.strip() == ""


def test_accepted_differences_are_named_and_left_out_of_the_figures(tmp_path: Path) -> None:
    wrong = {**tensor("running_var", "diverged", fp64_rel=3.18e-5), "accepted": "bn_running_var_biased"}
    page = write_page(tmp_path, summary({"forward": stage([tensor("logits"), wrong])}))
    strip = page[page.index('<nav class="strip"') : page.index('<nav class="sections"')]
    assert "<span>aligned (1 accepted: bn_running_var_biased)</span>" in strip
    assert "float64 runs differ by at most <samp>1e-13</samp> (relative)" in page
    assert "in forward. (1 accepted: bn_running_var_biased)" in page


def test_nothing_located_is_not_nothing_wrong(tmp_path: Path) -> None:
    nothing = {"case": "made_up", "verdict": "aligned", "faults": [], "layers": {}}
    stages = {"backward": stage([tensor("step1.parameter.weight", "diverged")], "diverged")}
    page = write_page(tmp_path, summary(stages, "diverged", located=nothing))
    assert "Nothing was located. Stage backward diverges, first in step1.parameter.weight." in page
    assert "is right on its own" not in page


def test_nan_on_one_side_is_not_identical_and_has_no_figures(tmp_path: Path) -> None:
    nan = tensor("logits", "diverged", basis="structure", max_abs=0.0, mean_abs=0.0, fp64_rel=None, noise_ratio=None)
    found = stage([nan, tensor("rate", max_abs=0.0)], "diverged")
    found["classic"]["quirks"] = ["logits: the mean is NaN, which reprod_log passes", "other"]
    page = write_page(tmp_path, summary({"forward": found}, "diverged"))
    assert "identical to the bit" not in page
    assert "float64 runs differ by" not in page
    assert re.search(r"logits<td>diverged(<td>–){6}<td>384×384", page)
    assert '<b class="diverged">1 diverged</b>' in page
    assert "reprod_log: logits: the mean is NaN, which reprod_log passes</p>" in page
    assert "reprod_log: … and 1 more like this</p>" in page


def test_an_aligned_stage_says_why_its_greatest_noise_is_right(tmp_path: Path) -> None:
    kink = tensor(
        "fc.weight", "rounding", noise_ratio=549.0, reason="as where float32 falls on the other side of a kink"
    )
    said = "The greatest ratio to the reference&#39;s own rounding is in fc.weight:"
    page = write_page(tmp_path, summary({"backward": stage([tensor("a"), kink])}))
    assert f"{said} <span>as where float32 falls on the other side of a kink</span>" in page
    assert said not in write_page(tmp_path, summary({"backward": stage([tensor("a")])}))
    assert said not in write_page(tmp_path, summary({"backward": stage([kink], "diverged")}, "diverged"))


def test_stages_keep_the_numbers_of_the_guide(tmp_path: Path) -> None:
    page = write_page(tmp_path, summary({"forward": stage([tensor("a")]), "loss": stage([tensor("b")])}))
    assert re.findall(r"<b>(\d\d \w+)</b>", page) == ["01 forward", "04 loss"]


def test_a_fault_has_its_class_and_the_convention_that_may_be_accepted(tmp_path: Path) -> None:
    found = rich_summary()
    fault = found["located"]["faults"][0]
    fault["evidence"] |= {"convention": "bn_running_var_biased", "accepted_causes": ["bn_momentum"]}
    page = write_page(tmp_path, found)
    assert "<bdi>blocks.1.norm</bdi> LayerNorm <span" in page
    accept = "accept = (&#34;bn_running_var_biased&#34;,)"
    assert "<small>paddle&#39;s own convention; to keep it, write in the case: " in page
    assert f'<code id="accept-2">{accept}</code>' in page
    assert page.count(accept) == 1
    assert "<p>accepted by the case: only bn_momentum</p>" in page


def test_code_of_the_model_itself_is_named_among_what_is_wrong(tmp_path: Path) -> None:
    found = rich_summary()
    fault = found["located"]["faults"][0]
    fault.update(reference_layer="", paddle_layer="")
    fault["evidence"]["paddle_class"] = "(forward)"
    page = write_page(tmp_path, found)
    assert "Wrong on their own: the model&#39;s own code." in page
    assert "<bdi>the model&#39;s own code</bdi> <span" in page


def test_right_layers_in_a_long_row_are_folded_around_the_wrong_one(tmp_path: Path) -> None:
    found = rich_summary()
    part = found["located"]["layers"]["made_up"]
    part["layers"] = [{**part["layers"][0], "paddle_layer": str(place), "wrong": []} for place in range(40)]
    part["layers"][20]["wrong"] = ["forward"]
    found["located"]["faults"][0].update(reference_layer="20", paddle_layer="20")
    page = write_page(tmp_path, found)
    rows = re.findall(r"<details><summary>(.*?)</summary>", page)
    ends = [(0, 19), (21, 39)]
    for row, (first, last) in zip(rows[-2:], ends, strict=True):
        words = f"{last - first + 1} layers in a row, all right"
        assert row == f'{words} <span class="dim"><bdi>{first}</bdi> – <bdi>{last}</bdi></span>'


def test_curves_and_outcomes_have_their_verdict(rich_report: Callable[[str], Path]) -> None:
    page = rich_report("en").read_text(encoding="utf-8")
    captions = re.findall(r"<figcaption><b>(.*?)</b> <span class=\"dim\">(.*?)</span>", page)
    assert dict(captions)["train: loss"].endswith("own rounding.")
    assert "aligned: the float64 runs agree (<samp>1.0e-13</samp> relative)" in dict(captions)["backward: loss.loss"]
    assert re.search(
        r'<bdi>knn_top1</bdi>.*<td data-label="verdict" class="aligned">aligned<td class="why">the float64 runs', page
    )


def test_one_setting_of_two_names_is_compared(tmp_path: Path) -> None:
    found = summary({"forward": stage([tensor("a")])})
    found["environment"]["ref"]["flags"]["mkldnn"] = True
    page = write_page(tmp_path, found)
    assert '<tr class="differs"><th scope="row">mkldnn / FLAGS_use_mkldnn<td>True<td>False<td>≠' in page
    assert '<th scope="row">FLAGS_use_mkldnn' not in page
    found["environment"]["paddle"]["flags"]["FLAGS_use_mkldnn"] = True
    assert '<tr><th scope="row">mkldnn / FLAGS_use_mkldnn<td>True<td>True' in write_page(tmp_path, found)


@pytest.mark.parametrize(
    ("exponent", "label"), [(3.0, "1000"), (0.2, "1.6"), (-1.0, "0.1"), (5.0, "1e5"), (-6.0, "1e-6"), (-12.5, "3e-13")]
)
def test_labels_of_an_axis_of_logarithms(exponent: float, label: str) -> None:
    assert _power_of_ten(exponent) == label


def test_a_file_is_no_folder_of_a_run(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text(json.dumps(rich_summary()))
    with pytest.raises(InputError, match=r"summary\.json: a file; give the folder of a finished run"):
        write_report(tmp_path / "summary.json")


def edit(line: int, before: str, after: str) -> dict[str, Any]:
    return {"file": "/home/me/my_port.py", "line": line, "span": [line, 0, line, 9], "before": before, "after": after}


def test_a_card_shows_the_edit_of_every_place(tmp_path: Path) -> None:
    found = rich_summary()
    faults = found["located"]["faults"]
    faults += [json.loads(json.dumps(faults[0])) for _ in range(2)]
    for number, fault in enumerate(faults[2:], start=2):
        fault.update(paddle_layer=f"blocks.{number}.norm", reference_layer=f"blocks.{number}.norm")
    faults[0]["edit"] = edit(54, "nn.LayerNorm(8)<b>", "nn.LayerNorm(\n    8,\n    epsilon=1e-6)")
    faults[0]["further_edits"] = [edit(60, "build(8)", "build(8, epsilon=1e-6)")]
    faults[2]["edit"] = faults[0]["edit"]
    faults[3]["edit"] = edit(70, "nn.LayerNorm(d)", "nn.LayerNorm(d, epsilon=1e-6)")
    page = write_page(tmp_path, found)
    card = page[page.index('id="cause-1"') : page.index('id="cause-2"')]
    places = re.findall(r"<bdi>(my_port\.py:\d+)</bdi>", card)
    assert places == ["my_port.py:54", "my_port.py:70", "my_port.py:60"]
    assert "/home/me" not in page
    assert '<pre class="before" tabindex="0"><code>nn.LayerNorm(8)&lt;b&gt;</code>' in card
    assert '<code id="write-1-1">nn.LayerNorm(\n    8,\n    epsilon=1e-6)</code>' in card
    assert 'data-copy="write-1-1"' in card
    assert "<b>in 3 places</b>" in card
    assert 'href="#cause-1"' in card
    assert "2 causes in 4 places" in page
    rest = page[page.index('id="cause-2"') : page.index('<section id="stage-forward">')]
    assert 'class="edit"' not in rest  # a fault without a cause


def test_an_aligned_page_says_what_was_checked_and_has_no_empty_section(tmp_path: Path) -> None:
    stages = {"forward": stage([tensor("a")]), "loss": stage([tensor("b")])}
    page = write_page(tmp_path, summary(stages, not_checked=["train"]))
    section = page[page.index('<section id="faults">') : page.index('<section id="stage-forward">')]
    assert section.count("<li>") == 2
    assert "Not checked: train" in section
    assert page.count("Not checked: train") == 1
    assert 'id="curves"' not in page
    assert 'id="layers"' not in page


def test_the_worst_element_of_a_wrong_tensor_has_both_values(tmp_path: Path) -> None:
    wrong = tensor("a", "diverged", reference_value=1.00000012, reproduced_value=1.00000024)
    odd = tensor("b", "diverged", reference_value=1.5, reproduced_value="NaN")
    page = write_page(tmp_path, summary({"forward": stage([wrong, odd])}, "diverged"))
    assert "0, 17: 1.00000012 / 1.00000024" in page
    assert "0, 17: 1.5 / NaN" in page


def test_an_edit_of_another_form_is_named(tmp_path: Path) -> None:
    found = rich_summary()
    found["located"]["faults"][0]["edit"] = {"file": "my_port.py", "line": 54, "before": "nn.LayerNorm(8)"}
    (tmp_path / "summary.json").write_text(json.dumps(found))
    with pytest.raises(InputError, match=r"located.* is not as summary\.schema\.json requires"):
        load_summary(tmp_path)


@pytest.mark.slow
def test_show_opens_the_report_and_writes_a_missing_one(twinalign: Callable[..., Any], tmp_path: Path) -> None:
    folder = tmp_path / "a run"
    folder.mkdir()
    (folder / "summary.json").write_text(json.dumps(rich_summary()))
    report = folder / "report.html"
    for _ in range(2):
        done = twinalign("show", folder, env={"BROWSER": "echo"})
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines() == [str(report), report.as_uri()]
        assert "<h1" in report.read_text()
        report.write_text("<h1>as the run wrote it</h1>")
    assert "as the run wrote it" in report.read_text()
    wrong = twinalign("show", tmp_path / "nowhere", env={"BROWSER": "echo"})
    assert wrong.returncode == 2
    assert "no finished run there; give the --out folder of `twinalign run`" in wrong.stderr
    assert wrong.stdout == ""


_ASKED = """
import sys
from twinalign import compare
compare(sys.argv[1], sys.argv[2], html=sys.argv[3])
print("matplotlib" in sys.modules)
"""


def test_a_page_without_plots_does_not_wait_for_what_draws_them(tmp_path: Path) -> None:
    for name in ("a.npy", "b.npy"):
        np.save(tmp_path / name, np.arange(4.0))
    command = [sys.executable, "-c", _ASKED, *(str(tmp_path / name) for name in ("a.npy", "b.npy", "page.html"))]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1] == "False"
