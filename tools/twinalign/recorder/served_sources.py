"""Lets a process import the text of other source files in place of those on disk, which stay untouched."""

import importlib.machinery
import linecache
import os
from collections.abc import Mapping
from types import CodeType

_served: dict[str, str] = {}


class _Serving(importlib.machinery.SourceFileLoader):
    """The loader of source files, told to compile the served text of a file that has one."""

    def get_code(self, fullname: str) -> CodeType | None:
        path = os.path.realpath(self.get_filename(fullname))
        if path not in _served:
            return _usual_get_code(self, fullname)
        return self.source_to_code(_served[path].encode(), self.get_filename(fullname))


_usual_get_code = importlib.machinery.SourceFileLoader.get_code


def serve_sources(sources: Mapping[str, str]) -> None:
    """From now on modules of these files are made of these texts; their `__file__` and line numbers are the files'.

    `sources`: real path -> text.
    """
    _served.update(sources)
    if not sources:
        return
    importlib.machinery.SourceFileLoader.get_code = _Serving.get_code  # type: ignore[method-assign, assignment]
    for path, text in sources.items():
        linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
