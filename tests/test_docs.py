"""What the how-tos say is so: the first page runs as shown, links lead somewhere, commands have the options shown."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from tests.conftest import ROOT
from twinalign.cli import cli

pytestmark = pytest.mark.usefixtures("kept_processes")

PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "README_cn.md", ROOT / "CONTRIBUTING.md"]
Twinalign = Callable[..., subprocess.CompletedProcess[str]]


def page_id(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_links_lead_to_files(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []


def commands_in(page: Path) -> list[list[str]]:
    """The arguments of every `twinalign …` line in the page's shell blocks, continued lines joined."""
    found = []
    for part in page.read_text(encoding="utf-8").split("```")[1::2]:
        language, _, block = part.partition("\n")
        if language not in ("bash", "text", ""):
            continue
        for line in block.replace("\\\n", " ").splitlines():
            match = re.match(r"\s*(?:\$ )?(?:.* && )?twinalign (.*)", line)
            if match and not line.startswith("twinalign:"):
                found.append(shlex.split(match[1], comments=True))
    return found


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_commands_have_the_options_that_are_shown(page: Path) -> None:
    for name, *arguments in commands_in(page):
        if name.startswith("-"):
            continue
        command = cli.get_command(click.Context(cli), name)
        assert command is not None, name
        known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        own = arguments[: arguments.index("--")] if "--" in arguments else arguments  # what follows is another's
        given = {argument.partition("=")[0] for argument in own if argument.startswith("--")}
        assert given <= known, f"twinalign {name}: {given - known}"


def test_the_check_of_commands_can_fail(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```bash\ntwinalign run case.py \\\n    --no-such-option 3   # comment\n```\n")
    assert commands_in(page) == [["run", "case.py", "--no-such-option", "3"]]
    with pytest.raises(AssertionError, match="--no-such-option"):
        test_commands_have_the_options_that_are_shown(page)


def test_the_first_page_runs_as_it_shows(twinalign: Twinalign, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "how-to" / "first-steps.md").read_text(encoding="utf-8")
    (tmp_path / "record.py").write_text(re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)[0])
    subprocess.run([sys.executable, "record.py"], cwd=tmp_path, check=True)
    for block, code in zip(re.findall(r"```text\n(.*?)```", text, flags=re.DOTALL), (0, 1), strict=True):
        command, _, shown = block.partition("\n")
        finished = twinalign(*command.rpartition("twinalign ")[2].split())
        assert finished.returncode == code
        assert finished.stdout == shown


def python_blocks(page: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


@pytest.mark.slow
def test_the_tutorial_goes_as_it_says(twinalign: Twinalign, tmp_path: Path) -> None:
    page = ROOT / "docs" / "tutorial.md"
    reference, port, methods = python_blocks("tutorial.md")
    (tmp_path / "my_ref.py").write_text(reference)
    (tmp_path / "my_port.py").write_text(port)
    init, run, fix, *_ = commands_in(page)
    assert twinalign(*init).returncode == 0
    diverged = twinalign(*run)
    assert diverged.returncode == 1
    shown = re.findall(r"```text\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)[0]
    seconds = re.compile(r" in \d+ s$", re.MULTILINE)
    said = diverged.stdout[diverged.stdout.index("What is at fault:") :]
    assert seconds.sub("", said).split("\n") == seconds.sub("", shown).split("\n")
    assert twinalign(*fix).returncode == 0
    again = twinalign(*run)
    assert again.returncode == 0
    assert "aligned" in again.stdout.splitlines()[-1]
    case = tmp_path / "case.py"
    case.write_text(case.read_text() + "\n" + methods.partition("and:\n")[2])
    further = twinalign(*run)
    assert 'accept = ("bn_running_var_biased",)' in further.stdout, further.stdout
    case.write_text(case.read_text() + '\n    accept = ("bn_running_var_biased",)\n')
    accepted = twinalign(*run)
    assert accepted.returncode == 0, accepted.stdout
