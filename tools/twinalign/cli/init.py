"""`twinalign init`."""

from __future__ import annotations

import sys
from pathlib import Path

import click


@click.command("init")
@click.argument("path", type=click.Path(path_type=Path, dir_okay=False), default=Path("case.py"), metavar="[FILE]")
@click.option("--ref", metavar="M:F", help="The torch model: module:factory or file.py:factory(width=2).")
@click.option("--paddle", metavar="M:F", help="The paddle model, likewise.")
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME:SHAPE:DTYPE",
    help="An input: x:2,3,224,224:float32, tokens:2,16:int64:32000 (below 32000), mask:2,16:bool; may be repeated.",
)
@click.option("--name", metavar="TEXT", help="Name of the case; by default that of the port's factory.")
@click.option("--debug", is_flag=True, help="Show tracebacks of errors.")
def command(
    path: Path, ref: str | None, paddle: str | None, inputs: tuple[str, ...], name: str | None, debug: bool
) -> None:
    """Write a commented case (default case.py) for a model and its port.

    What is not given is looked for in the Python files beside FILE; what cannot be seen there is asked for on a
    terminal, and is an error elsewhere. An existing file is never overwritten.
    """
    from twinalign.errors import InputError
    from twinalign.scaffold import (
        FRAMEWORK_OPTION,
        input_names,
        missing_module,
        parse_factory,
        parse_input,
        require_defined,
        write_case,
    )

    if path.exists():
        raise InputError(f"{path}: exists already; name another file, or remove it first")
    if path.suffix != ".py":
        raise InputError(f"{path}: a case is a Python file; give it the suffix .py")
    folder = path.parent
    factories = {
        framework: parse_factory(option, _factory(option, framework, given, folder), folder)
        for option, framework, given in (("--ref", "torch", ref), ("--paddle", "paddle", paddle))
    }
    for framework, option in FRAMEWORK_OPTION.items():
        require_defined(option, factories[framework], folder)
    names = input_names(factories["torch"], folder)
    arrays = [parse_input(text, names[number:]) for number, text in enumerate(_inputs(inputs, names))]
    class_name = write_case(path, factories, arrays, name)
    for framework, factory in factories.items():
        if absent := missing_module(factory, folder):
            side = "ref" if framework == "torch" else "paddle"
            click.echo(f"note: {absent} is not found here: run with --{side}-python, or from where it is", err=True)
    click.echo(f"{path} written; check it with: twinalign run {path}:{class_name}")


_EXAMPLES = {"torch": "torchvision.models:resnet18", "paddle": "paddle.vision.models:resnet18"}


def _factory(option: str, framework: str, given: str | None, folder: Path) -> str:
    """What was given, else the one model that the files show, else what the user answers."""
    from twinalign.errors import InputError
    from twinalign.scaffold import models_in

    if given:
        return given
    seen = models_in(folder, framework)
    if len(seen) == 1:
        click.echo(f"{option} {seen[0]} (the one {framework} model in {folder.resolve()})", err=True)
        return seen[0]
    known = f"{framework} models here: {', '.join(seen)}" if seen else f"for instance {_EXAMPLES[framework]}"
    candidates = f" ({known})"
    if not sys.stdin.isatty():
        raise InputError(f"{option}: give the {framework} model as module:factory{candidates}")
    return str(click.prompt(f"The {framework} model, module:factory{candidates}", err=True))


def _inputs(given: tuple[str, ...], names: list[str]) -> list[str]:
    """What was given, else what the user answers for each input that the model's source shows."""
    from twinalign.errors import InputError

    if given:
        return list(given)
    if not sys.stdin.isatty():
        known = f" (the model takes {', '.join(names)})" if names else ""
        raise InputError(f"--input: say what the models take, for instance --input x:2,3,224,224:float32{known}")
    found = [f"{name}:{text}" for name in names if (text := _asked(f"Shape and dtype of {name} (empty: leave it out)"))]
    return found or [_asked("What the models take, name:shape:dtype", "x:2,3,224,224:float32")]


def _asked(question: str, default: str = "") -> str:
    return str(click.prompt(question, default=default, show_default=bool(default), err=True))
