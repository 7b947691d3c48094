"""Strict reading of a stranger's JSON: limited in size, with one possible meaning, and valid under a schema."""

import functools
import importlib.resources
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from twinalign.errors import InputError
from twinalign.files.text import shown

JSON_LIMIT = 64 << 20
"""Bytes of all JSON files of a bundle together."""
VALUE_LIMIT = 1_500_000
_DEPTH_LIMIT = 64
_DIGITS_LIMIT = 300
"""Digits of a whole number; a longer one cannot be compared with a float."""
_FEW_DIGITS = 200
"""With fewer, and an exponent of two digits, a number is less than a float's greatest."""
_NUMBER_SHAPE = bytes.maketrans(b"123456789E", b"000000000e")
_CONSTANT = re.compile(r'"const": ("[^"]*"|\d+)')


def parse_json(content: bytes | memoryview, label: str) -> dict[str, Any]:
    """Read a JSON object; raises InputError as `parse_value` does, and if it is none."""
    found = parse_value(content, label)
    if not isinstance(found, dict):
        raise InputError(f"{label}: a JSON object is expected, not a {type(found).__name__}; refused")
    return found


def parse_value(content: bytes | memoryview, label: str) -> Any:
    """Read any JSON value.

    Raises:
        InputError: not UTF-8, not JSON; nested too deeply; a key twice in one object (readers disagree
            on which counts); NaN or an infinity, which JSON does not have, or a number that overflows to one.
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
    except RecursionError:
        raise InputError(f"{label}: nested too deeply; refused") from None
    except UnicodeDecodeError:
        raise InputError(f"{label}: not UTF-8; refused") from None
    except ValueError as error:
        raise InputError(f"{label}: not JSON ({shown(str(error))}); refused") from None
    if _is_deep(found):
        raise InputError(f"{label}: nested too deeply; refused")
    return found


def check_sizes(contents: Mapping[str, bytes | memoryview], label: str) -> None:
    """Raise InputError if a stranger's JSON files together would take too much memory once read."""
    size = values = 0
    for name, content in contents.items():
        size += len(content)
        if size > JSON_LIMIT:
            raise InputError(f"{label}: {name}: more than {JSON_LIMIT} bytes of JSON with those before it; refused")
        raw = bytes(content)
        values += count_values(raw)
        if values > VALUE_LIMIT:
            raise InputError(f"{label}: {name}: more than {VALUE_LIMIT} values with the files before it; refused")


def count_values(text: bytes) -> int:
    """About how many values a JSON text has: before it is parsed, for they take far more memory than the text."""
    return sum(text.count(mark) for mark in (b",", b"[", b"{"))


def _is_deep(value: Any) -> bool:
    """Whether recursion through a value could exhaust the stack."""
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(_DEPTH_LIMIT):
        inner = [item.values() if isinstance(item, dict) else item for item in level]
        level = [value for values in inner for value in values if isinstance(value, (dict, list))]
        if not level:
            return False
    return True


def _may_overflow(raw: bytes) -> bool:
    """Whether a number may exceed a float: one look at the text, much faster than a function call per number."""
    shape = raw.translate(_NUMBER_SHAPE, delete=b"+")
    return b"e000" in shape or b"0" * _FEW_DIGITS in shape


def _finite(text: str) -> float:
    found = float(text)
    if math.isinf(found):
        raise ValueError(f"{text[:40]} is larger than a float can be")
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
    raise ValueError(f"{name} is not a JSON number")


def schema(name: str) -> dict[str, Any]:
    """The published schema `summary`, `recording`, `case` or `manifest`."""
    return json.loads(_schema_text(name))


def check_form(value: Any, schema_name: str, label: str) -> None:
    """Raise InputError if `value` does not follow a published schema."""
    from fastjsonschema import JsonSchemaValueException

    try:
        _wordless_validator(schema_name)(value)
        return
    except JsonSchemaValueException:
        pass
    try:
        _validator(schema_name)(value)
    except JsonSchemaValueException as error:
        # The library words the fault; what it quotes of the value could be anything.
        place = ".".join(str(part) for part in error.path[1:]) or "the whole"
        rule = f"{error.rule} {error.rule_definition}"
        raise InputError(
            f"{label}: {shown(place)} is not as {schema_name}.schema.json requires ({shown(rule)}); refused"
        ) from None


@functools.cache
def _validator(name: str) -> Callable[[Any], Any]:
    """Accepts what a schema describes, and says what is wrong with anything else."""
    import fastjsonschema

    return fastjsonschema.compile(schema(name))


@functools.cache
def _wordless_validator(name: str) -> Callable[[Any], Any]:
    """Like `_validator` but built in a quarter of the time; it does not say what is wrong."""
    import fastjsonschema

    # Without details fastjsonschema (2.22) cannot make a validator of `const`; `enum` of one value is no laxer.
    text = _CONSTANT.sub(r'"enum": [\1]', _schema_text(name))
    return fastjsonschema.compile(json.loads(text), detailed_exceptions=False)


def _schema_text(name: str) -> str:
    folder = importlib.resources.files("twinalign.files") / "schemas"
    return (folder / f"{name}.schema.json").read_text(encoding="utf-8")
