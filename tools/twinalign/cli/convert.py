"""`twinalign convert`."""

from pathlib import Path
from typing import Any

import click

from twinalign.cli.options import run_options


@click.command("convert")
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--ref", metavar="M:F", help="The torch model: module:factory or path.py:factory(width=2).")
@click.option("--paddle", metavar="M:F", help="The paddle model, in the same form.")
@click.option(
    "--to", "direction", type=click.Choice(["paddle", "torch"]), help="Direction, if the files' names do not show it."
)
@click.option("--entry", metavar="NAME", help="Name of the state dict in a nested checkpoint.")
@click.option("--rename", type=click.Path(path_type=Path), metavar="FILE", help="JSON: {reference name: paddle name}.")
@click.option("--layer", "layers", multiple=True, metavar="PATTERN=CLASS", help="Without a model: a layer's class.")
@click.option("--allow-missing", multiple=True, metavar="PATTERN", help="Keys that the source may lack.")
@click.option("--allow-unexpected", multiple=True, metavar="PATTERN", help="Keys of the source that may be left out.")
@click.option("--input", "inputs", multiple=True, metavar="SHAPE|FILE", help="An input of the models: 2,3,224,224.")
@click.option("--keep", multiple=True, metavar="PATTERN", help="Your own matrices to keep as they are.")
@click.option("--transpose", multiple=True, metavar="PATTERN", help="Your own matrices to transpose.")
@click.option("--cast", is_flag=True, help="Give every array the dtype of the target model.")
@click.option("--weights-only", is_flag=True, help="Leave out the optimizer, the epoch and the rest.")
@click.option("--export", type=click.Choice(["deit", "timm", "linear-probe"]), help="Only the base encoder of MoCo v3.")
@click.option("--defaults", type=click.Path(path_type=Path), metavar="FILE", help="Values that the source lacks.")
@click.option("--setting", "settings", multiple=True, metavar="NAME=VALUE", help="Settings that the source lacks.")
@click.option("--prefix", default="", metavar="TEXT", help="Prefix for every key of a torch target: module.")
@click.option("--rules", multiple=True, metavar="FILE.py", help="Rules for your own layers.")
@click.option("--ledger", type=click.Path(path_type=Path), metavar="FILE", help="Write the ledger as JSON.")
@click.option("--verify", is_flag=True, help="Run both models in float64 and compare before anything is written.")
@click.option("--quiet", is_flag=True, help="Do not show the table.")
@run_options("convert")
def command(
    source: Path,
    target: Path,
    rename: Path | None,
    layers: tuple[str, ...],
    settings: tuple[str, ...],
    ledger: Path | None,
    quiet: bool,
    debug: bool,
    **options: Any,
) -> None:
    """Convert the checkpoint SOURCE of one framework into TARGET of the other.

    Layouts come from the models' layers (--ref, --paddle; one is enough if both have the same names). The ledger
    accounts for every key of both sides.
    """
    from rich.console import Console

    from twinalign import api
    from twinalign.conversion.options import parse_pairs, read_rules
    from twinalign.errors import InputError
    from twinalign.files.recordings import write_text
    from twinalign.terminal import show

    if ledger is not None and not ledger.parent.is_dir():
        raise InputError(f"--ledger {ledger}: no such folder {ledger.parent}; make it first")
    if options["prefix"] and options["export"]:
        raise InputError("--prefix does not apply to --export, whose format fixes the names; leave it out")
    options |= {
        "rename": read_rules(rename) if rename else {},
        "layers": parse_pairs("--layer", layers),
        "settings": parse_pairs("--setting", settings, literal=True),
    }
    with Console(stderr=True).status(f"converting {source}"):  # shown on a terminal only
        result = api.convert(source, target, **options)
    if ledger is not None:
        write_text(ledger, result.ledger.dumps())
    show(result, quiet=quiet)
