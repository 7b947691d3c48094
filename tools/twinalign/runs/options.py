"""All options of a run; the command line, the API and pytest make their `RunSettings` from this list."""

import dataclasses
import difflib
import inspect
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from twinalign.case.definition import Case
from twinalign.errors import InputError
from twinalign.recorder.run_settings import RunSettings
from twinalign.reports.language import CODES
from twinalign.sides import PRECISIONS, SIDES, SWAPS

PathLike = str | os.PathLike[str]


@dataclasses.dataclass(frozen=True)
class RunOption:
    """One option of a run."""

    name: str
    """The keyword in Python, and the field of `RunSettings` if there is one."""
    help: str
    commands: tuple[str, ...]
    """Commands that have it."""
    choices: tuple[str, ...] = ()
    metavar: str | None = None
    flag: str = ""
    """On the command line, if it differs from the name."""
    is_path: bool = False
    help_of: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Command -> its own help text."""
    default_of: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Command -> its own default; `REQUIRED` if there is none."""

    @property
    def default(self) -> Any:
        """The default in `RunSettings`; None if it has no such field."""
        field = RunSettings.__dataclass_fields__.get(self.name)
        if field is None:
            return None
        return field.default_factory() if callable(field.default_factory) else field.default


REQUIRED = object()
_RUN = ("run",)
_RECORDING = ("run", "record")
_ON_A_CASE = ("run", "record", "locate", "fix", "selftest", "info")
_WITH_PYTHONS = ("run", "locate", "fix", "selftest", "info", "convert", "zoo", "doctor", "verify")


def _interpreter(side: str, framework: str, vision: str) -> RunOption:
    text = "Interpreter that has {}; twinalign need not be installed there."
    own = {"zoo": text.format(vision), "verify": f"With --replay: interpreter that has {framework}."}
    return RunOption(f"{side}_python", text.format(framework), _WITH_PYTHONS, metavar="PYTHON", help_of=own)


_STAGES = "Stages to run, comma-separated, and `initial` for the initial weights; all by default."
_STAGES_OF_LOCATE = "Search only for faults that show in these stages; all by default."
_OUT_OF = {
    "info": "Folder for the logs of both sides.",
    "fix": "Folder for `fix.patch` and the recordings that prove it.",
    "locate": "Folder for weights and for pictures of wrong data.",
    "selftest": "Folder for recordings.",
}
_SWAPS = (
    "Put the reference's batches, first weights, or weights after each step into the port's training, or everything "
    "but the network; reports which swap removes the difference."
)
_PRECISION = "What is recorded; a half precision is judged by the reference's own error in it."
_RANKS = (
    "Record loss, backward and train as N processes per side, started by torchrun and paddle.distributed.launch; the "
    "other stages as one."
)
_RANKS_OF = {
    "locate": "Also search N processes per side.",
    "selftest": "Plant faults between N processes instead (labels, batch norm, gradients, samples, weights).",
}
_COMPATIBLE = "Use paddle's kernels that compute like torch's (3.3 and later), and say what they change."
RUN_OPTIONS = (
    RunOption(
        "out",
        "Output folder.",
        _ON_A_CASE,
        help_of=_OUT_OF,
        default_of={"record": REQUIRED, "selftest": Path("result/selftest")},
    ),
    _interpreter("ref", "torch", "torchvision"),
    _interpreter("paddle", "paddle", "paddle"),
    RunOption("locate", "If stages diverge, find the wrong layers and parts, and why (see twinalign locate).", _RUN),
    RunOption(
        "explain_seconds",
        "Processor time for the causes of all faults; at most 20 s are spent on one.",
        ("run", "locate", "fix"),
        metavar="SECONDS",
    ),
    RunOption("sequential", "Record one side after the other, for models that fill the memory.", _RUN),
    RunOption("seeds", "Number of seeds; each side trains once with each.", _RUN),
    RunOption("margin", "With --seeds: difference of mean outcomes that still counts as none.", _RUN, metavar="POINTS"),
    RunOption("tensorboard", "Write TensorBoard logs of all trainings into OUT/tensorboard.", _RUN),
    RunOption("switch_at", "Train once more: STEP steps on one side, the rest on the other.", _RUN, metavar="STEP"),
    RunOption("switch_from", "With --switch-at: the side to begin on.", _RUN, SIDES),
    RunOption("swaps", _SWAPS, _RUN, SWAPS, flag="--swap"),
    RunOption("language", "Language of report.html and of --md.", ("run", "report"), CODES, flag="--lang"),
    RunOption(
        "stages", _STAGES, (*_RECORDING, "locate", "fix"), metavar="A,B,…", help_of={"locate": _STAGES_OF_LOCATE}
    ),
    RunOption("device", "Where both models run.", (*_ON_A_CASE, "zoo"), ("cpu", "gpu")),
    RunOption("precision", _PRECISION, _RECORDING, PRECISIONS),
    RunOption("ranks", _RANKS, ("run", "record", "locate", "selftest"), metavar="N", help_of=_RANKS_OF),
    RunOption("accuracy_compatible", _COMPATIBLE, _RECORDING),
    RunOption(
        "data",
        "Data folder of the case (its option `data`).",
        (*_ON_A_CASE, "verify"),
        is_path=True,
        help_of={"verify": "With --replay: the data folder of the case."},
    ),
    RunOption(
        "options",
        "Set an option of the case.",
        (*_ON_A_CASE, "verify"),
        metavar="NAME=VALUE",
        flag="--set",
        help_of={"verify": "With --replay: an option of the case."},
    ),
    RunOption("fresh", "Record everything again.", _RECORDING),
    RunOption("debug", "Show tracebacks of errors.", (*_ON_A_CASE, "convert", "zoo", "verify")),
)

_BY_NAME = {option.name: option for option in RUN_OPTIONS}


def run_settings(case: PathLike | type[Case], **asked: Any) -> RunSettings:
    """The settings of a run.

    Args:
        case: a registered name, `path/to/case.py`, `package.module:ClassName`, or the class itself.
        **asked: options in `RUN_OPTIONS` by name; the others have the defaults of `RunSettings`.

    Raises:
        InputError: an unknown option or value, or a class that no other process can import.
    """
    require_known("twinalign", asked, _BY_NAME)
    for name, value in asked.items():
        if choices := _BY_NAME[name].choices:
            require_choice(name, value, choices)
    asked = {name: _plain(name, value) for name, value in asked.items()}
    pythons = {side: asked.pop(f"{side}_python", None) for side in SIDES}
    if (data := asked.pop("data", None)) is not None:
        asked["options"] = {**asked.get("options", {}), "data": str(data)}
    return RunSettings(case=case_name(case) if inspect.isclass(case) else os.fspath(case), pythons=pythons, **asked)


def _plain(name: str, value: Any) -> Any:
    """A value in the type that `RunSettings` has."""
    default = _BY_NAME[name].default
    if isinstance(default, Path):
        return Path(value)
    if isinstance(default, tuple):
        return (value,) if isinstance(value, str) else tuple(value)
    if isinstance(default, Mapping):
        return {key: str(item) for key, item in (value or {}).items()}
    return value


def require_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Raise InputError if a value, or one of several, is not among the choices."""
    for one in (value,) if isinstance(value, str) or not isinstance(value, Iterable) else value:
        if one not in choices:
            listed = " or ".join(map(repr, choices)) if len(choices) == 2 else f"one of {', '.join(choices)}"
            raise InputError(f"{name} {one!r}: give {listed}")


def require_known(function: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise InputError if a function does not know a keyword, and suggest the nearest one."""
    known = list(known)
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            remedy = f"did you mean {near[0]!r}?" if near else f"it takes {', '.join(known)}"
            raise InputError(f"{function}: there is no option {name!r}; {remedy}")


def case_name(case: type[Case]) -> str:
    """How another process imports a case class: `file.py:ClassName`, or `package.module:ClassName` within a package.

    Raises:
        InputError: not a case, or not at the top level of a file.
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
