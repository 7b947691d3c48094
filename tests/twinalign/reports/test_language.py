"""Every sentence is there in both languages, is used, and takes the same values; README_cn.md is README.md."""

from __future__ import annotations

import ast
import inspect
import re
import string
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import twinalign.reports
from tests.conftest import ROOT
from tests.twinalign.reports.runs import rich_summary
from twinalign.causes.registry import known_causes
from twinalign.reports import write_report
from twinalign.reports.language import CODES, language
from twinalign.reports.markdown import markdown
from twinalign.verdict import (
    attached_average_causes,
    attached_causes,
    attached_findings,
    attached_model_causes,
    attached_rank_causes,
    attached_update_causes,
    compare_arrays,
)

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
        built = re.search(rf"""["']{group}\.(["']|\{{)""", text) or group in ("verdict", "stage", "phase", "quantity")
        assert f'"{key}"' in text or f"'{key}'" in text or built, key


def test_one_and_many() -> None:
    say = language("en")
    assert say("stages.tensors", count=1) == "One tensor"
    assert say("stages.tensors", count=2) == "2 tensors"
    assert language("zh")("stages.tensors", count=1) == "1 个张量"
    assert say.known("stage", "loss") == "loss"
    assert say.known("stage", "{odd}") == "{odd}"


@pytest.mark.parametrize("code", CODES)
def test_page_in_a_language(code: str, rich_report: Callable[[str], Path]) -> None:
    page = rich_report(code).read_text(encoding="utf-8")
    assert f'<html lang="{code}">' in page
    say = language(code)
    for key in ("faults", "layers", "curves", "environment", "reading"):
        assert f"<h2>{say(key + '.title')}</h2>" in page
    assert say("header.diverged", stage=say("stage.forward")) in page


def test_chinese_page_says_what_stays_english(rich_report: Callable[[str], Path]) -> None:
    page = rich_report("zh").read_text(encoding="utf-8")
    assert "少数尚无译文的细节保持英文原文。" in page
    template_words = re.findall(r"<(?:h2|summary|label|option)[^>]*>([^<]+)<", page)
    assert not [words for words in template_words if re.fullmatch(r"[A-Za-z ,]+", words.strip()) and words.strip()]


def test_chinese_page_marks_what_is_english_and_translates_what_a_fault_concerns(rich_run: Path) -> None:
    page = write_report(rich_run, "zh").read_text(encoding="utf-8")
    assert (
        "<td colspan=10>两侧的 float64 运行一致（相对差异 <samp>1.0e-13</samp>）；误差为参考代码自身舍入误差的 0.33 倍"
        in page
    )
    assert "归一化的 epsilon 不同：<samp>1e-05</samp>，而参考代码为 <samp>1e-06</samp>" in page
    assert '<span class="dim">(前向' in page
    assert "错误：前向" in page
    assert "lang=en" not in write_report(rich_run).read_text(encoding="utf-8")


def test_every_cause_has_a_translation() -> None:
    texts = {cause.text for cause in known_causes()}
    chinese = language("zh").causes
    assert texts == set(chinese)
    assert all(re.search("[\u4e00-\u9fff]", text) for text in chinese.values())
    assert len(set(chinese.values())) > 0.97 * len(chinese)  # few causes may read alike


def test_a_cause_without_translation_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    found = language("zh")
    left = dict(list(found.causes.items())[1:])
    monkeypatch.setitem(globals(), "language", lambda code: found._replace(causes=left))
    with pytest.raises(AssertionError):
        test_every_cause_has_a_translation()


def sentences_of(module: ModuleType) -> set[str]:
    """Texts in a module's source, with braces for their values; docstrings are left out."""
    tree = ast.parse(inspect.getsource(module))
    apart = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            apart |= {id(part) for part in ast.walk(node)}
            found.add("".join(p.value if isinstance(p, ast.Constant) else "{}" for p in node.values))
    found |= {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in apart
    }
    return {text.strip(" :;") for text in found if len(text.split()) > 3}


@pytest.mark.parametrize(
    "module",
    [
        attached_average_causes,
        attached_causes,
        attached_findings,
        attached_model_causes,
        attached_rank_causes,
        attached_update_causes,
    ],
)
def test_causes_of_attached_trainers_are_chinese(module: ModuleType) -> None:
    texts = sentences_of(module)
    assert len(texts) > 2
    for text in texts:
        chinese = language("zh").translated(text.replace("{}", "7"))
        assert re.search("[\u4e00-\u9fff]", chinese), text
        assert not re.search(r"\b(the|is|of|in)\b", chinese), (text, chinese)


def test_templates_name_the_values_of_their_sentences() -> None:
    for pattern, template in language("zh").parts:
        named = {int(name) for name in fields(template)}
        assert named == set(range(1, pattern.groups + 1)), template


def test_reasons_that_verdicts_give_are_chinese_throughout() -> None:
    one = np.linspace(1, 2, 40, dtype="float32")
    cases = {
        "same": (one, one),
        "rounding": (one, one * np.float32(1 + 1e-7)),
        "wrong": (one, one + np.float32(0.1)),
        "nan": (one, np.where(one > 1.9, np.nan, one).astype("float32")),
        "all_nan": (one * np.nan, one * np.nan),
        "shape": (one, one[:5]),
        "dtype": (one, one.astype("float16")),
        "whole": (np.arange(9), np.arange(9) + (np.arange(9) == 4)),
        "logical": (one > 1.5, one > 1.6),
        "empty": (one[:0], one[:0]),
    }
    both = [{name: pair[side] for name, pair in cases.items()} for side in (0, 1)]
    exact = [{name: array.astype("float64") for name, array in side.items() if name != "whole"} for side in both]
    measured = {"reference64": exact[0], "reproduced64": exact[1]}
    noise = np.float32(1) + np.random.default_rng(0).standard_normal(40).astype("float32") * np.float32(1e-7)
    measured["reference64"]["rounding"] = measured["reproduced64"]["rounding"] = (one * noise).astype("float64")
    reasons = {
        tensor.reason
        for more in ({}, measured, {"rtol": 1e-3, "atol": 1e-3})
        for tensor in compare_arrays(*both, **more).tensors
    }
    assert len(reasons) > 12
    left = {reason: language("zh").translated(reason) for reason in reasons}
    english = {reason: text for reason, text in left.items() if re.search(r"[A-Za-z]{3,} [a-z]{2,} [a-z]{2,}", text)}
    assert english == {}


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
