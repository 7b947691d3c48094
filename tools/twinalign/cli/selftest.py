"""`twinalign selftest`."""

from pathlib import Path
from typing import Any

import click

from twinalign.cli.options import run_options

_SMALL_CASE = "pipeline.small_moco:SmallMoCoViT"


@click.command("selftest")
@click.argument("case", default=_SMALL_CASE)
@click.option("--faults", default="", metavar="ID,…", help="Plant only these; --list names them.")
@click.option("--list", "only_list", is_flag=True, help="List the faults that fit into CASE without planting any.")
@click.option("--locate/--no-locate", default=True, show_default=True, help="Locate and explain what was planted.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write every trial to this file.")
@run_options("selftest")
def command(case: str, faults: str, only_list: bool, locate: bool, json_path: Path | None, **asked: Any) -> int:
    """Plant faults into the port of CASE, one at a time, and see whether each is detected, located and explained.

    CASE is a registered name, path/to/case.py or package.module:ClassName; without one it is a small MoCo v3, which
    takes a few minutes on two cores. Only faults that fit into the case are planted: a case of three methods gets
    faults in its layers only. The port itself must be right, or its own faults count as false alarms.

    Exit code 0: all faults were detected and nothing else; 1: a fault was missed, or there was a false alarm.
    """
    from twinalign.cli.progress import SideProgress
    from twinalign.files.recordings import write_json
    from twinalign.planted_faults.catalogue import catalogue
    from twinalign.planted_faults.rank_faults import rank_faults
    from twinalign.planted_faults.ranks import selftest_of
    from twinalign.runs.options import run_settings
    from twinalign.terminal import show
    from twinalign.terminal.selftest import print_fitting_faults

    settings = run_settings(case, **asked)
    chosen = [name.strip() for name in faults.split(",") if name.strip()]
    with SideProgress() as progress:
        selftest = selftest_of(settings, chosen, locate, progress)
        if only_list:
            fitting = selftest.places()
        else:
            result = selftest.run()
    if only_list:
        print_fitting_faults(fitting, rank_faults() if settings.ranks > 1 else catalogue(), case)
        return 0
    show(result, located=locate)
    if json_path is not None:
        write_json(json_path, result.to_json())
    return int(result.exit_code)
