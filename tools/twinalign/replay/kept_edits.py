"""Edits that mend a part of the port, kept in its process: what runs the same code elsewhere is mended by them too."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from twinalign.replay.helper_edits import Edit
from twinalign.replay.ordered_edits import put_in

_KEY = "edits that mend a part"


def kept_edits(worker: Any) -> list[Edit]:
    """Those that were found since the search began, the first one first."""
    found: list[Edit] = worker.kept.setdefault(_KEY, [])
    return found


def keep_edit(worker: Any, answer: dict[str, Any]) -> dict[str, Any]:
    """Keep the edit of an answer of `fitting_edit`; returns the answer as another process can read it."""
    edit = answer.pop("made", None)
    if edit is not None and all(edit is not one for one in kept_edits(worker)):
        kept_edits(worker).append(edit)
    return answer


def forget_edits(worker: Any) -> dict[str, Any]:
    """Another search begins."""
    kept_edits(worker).clear()
    return {}


def recorded_mended(worker: Any, record: Callable[..., dict[str, Any]], **given: Any) -> dict[str, Any]:
    """What `record` returns of the port with all of them; nothing where there are none."""
    if not kept_edits(worker):
        return {}
    with with_kept_edits(worker):
        return record(worker, **given)


@contextlib.contextmanager
def with_kept_edits(worker: Any) -> Iterator[None]:
    """Inside the block the port runs with all of them; of two in one function only the later one counts."""
    with contextlib.ExitStack() as stack:
        for edit in kept_edits(worker):
            stack.enter_context(put_in(edit))
        yield
