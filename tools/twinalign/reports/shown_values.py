"""Numbers and names as a table or a sentence shows them."""

import math
import re
from typing import Any

_LEGIBLE = 2000
_NAME = 160
_DIGITS = 17
"""Any two numbers of float64 differ in so many."""
# An underscore within a word is only an underscore; `://` and `www.` make links of an address without any syntax.
_SPECIAL = r"(?i)([\\`*{}\[\]<>#|~@&$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|:(?=//)|(?<=www)\.)"


def figure(value: Any) -> str:
    """A number in three digits, other values as they are, nothing for None."""
    if value is None:
        return "–"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def figures(one: Any, other: Any) -> tuple[str, str]:
    """Two values as `figure` shows them, with as many digits as it takes to tell different ones apart."""
    if not isinstance(one, float) or not isinstance(other, float) or one == other:
        return figure(one), figure(other)
    texts = ((f"{one:.{digits}g}", f"{other:.{digits}g}") for digits in range(3, _DIGITS + 1))
    return next((both for both in texts if both[0] != both[1]), (figure(one), figure(other)))


def number(value: Any) -> float | None:
    """A finite number from a summary; None for anything else, "NaN" and "Infinity" included."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def legible(text: str, limit: int = _LEGIBLE) -> str:
    """`text` in one line of limited length, with escapes for letters that are not printable.

    A name from a file must not reverse the text direction, end a line or be invalid text.
    """
    cut = text if len(text) <= limit else f"{text[:limit]}… (+{len(text) - limit})"
    if cut.isprintable():
        return cut
    escaped = (f"\\x{ord(x):02x}" if ord(x) < 256 else f"\\u{ord(x):04x}" for x in cut if not x.isprintable())
    return "".join(letter if letter.isprintable() else next(escaped) for letter in cut)


def plain(text: str) -> str:
    """`text` with all Markdown syntax escaped."""
    return re.sub(_SPECIAL, r"\\\1", legible(text, 500))


def short_name(name: str) -> str:
    """A tensor's or layer's name as a table shows it."""
    return legible(name, _NAME)
