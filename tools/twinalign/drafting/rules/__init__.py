"""Rules of repair: what of torch's API is rewritten before the draft, as data; no rule knows a model."""

import dataclasses
import importlib.resources
import tomllib
from collections.abc import Iterator


@dataclasses.dataclass(frozen=True)
class Rule:
    """One name of torch, by its full name, and what the port has in its place."""

    pattern: str
    replacement: str
    why: str
    paddle: str
    """Versions of paddle in which it was seen to be needed."""
    when: str = ""
    """A regular expression that a call's arguments, as they are written, must have a match of."""
    upstream: str = ""
    """Where it belongs: `paddle`, if paddle's value or gradient is wrong, or `paconvert`, if a draft could have it."""


_DEFAULTS = {"paddle": "3.3", "when": "", "upstream": ""}


def _loaded(kind: str) -> Iterator[Rule]:
    files = importlib.resources.files("twinalign.drafting.rules").iterdir()
    for file in sorted((file for file in files if file.name.endswith(".toml")), key=lambda file: file.name):
        for entry in tomllib.loads(file.read_text(encoding="utf-8")).get(kind, ()):
            for name in entry["names"]:
                replacement = entry.get("replacement", name.rpartition(".")[2])
                keys = ("paddle", "when", "upstream")
                yield Rule(name, replacement, entry["why"], *(entry.get(key, _DEFAULTS[key]) for key in keys))


SHIMS = tuple(_loaded("shim"))
"""Names that the port takes from its own file of shims."""

METHODS = tuple(_loaded("method"))
"""Methods of tensors that become calls of a shim."""

ATTRIBUTES = tuple(_loaded("attribute"))
"""Attributes that are read, not called, and become calls of a shim."""

LISTS = tuple(_loaded("list"))
"""Methods that give an iterator in torch and a list in paddle: `next` of one needs `iter`."""

NAMES = tuple(_loaded("name"))
"""Names that become another expression."""

VALUES = tuple(_loaded("value"))
"""Calls that have one answer in paddle: a function, or a call as it is written."""

KEYWORDS = tuple(_loaded("keyword"))
"""Keywords that calls lose: pattern is the function (a dot at its end: all below), replacement the keyword."""

DECORATORS = tuple(_loaded("decorator"))
"""Decorators that are taken away; a pattern that ends in a dot stands for all below it."""

ANNOTATIONS = tuple(_loaded("annotation"))
"""Annotations of which only what is in the brackets stays."""

STRINGS = tuple(_loaded("string"))
"""Texts in quotes that say what torch's classes are called."""

STATEMENTS = tuple(_loaded("statement"))
"""Calls that stand as a statement and are taken away."""

ALL = (
    *(*SHIMS, *METHODS, *ATTRIBUTES, *LISTS, *NAMES, *VALUES),
    *(*KEYWORDS, *DECORATORS, *ANNOTATIONS, *STRINGS, *STATEMENTS),
)
