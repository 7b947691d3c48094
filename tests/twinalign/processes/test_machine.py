"""Memory that was freed goes back to the system."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from twinalign.processes.side_process import borrowed_package

CODE = """
from pathlib import Path
from twinalign.processes.machine import give_back_memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1])

few = resident()
blocks = [bytearray(50_000) for _ in range(4000)]
last = bytearray(50_000)  # above all others: the C library returns by itself only what is freed at the top
many = resident()
del blocks
kept = resident()
{give_back}
print(few, many, kept, resident())
"""


@pytest.mark.skipif(sys.platform != "linux" or not Path("/proc/self/statm").exists(), reason="glibc alone is asked")
@pytest.mark.parametrize("asked", [True, False])
def test_freed_memory_is_given_back_where_it_is_asked_for(asked: bool) -> None:
    code = CODE.format(give_back="give_back_memory()" if asked else "")
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    few, many, kept, left = map(int, output.split())
    assert kept - few > (many - few) / 2
    assert (left - few < (many - few) / 4) == asked


ARRAYS = """
from pathlib import Path
from twinalign.processes.machine import freed_at_once

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1])

def kept():
    few = resident()
    arrays = [bytearray(b"1") * (3 << 20) for _ in range(40)]
    last = bytearray(50_000)
    many = resident()
    del arrays
    return (resident() - few) / (many - few)

with freed_at_once():
    at_once = kept()
print(at_once, kept())
"""


@pytest.mark.skipif(sys.platform != "linux" or not Path("/proc/self/statm").exists(), reason="glibc alone is asked")
def test_large_arrays_are_freed_at_once_inside_the_block_alone() -> None:
    with borrowed_package(None) as environment:
        output = subprocess.run(
            [sys.executable, "-c", ARRAYS], check=True, capture_output=True, text=True, env=environment
        ).stdout
    at_once, later = map(float, output.split())
    assert at_once < 0.1
    assert later > 0.9
