"""`twinalign compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from twinalign.cli.outputs import json_text, one_to_stdout, output_option, write_output
from twinalign.reports.language import CODES

_PATH = click.Path(path_type=Path)
_FILE: dict[str, Any] = {"type": _PATH, "metavar": "FILE"}
_PATTERNS: dict[str, Any] = {"multiple": True, "metavar": "PATTERN"}
_IDS: dict[str, Any] = {"multiple": True, "metavar": "ID[=PATTERN]"}
_TOLERANCE = click.FloatRange(min=0)


@click.command("compare")
@click.argument("reference", type=_PATH, metavar="REF")
@click.argument("reproduced", type=_PATH, metavar="PADDLE")
@click.option("--ref64", "reference64", **_FILE, help="The reference's float64 run: measures rounding.")
@click.option("--paddle64", "reproduced64", **_FILE, help="The port's float64 run: tells a bug from rounding.")
@click.option(
    "--ref-repeat", "--repeat", "reference_repeat", **_FILE, help="The reference with another summation order."
)
@click.option("--rtol", type=_TOLERANCE, help="Relative tolerance; decides alone, together with --atol.")
@click.option("--atol", type=_TOLERANCE, help="Absolute tolerance; together with --rtol.")
@click.option("--only", **_PATTERNS, help="Compare tensors whose names match; may be repeated.")
@click.option("--skip", **_PATTERNS, help="Leave out tensors whose names match.")
@click.option("--accept", **_IDS, help="A convention whose differences do not affect the verdict.")
@click.option("--allow", "allowances", **_IDS, help="A float32 constant that explains differences.")
@click.option("--threshold", "classic_threshold", default=1e-6, show_default=True, help="Of the classic verdict.")
@click.option("--dtype/--no-dtype", "check_dtype", default=True, help="Whether element types must be the same.")
@click.option("--limit", type=click.IntRange(min=0), default=40, show_default=True, help="Tensors shown; 0: all.")
@output_option("--json", "json_path", "Write the verdict with all evidence")
@output_option("--md", "markdown_path", "Write a Markdown table")
@output_option("--html", "html_path", "Write the report, one page that opens offline")
@output_option("--log", "log_path", "Write log lines in reprod_log's format")
@click.option("--lang", type=click.Choice(CODES), default="en", help="Language of causes and reasons in --md.")
@click.option("--debug", is_flag=True, help="Show tracebacks of errors.")
def command(
    reference: Path,
    reproduced: Path,
    limit: int,
    json_path: Path | None,
    markdown_path: Path | None,
    html_path: Path | None,
    log_path: Path | None,
    lang: str,
    debug: bool,
    **options: Any,
) -> int:
    """Compare two recordings or tensor files, two folders of them, or two attached trainers.

    REF and PADDLE are .npy (plain or reprod_log's), .npz, .safetensors, .pth/.pt, .pdparams/.pdopt, in any combination.
    With --ref64 and --paddle64, rounding is measured and told from bugs; if neither is given, files of the same names
    in a folder `float64` next to REF and PADDLE are used. Without them, tolerances decide.

    Folders of `twinalign attach` are compared step by step in the order of execution: batches, outputs, losses,
    gradients, clipping, learning rate, update, state; then --ref64, --paddle64 and --ref-repeat are such folders.

    Exit codes: 0 aligned, 1 diverged, 2 bad input, 3 inconclusive.
    """
    from twinalign.reports import comparison_page
    from twinalign.reports.tables import comparison_markdown
    from twinalign.terminal import show
    from twinalign.verdict.classic import log_lines
    from twinalign.verdict.compare import compare_files

    quiet = one_to_stdout(json=json_path, md=markdown_path, html=html_path, log=log_path)
    comparison = compare_files(reference, reproduced, **options)
    title = f"{reference.name} against {reproduced.name}"
    write_output(json_path, lambda: json_text(comparison.to_json()))
    write_output(markdown_path, lambda: comparison_markdown(comparison.to_json(), title, lang))
    write_output(html_path, lambda: comparison_page(comparison.to_json(), title))
    write_output(log_path, lambda: "\n".join(log_lines(comparison.classic)) + "\n")
    if not quiet:
        show(comparison, limit=limit or None)
    return {"aligned": 0, "diverged": 1, "inconclusive": 3}[comparison.verdict]
