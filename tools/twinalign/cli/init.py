"""`twinalign init`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from twinalign.runs.scaffold import Factory, InputArray

Answer = TypeVar("Answer")


@click.command("init")
@click.argument("path", type=click.Path(path_type=Path, dir_okay=False), default=Path("case.py"), metavar="[FILE]")
@click.option("--ref", metavar="M:F", help="The torch model: module:factory or file.py:factory(width=2).")
@click.option("--paddle", metavar="M:F", help="The paddle model, in the same form.")
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME:SHAPE:DTYPE",
    help="An input: x:2,3,224,224:float32, tokens:2,16:int64:32000 (below 32000), mask:2,16:bool; may be repeated.",
)
@click.option("--name", metavar="TEXT", help="Name of the case; the name of the port's factory by default.")
@click.option("--debug", is_flag=True, help="Show tracebacks of errors.")
def command(
    path: Path, ref: str | None, paddle: str | None, inputs: tuple[str, ...], name: str | None, debug: bool
) -> None:
    """Write a commented case (default case.py) for a model and its port.

    What is not given is searched for in the Python files next to FILE; what is not found there is asked for on a
    terminal, and is an error otherwise. An existing file is never overwritten.
    """
    from twinalign.errors import InputError
    from twinalign.runs.scaffold import (
        FRAMEWORK_OPTION,
        input_names,
        missing_module,
        parse_input,
        require_defined,
        require_new,
        write_case,
    )

    require_new(path)
    if path.suffix != ".py":
        raise InputError(f"{path}: a case is a Python file; give it the suffix .py")
    folder = path.parent
    given = {"torch": ref, "paddle": paddle}
    factories = {
        framework: _factory(option, framework, given[framework], folder)
        for framework, option in FRAMEWORK_OPTION.items()
    }
    for framework, option in FRAMEWORK_OPTION.items():
        require_defined(option, factories[framework], folder)
    names = input_names(factories["torch"], folder)
    arrays = [parse_input(text, names[number:]) for number, text in enumerate(inputs)] or _asked_inputs(names)
    write_case(path, factories, arrays, name)
    for framework, factory in factories.items():
        if absent := missing_module(factory, folder):
            side = "ref" if framework == "torch" else "paddle"
            click.echo(f"note: {absent} is not found here: run with --{side}-python, or from its folder", err=True)
    click.echo(f"{path} written; check it with: twinalign run {path}")


_EXAMPLES = {"torch": "torchvision.models:resnet18", "paddle": "paddle.vision.models:resnet18"}
_INPUT = "2,3,224,224:float32"


def _factory(option: str, framework: str, given: str | None, folder: Path) -> Factory:
    """What was given, else the only model in the files, else the user's answer."""
    from twinalign.errors import InputError
    from twinalign.runs.scaffold import models_in, parse_factory

    seen = [] if given else models_in(folder, framework)
    if len(seen) == 1:
        click.echo(f"{option} {seen[0]} (the only {framework} model in {folder.resolve()})", err=True)
    if given or len(seen) == 1:
        return parse_factory(option, given or seen[0], folder)
    known = f"{framework} models here: {', '.join(seen)}" if seen else f"for instance {_EXAMPLES[framework]}"
    if not sys.stdin.isatty():
        raise InputError(f"{option}: give the {framework} model as module:factory ({known})")
    return _asked(f"The {framework} model, module:factory ({known})", lambda text: parse_factory(option, text, folder))


def _asked_inputs(names: list[str]) -> list[InputArray]:
    """The user's answer for each input in the model's source, or for one of any name."""
    from twinalign.errors import InputError
    from twinalign.runs.scaffold import parse_input

    if not sys.stdin.isatty():
        known = f" (the model takes {', '.join(names)})" if names else ""
        raise InputError(f"--input: give the inputs of the models, for instance --input x:{_INPUT}{known}")
    found = []
    for name in names:
        question = f"Input {name}, shape:dtype, for instance {_INPUT} (empty: leave it out)"
        found.append(_asked(question, lambda text: parse_input(text, [name]) if text else None, default=""))  # noqa: B023
    question = f"Input of the models, name:shape:dtype, for instance x:{_INPUT}"
    return [array for array in found if array] or [_asked(question, parse_input)]


def _asked(question: str, parse: Callable[[str], Answer], default: str | None = None) -> Answer:
    """The user's answer; what cannot be parsed is explained, and asked for again."""
    from twinalign.errors import InputError

    def parsed(text: str) -> Answer:
        try:
            return parse(text)
        except InputError as error:
            raise click.UsageError(str(error)) from None

    answer: Answer = click.prompt(question, value_proc=parsed, default=default, show_default=False, err=True)
    return answer
