"""Drafting, mending and converting."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinalign.api.arguments import Progress, names_unknown_options, quiet, settings_of
from twinalign.case.definition import Case
from twinalign.runs.options import PathLike, require_choice, require_known, run_settings

if TYPE_CHECKING:
    from twinalign.conversion.options import ConversionResult
    from twinalign.drafting.port import PortResult
    from twinalign.repair.fix import FixResult


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
    train: str = "",
    style: str = "compat",
    debug: bool = False,
    progress: Progress = quiet,
) -> PortResult:
    """Make a paddle port of the torch model that `module:factory("small", …)` names, and prove it.

    `inputs` are `name:shape:dtype` each; the name of the folder `out` is the port's package. `loss`, `optimizer`,
    `transform` and `train`, a training loop, name what is to be drafted and proven too (`twinalign.drafting.parts`).
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
    parts = {kind: text for kind, text in zip(KINDS, (loss, optimizer, transform, train), strict=True) if text}
    return drafting.port(
        reference, arrays, settings, parts=parts, drafting_python=draft_python, style=style, progress=progress
    )


def check_port(
    folder: PathLike,
    *,
    ref_python: str | None = None,
    paddle_python: str | None = None,
    debug: bool = False,
    progress: Progress = quiet,
) -> PortResult:
    """Prove a port that `port` made once more, after a person has worked on it.

    >>> check_port("my_port").verdict
    'aligned'
    """
    from twinalign.drafting import port as drafting

    settings = run_settings("", out=folder, ref_python=ref_python, paddle_python=paddle_python, debug=debug)
    return drafting.proven(settings.out, settings, progress)


@names_unknown_options
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
    progress: Progress = quiet,
) -> FixResult:
    """Mend a port by edits of its source that a re-run proves; options as in `run`.

    The patch is in `out/fix.patch`. `write`: change the files as well.

    >>> fix("case.py", out="mended").edits
    []
    """
    settings = settings_of(locals(), "write")
    from twinalign.repair import fix as repair

    return repair.fix(settings, progress, write)


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
