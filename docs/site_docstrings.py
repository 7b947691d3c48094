"""An extension of griffe, which reads docstrings for the site: doctests become blocks of code."""

import re
from typing import Any

import griffe

_DOCTEST = re.compile(r"^( *)>>> .*?(?=\n\s*\n|\Z)", flags=re.MULTILINE | re.DOTALL)


class Doctests(griffe.Extension):
    """Fences every doctest."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = _DOCTEST.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)
