"""The command line: a command is a module here with a click command called `command`, imported when it is used."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from typing import Any

import click

from twinalign.errors import ExitCode, TwinalignError

_COMMANDS = {
    "init": "Write a commented case.py for a model and its port.",
    "run": "Record both sides of a case, compare them stage by stage, write logs and report.",
    "record": "Record one side of a case, to compare it elsewhere.",
    "compare": "Compare two recordings or tensor files.",
    "locate": "Name every wrong layer and part of a port, and the proven cause of each.",
    "convert": "Convert a checkpoint between the frameworks.",
    "selftest": "Plant faults into a port and see whether each is found and explained.",
    "zoo": "Align every architecture that torchvision and paddle.vision share.",
    "report": "Write the HTML report of a run, or its table for a pull request.",
    "pack": "Pack a finished run into one file for review.",
    "verify": "Check a packed run, trusting nobody: numpy is enough.",
    "doctor": "Say what is installed and which device paths work here.",
}


# click 8.1 shows its help and ends where there is no argument at all; later ones raise this.
_ASKED_NOTHING: Any = getattr(click.exceptions, "NoArgsIsHelpError", ())


class _LazyGroup(click.Group):
    """A group that imports a command's module only when that command is asked for: `compare` starts in a blink."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        return importlib.import_module(f"twinalign.cli.{cmd_name}").command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="twinalign")
@click.option("--debug", is_flag=True, help="Show tracebacks of errors.")
@click.pass_context
def cli(context: click.Context, debug: bool) -> None:
    """Port models from PyTorch to PaddlePaddle and know that the port is right.

    Exit codes: 0 all aligned (or done), 1 diverged, 2 bad usage or bad input, 3 inconclusive, 4 a side crashed.
    """
    context.obj = {"debug": debug}


def main(arguments: list[str] | None = None) -> None:
    """Run a command; every error that a user can cause ends as one line and an exit code."""
    # SIGTERM ends a run as Ctrl-C does: recorder processes are closed and nothing half-written stays.
    signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        result: Any = cli.main(arguments, prog_name="twinalign", standalone_mode=False)
    except TwinalignError as error:
        if "--debug" in arguments:
            raise
        for note in getattr(error, "__notes__", ()):  # frames of the user's own code; the line comes last
            click.echo(note, err=True)
        _end(str(error), error.exit_code)
    except click.exceptions.Exit as exit_request:
        sys.exit(exit_request.exit_code)
    except _ASKED_NOTHING as error:
        error.show()
        sys.exit(ExitCode.BAD_INPUT)
    except click.ClickException as error:
        _end(_in_one_line(error), ExitCode.BAD_INPUT)
    except (KeyboardInterrupt, click.Abort):
        _end("interrupted; finished recordings are kept and will be reused", ExitCode.BAD_INPUT)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(ExitCode.BAD_INPUT)
    except OSError as error:
        if "--debug" in arguments:
            raise
        _end(f"{error.filename or 'file system'}: {error.strerror or error}", ExitCode.BAD_INPUT)
    sys.exit(int(result or 0))


def _in_one_line(error: click.ClickException) -> str:
    """What is wrong with the arguments, and where the right ones are listed."""
    message = " ".join(error.format_message().split()).rstrip(".")
    context = getattr(error, "ctx", None)
    return f"{message}; see {context.command_path} --help" if context is not None else message


def _end(message: str, code: int) -> None:
    click.echo(f"twinalign: {message}", err=True)
    sys.exit(int(code))
