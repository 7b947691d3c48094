"""Which of the reference's files are read for the edits of a layer."""

from __future__ import annotations

import click
import rich.console
import rich.table

from twinalign.replay import construction_places


def test_of_a_library_only_what_stands_beside_the_layers_class_is_read() -> None:
    is_near = construction_places._beside([rich.console.Console])
    assert is_near(rich.table.__file__)
    assert not is_near(click.__file__)
    assert is_near(__file__)  # the user's own
    assert not is_near("no such file")
