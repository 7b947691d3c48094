"""The commands as functions: `import twinalign`, then `twinalign.run(…)`, `twinalign.compare(…)` and so on.

Each takes the arguments of its command and returns the result as an object that a notebook shows as a table. Mistakes
of the user raise `InputError`: missing or broken files, unknown options, or a case, data or interpreter that does not
work. `SideCrashError` is raised if the case's own code raised or the process of a side died. Frameworks are imported in
their own processes, never here. The examples run unchanged in a folder with the files of `tests/twinalign/test_api.py`.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import twinalign.terminal  # noqa: F401  defines how notebooks show results
from twinalign.case.definition import Case
from twinalign.recorder.run_settings import DEFAULT_MARGIN, RunSettings
from twinalign.runs.options import PathLike, require_choice, require_known, run_settings
from twinalign.sides import SIDES

if TYPE_CHECKING:
    from twinalign.bundle.verifying import Verification
    from twinalign.conversion.options import ConversionResult
    from twinalign.drafting.port import PortResult
    from twinalign.model_zoo.align_architectures import ZooResult
    from twinalign.planted_faults.selftest import SelftestResult
    from twinalign.planted_faults.source_selftest import RepairSelftest
    from twinalign.repair.fix import FixResult
    from twinalign.runs.model_info import ModelInfo
    from twinalign.runs.run_result import RunResult
    from twinalign.runs.session import Session
    from twinalign.search.locator import LocateResult
    from twinalign.verdict import Allowance, Comparison

Progress = Callable[[str, str], None]
"""Called with a side and what it is doing."""

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def _quiet(side: str, text: str) -> None: ...


def _names_unknown_options(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Reject an unknown keyword in one line that suggests the nearest known one."""
    known = [name for name, it in inspect.signature(function).parameters.items() if it.kind is it.KEYWORD_ONLY]

    @functools.wraps(function)
    def checked(*arguments: Parameters.args, **options: Parameters.kwargs) -> Result:
        require_known(function.__name__, options.keys() - {"case", "side"}, known)
        return function(*arguments, **options)

    return checked


def _settings(arguments: Mapping[str, Any], *others: str) -> RunSettings:
    """The settings of a run from a function's arguments; `others` and `progress` are not among them."""
    return run_settings(**{name: value for name, value in arguments.items() if name not in ("progress", *others)})


@_names_unknown_options
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
    progress: Progress = _quiet,
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
        locate: whether to find the wrong layers and parts if stages diverge.
        explain_seconds: processor time in which the causes of all faults are looked for.
        sequential: one side after the other, for models that fill the memory.
        fresh: record everything again.
        language: of the report, `"en"` or `"zh"`.
        accuracy_compatible: use paddle's kernels that compute like torch's, and say what they change.
        seeds: number of seeds; each side trains once with each.
        margin: greatest difference of mean outcomes, in points, that counts as equivalent.
        tensorboard: write TensorBoard logs of all trainings.
        switch_at: train once more, this many steps on one side and the rest on the other.
        switch_from: the side where this training begins, `"ref"` or `"paddle"`.
        swaps: parts of the reference's training to put into the port's, one after the other.
        debug: show tracebacks of a side's own code.
        progress: called with what each side is doing.

    >>> result = run("case.py", stages=["forward"])
    >>> result.verdict
    'aligned'
    >>> [tensor.name for tensor in result.stages["forward"].tensors]
    ['output']
    """
    settings = _settings(locals())
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


@_names_unknown_options
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
    progress: Progress = _quiet,
) -> list[Path]:
    """Record one side, `"ref"` or `"paddle"`, of a case into `out`; returns the paths of its recordings.

    Options are those of `run`. Record the reference first: it makes the weights, which the paddle side reads from
    `out/weights`.

    >>> [path.name for path in record("case.py", "ref", out="there", precision="float32")]
    ['forward_ref.npy', 'initial_ref.npy']
    """
    settings = _settings(locals(), "side")
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


@_names_unknown_options
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
    progress: Progress = _quiet,
) -> LocateResult:
    """Name every wrong layer and part of a port, and the proven cause of each; options as in `run`.

    `port`: for attached trainers, the port's recording; `case` is then the reference's.

    >>> found = locate("wrong.py", out="wrong")
    >>> [(fault.paddle_layer, fault.explanation.id) for fault in found.faults]
    [('1', 'norm_epsilon')]
    """
    settings = _settings(locals(), "explain", "port")
    from twinalign.search import attached, locator

    if port is None:
        return locator.locate(settings, progress, explain)
    return attached.locate_attached(Path(str(case)), Path(port), settings, progress, explain)


@_names_unknown_options
def fix(
    case: PathLike | type[Case],
    *,
    out: PathLike = "result",
    stages: Sequence[str] = (),
    device: str = "cpu",
    ref_python: str | None = None,
    paddle_python: str | None = None,
    options: Mapping[str, Any] | None = None,
    write: bool = False,
    explain_seconds: float = 60.0,
    debug: bool = False,
    progress: Progress = _quiet,
) -> FixResult:
    """Mend a port by edits of its source that a re-run proves; options as in `run`.

    The patch is in `out/fix.patch`. `write`: change the files as well.

    >>> fix("case.py", out="mended").edits
    []
    """
    settings = _settings(locals(), "write")
    from twinalign.repair import fix as repair

    return repair.fix(settings, progress, write)


def port(
    reference: str,
    inputs: Sequence[str],
    *,
    out: PathLike,
    ref_python: str | None = None,
    paddle_python: str | None = None,
    draft_python: str | None = None,
    loss: str = "",
    optimizer: str = "",
    transform: str = "",
    style: str = "compat",
    debug: bool = False,
    progress: Progress = _quiet,
) -> PortResult:
    """Make a paddle port of the torch model that `module:factory("small", …)` names, and prove it.

    `inputs` are `name:shape:dtype` each; the name of the folder `out` is the port's package. `loss`, `optimizer` and
    `transform` name what is to be drafted and proven too (`twinalign.drafting.parts`).
    `style` is `compat`, in paddle's names of torch's API, or `native`, in paddle's own, each rewrite proven again.

    >>> port("torchvision.models:mobilenet_v3_small", ["x:2,3,64,64:float32"], out="my_port").verdict
    'aligned'
    """
    from twinalign.drafting import port as drafting
    from twinalign.drafting.parts import KINDS
    from twinalign.runs.scaffold import parse_input

    require_choice("style", style, drafting.STYLES)
    settings = run_settings("", out=out, ref_python=ref_python, paddle_python=paddle_python, debug=debug)
    arrays = [parse_input(text) for text in inputs]
    parts = {kind: text for kind, text in zip(KINDS, (loss, optimizer, transform), strict=True) if text}
    return drafting.port(
        reference, arrays, settings, parts=parts, drafting_python=draft_python, style=style, progress=progress
    )


def check_port(
    folder: PathLike,
    *,
    ref_python: str | None = None,
    paddle_python: str | None = None,
    debug: bool = False,
    progress: Progress = _quiet,
) -> PortResult:
    """Prove a port that `port` made once more, after a person has worked on it.

    >>> check_port("my_port").verdict
    'aligned'
    """
    from twinalign.drafting import port as drafting

    settings = run_settings("", out=folder, ref_python=ref_python, paddle_python=paddle_python, debug=debug)
    return drafting.proven(settings.out, settings, progress)


@_names_unknown_options
def info(
    case: PathLike | type[Case],
    *,
    out: PathLike = "result",
    device: str = "cpu",
    ref_python: str | None = None,
    paddle_python: str | None = None,
    options: Mapping[str, Any] | None = None,
    debug: bool = False,
    progress: Progress = _quiet,
) -> ModelInfo:
    """Count parameters, buffers and FLOPs of both models, layer by layer; options as in `run`.

    >>> found = info("case.py", out="counted")
    >>> found.layers[0]["differ"]
    []
    """
    settings = _settings(locals())
    from twinalign.runs import model_info

    return model_info.info(settings, progress)


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
) -> ConversionResult:
    """Convert the checkpoint `source` of one framework into `target` of the other; returns the ledger of every key.

    Raises `DivergedError` if `verify` finds that the two models compute different things.

    Args:
        source: the checkpoint.
        target: the file to write; its suffix chooses the format.
        ref: the torch model, `module:factory`.
        paddle: the paddle model; one of the two is enough if both have the same names.
        ref_python, paddle_python: interpreters that have torch and paddle.
        verify: run both models in float64 before anything is written.
        **options: further fields of `twinalign.conversion.options.Options`.

    >>> done = convert("model.pth", "model.pdparams", ref="models:reference", paddle="models:port", verify=True)
    >>> done.ledger.totals()
    {'copied': 3, 'transposed': 1}
    """
    from twinalign.conversion.convert_file import convert_checkpoint
    from twinalign.conversion.options import Options

    require_known("convert", options, [field.name for field in dataclasses.fields(Options)])
    factories = {side: factory for side, factory in (("ref", ref), ("paddle", paddle)) if factory}
    asked = Options(factories=factories, pythons={"ref": ref_python, "paddle": paddle_python}, verify=verify, **options)
    return convert_checkpoint(Path(source), Path(target), asked)


@_names_unknown_options
def selftest(
    case: PathLike | type[Case],
    *,
    faults: Sequence[str] = (),
    fix: int = 0,
    out: PathLike = "result/selftest",
    device: str = "cpu",
    ranks: int = 1,
    ref_python: str | None = None,
    paddle_python: str | None = None,
    options: Mapping[str, Any] | None = None,
    locate: bool = True,
    debug: bool = False,
    progress: Progress = _quiet,
) -> SelftestResult | RepairSelftest:
    """Plant faults into a port (with `ranks=N`, between its N processes), and see whether each is found and explained.

    With `fix=N`, N faults are drawn by lot and planted in the port's source, and `fix` has to repair them.

    >>> selftest("case.py", faults=["layer_norm_epsilon"], locate=False).summary()["detected"]  # doctest: +SKIP
    1
    """
    settings = _settings(locals(), "faults", "fix", "locate")
    from twinalign.planted_faults.ranks import selftest_of
    from twinalign.planted_faults.source_selftest import selftest_of_fix

    if fix:
        return selftest_of_fix(settings, fix, progress)
    return selftest_of(settings, list(faults), locate, progress).run()


def zoo(
    *names: str,
    out: PathLike = "result/zoo",
    size: int = 224,
    device: str = "cpu",
    ref_python: str | None = None,
    paddle_python: str | None = None,
    progress: Progress = _quiet,
) -> ZooResult:
    """Align the architectures that torchvision and paddle.vision share: the named ones, or all.

    >>> result = zoo("resnet18", size=32)  # doctest: +SKIP
    >>> result.counts, result.outcomes[0].matched  # doctest: +SKIP
    ({'aligned': 1}, {'name': 102})
    """
    from twinalign.model_zoo.align_architectures import run_zoo

    pythons = {"ref": ref_python, "paddle": paddle_python}
    return run_zoo(names, out=Path(out), size=size, device=device, pythons=pythons, progress=progress)


def report(
    folder: PathLike,
    *,
    md: PathLike | None = None,
    junit: PathLike | None = None,
    against: PathLike | None = None,
    language: str = "en",
) -> list[Path]:
    """Write `report.html` into the folder of a finished run, or the requested table and JUnit XML instead.

    The page begins with what changed since the run in the folder `against`, if that is given.

    >>> [path.name for path in report("result", md="table.md")]
    ['table.md']
    >>> [path.name for path in report("result", against="result")]
    ['report.html']
    """
    from twinalign.files.recordings import write_text
    from twinalign.reports import load_summary, write_report
    from twinalign.reports.junit import junit as as_junit
    from twinalign.reports.markdown import markdown

    if md is not None:
        write_text(Path(md), markdown(load_summary(Path(folder)), language))
    if junit is not None:
        write_text(Path(junit), as_junit(Path(folder)))
    return [Path(path) for path in (md, junit) if path is not None] or [
        write_report(Path(folder), language, Path(against) if against is not None else None)
    ]


def pack(folder: PathLike, bundle: PathLike, *, partial: bool = False) -> Verification:
    """Pack a finished run into one file for review; `InputError` names stale, aliased or incomplete files.

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
    """Check a bundle of `pack` without trusting it: verdicts are recomputed, signs of fabrication are named.

    Args:
        bundle: the file.
        replay: run the packed case again; this executes code from the bundle.
        ref_python, paddle_python, options: for the replay, the interpreters and attributes of the case.
        progress: called with what is being done.

    >>> verify("case.zip").verdict
    'confirmed'
    """
    from twinalign.bundle.rerun import run_case_again
    from twinalign.bundle.verifying import verify_bundle

    again = functools.partial(
        run_case_again, pythons={"ref": ref_python, "paddle": paddle_python}, options=options or {}, progress=progress
    )
    return verify_bundle(bundle, replay=again if replay else None, progress=lambda text: progress("verify", text))


def doctor(*, ref_python: str | None = None, paddle_python: str | None = None) -> dict[str, Any]:
    """What is installed for each side and which device paths work there.

    >>> doctor()["ref"]["paths"]["cpu float64"]  # doctest: +SKIP
    'works'
    """
    from twinalign.recorder.diagnosis import diagnose

    return diagnose({"ref": ref_python, "paddle": paddle_python})


def init(path: PathLike = "case.py", *, ref: str, paddle: str, inputs: Sequence[str], name: str | None = None) -> str:
    """Write a commented case for a model and its port; returns the name of its class.

    Args:
        path: the file, which must not exist.
        ref, paddle: the models, `module:factory` or `file.py:factory`.
        inputs: of the models, each `name:shape:dtype`.
        name: of the case; the name of the port's factory by default.

    >>> init("new.py", ref="models:reference", paddle="models:port", inputs=["x:4,8:float32"])
    'Port'
    """
    from twinalign.runs.scaffold import parse_factory, parse_input, write_case

    target = Path(path)
    given = (("torch", "ref", ref), ("paddle", "paddle", paddle))
    factories = {framework: parse_factory(side, text, target.parent) for framework, side, text in given}
    return write_case(target, factories, [parse_input(text) for text in inputs], name)
