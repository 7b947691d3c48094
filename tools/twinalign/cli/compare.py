"""`twinalign compare`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from twinalign.verdict import Comparison

_PATH = click.Path(path_type=Path)
_OUTPUT = click.Path(path_type=Path, dir_okay=False, allow_dash=True)


@click.command("compare")
@click.argument("reference", type=_PATH, metavar="REF")
@click.argument("reproduced", type=_PATH, metavar="PADDLE")
@click.option("--ref64", type=_PATH, metavar="FILE", help="The reference's float64 run: measures rounding.")
@click.option("--paddle64", type=_PATH, metavar="FILE", help="The port's float64 run: tells a bug from rounding.")
@click.option("--ref-repeat", type=_PATH, metavar="FILE", help="The reference with another summation order.")
@click.option("--rtol", type=click.FloatRange(min=0), help="Relative tolerance; decides alone, together with --atol.")
@click.option("--atol", type=click.FloatRange(min=0), help="Absolute tolerance; together with --rtol.")
@click.option("--only", multiple=True, metavar="PATTERN", help="Compare tensors whose names match; may be repeated.")
@click.option("--skip", multiple=True, metavar="PATTERN", help="Leave out tensors whose names match.")
@click.option("--accept", multiple=True, metavar="ID[=PATTERN]", help="A convention whose differences do not decide.")
@click.option("--allow", multiple=True, metavar="ID[=PATTERN]", help="A float32 constant that explains differences.")
@click.option("--threshold", type=float, default=1e-6, show_default=True, help="Threshold of the classic verdict.")
@click.option("--dtype/--no-dtype", "check_dtype", default=True, help="Whether element types must be the same.")
@click.option("--limit", type=click.IntRange(min=0), default=40, show_default=True, help="Tensors shown; 0: all.")
@click.option(
    "--json", "json_path", type=_OUTPUT, metavar="FILE", help="Write the verdict with all evidence; - is stdout."
)
@click.option("--md", "markdown_path", type=_OUTPUT, metavar="FILE", help="Write a Markdown table; - is stdout.")
@click.option("--log", "log_path", type=_OUTPUT, metavar="FILE", help="Write reprod_log's own log lines; - is stdout.")
@click.option("--debug", is_flag=True, help="Show tracebacks of errors.")
def command(
    reference: Path,
    reproduced: Path,
    ref64: Path | None,
    paddle64: Path | None,
    ref_repeat: Path | None,
    rtol: float | None,
    atol: float | None,
    only: tuple[str, ...],
    skip: tuple[str, ...],
    accept: tuple[str, ...],
    allow: tuple[str, ...],
    threshold: float,
    check_dtype: bool,
    limit: int,
    json_path: Path | None,
    markdown_path: Path | None,
    log_path: Path | None,
    debug: bool,
) -> int:
    """Compare two recordings or tensor files, or two folders of them.

    REF and PADDLE are .npy (plain or reprod_log's), .npz, .safetensors, .pth/.pt, .pdparams/.pdopt, in any mixture.
    With --ref64 and --paddle64 rounding is measured and a bug is told from it; files of the same names in a folder
    `float64` beside REF and PADDLE are taken where neither is given. Without them, tolerances decide.

    Exit codes: 0 aligned, 1 diverged, 2 bad input, 3 inconclusive.
    """
    from twinalign.comparing import compare_recordings
    from twinalign.errors import InputError

    on_stdout = [str(path) for path in (json_path, markdown_path, log_path)].count("-")
    if on_stdout > 1:
        raise InputError("--json, --md and --log: only one of them can go to stdout")
    comparison = compare_recordings(
        reference,
        reproduced,
        reference64=ref64,
        reproduced64=paddle64,
        reference_repeat=ref_repeat,
        rtol=rtol,
        atol=atol,
        only=only,
        skip=skip,
        accept=accept,
        allowances=allow,
        classic_threshold=threshold,
        check_dtype=check_dtype,
    )
    _write(json_path, lambda: _json(comparison))
    _write(markdown_path, lambda: _markdown(comparison, reference, reproduced))
    _write(log_path, lambda: _log(comparison))
    if not on_stdout:
        _show(comparison, limit or None)
    return {"aligned": 0, "diverged": 1, "inconclusive": 3}[comparison.verdict]


def _json(comparison: Comparison) -> str:
    import json

    return json.dumps(comparison.to_json(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _markdown(comparison: Comparison, reference: Path, reproduced: Path) -> str:
    from twinalign.verdict import markdown

    return markdown(comparison, f"{reference.name} against {reproduced.name}")


def _log(comparison: Comparison) -> str:
    from twinalign.verdict import log_lines

    return "\n".join(log_lines(comparison.classic)) + "\n"


def _write(path: Path | None, make: Callable[[], str]) -> None:
    if path is None:
        return
    text = make()
    if str(path) == "-":
        click.echo(text, nl=False)
        return
    from twinalign.recording import write_text

    write_text(path, text)


def _show(comparison: Comparison, limit: int | None) -> None:
    """A table on a terminal, plain lines elsewhere; then what the verdict rests on and the classic one beside it."""
    from twinalign.verdict.render import printable, summary_line, text_lines

    if sys.stdout.isatty():
        from rich.console import Console

        from twinalign.verdict import rich_table

        Console().print(rich_table(comparison, limit))
    else:
        for line in text_lines(comparison, limit):
            click.echo(line)
    if limit is not None and len(comparison.tensors) > limit:
        click.echo(f"({len(comparison.tensors) - limit} more tensors; --limit 0 shows all)")
    for note in comparison.notes:
        click.echo(f"note: {note}")
    click.echo("reprod_log would say:")
    if comparison.classic.error:
        click.echo(f"  {printable(comparison.classic.error)}")
    click.echo(f"  {comparison.classic.lines[-1]}")
    for quirk in comparison.classic.quirks:
        click.echo(f"  ({printable(quirk)})")
    click.echo(summary_line(comparison))
