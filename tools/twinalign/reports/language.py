"""Sentences of the report in English and in Chinese: one place for each, `languages/CODE.toml`."""

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

CODES = ("en", "zh")


class Language(NamedTuple):
    """A catalogue of sentences; call it with a key and the values for the sentence.

    A sentence can have separate forms for one and for many: `KEY.one` and `KEY.other`, chosen by `count`.
    """

    code: str
    sentences: Mapping[str, str]
    causes: Mapping[str, str] = MappingProxyType({})
    """A cause in English -> in this language; empty for English."""
    parts: tuple[tuple[re.Pattern[str], str], ...] = ()
    """What reasons and facts are made of, with a template for each; the first that matches counts."""

    def __call__(self, key: str, **values: Any) -> str:
        if f"{key}.other" in self.sentences:
            form = f"{key}.one"
            key = form if values.get("count") == 1 and form in self.sentences else f"{key}.other"
        return self.sentences[key].format(**values)

    def translated(self, text: str) -> str:
        """A sentence that a result has in English: a cause with its detail, a reason, a fact.

        What the catalogue does not know stays as it is.
        """
        if not self.parts:
            return text
        if text in self.causes:
            return self.causes[text]
        cause, between, detail = next(
            ((text[:at], ": ", text[at + 2 :]) for at in _colons(text) if text[:at] in self.causes), (text, "", "")
        )
        if between:
            return f"{self.causes[cause]}：{self.translated(detail)}"
        return "；".join(self._part(part) for part in text.split("; "))

    def _part(self, text: str) -> str:
        if (found := self._matched(text)) is not None:
            return found
        head, between, rest = text.partition(": ")
        return f"{self._part(head)}：{self._part(rest)}" if between else text

    def _matched(self, text: str) -> str | None:
        for pattern, template in self.parts:
            if found := pattern.fullmatch(text):
                return template.format(None, *(self._matched(value) or value for value in found.groups()))
        return None

    def known(self, group: str, name: str) -> str:
        """The word for a name in a result (a verdict, a stage); the name itself if there is none."""
        return self.sentences.get(f"{group}.{name}", name)


@functools.cache
def language(code: str) -> Language:
    """The catalogue of a language, one of `CODES`."""
    import tomllib  # when a text is asked for: comparing two files needs none

    folder = Path(__file__).with_name("languages")
    text = folder.joinpath(f"{code}.toml").read_text(encoding="utf-8")
    further = folder / f"{code}_sentences.toml"
    composed = tomllib.loads(further.read_text(encoding="utf-8")) if further.is_file() else {"causes": {}, "parts": {}}
    parts = tuple((_pattern(english), template) for english, template in composed["parts"].items())
    return Language(code, dict(_flat(tomllib.loads(text), "")), composed["causes"], parts)


def _pattern(english: str) -> re.Pattern[str]:
    """Matches a sentence whose values stand at the braces."""
    return re.compile("(.+?)".join(map(re.escape, english.split("{}"))))


def _colons(text: str) -> list[int]:
    return [found.start() for found in re.finditer(": ", text)]


def _flat(table: Mapping[str, Any], prefix: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for key, value in table.items():
        found += _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else [(prefix + key, value)]
    return found
