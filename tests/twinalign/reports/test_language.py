"""Every sentence is there in both languages, is used, and takes the same values; README_cn.md is README.md."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from pathlib import Path

import pytest

import twinalign.reports
from tests.conftest import ROOT
from tests.twinalign.reports.runs import rich_summary
from twinalign.reports import write_report
from twinalign.reports.language import CODES, language
from twinalign.reports.markdown import markdown

_FOLDER = Path(twinalign.reports.__file__).parent
_CALL = re.compile(r"""\bsay\(\s*f?["']([a-z_0-9.]+)["']""")
_PLURAL = re.compile(r"\.(one|other)$")


def keys(sentences: Mapping[str, str]) -> set[str]:
    return {_PLURAL.sub("", key) for key in sentences}


def fields(sentence: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(sentence) if name}


def test_no_key_is_missing_in_either_language() -> None:
    english, chinese = (language(code).sentences for code in CODES)
    assert keys(english) == keys(chinese)
    plural = {key.removesuffix(".other") for key in english if key.endswith(".other")}
    assert {f"{key}.other" for key in plural} <= set(chinese)


def test_sentences_name_the_same_values() -> None:
    english, chinese = (language(code).sentences for code in CODES)
    for key in chinese:
        differing = fields(english[key]) ^ fields(chinese[key])
        assert differing == set(), key


def test_chinese_is_chinese() -> None:
    same = {key for key, text in language("zh").sentences.items() if text == language("en").sentences[key]}
    neutral = {"verdict", "column.fp64_rel", "markdown.classic", "layers.scale_zero"}
    assert same <= neutral, same
    assert language("zh")("header.english")


def test_every_key_that_is_asked_for_is_there() -> None:
    asked = set()
    for path in (*_FOLDER.glob("*.py"), *_FOLDER.glob("templates/*.html")):
        asked |= set(_CALL.findall(path.read_text(encoding="utf-8")))
    assert len(asked) > 60
    known = keys(language("en").sentences)
    whole = {key for key in asked if not key.endswith(".")}
    assert whole <= known
    assert all(any(key.startswith(start) for key in known) for start in asked - whole)


def test_every_sentence_is_used() -> None:
    text = "".join(
        path.read_text(encoding="utf-8") for path in (*_FOLDER.glob("*.py"), *_FOLDER.glob("templates/*.html"))
    )
    for key in keys(language("en").sentences):
        group = key.partition(".")[0]
        built = re.search(rf"""["']{group}\.(["']|\{{)""", text) or group in ("verdict", "stage", "phase")
        assert f'"{key}"' in text or f"'{key}'" in text or built, key


def test_one_and_many() -> None:
    say = language("en")
    assert say("stages.tensors", count=1) == "One tensor"
    assert say("stages.tensors", count=2) == "2 tensors"
    assert language("zh")("stages.tensors", count=1) == "1 个张量"
    assert say.known("stage", "loss") == "loss"
    assert say.known("stage", "{odd}") == "{odd}"


@pytest.mark.parametrize("code", CODES)
def test_page_in_a_language(code: str, rich_run: Path) -> None:
    page = write_report(rich_run, code).read_text(encoding="utf-8")
    assert f'<html lang="{code}">' in page
    say = language(code)
    for key in ("faults", "layers", "curves", "environment", "reading"):
        assert f"<h2>{say(key + '.title')}</h2>" in page
    assert say("header.diverged", stage=say("stage.forward")) in page


def test_chinese_page_says_what_stays_english(rich_run: Path) -> None:
    page = write_report(rich_run, "zh").read_text(encoding="utf-8")
    assert "判定引擎给出的理由、事实和原因保持英文原文。" in page
    template_words = re.findall(r"<(?:h2|summary|label|option)[^>]*>([^<]+)<", page)
    assert not [words for words in template_words if re.fullmatch(r"[A-Za-z ,]+", words.strip()) and words.strip()]


def test_chinese_page_marks_what_is_english_and_translates_what_a_fault_concerns(rich_run: Path) -> None:
    page = write_report(rich_run, "zh").read_text(encoding="utf-8")
    assert re.search(r"layer\.<wbr>0<td>未对齐.*<td lang=en>the float64 runs agree", page)
    assert '<span class="dim">(前向' in page
    assert "错误：前向" in page
    assert "lang=en" not in write_report(rich_run).read_text(encoding="utf-8")


def test_markdown_in_chinese() -> None:
    text = markdown(rich_summary(), "zh")
    assert "| 阶段 | 张量 | 最大平均差异 |" in text
    assert "| 前向 | 20 |" in text


def blocks(text: str) -> list[str]:
    return re.findall(r"^```.*?^```$", text, re.MULTILINE | re.DOTALL)


def outside_of_blocks(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def test_readme_in_chinese_has_what_readme_has() -> None:
    english, chinese = (
        (ROOT / name).read_text(encoding="utf-8").replace("\r", "") for name in ("README.md", "README_cn.md")
    )

    def code(block: str) -> list[str]:
        """Without comments, which are in the reader's language."""
        return [re.sub(r"\s*(^|\s)# .*$", "", line) for line in block.splitlines()]

    assert [code(block) for block in blocks(english)] == [code(block) for block in blocks(chinese)]
    prose = [outside_of_blocks(text) for text in (english, chinese)]
    levels = [[len(marks) for marks in re.findall(r"^(#+) ", text, re.MULTILINE)] for text in prose]
    assert levels[0] == levels[1]
    links = [set(re.findall(r"\]\(([^)]+)\)", text)) - {"README.md", "README_cn.md"} for text in prose]
    assert links[0] == links[1]
    rows = [len(re.findall(r"^\|", text, re.MULTILINE)) for text in prose]
    assert rows[0] == rows[1]
    numbers = [sorted(re.findall(r"\d[\d.,e-]*\d|\d", text)) for text in prose]
    assert set(numbers[0]) == set(numbers[1])
    assert "](README_cn.md)" in english
    assert "](README.md)" in chinese
