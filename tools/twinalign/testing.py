"""Alignment as an assertion, for the tests of a port's own repository.

    from twinalign.testing import assert_aligned, assert_converts

With pytest, the fixture `alignment` and the marker `twinalign` of `twinalign.pytest_plugin` need no further code.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinalign import api
from twinalign.case.definition import Case
from twinalign.processes.guardian import temporary_folder
from twinalign.runs.options import PathLike
from twinalign.verdict.results import ALIGNED

if TYPE_CHECKING:
    from twinalign.conversion.options import ConversionResult
    from twinalign.runs.run_result import RunResult


def assert_aligned(case: PathLike | type[Case], *, out: PathLike | None = None, **options: Any) -> RunResult:
    """Run a case and raise AssertionError, with the table, the worst tensors and the faults, unless it is aligned.

    Args:
        case: a registered name, `path/to/case.py`, `package.module:ClassName`, or the class itself.
        out: folder for recordings and report; unchanged recordings are reused. A temporary folder by default.
        **options: as in `twinalign.run`: `stages`, `precision`, `ref_python`, …

    Returns:
        The run, for further assertions.

    Raises:
        AssertionError: it diverged or is inconclusive.
        InputError, SideCrashError: as in `twinalign.run`.
    """
    with temporary_folder() if out is None else contextlib.nullcontext(out) as folder:
        result = api.run(case, out=folder, **options)
    check(result, None if out is None else Path(out))
    return result


def check(result: RunResult, out: Path | None = None) -> None:
    """Raise AssertionError unless the run is aligned: the first cause in one line, then the output of `twinalign run`.

    `out` is the folder of the run, if it is kept.
    """
    if result.verdict == ALIGNED:
        return
    from twinalign.terminal import as_text
    from twinalign.terminal.brief import headline

    raise AssertionError(f"{headline(result.to_json())}\n\n{as_text(result, out=out)}")


def assert_converts(
    source: PathLike, *, ref: str, paddle: str, inputs: Sequence[str] = (), **options: Any
) -> ConversionResult:
    """Convert a checkpoint, run both models with it in float64, convert it back, and compare that with `source`.

    Only a temporary folder is written to.

    Args:
        source: a checkpoint of either framework.
        ref, paddle: the models, `module:factory`.
        inputs: of the models, as in `twinalign convert --input`; guessed if possible.
        **options: further options of `twinalign.convert`.

    Returns:
        The conversion's report, with the ledger of every key.

    Raises:
        AssertionError: the models disagree with these weights, or converting back changes arrays.
        InputError, SideCrashError: as in `twinalign.convert`.
    """
    from twinalign.errors import DivergedError

    models = {"ref": ref, "paddle": paddle, "inputs": tuple(inputs), **options}
    source = Path(source)
    paddle_suffixes = (".pdparams", ".pdopt")
    there, back = (".pth", ".pdparams") if source.suffix in paddle_suffixes else (".pdparams", ".pth")
    with temporary_folder() as folder:
        target, again = folder / f"there{there}", folder / f"back{back}"
        try:
            done = api.convert(source, target, verify=True, **models)
        except DivergedError as error:
            raise AssertionError(str(error)) from None
        kept = {key for entry in done.ledger.entries if entry.target for key in entry.source}
        # A paddle file does not contain torch's batch counts; the way back takes them from the source.
        defaults = source if back == ".pth" else None
        api.convert(target, again, weights_only=True, **{**models, "defaults": defaults})
        _assert_same_arrays(source, again, kept)
    return done


def _assert_same_arrays(source: Path, again: Path, keys: set[str]) -> None:
    from twinalign.files.reader import read_arrays

    first, second = read_arrays(source), read_arrays(again)
    keys &= set(first)
    changed = [key for key in sorted(keys) if key not in second or first[key].tobytes() != second[key].tobytes()]
    if changed:
        raise AssertionError(f"{source}: converting there and back changes {', '.join(changed)}")
