"""`twinalign help`."""

import re

import click

from twinalign.errors import help_topics


@click.command("help")
@click.argument("topic", required=False)
@click.pass_context
def command(context: click.Context, topic: str | None) -> None:
    """Explain an error message: TOPIC is what the message ends with.

    Without TOPIC, the topics are listed. TOPIC can also be a command, whose options are then shown.
    """
    from twinalign.terminal.console import output, print_text

    topics = help_topics()
    group = context.parent
    assert group is not None
    assert isinstance(group.command, click.Group)
    if topic is None:
        click.echo("`twinalign help TOPIC` explains one of these:\n")
        for name, each in topics.items():
            click.echo(f"  {name:<20} {each['title']}")
    elif topic in topics:
        click.echo(f"{topics[topic]['title']}\n")
        print_text(output(), _plain(topics[topic]["text"]))
    elif topic in group.command.list_commands(group):
        named = group.command.get_command(group, topic)
        assert named is not None
        click.echo(click.Context(named, parent=group, info_name=topic).get_help())
    else:
        raise click.UsageError(f"No such topic {topic!r}", context)


def _plain(markdown: str) -> str:
    """Text for a terminal: paragraphs as one line each, a link as its text and its page."""
    text = re.sub(r"\[([^]]+)\]\(([^)#]+)[^)]*\)", r"\1: docs/\2", markdown.strip())
    return re.sub(r"(?<!\n)\n(?!\n)", " ", re.sub(r"\*([^*]+)\*", r"\1", text))
