"""The options of a conversion and its result."""

import ast
import contextlib
import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from twinalign.conversion.ledger import Ledger
from twinalign.errors import InputError
from twinalign.notebook import Shown


@dataclasses.dataclass(frozen=True)
class Options:
    """The user's choices for a conversion."""

    factories: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Side (`ref`, `paddle`) → `module:factory`."""
    pythons: Mapping[str, str | None] = dataclasses.field(default_factory=dict)
    """Side → interpreter that has its framework; None: this one."""
    direction: str | None = None
    """Framework to convert to, where content and suffixes do not tell."""
    entry: str | None = None
    """Name of the state dict in a nested checkpoint, where the usual names do not find it."""
    rename: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """`{reference name: paddle name}`, see `rename_rules.Renaming`."""
    layers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Without a model: pattern of layer paths → class name, e.g. `{"head*": "Linear"}`."""
    allow_missing: Sequence[str] = ()
    allow_unexpected: Sequence[str] = ()
    remedy: str = "Allow by name what may lack a partner (--allow-missing, --allow-unexpected)"
    """What a user can do about layers of one model that the other lacks."""
    inputs: Sequence[str] = ()
    """What both models are run on, see `trial_inputs.parse_inputs`."""
    cast: bool = False
    """Give every array the dtype of the target model."""
    weights_only: bool = False
    """Leave optimizer, epoch and whatever else the checkpoint holds."""
    export: str | None = None
    """A form of `export.FORMS`."""
    keep: Sequence[str] = ()
    """Patterns of target keys whose matrices both frameworks keep the same way, where nothing else tells."""
    transpose: Sequence[str] = ()
    """Patterns of target keys whose matrices are transposed, where nothing else tells."""
    defaults: Path | None = None
    """A checkpoint of the target framework, whose values stand where the source's framework keeps none."""
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Settings of the training run that the source does not hold (weight_decay, …)."""
    verify: bool = False
    prefix: str = ""
    """Put before every key of a torch target, e.g. `module.`."""
    rules: Sequence[str] = ()
    """Python files or modules that register storage rules for layers of the user's own."""


@dataclasses.dataclass(repr=False)
class ConversionResult(Shown):
    """The result of a conversion."""

    kind = "convert"

    ledger: Ledger
    written: list[Path]

    def to_json(self) -> dict[str, Any]:
        return {"ledger": self.ledger.to_json(), "written": [str(path) for path in self.written]}


def read_rules(path: Path) -> dict[str, str]:
    """Rename rules from a JSON file `{reference name: paddle name}`; raises InputError naming the problem."""
    try:
        rules = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{path}: it is not JSON ({error}); rename rules are {{reference name: paddle name}}"
        ) from None
    if not isinstance(rules, dict) or not all(isinstance(value, str) for value in rules.values()):
        raise InputError(f"{path}: rename rules are one JSON object {{reference name: paddle name}}")
    return rules


def parse_pairs(option: str, texts: Sequence[str], *, literal: bool = False) -> dict[str, Any]:
    """`NAME=VALUE` texts as a dictionary, with `literal` values parsed as Python; raises InputError without a `=`."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise InputError(f"{option} {text}: NAME=VALUE expected")
        found[name] = value
        if literal:
            with contextlib.suppress(ValueError, SyntaxError):
                found[name] = ast.literal_eval(value)
    return found
