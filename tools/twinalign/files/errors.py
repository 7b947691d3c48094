"""Why a file is not read; `reader` turns each into an InputError that names the file."""

from __future__ import annotations


class BrokenFileError(ValueError):
    """The bytes are not what their format says."""


class RefusedError(ValueError):
    """The file asks for something that data does not need; nothing of it was run."""
