"""Reasons not to read a file; who opened it adds its name."""


class BrokenFileError(ValueError):
    """The bytes do not follow their format."""


class RefusedError(ValueError):
    """The file asks for something that data does not need; none of it was run."""
