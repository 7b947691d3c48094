"""`twinalign help` explains the topic that an error ends with."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable

import pytest

from twinalign.errors import InputError, SideCrashError

pytestmark = pytest.mark.usefixtures("kept_processes")

Twinalign = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize(
    ("arguments", "topic"),
    [
        (["run", "nowhere.py"], "case-file"),
        (["compare", "a.npy", "b.npy"], "input-files"),
        (["show", "nowhere"], "finished-run"),
        (["pack", "nowhere", "a.zip"], "finished-run"),
    ],
)
def test_an_error_ends_with_a_topic_and_help_explains_it(
    arguments: list[str], topic: str, twinalign: Twinalign
) -> None:
    line = twinalign(*arguments).stderr.strip().splitlines()[-1]
    found = re.search(r" \(twinalign help ([a-z-]+)\)$", line)
    assert found is not None, line
    assert found[1] == topic
    explained = twinalign("help", topic)
    assert explained.returncode == 0
    assert len(explained.stdout.split()) > 30


def test_help_lists_topics_shows_commands_and_refuses_the_rest(twinalign: Twinalign) -> None:
    assert "  no-partner " in twinalign("help").stdout
    assert twinalign("help", "locate").stdout == twinalign("locate", "--help").stdout
    refused = twinalign("help", "weather")
    assert refused.returncode == 2
    assert refused.stderr == "twinalign: No such topic 'weather'; see twinalign help --help\n"


def test_links_become_pages_and_paragraphs_lines(twinalign: Twinalign) -> None:
    text = twinalign("help", "no-partner").stdout
    assert "names that differ: docs/how-to/port-a-model.md" in text
    assert "](" not in text
    assert len(text.strip().splitlines()) == 3


def test_the_words_of_a_users_exception_choose_no_topic() -> None:
    said = "the ref side crashed while recording forward: ValueError: unknown case 'x'"
    assert InputError(said).help_topic() == "case-file"
    assert SideCrashError(said).help_topic() == "side-crashed"
    assert SideCrashError("the ref side died (killed by SIGKILL)").help_topic() == "out-of-memory"
    assert InputError("something nobody has written yet").help_topic() == "other"
