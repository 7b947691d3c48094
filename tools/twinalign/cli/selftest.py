"""`twinalign selftest`."""

from __future__ import annotations

from pathlib import Path

import click

from twinalign.cli.options import parse_settings

_SMALL_CASE = "pipeline.small_moco:SmallMoCoViT"


@click.command("selftest")
@click.argument("case", default=_SMALL_CASE)
@click.option("--faults", default="", metavar="ID,…", help="Plant only these; --list names them.")
@click.option("--list", "only_list", is_flag=True, help="Show which faults have a place in CASE, and plant none.")
@click.option("--locate/--no-locate", default=True, show_default=True, help="Locate and explain what was planted.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write every trial to this file.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("result/selftest"),
    show_default=True,
    help="Folder for recordings.",
)
@click.option("--ref-python", metavar="PYTHON", help="Interpreter that has torch; twinalign need not be there.")
@click.option("--paddle-python", metavar="PYTHON", help="Interpreter that has paddle; twinalign need not be there.")
@click.option("--device", type=click.Choice(["cpu", "gpu"]), default="cpu", show_default=True)
@click.option(
    "--ranks",
    type=int,
    default=1,
    show_default=True,
    metavar="N",
    help="Plant what goes wrong between N processes instead (labels, batch norm, gradients, samples, weights).",
)
@click.option("--data", type=click.Path(path_type=Path), help="Data folder of the case (its option `data`).")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Set an option of the case.")
@click.option("--debug", is_flag=True, help="Show tracebacks of errors.")
def command(
    case: str,
    faults: str,
    only_list: bool,
    locate: bool,
    json_path: Path | None,
    out: Path,
    ref_python: str | None,
    paddle_python: str | None,
    device: str,
    ranks: int,
    data: Path | None,
    settings: tuple[str, ...],
    debug: bool,
) -> int:
    """Plant faults into the port of CASE, one at a time, and see whether each is detected, located and explained.

    CASE is a registered name, path/to/case.py or package.module:ClassName; without one it is a small MoCo v3, which
    takes a few minutes on two cores. A fault is planted where the case has a place for it: a case of three methods gets
    faults in its layers alone. The port itself must be right, or its own faults are counted as false alarms.

    Exit code 0: all faults were detected and nothing else was; 1: otherwise.
    """
    from twinalign.cli.progress import SideProgress
    from twinalign.recording import write_json
    from twinalign.runner import RunSettings
    from twinalign.selftest.catalogue import catalogue
    from twinalign.selftest.rank_faults import rank_faults
    from twinalign.selftest.ranks import selftest_of
    from twinalign.selftest.tables import print_places, print_selftest

    asked = RunSettings(
        case=case,
        out=out,
        device=device,
        ranks=ranks,
        pythons={"ref": ref_python, "paddle": paddle_python},
        options=parse_settings(settings, data),
        debug=debug,
    )
    chosen = [name.strip() for name in faults.split(",") if name.strip()]
    with SideProgress() as progress:
        selftest = selftest_of(asked, chosen, locate, progress)
        if only_list:
            places = selftest.places()
        else:
            result = selftest.run()
    if only_list:
        print_places(places, rank_faults() if ranks > 1 else catalogue(), case)
        return 0
    print_selftest(result, locate)
    if json_path is not None:
        write_json(json_path, result.to_json())
    return int(result.exit_code)
