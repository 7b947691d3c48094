"""A process imports served text in place of a file, which stays as it is."""

from __future__ import annotations

import subprocess
import sys
import textwrap

PROGRAM = """
    import sys, traceback
    sys.path.insert(0, {tools!r})
    from twinalign.recorder.served_sources import serve_sources
    serve_sources({{{path!r}: "import other\\nVALUE = 2\\ndef fail():\\n    raise KeyError('served')\\n"}})
    sys.path.insert(0, {folder!r})
    import port
    print(port.VALUE, port.other.VALUE, port.__file__ == {path!r})
    try:
        port.fail()
    except KeyError:
        print(traceback.format_exc().splitlines()[-2].strip())
"""


def test_the_served_text_is_imported_and_the_file_stays(tmp_path, pytestconfig):
    file = tmp_path / "port.py"
    file.write_text("VALUE = 1\n")
    (tmp_path / "other.py").write_text("VALUE = 5\n")
    program = PROGRAM.format(tools=str(pytestconfig.rootpath / "tools"), path=str(file), folder=str(tmp_path))
    for _ in range(2):  # once more: nothing served may be in the cache of compiled files
        ran = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True)
        assert ran.stdout == "2 5 True\nraise KeyError('served')\n", ran.stderr
    alone = [sys.executable, "-c", "import port; print(port.VALUE)"]
    assert subprocess.run(alone, capture_output=True, text=True, cwd=tmp_path).stdout == "1\n"
    assert file.read_text() == "VALUE = 1\n"


PASSING = """
    import importlib, sys
    sys.path[:0] = [{tools!r}, {folder!r}]
    from twinalign.recorder.served_sources import serving
    import port
    seen = [port.VALUE]
    with serving({{{path!r}: "VALUE = 2"}}):
        seen.append(importlib.import_module("port").VALUE)
    print(*seen, importlib.import_module("port").VALUE)
"""


def test_a_text_is_served_for_a_while(tmp_path, pytestconfig):
    file = tmp_path / "port.py"
    file.write_text("VALUE = 1\n")
    program = PASSING.format(tools=str(pytestconfig.rootpath / "tools"), path=str(file), folder=str(tmp_path))
    ran = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True)
    assert ran.stdout == "1 2 1\n", ran.stderr
