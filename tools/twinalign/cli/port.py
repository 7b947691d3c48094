"""`twinalign port`."""

from pathlib import Path

import click


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
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the result to this file.")
@click.option("--debug", is_flag=True, help="Show tracebacks of errors.")
def command(
    ref: str | None,
    inputs: tuple[str, ...],
    loss: str,
    optimizer: str,
    transform: str,
    train: str,
    out: Path | None,
    check: Path | None,
    style: str,
    ref_python: str | None,
    paddle_python: str | None,
    draft_python: str | None,
    json_path: Path | None,
    debug: bool,
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
    from twinalign.files.recordings import write_json
    from twinalign.terminal import show

    if check is None and (ref is None or out is None or not inputs):
        raise InputError(
            "port: give --ref MODULE:FACTORY, --input x:2,3,224,224:float32 and --out FOLDER, or --check FOLDER"
        )
    with SideProgress() as progress:
        if check is not None:
            result = check_port(
                check, ref_python=ref_python, paddle_python=paddle_python, debug=debug, progress=progress
            )
        else:
            assert ref is not None
            assert out is not None
            result = port(
                ref,
                inputs,
                loss=loss,
                optimizer=optimizer,
                transform=transform,
                train=train,
                out=out,
                ref_python=ref_python,
                paddle_python=paddle_python,
                draft_python=draft_python,
                style=style,
                debug=debug,
                progress=progress,
            )
    show(result)
    if json_path is not None:
        write_json(json_path, result.to_json())
    return int(result.exit_code)
