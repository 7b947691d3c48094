"""JSON from a stranger: small enough, one meaning only, and of the published form."""

from __future__ import annotations

import functools
import importlib.resources
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from twinalign.bundle.layout import JSON_LIMIT, shown
from twinalign.errors import InputError

VALUE_LIMIT = 4_000_000
_DEPTH_LIMIT = 64
_DIGITS_LIMIT = 300
"""Of a whole number: with more it is none that a float can be compared with."""
_FEW_DIGITS = 200
"""With fewer, and an exponent of two digits, a number is less than a float's greatest."""
_NUMBER_SHAPE = bytes.maketrans(b"123456789E", b"000000000e")
_CONSTANT = re.compile(r'"const": ("[^"]*"|\d+)')


def parse_json(content: bytes | memoryview, label: str) -> dict[str, Any]:
    """A JSON object.

    Raises:
        InputError: not UTF-8, not JSON, not an object; nested too deeply; a key twice in one object (readers differ in
            which counts); NaN or an infinity, which JSON does not have, or a number that is read as one.
    """
    try:
        raw = bytes(content)
        checked = _may_overflow(raw)
        found = json.loads(
            raw.decode("utf-8"),
            object_pairs_hook=_without_repeats,
            parse_constant=_no_constant,
            parse_float=_finite if checked else None,
            parse_int=_whole if checked else None,
        )
        if _is_deep(found):
            raise RecursionError
    except RecursionError:
        raise InputError(f"{label}: nested too deeply; refused") from None
    except UnicodeDecodeError:
        raise InputError(f"{label}: not UTF-8; refused") from None
    except ValueError as error:
        raise InputError(f"{label}: no JSON ({shown(str(error))}); refused") from None
    if not isinstance(found, dict):
        raise InputError(f"{label}: a JSON object is expected, not a {type(found).__name__}; refused")
    return found


def check_sizes(contents: Mapping[str, bytes | memoryview], label: str) -> None:
    """Raise InputError where a stranger's JSON files, all of them together, would take too much memory once read."""
    size = values = 0
    for name, content in contents.items():
        size += len(content)
        if size > JSON_LIMIT:
            raise InputError(f"{label}: {name}: more than {JSON_LIMIT} bytes of JSON with those before it; refused")
        # Counted before parsing: empty lists and numbers take far more memory as objects than as text.
        raw = bytes(content)
        values += sum(raw.count(mark) for mark in (b",", b"[", b"{"))
        if values > VALUE_LIMIT:
            raise InputError(f"{label}: {name}: more than {VALUE_LIMIT} values with the files before it; refused")


def _is_deep(value: Any) -> bool:
    """Whether what walks through a value could run out of stack."""
    level = [value]
    for _ in range(_DEPTH_LIMIT):
        inner = [item.values() if isinstance(item, dict) else item for item in level]
        level = [value for values in inner for value in values if isinstance(value, (dict, list))]
        if not level:
            return False
    return True


def _may_overflow(raw: bytes) -> bool:
    """Whether a number may be beyond a float: one look at the text, for a function called on each takes far longer."""
    shape = raw.translate(_NUMBER_SHAPE, delete=b"+")
    return b"e000" in shape or b"0" * _FEW_DIGITS in shape


def _finite(text: str) -> float:
    found = float(text)
    if math.isinf(found):
        raise ValueError(f"{text[:40]} is more than a number can be")
    return found


def _whole(text: str) -> int:
    if len(text) > _DIGITS_LIMIT:
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)


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
