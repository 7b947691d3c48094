"""A patch is one that `git apply` takes, with the cause beside each hunk."""

from __future__ import annotations

import subprocess

import pytest

from twinalign.repair.patch import patch_of

BEFORE = "a = 1\nb = 2\nc = 3\nd = 4\ne = 5\nf = 6\n"


def test_the_cause_stands_beside_its_hunk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = str(tmp_path / "port.py")
    after = BEFORE.replace("b = 2", "b = 20").replace("f = 6", "f = 60")
    causes = [
        {"file": file, "line": 2, "cause": "b is wrong [b]"},
        {"file": file, "line": 6, "cause": "f is wrong [f]"},
    ]
    assert patch_of({file: BEFORE}, {file: after}, causes) == (
        "--- a/port.py\n+++ b/port.py\n"
        "@@ -1,3 +1,3 @@ b is wrong [b]\n a = 1\n-b = 2\n+b = 20\n c = 3\n"
        "@@ -5,2 +5,2 @@ f is wrong [f]\n e = 5\n-f = 6\n+f = 60\n"
    )


def test_nothing_changed_gives_no_patch(tmp_path):
    file = str(tmp_path / "port.py")
    assert patch_of({file: BEFORE}, {file: BEFORE}, []) == ""
    assert patch_of({file: BEFORE}, {}, []) == ""


@pytest.mark.parametrize(
    "before",
    [
        BEFORE,
        BEFORE.rstrip("\n"),
        BEFORE.replace("\n", "\r\n"),
        "a = 1\n\x0c\nb = 2\nname = 'line\u2028separator'\n",
    ],
    ids=["usual", "no newline at the end", "line ends of Windows", "other separators"],
)
def test_git_applies_it(before, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one, other = tmp_path / "a port.py", tmp_path / "parts" / "blocks.py"
    other.parent.mkdir()
    texts = {str(one): before, str(other): BEFORE}
    for file in (one, other):
        file.write_bytes(texts[str(file)].encode())
    after = {file: text.replace("b = 2", "b = 3") for file, text in texts.items()}
    (tmp_path / "fix.patch").write_bytes(patch_of(texts, after, []).encode())
    subprocess.run(["git", "init", "-q", "."], check=True)
    subprocess.run(["git", "apply", "fix.patch"], check=True)
    assert {str(file): file.read_bytes().decode() for file in (one, other)} == after
