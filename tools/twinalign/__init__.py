"""twinalign: port models from PyTorch to PaddlePaddle and know that the port is right."""

from __future__ import annotations

from twinalign.case import Case as Case
from twinalign.errors import ExitCode as ExitCode
from twinalign.errors import InputError as InputError
from twinalign.errors import SideCrashError as SideCrashError
from twinalign.errors import TwinalignError as TwinalignError

__version__ = "0.1.0"
