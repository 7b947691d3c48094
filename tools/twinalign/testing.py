"""Alignment as an assertion, for the tests of a port's own repository.

    from twinalign.testing import assert_aligned, assert_converts

With pytest, the fixture `alignment` and the marker `twinalign` of `twinalign.pytest_plugin` need no further code.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinalign import api
from twinalign.case import Case
from twinalign.settings import PathLike
from twinalign.verdict.results import ALIGNED

if TYPE_CHECKING:
    from twinalign.convert.options import Report
    from twinalign.judging import RunResult


def assert_aligned(case: PathLike | type[Case], *, out: PathLike | None = None, **options: Any) -> RunResult:
    """Run a case and raise AssertionError, with the table, the worst tensors and the faults, unless it is aligned.

    Args:
        case: a registered name, `path/to/case.py`, `package.module:ClassName`, or the class itself.
        out: folder for recordings and report; a temporary one by default, which is removed. What has not changed there
            since the last call is reused.
        **options: as of `twinalign.run`: `stages`, `precision`, `ref_python`, …

    Returns:
        The run, for further assertions.

    Raises:
        AssertionError: it diverged, or nothing can be said.
        InputError: case, stages, data or interpreter are at fault.
        SideCrashError: the case's own code raised, or a process died.
    """
    if out is None:
        with tempfile.TemporaryDirectory(prefix="twinalign-") as folder:
            result = api.run(case, out=folder, **options)
    else:
        result = api.run(case, out=out, **options)
    check(result, None if out is None else Path(out))
    return result


def check(result: RunResult, out: Path | None = None) -> None:
    """Raise AssertionError, with what `twinalign run` would print, unless the run is aligned.

    Args:
        result: of `twinalign.run`.
        out: its folder, if it is still there, which the message then names.
    """
    if result.verdict == ALIGNED:
        return
    from twinalign.notebook import as_text
    from twinalign.tables import print_run

    raise AssertionError(as_text(lambda console: print_run(result, out, console)))


def assert_converts(source: PathLike, *, ref: str, paddle: str, inputs: Sequence[str] = (), **options: Any) -> Report:
    """Convert a checkpoint, run both models with it in float64, convert it back, and compare that with `source`.

    Nothing is written but to a temporary folder.

    Args:
        source: a checkpoint of either framework.
        ref: the torch model, `module:factory`.
        paddle: the paddle model, `module:factory`.
        inputs: what the models take, as of `twinalign convert --input`; guessed where that can be.
        **options: further ones of `twinalign.convert`.

    Returns:
        The conversion's report, with the ledger of every key.

    Raises:
        AssertionError: the models disagree with these weights, or the way back does not give the same arrays.
        InputError: a broken file, keys without a partner, or an assignment that cannot be proven.
        SideCrashError: a model's own code raised.
    """
    from twinalign.convert.trial import DivergedError

    models = {"ref": ref, "paddle": paddle, "inputs": tuple(inputs), **options}
    source = Path(source)
    paddle_suffixes = (".pdparams", ".pdopt")
    there, back = (".pth", ".pdparams") if source.suffix in paddle_suffixes else (".pdparams", ".pth")
    with tempfile.TemporaryDirectory(prefix="twinalign-") as folder:
        target, again = Path(folder) / f"there{there}", Path(folder) / f"back{back}"
        try:
            done = api.convert(source, target, verify=True, **models)
        except DivergedError as error:
            raise AssertionError(str(error)) from None
        kept = {key for entry in done.ledger.entries if entry.target for key in entry.source}
        # torch's counts of batches have no place in a paddle file; the way back takes them from where they were.
        defaults = source if back == ".pth" else None
        api.convert(target, again, weights_only=True, **{**models, "defaults": defaults})
        _assert_same_arrays(source, again, kept)
    return done


def _assert_same_arrays(source: Path, again: Path, keys: set[str]) -> None:
    from twinalign.files import read_arrays

    first, second = read_arrays(source), read_arrays(again)
    keys &= set(first)
    changed = [key for key in sorted(keys) if key not in second or first[key].tobytes() != second[key].tobytes()]
    if changed:
        raise AssertionError(f"{source}: the way there and back changes {', '.join(changed)}")
