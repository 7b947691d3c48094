"""`twinalign port`."""

from pathlib import Path
from typing import Any

import click

from twinalign.cli.outputs import finish, output_option


@click.command("port")
@click.option("--ref", metavar='M:F("small", …)', help="What builds the torch model: module:factory or file.py:build.")
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME:SHAPE:DTYPE",
    help="An input of the model: x:2,3,224,224:float32, tokens:2,16:int64:32000 (below 32000); may be repeated.",
)
@click.option("--loss", default="", metavar="M:F", help="Loss to draft too: loss(outputs, the inputs left for it).")
@click.option(
    "--optimizer", default="", metavar="M:F", help="Optimizer, and schedule, to draft too: made of parameters."
)
@click.option("--transform", default="", metavar="M:F", help="Transform of PIL images to draft too.")
@click.option("--train", default="", metavar="M:F", help="Training loop to draft too: train(model, batches, …).")
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the port; its name is the port's package.")
@click.option("--check", type=click.Path(path_type=Path), help="Prove an existing port again.")
@click.option(
    "--style",
    type=click.Choice(["compat", "native"]),
    default="compat",
    show_default=True,
    help="compat: in paddle's names of torch's API; native: in paddle's own, each rewrite proven again.",
)
@click.option("--ref-python", metavar="PYTHON", help="Interpreter that has torch.")
@click.option("--paddle-python", metavar="PYTHON", help="Interpreter that has paddle.")
@click.option("--draft-python", metavar="PYTHON", help="Interpreter that has PaConvert.")
@output_option("--json", "json_path", "Write the result")
@click.option("--debug", is_flag=True, help="Show tracebacks of errors.")
def command(
    ref: str | None, inputs: tuple[str, ...], out: Path | None, check: Path | None, json_path: Path | None, **asked: Any
) -> int:
    """Make a paddle port of a torch model, and prove it.

    The sources that the model needs are drafted by PaConvert (pip install 'twinalign[port]'), mended by rules, and
    written as a package of its own with a case.py; forward, loss and two optimizer steps in training mode are then
    compared in float32 and float64, and what diverges is mended as `twinalign fix` does. OUT/changes.txt lists what
    was changed beside the draft and why.

    Exit code 0: proven; 1: something is left, which is named; 4: the port does not run yet.
    """
    from twinalign.api import check_port, port
    from twinalign.cli.progress import SideProgress
    from twinalign.errors import InputError

    with SideProgress() as progress:
        if check is not None:
            proving = {name: asked[name] for name in ("ref_python", "paddle_python", "debug")}
            result = check_port(check, **proving, progress=progress)
        elif ref is not None and out is not None and inputs:
            result = port(ref, inputs, out=out, **asked, progress=progress)
        else:
            raise InputError(
                "port: give --ref MODULE:FACTORY, --input x:2,3,224,224:float32 and --out FOLDER, or --check FOLDER"
            )
    return finish(result, json_path)
