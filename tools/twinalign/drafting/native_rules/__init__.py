"""Rules of the native style: what of a port in torch's spelling is spelled otherwise by paddle, as data."""

import dataclasses
import importlib.resources
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class CallRule:
    """A shim and the class or function of paddle in its place.

    Attributes:
        parameters: names of the shim's parameters, in their order.
        same: so many of the first are paddle's too, in the same places.
        keywords: parameter, `parameter=value`, or `parameter=[]` for a list of any length, → what is written in its
            place; empty if nothing is.
        absent: parameter → what is written if the call does not give it.
        apart: whether the shim is no subclass of paddle's class.
    """

    shim: str
    native: str
    why: str
    parameters: tuple[str, ...] = ()
    same: int = 0
    keywords: Mapping[str, str] = dataclasses.field(default_factory=dict)
    absent: Mapping[str, str] = dataclasses.field(default_factory=dict)
    apart: bool = False


@dataclasses.dataclass(frozen=True)
class MethodRule:
    """A method's call; `becomes` is in terms of its `arguments`.

    `name=` is given by keyword alone, and `*` stands for several or for an unpacked one.
    """

    name: str
    arguments: tuple[str, ...]
    becomes: str
    why: str


@dataclasses.dataclass(frozen=True)
class StatementRule:
    """A shim's call whose value nobody takes; `becomes` is in terms of `parameters`, of which some have `defaults`."""

    shim: str
    parameters: tuple[str, ...]
    defaults: Mapping[str, str]
    becomes: str
    why: str


@dataclasses.dataclass(frozen=True)
class KeywordRule:
    """A keyword that the `functions`, by their full names, and the `methods` have under another name."""

    word: str
    native: str
    functions: frozenset[str]
    methods: frozenset[str]
    why: str


@dataclasses.dataclass(frozen=True)
class ConstantRule:
    """A keyword that is taken away, if a constant is given, where a class is called that another place chose."""

    word: str
    why: str


@dataclasses.dataclass(frozen=True)
class AttributeRule:
    """What is read of a variable that `isinstance` has found to be of a shim's class; `becomes` is in its terms."""

    shim: str
    read: str
    becomes: str
    why: str


@dataclasses.dataclass(frozen=True)
class NameRule:
    """A second name of the same thing."""

    name: str
    native: str
    why: str


def _entries(kind: str) -> Iterator[dict[str, Any]]:
    files = importlib.resources.files("twinalign.drafting.native_rules").iterdir()
    for file in sorted((file for file in files if file.name.endswith(".toml")), key=lambda file: file.name):
        yield from tomllib.loads(file.read_text(encoding="utf-8")).get(kind, ())


def _calls() -> Iterator[CallRule]:
    for entry in _entries("call"):
        given = {key: value for key, value in entry.items() if key not in ("names", "parameters")}
        for shim, native in entry["names"].items():
            yield CallRule(shim, native, parameters=tuple(entry["parameters"]), **given)


CALLS = {rule.shim: rule for rule in _calls()}
METHODS = tuple(
    MethodRule(entry["name"], tuple(entry["arguments"]), entry["becomes"], entry["why"]) for entry in _entries("method")
)
STATEMENTS = {
    entry["shim"]: StatementRule(
        entry["shim"], tuple(entry["parameters"]), entry.get("defaults", {}), entry["becomes"], entry["why"]
    )
    for entry in _entries("statement")
}
KEYWORDS = tuple(
    KeywordRule(word, native, frozenset(entry["functions"]), frozenset(entry["methods"]), entry["why"])
    for entry in _entries("keyword")
    for word, native in entry["names"].items()
)
ATTRIBUTES = {
    (shim, read): AttributeRule(shim, read, becomes, entry["why"])
    for entry in _entries("attribute")
    for shim in entry["classes"]
    for read, becomes in entry["names"].items()
}
CONSTANTS = {entry["word"]: ConstantRule(entry["word"], entry["why"]) for entry in _entries("constant")}
NAMES = {
    name: NameRule(name, native, entry["why"]) for entry in _entries("name") for name, native in entry["names"].items()
}
