"""What a run is asked for, from Python: a case by its name, its file or its class."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinalign.case import Case
from twinalign.errors import InputError

if TYPE_CHECKING:
    from twinalign.jobs import RunSettings

PathLike = str | os.PathLike[str]


def run_settings(
    case: PathLike | type[Case],
    *,
    device: str = "cpu",
    ref_python: str | None = None,
    paddle_python: str | None = None,
    options: Mapping[str, Any] | None = None,
    out: PathLike = "result",
    stages: Sequence[str] = (),
    **asked: Any,
) -> RunSettings:
    """What a run is asked for, from what the functions here take.

    Args:
        case: as of `run`.
        device: `"cpu"` or `"gpu"`.
        ref_python: interpreter that has torch; twinalign need not be there.
        paddle_python: interpreter that has paddle, likewise.
        options: attribute of the case → value.
        out: output folder.
        stages: names of stages.
        **asked: further fields of `RunSettings`, `accuracy_compatible` say.

    Raises:
        InputError: a class that no other process can import, or a device or precision that there is not.
    """
    from twinalign.jobs import PRECISIONS, RunSettings

    if asked.get("precision", "both") not in PRECISIONS:
        raise InputError(f"precision {asked['precision']!r}: give one of {', '.join(PRECISIONS)}")
    if device not in ("cpu", "gpu"):
        raise InputError(f"device {device!r}: give 'cpu' or 'gpu'")
    return RunSettings(
        case=case_name(case) if inspect.isclass(case) else os.fspath(case),
        out=Path(out),
        stages=(stages,) if isinstance(stages, str) else tuple(stages),
        device=device,
        pythons={"ref": ref_python, "paddle": paddle_python},
        options={name: str(value) for name, value in (options or {}).items()},
        **asked,
    )


def case_name(case: type[Case]) -> str:
    """How another process imports a case class: `file.py:ClassName`, or `package.module:ClassName` within a package.

    Raises:
        InputError: no case, or one that is not at the top of a file.
    """
    module = inspect.getmodule(case)
    file = getattr(module, "__file__", None)
    if not issubclass(case, Case):
        raise InputError(f"{case.__qualname__} is no subclass of twinalign.Case")
    if module is None or file is None or "." in case.__qualname__:
        raise InputError(
            f"case {case.__qualname__}: each framework's process imports it anew, so it must be a class at the top of "
            "a file; write it into a case.py"
        )
    return f"{module.__name__}:{case.__name__}" if module.__package__ else f"{file}:{case.__name__}"
