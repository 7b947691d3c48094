"""Translate names of one state dict into the other's: rename rules, and names that differ between the frameworks."""

import fnmatch
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from twinalign.backends.state_layout import Layer
from twinalign.errors import InputError

_PATTERNS = (
    "A * stands for one step between dots or a part of one, never for several, and what it stood for is put into the "
    'other name: {"layer*.*.conv": "stage*.*.conv"}; numbers cannot be changed, so {"layer1": "stages.0"} needs a '
    "rule each"
)

CHILD_NAMES = {
    "torch.nn.modules.transformer.TransformerDecoderLayer": {"multihead_attn": "cross_attn"},
}
"""Children of torch layers that paddle's layer of the same meaning calls otherwise."""


def reference_path(layer: Layer) -> str:
    """Path of a torch layer, with the children of torch's own layers named as in paddle."""
    if not layer.path:
        return ""
    ancestors: Mapping[str, Sequence[str]] = layer.entries[0].config.get("ancestors", {})
    steps = layer.path.split(".")
    translated = []
    for count, step in enumerate(steps):
        bases = ancestors.get(".".join(steps[:count]), ())
        names = next((CHILD_NAMES[base] for base in bases if base in CHILD_NAMES), {})
        translated.append(names.get(step, step))
    return ".".join(translated)


def listed(names: Iterable[str]) -> str:
    """The first three names, and how many more there are."""
    known = list(names)
    return ", ".join(known[:3]) + (f" and {len(known) - 3} more" if len(known) > 3 else "")


def fits_any(key: str, patterns: Sequence[str]) -> bool:
    """Whether one of the patterns (`*` and `?` as in file names) matches the key."""
    return any(fnmatch.fnmatchcase(key, pattern) for pattern in patterns)


class Renaming:
    """Rules `{reference name: paddle name}`: a name is a key or any prefix of whole steps.

    `*` stands for one step between dots or a part of one (`layer*.conv`), the same on both sides.

    The longest rule that fits is used; a rule is applied once. The empty name is the model itself, so `{"":
    "backbone"}` puts everything under `backbone`. Every rule must fit something: a rule that fits nothing is a mistake.
    """

    def __init__(self, rules: Mapping[str, str] | None = None) -> None:
        for reference, paddle in (rules or {}).items():
            if not isinstance(reference, str) or not isinstance(paddle, str):
                raise InputError(f"rename rule {reference!r}: {paddle!r} is not a pair of names")
            if reference.count("*") != paddle.count("*"):
                raise InputError(
                    f"rename rule {reference!r}: {paddle!r} has another number of * on each side. {_PATTERNS}"
                )
        self.rules = dict(rules or {})
        self.used: set[str] = set()
        ranked = sorted(self.rules, key=lambda rule: (-len(rule.split(".")) if rule else 0, rule.count("*")))
        self._patterns = [(rule, _pattern(rule), self.rules[rule]) for rule in ranked]

    def apply(self, name: str) -> str:
        """The paddle name of a reference name; the name itself if no rule fits."""
        for rule, pattern, template in self._patterns:
            found = pattern.match(name)
            if found is None:
                continue
            self.used.add(rule)
            stars = iter(found.groups()[:-1])
            renamed = re.sub(r"\*", lambda _: next(stars), template)  # noqa: B023
            rest = found.groups()[-1] or ""
            return f"{renamed}.{rest}" if renamed and rest else renamed or rest
        return name

    def check_used(self) -> None:
        """Raise InputError if a rule fits no name, since it must be mistyped."""
        unused = [rule for rule in self.rules if rule not in self.used]
        if unused:
            patterns = f". {_PATTERNS}" if any("*" in rule for rule in unused) else ""
            raise InputError(f"rename rules that match no name of the reference: {listed(map(repr, unused))}{patterns}")


def wrapper_rules(reference: Iterable[Mapping[str, Any]], paddle: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The rename rule for models of which one is held by a wrapper; none where all names begin alike.

    Args:
        reference, paddle: the entries of both layouts.
    """
    first, second = (_common_steps([entry["key"] for entry in layout]) for layout in (reference, paddle))
    return {first: second} if first != second else {}


def _common_steps(names: Sequence[str]) -> str:
    """The steps that all names begin with, but for each name's last."""
    common = []
    for step in zip(*(name.split(".")[:-1] for name in names), strict=False):
        if len(set(step)) > 1:
            break
        common.append(step[0])
    return ".".join(common)


def _pattern(rule: str) -> re.Pattern[str]:
    """Matches the rule's name and everything below it; groups: one for each `*`, then the part below."""
    if not rule:
        return re.compile(r"^(.*)$")
    return re.compile("^" + re.escape(rule).replace(r"\*", r"([^.]+)") + r"(?:\.(.*))?$")
