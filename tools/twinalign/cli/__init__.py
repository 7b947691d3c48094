"""The command line: each command is a module here with a click command called `command`, imported when used."""

import importlib
import os
import sys
from typing import Any

import click

from twinalign import interruption
from twinalign.errors import ExitCode, TwinalignError, has_no_room, topic_of, unwritten
from twinalign.files.text import printable

_COMMANDS = {
    "init": "Write a commented case.py for a model and its port.",
    "run": "Record both sides of a case, compare them stage by stage, write logs and report.",
    "record": "Record one side of a case, to compare it elsewhere.",
    "attach": "Record any trainer, its script untouched, step by step.",
    "compare": "Compare two recordings or tensor files.",
    "locate": "Name every wrong layer and part of a port, and the proven cause of each.",
    "fix": "Mend a port by proven edits of its source, as a patch.",
    "port": "Make a paddle port of a torch model, and prove it.",
    "info": "Count parameters, buffers and FLOPs of both models, layer by layer.",
    "convert": "Convert a checkpoint between the frameworks.",
    "selftest": "Plant faults into a port and see whether each is found and explained.",
    "zoo": "Align every architecture that torchvision and paddle.vision share.",
    "report": "Write the HTML report of a run, or its table for a pull request.",
    "show": "Open the HTML report of a run in the browser.",
    "pack": "Pack a finished run into one file for review.",
    "verify": "Check a packed run without trusting it; needs only numpy.",
    "doctor": "Say what is installed and which device paths work here.",
    "help": "Explain an error message, by the topic that it ends with.",
}


# Without any argument click 8.1 shows its help and exits; later versions raise this.
_ASKED_NOTHING: Any = getattr(click.exceptions, "NoArgsIsHelpError", ())


class _LazyGroup(click.Group):
    """Imports a command's module only when that command is used."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            if sys.stderr.isatty():
                raise  # click goes to a new line, behind the terminal's ^C
            raise click.Abort from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            import difflib

            near = (
                [f"run {cmd_name}"] if cmd_name.endswith(".py") else difflib.get_close_matches(cmd_name, _COMMANDS, 1)
            )
            if near and not ctx.resilient_parsing:
                raise click.UsageError(f"No such command {cmd_name!r}. Did you mean {near[0]!r}?", ctx)
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

    Exit codes: 0 all aligned (or done), 1 diverged, 2 bad usage or bad input, 3 inconclusive, 4 a side crashed
    or twinalign itself did, 130 interrupted.
    """
    context.obj = {"debug": debug}


def main(arguments: list[str] | None = None) -> None:
    """Run a command; every error that a user can cause ends as one line and an exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        result: Any = cli.main(arguments, prog_name="twinalign", standalone_mode=False)
    except TwinalignError as error:
        _show_traceback(error, arguments)
        for note in getattr(error, "__notes__", ()):  # frames of the user's own code; the line comes last
            click.echo(note, err=True)
        _end(str(error), error.exit_code, error.help_topic())
    except click.exceptions.Exit as exit_request:
        sys.exit(exit_request.exit_code)
    except _ASKED_NOTHING as error:
        error.show()
        sys.exit(ExitCode.BAD_INPUT)
    except click.ClickException as error:
        _end(_in_one_line(error), ExitCode.BAD_INPUT)
    except (KeyboardInterrupt, click.Abort):
        _end(interruption.MESSAGE, ExitCode.INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(ExitCode.BAD_INPUT)
    except OSError as error:
        _show_traceback(error, arguments)
        where = error.filename or "file system"
        said = str(unwritten(error, where)) if has_no_room(error) else f"{where}: {error.strerror or error}"
        _end(said, ExitCode.BAD_INPUT, topic_of(said))
    except Exception as error:  # Python's own exit code of a traceback is 1, which would read as diverged
        _show_traceback(error, arguments)
        what = f"{type(error).__name__} in {_place_of(error)}: {error}"
        remedy = "please report it with the command and what it prints with --debug"
        _end(f"a fault of twinalign itself ({what[:300]}); {remedy}", ExitCode.SIDE_CRASHED, "internal-error")
    sys.exit(int(result or 0))


def _in_one_line(error: click.ClickException) -> str:
    # click puts suggestions into brackets: "(Did you mean one of: …?)".
    message = " ".join(error.format_message().split()).rstrip(".").replace("(Did", "Did").replace("?)", "?")
    context = getattr(error, "ctx", None)
    joint = "" if message.endswith("?") else ";"
    return f"{message}{joint} see {context.command_path} --help" if context is not None else message


def _show_traceback(error: Exception, arguments: list[str]) -> None:
    if "--debug" in arguments:
        import traceback

        traceback.print_exception(error)


def _place_of(error: Exception) -> str:
    """File and line where it was raised."""
    trace = error.__traceback__
    assert trace is not None
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f"{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}"


def _end(message: str, code: int, topic: str = "") -> None:
    more = f" (twinalign help {topic})" if topic else ""
    click.echo(f"twinalign: {printable(message)}{more}", err=True)  # a name of a file may hold a newline
    sys.exit(int(code))
