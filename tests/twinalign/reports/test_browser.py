"""The page in headless Chromium: every section, sorting and filtering, both schemes, all widths, print."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.twinalign.reports.runs import STAGES, rich_summary, stage, summary, tensor
from twinalign.reports import write_report

SECTIONS = ("verdict", "faults", "layers", *(f"stage-{name}" for name in STAGES), "curves", "environment", "reading")

# The contrast of every text with what is behind it, by WCAG 2.2, as [ratio, needed, text].
CONTRAST = """() => {
  const channel = (value) => (value /= 255) <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const luminance = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const colour = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const found = colour(getComputedStyle(at).backgroundColor);
      if (found.length === 3 || found[3] > 0) return found;
    }
    return [255, 255, 255];
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = [];
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const text = walker.currentNode.textContent.trim();
    if (!text || ["SCRIPT", "STYLE", "title", "desc", "OPTION"].includes(element.tagName)) continue;
    if (!element.checkVisibility()) continue;
    const style = getComputedStyle(element);
    const ink = element.namespaceURI.endsWith("svg") ? style.fill : style.color;
    const pair = [luminance(colour(ink)), luminance(behind(element))].sort((a, b) => b - a);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    found.push([(pair[0] + 0.05) / (pair[1] + 0.05), large ? 3 : 4.5, text]);
  }
  return found;
}"""


@pytest.fixture
def page_of(opened: Callable[..., Any], rich_report: Callable[[str], Path]) -> Callable[..., Any]:
    return lambda width=1440, code="en", **options: opened(rich_report(code), width, **options)


def texts(page: Any, stage_name: str, column: int) -> list[str]:
    """What is seen in a column of a stage's table."""
    cells = page.locator(f"#stage-{stage_name} tbody tr:not(.why):visible > :nth-child({column})")
    return cells.all_inner_texts()


@pytest.mark.slow
@pytest.mark.parametrize("code", ["en", "zh"])
def test_every_section_is_there(code: str, page_of: Callable[..., Any]) -> None:
    page = page_of(code=code)
    for section in SECTIONS:
        assert page.locator(f"#{section}").count() == 1, section
        assert page.locator(f"#{section} :is(h1, h2)").count() == 1
    assert page.locator("h1").bounding_box()["y"] < 150
    assert page.locator(".strip a").count() == len(STAGES)
    for link in page.locator("nav a").all():
        assert page.locator(link.get_attribute("href")).count() == 1
    faults = page.locator("#faults").inner_text()
    assert "blocks.1.norm" in faults
    assert ("1e-05 in place of 1e-06" if code == "en" else "1e-05，而参考代码为 1e-06") in faults
    assert "1.2e-05" in faults
    assert "3.4e-13" in faults
    assert page.locator("#faults img").count() == 3  # the third is their difference, amplified
    assert all(page.locator("#faults img").nth(i).evaluate("image => image.naturalWidth") == 8 for i in range(3))


def test_plots_and_curves(page_of: Callable[..., Any]) -> None:
    page = page_of()
    assert page.locator("#stage-forward svg").count() == 3
    assert page.locator("#stage-backward svg").count() == 3
    assert page.locator("#layers svg").count() == 1
    titles = page.locator("#curves figcaption b").all_inner_texts()
    assert titles == ["backward: loss.loss", "backward: learning_rate", "train: loss", "train: learning_rate"]
    for plot in page.locator("svg").all():
        box = plot.bounding_box()
        assert box["width"] > 250
        assert box["height"] > 100
        assert plot.locator("path").count() > 3
        assert len(plot.locator("desc").text_content()) > 30
    assert page.locator("#curves table").inner_text().count("\n") == 2


def test_sorting(page_of: Callable[..., Any]) -> None:
    page = page_of()
    head = page.locator("#stage-forward thead th").nth(2)
    original = texts(page, "forward", 1)
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    down = [float(text) for text in texts(page, "forward", 3)]
    assert down == sorted(down, reverse=True)
    assert len(down) == 20
    head.locator("button").press("Enter")  # from the keyboard
    assert head.get_attribute("aria-sort") == "ascending"
    assert [float(text) for text in texts(page, "forward", 3)] == sorted(down)
    names = page.locator("#stage-forward thead th").nth(0)
    names.locator("button").press("Space")
    assert head.get_attribute("aria-sort") == "none"
    assert names.get_attribute("aria-sort") == "ascending"
    assert texts(page, "forward", 1) == [f"layer.{i}" for i in range(20)]
    for _ in range(2):
        names.locator("button").click()
    assert names.get_attribute("aria-sort") == "none"
    assert texts(page, "forward", 1) == original
    assert page.locator("#stage-backward [aria-sort=ascending]").count() == 0


def test_places_sort_as_numbers_beside_values(opened: Callable[..., Any], tmp_path: Path) -> None:
    places: dict[str, tuple[int, ...]] = {"a": (10, 2), "b": (9, 30), "c": (), "d": (9, 4), "e": (12,)}
    values = {"reference_value": 1.5, "reproduced_value": 2.5}
    wrong = [tensor(name, "diverged", worst_index=place, **values) for name, place in places.items()]
    (tmp_path / "summary.json").write_text(json.dumps(summary({"forward": stage(wrong, "diverged")}, "diverged")))
    page = opened(write_report(tmp_path))
    button = page.locator("#stage-forward thead button").nth(9)
    button.click()
    assert texts(page, "forward", 1) == ["e", "a", "b", "d", "c"]
    button.click()
    assert texts(page, "forward", 1) == ["d", "b", "a", "e", "c"]


def test_reasons_of_wrong_tensors_are_seen_whole(page_of: Callable[..., Any]) -> None:
    page = page_of(width=1400)
    box = page.locator("#stage-forward .scroll")
    assert box.evaluate("box => box.scrollWidth - box.clientWidth") == 0
    why = page.locator("#stage-forward .why td").first
    assert why.bounding_box()["width"] > 0.95 * box.bounding_box()["width"]


def test_no_column_is_clipped_on_a_phone_and_no_number_is_torn(page_of: Callable[..., Any]) -> None:
    page = page_of(width=390)
    page.evaluate("document.querySelectorAll('details').forEach(details => { details.open = true; })")
    clipped = page.evaluate(
        """[...document.querySelectorAll('.tensors, .labelled')].map((table) => table.parentElement)
        .filter((box) => box.scrollWidth > box.clientWidth + 1).map((box) => box.ariaLabel)"""
    )
    assert clipped == []
    cell = page.locator("#stage-forward tbody tr").first.locator("td").nth(1)
    assert cell.evaluate("cell => getComputedStyle(cell, '::before').content") == '"max |Δ|"'
    numbers = page.locator("#faults samp")
    assert numbers.count() >= 4
    for number in numbers.all():
        assert number.evaluate("number => number.getClientRects().length") == 1


@pytest.mark.slow
def test_the_edit_is_copied_as_it_is_to_be_written(opened: Callable[..., Any], tmp_path: Path) -> None:
    found = rich_summary()
    after = "nn.LayerNorm(\n    8, epsilon=1e-6)"
    found["located"]["faults"][0]["edit"] = {"file": "p.py", "line": 5, "before": "nn.LayerNorm(8)", "after": after}
    (tmp_path / "summary.json").write_text(json.dumps(found))
    page = opened(write_report(tmp_path), permissions=["clipboard-read", "clipboard-write"])
    button = page.locator("#cause-1 [data-copy]")
    button.click()
    page.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == after


def test_filtering(page_of: Callable[..., Any]) -> None:
    page = page_of()
    output = page.locator("#stage-forward output")
    assert output.inner_text() == "20 of 20 shown"
    page.locator("#stage-forward").get_by_role("combobox", name="Verdict").select_option("diverged")
    assert texts(page, "forward", 2) == ["diverged"] * 4
    assert output.inner_text() == "4 of 20 shown"
    page.locator("#stage-forward").get_by_label("Names with").fill("LAYER.1")
    assert texts(page, "forward", 1) == ["layer.10", "layer.15"]
    page.locator("#stage-forward").get_by_role("combobox", name="Verdict").select_option("")
    assert output.inner_text() == "11 of 20 shown"
    page.locator("#stage-forward").get_by_label("Names with").fill("<b>")
    assert output.inner_text() == "0 of 20 shown"
    assert page.locator("#stage-backward output").text_content() == "300 of 486 shown"


def test_tree_of_layers(page_of: Callable[..., Any]) -> None:
    page = page_of()
    wrong = page.locator("#layers .wrong")
    assert wrong.count() == 1
    assert wrong.is_visible()
    assert "wrong: forward · own error 2.5e-06" in wrong.inner_text()
    other = page.locator("#layers summary", has_text="0").filter(has=page.locator("bdi", has_text="0")).first
    assert other.locator("xpath=../ul").is_hidden()
    other.focus()
    page.keyboard.press("Enter")
    assert other.locator("xpath=../ul").is_visible()
    page.get_by_role("button", name="Close all").click()
    assert wrong.is_hidden()
    page.get_by_role("button", name="Open all").click()
    assert page.locator("#layers details:not([open])").count() == 0
    colours = page.evaluate(
        "[...document.querySelectorAll('.scale .heat')].map(box => getComputedStyle(box).backgroundColor)"
    )
    assert len(set(colours)) == len(colours) == 8


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_in_both_schemes(scheme: str, page_of: Callable[..., Any]) -> None:
    page = page_of(color_scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach(details => { details.open = true; })")
    found = page.evaluate(CONTRAST)
    assert len(found) > 3000
    assert [entry for entry in found if entry[0] < entry[1]] == []
    dark = sum(map(int, re.findall(r"\d+", page.evaluate("getComputedStyle(document.body).backgroundColor")))) < 150
    assert dark == (scheme == "dark")


@pytest.mark.parametrize("code", ["en", "zh"])
@pytest.mark.parametrize("width", [320, 390, 768, 1440])
def test_no_width_scrolls_sideways(width: int, code: str, page_of: Callable[..., Any]) -> None:
    page = page_of(width=width, code=code)
    page.evaluate("document.querySelectorAll('details').forEach(details => { details.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    table = page.locator("#stage-forward .scroll")
    assert table.evaluate("box => box.clientWidth") <= width
    table.focus()
    assert table.evaluate("box => document.activeElement === box")


def test_everything_that_can_be_used_has_a_name(page_of: Callable[..., Any]) -> None:
    page = page_of()
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("button, input, select, a, summary, [role=region], img, svg, nav")]
        .filter((element) => !(element.getAttribute("aria-label") || element.getAttribute("aria-labelledby") ||
            element.alt || element.textContent.trim() || (element.labels && element.labels.length)))
        .map((element) => element.outerHTML.slice(0, 100))"""
    )
    assert nameless == []
    assert page.locator("html").get_attribute("lang") == "en"
    assert page.evaluate("[...document.querySelectorAll('thead th')].every((head) => head.scope === 'col')")


def test_print(page_of: Callable[..., Any]) -> None:
    page = page_of()
    page.emulate_media(media="print")
    assert page.locator("#stage-backward tr.short").first.is_hidden()
    assert page.locator("#stage-forward .controls").is_hidden()
    page.emulate_media(media="screen")
    pdf = page.pdf(format="A4")
    assert pdf.startswith(b"%PDF-")
    assert 4 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 40
    assert page.locator("#stage-metric details").get_attribute("open") is None  # as it was before


def test_print_of_a_stage_that_is_wrong_throughout(opened: Callable[..., Any], tmp_path: Path) -> None:
    wrong = [tensor(f"layer.{i}", "diverged", i, reason="two " * 60) for i in range(600)]
    (tmp_path / "summary.json").write_text(json.dumps(summary({"forward": stage(wrong, "diverged")}, "diverged")))
    page = opened(write_report(tmp_path))
    note = page.get_by_text("In print, each stage shows its first 200 tensors")
    assert note.is_hidden()
    page.emulate_media(media="print")
    assert note.is_visible()
    assert page.locator("#stage-forward tbody tr:not(.why):visible").count() == 200
    names = page.locator("#stage-forward tbody tr:visible th")
    assert names.first.bounding_box()["height"] < 30  # a name is not torn into letters for the words beside it


def test_reads_without_script(opened: Callable[..., Any], rich_report: Callable[[str], Path]) -> None:
    page = opened(rich_report("en"), java_script_enabled=False)
    assert page.locator("#stage-forward tbody tr:not(.why)").count() == 20
    assert page.locator("#stage-forward .controls").is_hidden()


HOSTILE = (
    "</td></tr></table><script>alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    "\" onclick='alert(3)' x=\"",
    "' autofocus onfocus=alert(4) '",
    "{{ 7 * 7 }}{% raw %}",
    "\u202eabc\u2066\u200b",
    "שלום.مرحبا",
    "a\x00\x1b[31m\ud800",
    "javascript:alert(5)",
    "$\\frac{",
    "n" * 10_000,
    "Z̴̙͓̃" * 100,
)


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1440])
def test_hostile_names(width: int, opened: Callable[..., Any], tmp_path: Path) -> None:
    verdicts = ("diverged", "aligned")
    found = rich_summary()
    tensors = [tensor(name, verdicts[i % 2], i, reason=name) for i, name in enumerate(HOSTILE)]
    found["stages"]["forward"] = stage(tensors, "diverged")
    found["stages"]["forward"]["notes"] = list(HOSTILE)
    found["case"] = HOSTILE[0]
    for name in HOSTILE:
        found["environment"]["ref"]["versions"][name] = name
        fault = json.loads(json.dumps(found["located"]["faults"][0]))
        fault.update(reference_layer=name, paddle_layer=name)
        fault["explanation"].update(id=name, text=name, evidence={name: name})
        found["located"]["faults"].append(fault)
    found["located"]["layers"][HOSTILE[1]] = found["located"]["layers"].pop("made_up")
    for step in range(2):
        extra = [tensor(f"step{step}.{name}", shape=(), reference_value=1.0, reproduced_value=2.0) for name in HOSTILE]
        found["stages"]["backward"]["tensors"] += extra
    (tmp_path / "summary.json").write_text(json.dumps(found))
    page = opened(write_report(tmp_path), width)
    page.evaluate("document.querySelectorAll('details').forEach(details => { details.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("document.scripts.length") == 1
    assert page.locator("main img").count() == 0
    assert (
        page.evaluate("[...document.querySelectorAll('*')].filter((e) => e.onclick || e.onfocus || e.onerror).length")
        == 0
    )
    shown = texts(page, "forward", 1)
    assert HOSTILE[0] in shown
    assert HOSTILE[1] in shown
    page.locator("#stage-forward thead button").first.click()
    page.locator("#stage-forward").get_by_label("Names with").fill("<img")
    assert texts(page, "forward", 1) == [HOSTILE[1]]


@pytest.mark.slow
def test_a_large_page_is_quick_to_sort(opened: Callable[..., Any], tmp_path: Path) -> None:
    many = [tensor(f"step0.gradient.layer.{i}.weight", number=i, max_abs=(i * 7919 % 4001) * 1e-9) for i in range(4000)]
    (tmp_path / "summary.json").write_text(json.dumps(summary({"backward": stage(many)})))
    page = opened(write_report(tmp_path))
    page.locator("#stage-backward .evidence > summary").click()
    took = page.evaluate(
        """() => {
          const started = performance.now();
          document.querySelectorAll("#stage-backward thead button")[2].click();
          return performance.now() - started;
        }"""
    )
    assert took < 3000  # a tenth of a second where nothing else runs
    assert page.locator("#stage-backward tbody tr:not(.why)").count() == 4000


def test_many_wrong_tensors_are_laid_out_when_somebody_asks(opened: Callable[..., Any], tmp_path: Path) -> None:
    wrong = [tensor(f"layer.{i}", "diverged", i) for i in range(1000)]
    (tmp_path / "summary.json").write_text(json.dumps(summary({"forward": stage(wrong, "diverged")}, "diverged")))
    page = opened(write_report(tmp_path))
    rows = page.locator("#stage-forward tbody tr:not(.why):visible")
    assert rows.count() == 300
    page.get_by_text("Further tensors: 700").click()
    assert rows.count() == 1000
    assert page.locator("#stage-forward output").inner_text() == "1000 of 1000 shown"
    page = opened(tmp_path / "report.html")
    page.locator("#stage-forward").get_by_label("Names with").fill("layer.999")
    assert texts(page, "forward", 1) == ["layer.999"]
    assert page.locator("#stage-forward .why:visible").count() == 1
