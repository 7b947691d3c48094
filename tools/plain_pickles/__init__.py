"""Reads pickles of arrays and plain containers without running anything; needs only numpy.

twinalign reads strangers' files with it, and moco_common the published pickles of CIFAR.
"""

from plain_pickles.errors import BrokenFileError, RefusedError
from plain_pickles.reading import read_pickle

__all__ = ["BrokenFileError", "RefusedError", "read_pickle"]
