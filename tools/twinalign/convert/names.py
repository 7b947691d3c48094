"""Names of one state put in the other's terms: rename rules, and names that the frameworks' own layers differ in."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence

from twinalign.convert.layout import Layer
from twinalign.errors import InputError

CHILD_NAMES = {
    "torch.nn.modules.transformer.TransformerDecoderLayer": {"multihead_attn": "cross_attn"},
}
"""Children of torch layers that paddle's layer of the same meaning calls otherwise."""


def reference_path(layer: Layer) -> str:
    """Path of a torch layer with the children of torch's own layers called as paddle calls them."""
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


def fits_any(key: str, patterns: Sequence[str]) -> bool:
    """Whether one of the patterns (`*` and `?` as in file names) names the key."""
    return any(fnmatch.fnmatchcase(key, pattern) for pattern in patterns)


class Renaming:
    """Rules `{reference name: paddle name}`: a name is a key or any prefix of whole steps; `*` stands for one step.

    The longest rule that fits wins; a rule is applied once. The empty name is the model itself, so `{"": "backbone"}`
    puts everything under `backbone`. Every rule must fit something: a rule that fits nothing is a mistake.
    """

    def __init__(self, rules: Mapping[str, str] | None = None) -> None:
        for reference, paddle in (rules or {}).items():
            if not isinstance(reference, str) or not isinstance(paddle, str):
                raise InputError(f"rename rule {reference!r}: {paddle!r} is not a pair of names")
            if reference.count("*") != paddle.count("*"):
                raise InputError(f"rename rule {reference!r}: {paddle!r} has another number of * on each side")
        self.rules = dict(rules or {})
        self.used: set[str] = set()
        ranked = sorted(self.rules, key=lambda rule: (-len(rule.split(".")) if rule else 0, rule.count("*")))
        self._patterns = [(rule, _pattern(rule), self.rules[rule]) for rule in ranked]

    def apply(self, name: str) -> str:
        """The paddle name of a reference name; the name itself where no rule fits."""
        for rule, pattern, template in self._patterns:
            found = pattern.match(name)
            if found is None:
                continue
            self.used.add(rule)
            steps = list(found.groups()[:-1])
            renamed = ".".join(steps.pop(0) if step == "*" else step for step in template.split(".") if step)
            rest = found.groups()[-1] or ""
            return f"{renamed}.{rest}" if renamed and rest else renamed or rest
        return name

    def unused(self) -> list[str]:
        """Rules that fitted no name."""
        return [rule for rule in self.rules if rule not in self.used]


def _pattern(rule: str) -> re.Pattern[str]:
    """Matches the rule's name itself and everything below it; groups: one a `*`, then what is below."""
    if not rule:
        return re.compile(r"^(.*)$")
    steps = [r"([^.]+)" if step == "*" else re.escape(step) for step in rule.split(".")]
    return re.compile("^" + r"\.".join(steps) + r"(?:\.(.*))?$")
