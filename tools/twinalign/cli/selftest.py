"""`twinalign selftest`."""

from pathlib import Path
from typing import Any

import click

from twinalign.cli.options import run_options
from twinalign.cli.outputs import finish, output_option
from twinalign.errors import InputError

_SMALL_CASE = "pipeline.small_moco:SmallMoCoViT"


@click.command("selftest")
@click.argument("case", default=_SMALL_CASE)
@click.option("--faults", default="", metavar="ID,…", help="Plant only these; --list names them.")
@click.option("--list", "only_list", is_flag=True, help="List the faults that fit into CASE without planting any.")
@click.option("--locate/--no-locate", default=True, show_default=True, help="Locate and explain what was planted.")
@click.option(
    "--fix",
    "count",
    type=click.IntRange(1),
    metavar="N",
    help="Plant N faults, drawn by lot, in the port's source instead, and see which of them fix repairs.",
)
@output_option("--json", "json_path", "Write every trial")
@run_options("selftest")
def command(
    case: str, faults: str, only_list: bool, locate: bool, count: int | None, json_path: Path | None, **asked: Any
) -> int:
    """Plant faults into the port of CASE, one at a time, and see whether each is detected, located and explained.

    CASE is a registered name, path/to/case.py or package.module:ClassName; without one it is a small MoCo v3, which
    takes a few minutes on two cores. Only faults that fit into the case are planted: a case of three methods gets
    faults in its layers only. The port itself must be right, or its own faults count as false alarms.

    Exit code 0: all faults were detected and nothing else; 1: a fault was missed, or there was a false alarm. With
    --fix, 0: all were located and no wrong edit was called proven.
    """
    from twinalign.cli.progress import SideProgress
    from twinalign.planted_faults.catalogue import catalogue
    from twinalign.planted_faults.rank_faults import rank_faults
    from twinalign.planted_faults.ranks import selftest_of
    from twinalign.planted_faults.source_selftest import selftest_of_fix
    from twinalign.runs.options import run_settings
    from twinalign.terminal.selftest import print_fitting_faults

    settings = run_settings(case, **asked)
    chosen = [name.strip() for name in faults.split(",") if name.strip()]
    if count is not None and (chosen or only_list or settings.ranks > 1):
        raise InputError("--fix: plants faults of its own in the source; leave --faults, --list and --ranks out")
    how = {}
    with SideProgress() as progress:
        if count is not None:
            result: Any = selftest_of_fix(settings, count, progress)
        elif only_list:
            fitting = selftest_of(settings, chosen, locate, progress).places()
        else:
            result, how = selftest_of(settings, chosen, locate, progress).run(), {"located": locate}
    if only_list:
        print_fitting_faults(fitting, rank_faults() if settings.ranks > 1 else catalogue(), case)
        return 0
    return finish(result, json_path, **how)
