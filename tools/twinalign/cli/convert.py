"""`twinalign convert`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("convert")
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--ref", metavar="M:F", help="The torch model: module:factory or path.py:factory(width=2).")
@click.option("--paddle", metavar="M:F", help="The paddle model, likewise.")
@click.option("--ref-python", metavar="PYTHON", help="Interpreter that has torch; twinalign need not be there.")
@click.option("--paddle-python", metavar="PYTHON", help="Interpreter that has paddle; twinalign need not be there.")
@click.option("--to", "direction", type=click.Choice(["paddle", "torch"]), help="Direction, where names do not tell.")
@click.option("--entry", metavar="NAME", help="Name of the state dict in a nested checkpoint.")
@click.option("--rename", type=click.Path(path_type=Path), metavar="FILE", help="JSON: {reference name: paddle name}.")
@click.option("--layer", "layers", multiple=True, metavar="PATTERN=CLASS", help="Without a model: what a layer is.")
@click.option("--allow-missing", multiple=True, metavar="PATTERN", help="Keys that the source may lack.")
@click.option("--allow-unexpected", multiple=True, metavar="PATTERN", help="Keys of the source that may go nowhere.")
@click.option("--input", "inputs", multiple=True, metavar="SHAPE|FILE", help="What the models take: 2,3,224,224.")
@click.option("--keep", multiple=True, metavar="PATTERN", help="Matrices of your own that are not transposed.")
@click.option("--transpose", multiple=True, metavar="PATTERN", help="Matrices of your own that are.")
@click.option("--cast", is_flag=True, help="Give every array the dtype of the target model.")
@click.option("--weights-only", is_flag=True, help="Leave optimizer, epoch and the rest.")
@click.option(
    "--export", type=click.Choice(["deit", "timm", "linear-probe"]), help="The base encoder of MoCo v3 alone."
)
@click.option("--defaults", type=click.Path(path_type=Path), metavar="FILE", help="Values the source cannot know.")
@click.option("--setting", "settings", multiple=True, metavar="NAME=VALUE", help="Settings the source does not hold.")
@click.option("--prefix", default="", metavar="TEXT", help="Put before every key of a torch target: module.")
@click.option("--rules", multiple=True, metavar="FILE.py", help="Rules for layers of your own.")
@click.option("--ledger", type=click.Path(path_type=Path), metavar="FILE", help="Write the ledger as JSON.")
@click.option("--verify", is_flag=True, help="Run both models in float64 and compare before anything is written.")
@click.option("--quiet", is_flag=True, help="Show no table.")
@click.option("--debug", is_flag=True, help="Show tracebacks of errors.")
def command(
    source: Path,
    target: Path,
    ref: str | None,
    paddle: str | None,
    ref_python: str | None,
    paddle_python: str | None,
    direction: str | None,
    entry: str | None,
    rename: Path | None,
    layers: tuple[str, ...],
    allow_missing: tuple[str, ...],
    allow_unexpected: tuple[str, ...],
    inputs: tuple[str, ...],
    keep: tuple[str, ...],
    transpose: tuple[str, ...],
    cast: bool,
    weights_only: bool,
    export: str | None,
    defaults: Path | None,
    settings: tuple[str, ...],
    prefix: str,
    rules: tuple[str, ...],
    ledger: Path | None,
    verify: bool,
    quiet: bool,
    debug: bool,
) -> None:
    """Convert the checkpoint SOURCE of one framework into TARGET of the other.

    Layouts come from the models' layers (--ref, --paddle; one is enough where both have the same names). Every key of
    either side is accounted for in the ledger.
    """
    from rich.console import Console

    from twinalign.convert.converter import convert_checkpoint
    from twinalign.convert.options import Options, parse_pairs, read_rules
    from twinalign.convert.table import print_report
    from twinalign.convert.writers import write_text
    from twinalign.errors import InputError

    if ledger is not None and not ledger.parent.is_dir():
        raise InputError(f"--ledger {ledger}: no such folder {ledger.parent}; make it first")
    if prefix and export:
        raise InputError("--prefix has no use with --export, whose form says the names; leave it out")
    options = Options(
        factories={side: factory for side, factory in (("ref", ref), ("paddle", paddle)) if factory},
        pythons={"ref": ref_python, "paddle": paddle_python},
        direction=direction,
        entry=entry,
        rename=read_rules(rename) if rename else {},
        layers=parse_pairs("--layer", layers),
        allow_missing=allow_missing,
        allow_unexpected=allow_unexpected,
        inputs=inputs,
        keep=keep,
        transpose=transpose,
        cast=cast,
        weights_only=weights_only,
        export=export,
        defaults=defaults,
        settings=parse_pairs("--setting", settings, literal=True),
        verify=verify,
        prefix=prefix,
        rules=rules,
    )
    with Console(stderr=True).status(f"converting {source}"):  # shown on a terminal only
        try:
            report = convert_checkpoint(source, target, options)
        except KeyboardInterrupt:
            raise InputError(f"interrupted; {target} is as it was") from None
    if ledger is not None:
        write_text(ledger, report.ledger.dumps())
    print_report(report, quiet=quiet)
