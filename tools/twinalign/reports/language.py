"""Sentences of the report in English and in Chinese: one place for each, `languages/CODE.toml`."""

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CODES = ("en", "zh")


@dataclasses.dataclass(frozen=True)
class Language:
    """A catalogue of sentences; call it with a key and the values for the sentence.

    A sentence can have separate forms for one and for many: `KEY.one` and `KEY.other`, chosen by `count`.
    """

    code: str
    sentences: Mapping[str, str]

    def __call__(self, key: str, **values: Any) -> str:
        if f"{key}.other" in self.sentences:
            form = f"{key}.one"
            key = form if values.get("count") == 1 and form in self.sentences else f"{key}.other"
        return self.sentences[key].format(**values)

    def known(self, group: str, name: str) -> str:
        """The word for a name in a result (a verdict, a stage); the name itself if there is none."""
        return self.sentences.get(f"{group}.{name}", name)


@functools.cache
def language(code: str) -> Language:
    """The catalogue of a language, one of `CODES`."""
    import tomllib  # when a text is asked for: comparing two files needs none

    text = Path(__file__).with_name("languages").joinpath(f"{code}.toml").read_text(encoding="utf-8")
    return Language(code, dict(_flat(tomllib.loads(text), "")))


def _flat(table: Mapping[str, Any], prefix: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for key, value in table.items():
        found += _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else [(prefix + key, value)]
    return found
