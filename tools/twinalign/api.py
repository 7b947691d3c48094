"""The commands as functions: `import twinalign`, then `twinalign.run(…)`, `twinalign.compare(…)` and so on.

Each takes what its command takes, returns the result as an object that shows itself as a table in a notebook, and
raises `InputError` for a user's mistake and `SideCrashError` where a side died. Frameworks are imported in processes of
their own, never here. The examples run as they stand in a folder with the files of `tests/twinalign/test_api.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinalign.case import Case
from twinalign.errors import InputError
from twinalign.settings import PathLike, run_settings

if TYPE_CHECKING:
    from twinalign.bundle.verifying import Verification
    from twinalign.convert.options import Report
    from twinalign.judging import RunResult
    from twinalign.locate import LocateResult
    from twinalign.selftest.running import SelftestResult
    from twinalign.verdict import Allowance, Comparison
    from twinalign.zoo.running import ZooResult

Progress = Callable[[str, str], None]
"""Told of a side and what it is doing."""


def _quiet(side: str, text: str) -> None: ...


def run(
    case: PathLike | type[Case],
    *,
    out: PathLike = "result",
    stages: Sequence[str] = (),
    precision: str = "both",
    locate: bool = True,
    sequential: bool = False,
    fresh: bool = False,
    language: str = "en",
    progress: Progress = _quiet,
    **environment: Any,
) -> RunResult:
    """Record both sides of a case, compare them stage by stage, write logs and report into `out`.

    Args:
        case: a registered name, `path/to/case.py`, `package.module:ClassName`, or the class itself.
        out: folder for recordings, logs, `summary.json` and `report.html`; what has not changed there is reused.
        stages: which to take; all that the case defines by default.
        precision: `"float32"`, `"float64"`, `"both"`, or a half precision, which float64 judges as well.
        locate: whether to find the wrong layers and parts where stages diverge.
        sequential: one side after the other, for models that fill the memory.
        fresh: reuse nothing.
        language: of the report, `"en"` or `"zh"`.
        progress: told what each side is doing.
        **environment: further options of `twinalign.settings.run_settings`.

    Raises:
        InputError: case, stages, data or interpreter are at fault.
        SideCrashError: the case's own code raised, or a process died.

    >>> result = run("case.py", stages=["forward"])
    >>> result.verdict
    'aligned'
    >>> [tensor.name for tensor in result.stages["forward"].tensors]
    ['output']
    """
    from twinalign import judging

    asked = run_settings(
        case,
        out=out,
        stages=stages,
        precision=precision,
        sequential=sequential,
        fresh=fresh,
        locate=locate,
        language=language,
        **environment,
    )
    return judging.run(asked, progress)


def record(
    case: PathLike | type[Case],
    side: str,
    *,
    out: PathLike,
    stages: Sequence[str] = (),
    precision: str = "both",
    fresh: bool = False,
    progress: Progress = _quiet,
    **environment: Any,
) -> list[Path]:
    """Record one side, `"ref"` or `"paddle"`, of a case into `out`; returns the paths of its recordings.

    The reference comes first: it makes the weights, which the paddle side takes from `out/weights`.

    Raises:
        InputError: as of `run`, and for the paddle side where there are no weights of the reference.
        SideCrashError: the case's own code raised, or the process died.

    >>> [path.name for path in record("case.py", "ref", out="there", precision="float32")]
    ['forward_ref.npy']
    """
    from twinalign.runner import SIDES, Recorder

    if side not in SIDES:
        raise InputError(f"side {side!r}: give 'ref' or 'paddle'")
    recorder = Recorder(
        run_settings(case, out=out, stages=stages, precision=precision, fresh=fresh, **environment), progress
    )
    done = list(recorder.record([side]))
    return [recorder.recording_path(side, stage, dtype) for stage in done for dtype in recorder.dtypes_of(stage)]


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
    **options: Any,
) -> Comparison:
    """Compare two recordings or tensor files (`.npy`, `.npz`, `.safetensors`, `.pth`, `.pdparams`), or folders of them.

    Args:
        reference: the reference's file.
        reproduced: the port's.
        reference64: the reference's float64 run, which measures rounding; found by itself in a folder `float64`.
        reproduced64: the port's float64 run, which tells a bug from rounding.
        rtol: relative tolerance; decides alone, together with `atol`.
        atol: absolute tolerance.
        only: patterns of tensors to compare.
        skip: patterns of tensors to leave out.
        accept: `ID` or `ID=PATTERN` of conventions whose differences do not decide.
        allowances: `ID` or `ID=PATTERN` of float32 constants that explain differences.
        **options: further ones of `twinalign.verdict.compare_files`.

    Raises:
        InputError: a file that is missing or broken.

    >>> import numpy as np
    >>> np.save("a.npy", np.ones(4, "float32"))
    >>> np.save("b.npy", np.full(4, 1.001, "float32"))
    >>> compare("a.npy", "a.npy").verdict, compare("a.npy", "b.npy").verdict
    ('aligned', 'diverged')
    """
    from twinalign.comparing import compare_recordings

    return compare_recordings(
        reference,
        reproduced,
        reference64=reference64,
        reproduced64=reproduced64,
        rtol=rtol,
        atol=atol,
        only=only,
        skip=skip,
        accept=accept,
        allowances=allowances,
        **options,
    )


def locate(
    case: PathLike | type[Case],
    *,
    out: PathLike = "result",
    stages: Sequence[str] = (),
    explain: bool = True,
    progress: Progress = _quiet,
    **environment: Any,
) -> LocateResult:
    """Name every wrong layer and part of a port, and the proven cause of each.

    Raises:
        InputError: as of `run`.
        SideCrashError: the case's own code raised, or a process died.

    >>> found = locate("wrong.py", out="wrong")
    >>> [(fault.paddle_layer, fault.explanation.id) for fault in found.faults]
    [('1', 'norm_epsilon')]
    """
    from twinalign.locate import locator

    return locator.locate(run_settings(case, out=out, stages=stages, **environment), progress, explain)


def convert(
    source: PathLike,
    target: PathLike,
    *,
    ref: str | None = None,
    paddle: str | None = None,
    ref_python: str | None = None,
    paddle_python: str | None = None,
    verify: bool = False,
    **options: Any,
) -> Report:
    """Convert the checkpoint `source` of one framework into `target` of the other; returns the ledger of every key.

    Args:
        source: the checkpoint.
        target: what to write; its suffix says how.
        ref: the torch model, `module:factory`.
        paddle: the paddle model; one of the two is enough where both have the same names.
        ref_python: interpreter that has torch.
        paddle_python: interpreter that has paddle.
        verify: run both models in float64 before anything is written.
        **options: further fields of `twinalign.convert.options.Options`.

    Raises:
        InputError: a broken file, keys without a partner, or an assignment that cannot be proven.
        DivergedError: the two models compute different things.
        SideCrashError: a model's own code raised.

    >>> done = convert("model.pth", "model.pdparams", ref="models:reference", paddle="models:port", verify=True)
    >>> done.ledger.totals()
    {'copied': 3, 'transposed': 1}
    """
    from twinalign.convert.converter import convert_checkpoint
    from twinalign.convert.options import Options

    factories = {side: factory for side, factory in (("ref", ref), ("paddle", paddle)) if factory}
    pythons = {"ref": ref_python, "paddle": paddle_python}
    asked = Options(factories=factories, pythons=pythons, verify=verify, **options)
    return convert_checkpoint(Path(source), Path(target), asked)


def selftest(
    case: PathLike | type[Case],
    *,
    faults: Sequence[str] = (),
    out: PathLike = "result/selftest",
    locate: bool = True,
    progress: Progress = _quiet,
    **environment: Any,
) -> SelftestResult:
    """Plant faults into a port (with `ranks=N`, between its N processes), and see whether each is found and explained.

    Raises:
        InputError: as of `run`, and for a fault that there is not.
        SideCrashError: the case's own code raised, or a process died.

    >>> selftest("case.py", faults=["layer_norm_epsilon"], locate=False).summary()["detected"]  # doctest: +SKIP
    1
    """
    from twinalign.selftest.ranks import selftest_of

    return selftest_of(run_settings(case, out=out, **environment), list(faults), locate, progress).run()


def zoo(
    *names: str,
    out: PathLike = "result/zoo",
    size: int = 224,
    device: str = "cpu",
    ref_python: str | None = None,
    paddle_python: str | None = None,
    progress: Progress = _quiet,
) -> ZooResult:
    """Align the architectures that torchvision and paddle.vision share: those named, or all.

    Raises:
        InputError: a name that not both have, or an interpreter without its library.

    >>> result = zoo("resnet18", size=32)  # doctest: +SKIP
    >>> result.counts, result.outcomes[0].matched  # doctest: +SKIP
    ({'aligned': 1}, {'name': 102})
    """
    from twinalign.zoo.running import run_zoo

    pythons = {"ref": ref_python, "paddle": paddle_python}
    return run_zoo(names, out=Path(out), size=size, device=device, pythons=pythons, progress=progress)


def report(
    folder: PathLike, *, md: PathLike | None = None, junit: PathLike | None = None, language: str = "en"
) -> list[Path]:
    """Write `report.html` into the folder of a finished run, or the table and JUnit XML that are asked for instead.

    Raises:
        InputError: no run has finished there.

    >>> [path.name for path in report("result", md="table.md")]
    ['table.md']
    """
    from twinalign.recording import write_text
    from twinalign.report import load_summary, write_report
    from twinalign.report.junit import junit as as_junit
    from twinalign.report.markdown import markdown

    written = []
    if md is not None:
        write_text(Path(md), markdown(load_summary(Path(folder)), language))
        written.append(Path(md))
    if junit is not None:
        write_text(Path(junit), as_junit(Path(folder)))
        written.append(Path(junit))
    return written or [write_report(Path(folder), language)]


def pack(folder: PathLike, bundle: PathLike, *, partial: bool = False) -> Verification:
    """Pack a finished run into one file for review, checked as a reviewer will check it.

    Raises:
        InputError: what is stale, aliased or incomplete.

    >>> pack("result", "case.zip", partial=True).recomputed
    'aligned'
    """
    from twinalign.bundle.packing import pack_run

    return pack_run(Path(folder), Path(bundle), partial=partial)


def verify(
    bundle: PathLike,
    *,
    replay: bool = False,
    ref_python: str | None = None,
    paddle_python: str | None = None,
    options: Mapping[str, str] | None = None,
    progress: Progress = _quiet,
) -> Verification:
    """Check a bundle of `pack`, trusting nobody: every verdict is recomputed, signs of fabrication are named.

    Args:
        bundle: the file.
        replay: run the packed case again; this executes code out of the bundle.
        ref_python: for the replay, interpreter that has torch.
        paddle_python: for the replay, interpreter that has paddle.
        options: for the replay, attributes of the case.
        progress: told what is being done.

    Raises:
        InputError: no bundle, or one that is damaged or hostile.

    >>> verify("case.zip").verdict
    'confirmed'
    """
    from twinalign.bundle.replay import replay_case
    from twinalign.bundle.verifying import verify_bundle

    pythons = {"ref": ref_python, "paddle": paddle_python}

    def again(contents: Any) -> dict[str, Any]:
        return replay_case(contents, pythons=pythons, options=options or {}, progress=progress)

    return verify_bundle(bundle, replay=again if replay else None, progress=lambda text: progress("verify", text))


def doctor(*, ref_python: str | None = None, paddle_python: str | None = None) -> dict[str, Any]:
    """What is installed for each side and which device paths work there.

    Raises:
        InputError: an interpreter that does not start.

    >>> doctor()["ref"]["paths"]["cpu float64"]  # doctest: +SKIP
    'works'
    """
    from twinalign.diagnosis import diagnose

    return diagnose({"ref": ref_python, "paddle": paddle_python})


def init(path: PathLike = "case.py", *, ref: str, paddle: str, inputs: Sequence[str], name: str | None = None) -> str:
    """Write a commented case for a model and its port; returns the name of its class.

    Args:
        path: the file, which must not exist.
        ref: the torch model, `module:factory` or `file.py:factory`.
        paddle: the paddle model, likewise.
        inputs: what the models take, each `name:shape:dtype`.
        name: of the case; that of the port's factory by default.

    Raises:
        InputError: a file that exists, or what is no factory, input or name.

    >>> init("new.py", ref="models:reference", paddle="models:port", inputs=["x:4,8:float32"])
    'Port'
    """
    from twinalign.scaffold import parse_factory, parse_input, write_case

    target = Path(path)
    factories = {
        "torch": parse_factory("ref", ref, target.parent),
        "paddle": parse_factory("paddle", paddle, target.parent),
    }
    return write_case(target, factories, [parse_input(text) for text in inputs], name)
