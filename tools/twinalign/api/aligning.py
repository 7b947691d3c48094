"""Running, recording, comparing and locating."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinalign.api.arguments import Progress, names_unknown_options, quiet, settings_of
from twinalign.case.definition import Case
from twinalign.recorder.run_settings import DEFAULT_MARGIN
from twinalign.runs.options import PathLike, require_choice, require_known
from twinalign.sides import SIDES

if TYPE_CHECKING:
    from twinalign.runs.model_info import ModelInfo
    from twinalign.runs.run_result import RunResult
    from twinalign.runs.session import Session
    from twinalign.search.locator import LocateResult
    from twinalign.verdict import Allowance, Comparison


@names_unknown_options
def run(
    case: PathLike | type[Case],
    *,
    out: PathLike = "result",
    stages: Sequence[str] = (),
    device: str = "cpu",
    precision: str = "both",
    ranks: int = 1,
    ref_python: str | None = None,
    paddle_python: str | None = None,
    options: Mapping[str, Any] | None = None,
    locate: bool = True,
    explain_seconds: float = 60.0,
    sequential: bool = False,
    fresh: bool = False,
    language: str = "en",
    accuracy_compatible: bool = False,
    seeds: int = 1,
    margin: float = DEFAULT_MARGIN,
    tensorboard: bool = False,
    switch_at: int = 0,
    switch_from: str = "ref",
    swaps: Sequence[str] = (),
    debug: bool = False,
    progress: Progress = quiet,
) -> RunResult:
    """Record both sides of a case, compare them stage by stage, write logs and report into `out`.

    Args:
        case: a registered name, `path/to/case.py`, `package.module:ClassName`, or the class itself.
        out: folder for recordings, logs, `summary.json` and `report.html`; unchanged recordings are reused.
        stages: stages to run; all that the case defines by default.
        device: `"cpu"` or `"gpu"`.
        precision: `"float32"`, `"float64"`, `"both"`, or a half precision, which is also checked in float64.
        ranks: processes per side that record loss, backward and train.
        ref_python, paddle_python: interpreters that have torch and paddle; twinalign need not be installed there.
        options: attribute of the case → value.
        locate, explain_seconds: whether to search stages that diverge, and the processor time for all causes.
        sequential: one side after the other, for models that fill the memory.
        fresh: record everything again.
        language: of the report, `"en"` or `"zh"`.
        accuracy_compatible: use paddle's kernels that compute like torch's, and say what they change.
        seeds: number of seeds; each side trains once with each.
        margin: greatest difference of mean outcomes, in points, that counts as equivalent.
        tensorboard: write TensorBoard logs of all trainings.
        switch_at, switch_from: train once more, so many steps on this side, `"ref"` or `"paddle"`, then on the other.
        swaps: parts of the reference's training to put into the port's, one after the other.
        debug: show tracebacks of a side's own code.
        progress: called with what each side is doing.

    >>> result = run("case.py", stages=["forward"])
    >>> result.verdict
    'aligned'
    >>> [tensor.name for tensor in result.stages["forward"].tensors]
    ['output']
    """
    settings = settings_of(locals())
    from twinalign.runs import run_stages

    return run_stages.run(settings, progress)


def session(case: PathLike | type[Case] | None = None, **options: Any) -> Session:
    """Both sides stay between runs: each `session.run()` takes a fresh fork of a process that has its framework.

    Args:
        case: of every run; `session.run("other.py")` takes another one.
        **options: of every run, as in `run`; `session.run(stages=["loss"])` changes them for one.

    >>> with session("case.py", out="kept") as kept:
    ...     kept.run(stages=["forward"]).verdict
    'aligned'
    """
    from twinalign.runs.session import Session

    return Session(case, **options)


@names_unknown_options
def record(
    case: PathLike | type[Case],
    side: str,
    *,
    out: PathLike,
    stages: Sequence[str] = (),
    device: str = "cpu",
    precision: str = "both",
    ranks: int = 1,
    ref_python: str | None = None,
    paddle_python: str | None = None,
    options: Mapping[str, Any] | None = None,
    accuracy_compatible: bool = False,
    fresh: bool = False,
    debug: bool = False,
    progress: Progress = quiet,
) -> list[Path]:
    """Record one side, `"ref"` or `"paddle"`, of a case into `out`; returns the paths of its recordings.

    Options are those of `run`. Record the reference first: it makes the weights, which the paddle side reads from
    `out/weights`.

    >>> [path.name for path in record("case.py", "ref", out="there", precision="float32")]
    ['initial_ref.npy', 'forward_ref.npy']
    """
    settings = settings_of(locals(), "side")
    require_choice("side", side, SIDES)
    from twinalign.recorder.recorder import Recorder

    recorder = Recorder(settings, progress)
    done = list(recorder.record([side]))
    return [recorder.recording_path(side, stage, dtype) for stage in done for dtype in recorder.dtypes_of(stage)]


def attach(command: Sequence[str], out: PathLike, steps: Sequence[int] = (0, 1, 2), **options: Any) -> int:
    """Run a trainer's script unchanged and record its steps into `out`; returns the script's exit code.

    `twinalign.attach` is the function for a script of one's own, `twinalign.attached.attachment.attach`, whose other
    arguments are `options`. `twinalign.compare` compares two such recordings.

    >>> attach(["python", "-c", "print('no training')"], out="recordings/none")
    0
    """
    from twinalign.attached.untouched_script import run_attached

    return run_attached(command, {"out": out, "steps": list(steps), **options})


def compare(
    reference: PathLike,
    reproduced: PathLike,
    *,
    reference64: PathLike | None = None,
    reproduced64: PathLike | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    only: Iterable[str] = (),
    skip: Iterable[str] = (),
    accept: Iterable[str] = (),
    allowances: Iterable[Allowance | str] = (),
    html: PathLike | None = None,
    **options: Any,
) -> Comparison:
    """Compare two recordings or tensor files (`.npy`, `.npz`, `.safetensors`, `.pth`, `.pdparams`), or folders of them.

    Args:
        reference: the reference's file.
        reproduced: the port's.
        reference64: the reference's float64 run, which measures rounding; by default one in a folder `float64`.
        reproduced64: the port's float64 run, which tells a bug from rounding.
        rtol, atol: relative and absolute tolerance; given together, they decide alone.
        only, skip: patterns of tensors to compare, and to leave out.
        accept: `ID` or `ID=PATTERN` of conventions whose differences do not affect the verdict.
        allowances: `ID` or `ID=PATTERN` of float32 constants that explain differences.
        html: where to write a report of the two files.
        **options: further options of `twinalign.verdict.compare_arrays`, and `reference_repeat`, a file.

    >>> import numpy as np
    >>> np.save("a.npy", np.ones(4, "float32"))
    >>> np.save("b.npy", np.full(4, 1.001, "float32"))
    >>> compare("a.npy", "a.npy").verdict, compare("a.npy", "b.npy", html="compared.html").verdict
    ('aligned', 'diverged')
    """
    asked = {name: value for name, value in locals().items() if name not in ("options", "html")}
    from twinalign.files.recordings import write_text
    from twinalign.reports import comparison_page
    from twinalign.verdict.compare import compare_arrays, compare_files

    require_known("compare", options, inspect.signature(compare_arrays).parameters)
    comparison = compare_files(**asked, **options)
    if html is not None:
        title = f"{Path(reference).name} against {Path(reproduced).name}"
        write_text(Path(html), comparison_page(comparison.to_json(), title))
    return comparison


@names_unknown_options
def locate(
    case: PathLike | type[Case],
    port: PathLike | None = None,
    *,
    out: PathLike = "result",
    stages: Sequence[str] = (),
    device: str = "cpu",
    ranks: int = 1,
    ref_python: str | None = None,
    paddle_python: str | None = None,
    options: Mapping[str, Any] | None = None,
    explain: bool = True,
    explain_seconds: float = 60.0,
    debug: bool = False,
    progress: Progress = quiet,
) -> LocateResult:
    """Name every wrong layer and part of a port, and the proven cause of each; options as in `run`.

    `port`: for attached trainers, the port's recording; `case` is then the reference's.

    >>> found = locate("wrong.py", out="wrong")
    >>> [(fault.paddle_layer, fault.explanation.id) for fault in found.faults]
    [('1', 'norm_epsilon')]
    """
    settings = settings_of(locals(), "explain", "port")
    from twinalign.search import attached, locator

    if port is None:
        return locator.locate(settings, progress, explain)
    return attached.locate_attached(Path(str(case)), Path(port), settings, progress, explain)


@names_unknown_options
def info(
    case: PathLike | type[Case],
    *,
    out: PathLike = "result",
    device: str = "cpu",
    ref_python: str | None = None,
    paddle_python: str | None = None,
    options: Mapping[str, Any] | None = None,
    debug: bool = False,
    progress: Progress = quiet,
) -> ModelInfo:
    """Count parameters, buffers and FLOPs of both models, layer by layer; options as in `run`.

    >>> found = info("case.py", out="counted")
    >>> found.layers[0]["differ"]
    []
    """
    settings = settings_of(locals())
    from twinalign.runs import model_info

    return model_info.info(settings, progress)
