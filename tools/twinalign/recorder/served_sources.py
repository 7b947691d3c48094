"""Lets a process import the text of other source files in place of those on disk, which stay untouched."""

import contextlib
import importlib.machinery
import linecache
import os
import sys
from collections.abc import Collection, Iterator, Mapping
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


@contextlib.contextmanager
def serving(sources: Mapping[str, str]) -> Iterator[None]:
    """In the context modules of these files are made of these texts, anew; behind it, of the files, anew."""
    before = dict(_served)
    try:
        serve_sources(sources)
        _forget(sources)
        yield
    finally:
        _served.clear()
        _served.update(before)
        _forget(sources)


def _forget(files: Collection[str]) -> None:
    """Let the modules of these files be made anew when they are imported next."""
    for name, module in list(sys.modules.items()) if files else ():
        if os.path.realpath(getattr(module, "__file__", None) or "") in files:
            del sys.modules[name]


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
