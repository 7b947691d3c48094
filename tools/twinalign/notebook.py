"""Results as `print` and notebooks show them: in ten lines, and as a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar


class Shown:
    """A result as data: terminal, notebook and report are made from its `to_json()`."""

    kind: ClassVar[str]
    """Name of its command, by which `twinalign.terminal` finds the function that prints it."""
    to_html: ClassVar[Callable[[Shown], str] | None] = None
    """Set by `twinalign.terminal`, which knows how to print each result; so is `to_text`."""
    to_text: ClassVar[Callable[[Shown], str] | None] = None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types."""
        raise NotImplementedError

    def __repr__(self) -> str:
        facts = {name: getattr(self, name, None) for name in ("case", "verdict")}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in facts.items() if value)}, …)"

    def __str__(self) -> str:
        return repr(self) if Shown.to_text is None else Shown.to_text(self)

    def _repr_html_(self) -> str | None:
        return None if Shown.to_html is None else Shown.to_html(self)
