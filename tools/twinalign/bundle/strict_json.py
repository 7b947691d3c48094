"""JSON from a stranger: small enough, one meaning only, and of the published form."""

from __future__ import annotations

import functools
import importlib.resources
import json
import re
from collections.abc import Callable
from typing import Any

from twinalign.bundle.layout import JSON_LIMIT, shown
from twinalign.errors import InputError

_VALUE_LIMIT = 4_000_000
_CONSTANT = re.compile(r'"const": ("[^"]*"|\d+)')


def parse_json(content: bytes | memoryview, label: str) -> dict[str, Any]:
    """A JSON object.

    Raises:
        InputError: not UTF-8, not JSON, not an object; over the limits of size, of values or of depth; a key twice in
            one object (readers differ in which counts); NaN or an infinity, which JSON does not have.
    """
    if len(content) > JSON_LIMIT:
        raise InputError(f"{label}: {len(content)} bytes of JSON, more than the {JSON_LIMIT} that are read; refused")
    raw = bytes(content)
    # Counted before parsing: empty lists and numbers take far more memory as objects than as text.
    if sum(raw.count(mark) for mark in (b",", b"[", b"{")) > _VALUE_LIMIT:
        raise InputError(f"{label}: more than {_VALUE_LIMIT} values; refused")
    try:
        found = json.loads(raw.decode("utf-8"), object_pairs_hook=_without_repeats, parse_constant=_no_constant)
    except RecursionError:
        raise InputError(f"{label}: nested too deeply; refused") from None
    except UnicodeDecodeError:
        raise InputError(f"{label}: not UTF-8; refused") from None
    except ValueError as error:
        raise InputError(f"{label}: no JSON ({shown(str(error))}); refused") from None
    if not isinstance(found, dict):
        raise InputError(f"{label}: a JSON object is expected, not a {type(found).__name__}; refused")
    return found


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        repeated = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {shown(repeated)!r} twice in one object")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def schema(name: str) -> dict[str, Any]:
    """The published schema `summary`, `recording`, `case` or `manifest`."""
    return json.loads(_schema_text(name))


def check_form(value: Any, schema_name: str, label: str) -> None:
    """Raise InputError where `value` is not of the form that a schema publishes."""
    from fastjsonschema import JsonSchemaValueException

    try:
        _wordless_validator(schema_name)(value)
    except JsonSchemaValueException:
        pass
    else:
        return
    try:
        _validator(schema_name)(value)
    except JsonSchemaValueException as error:
        # The library words the fault; what it quotes of the value could be anything.
        place = ".".join(str(part) for part in error.path[1:]) or "the whole"
        rule = f"{error.rule} {error.rule_definition}"
        raise InputError(
            f"{label}: {shown(place)} is not as {schema_name}.schema.json has it ({shown(rule)}); refused"
        ) from None


@functools.cache
def _validator(name: str) -> Callable[[Any], Any]:
    """Passes what a schema describes, and names what else is wrong."""
    import fastjsonschema

    return fastjsonschema.compile(schema(name))


@functools.cache
def _wordless_validator(name: str) -> Callable[[Any], Any]:
    """Passes what a schema describes, made in a quarter of the time; what it does not pass is for `_validator`."""
    import fastjsonschema

    # Without details fastjsonschema (2.22) cannot make a validator of `const`; `enum` of one value is no laxer.
    text = _CONSTANT.sub(r'"enum": [\1]', _schema_text(name))
    return fastjsonschema.compile(json.loads(text), detailed_exceptions=False)


def _schema_text(name: str) -> str:
    folder = importlib.resources.files("twinalign.bundle") / "schemas"
    return (folder / f"{name}.schema.json").read_text(encoding="utf-8")
