"""What nobody foresaw ends as one line and exit code 4, and a file's name never makes two lines of one."""

from __future__ import annotations

from typing import Any

import pytest

from twinalign import cli


def ended(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    with pytest.raises(SystemExit) as raised:
        cli.main(arguments)
    return int(str(raised.value.code)), capsys.readouterr().err


def fail(*_: Any, **__: Any) -> None:
    raise KeyError("a\nb")


def test_an_unforeseen_error_is_a_fault_of_twinalign(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli.cli, "main", fail)
    code, said = ended(["compare", "a.npy", "b.npy"], capsys)
    assert code == 4
    begin = "twinalign: a fault of twinalign itself (KeyError in test_last_handler.py:"
    assert said.startswith(begin)
    assert said.endswith(
        "); please report it with the command and what it prints with --debug (twinalign help internal-error)\n"
    )
    assert said.count("\n") == 1
    code, said = ended(["--debug", "compare", "a.npy", "b.npy"], capsys)
    assert code == 4
    assert said.startswith("Traceback (most recent call last):")
    assert begin in said


def test_a_newline_in_a_name_stays_on_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = ended(["compare", "a\nb.npy", "c.npy"], capsys)
    assert (code, said) == (2, "twinalign: a?b.npy: No such file or directory (twinalign help input-files)\n")
    code, said = ended(["--debug", "compare", "a\nb.npy", "c.npy"], capsys)
    assert code == 2
    assert said.startswith("Traceback (most recent call last):")
