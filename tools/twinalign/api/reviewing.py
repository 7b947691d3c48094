"""Reports, bundles, and what is installed."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinalign.api.arguments import Progress, quiet
from twinalign.runs.options import PathLike

if TYPE_CHECKING:
    from twinalign.bundle.verifying import Verification


def report(
    folder: PathLike,
    *,
    md: PathLike | None = None,
    junit: PathLike | None = None,
    against: PathLike | None = None,
    language: str = "en",
) -> list[Path]:
    """Write `report.html` into the folder of a finished run, or the requested table and JUnit XML instead.

    The page begins with what changed since the run in the folder `against`, if that is given.

    >>> [path.name for path in report("result", md="table.md")]
    ['table.md']
    >>> [path.name for path in report("result", against="result")]
    ['report.html']
    """
    from twinalign.files.recordings import write_text
    from twinalign.reports import load_summary, write_report
    from twinalign.reports.junit import junit as as_junit
    from twinalign.reports.markdown import markdown

    if md is not None:
        write_text(Path(md), markdown(load_summary(Path(folder)), language))
    if junit is not None:
        write_text(Path(junit), as_junit(Path(folder)))
    return [Path(path) for path in (md, junit) if path is not None] or [
        write_report(Path(folder), language, Path(against) if against is not None else None)
    ]


def pack(folder: PathLike, bundle: PathLike, *, partial: bool = False) -> Verification:
    """Pack a finished run into one file for review; `InputError` names stale, aliased or incomplete files.

    >>> pack("result", "case.zip", partial=True).recomputed
    'aligned'
    """
    from twinalign.bundle.packing import pack_run

    return pack_run(Path(folder), Path(bundle), partial=partial)


def verify(
    bundle: PathLike,
    *,
    replay: bool = False,
    ref_python: str | None = None,
    paddle_python: str | None = None,
    options: Mapping[str, str] | None = None,
    progress: Progress = quiet,
) -> Verification:
    """Check a bundle of `pack` without trusting it: verdicts are recomputed, signs of fabrication are named.

    Args:
        bundle: the file.
        replay: run the packed case again; this executes code from the bundle.
        ref_python, paddle_python, options: for the replay, the interpreters and attributes of the case.
        progress: called with what is being done.

    >>> verify("case.zip").verdict
    'confirmed'
    """
    from twinalign.bundle.rerun import run_case_again
    from twinalign.bundle.verifying import verify_bundle

    again = functools.partial(
        run_case_again, pythons={"ref": ref_python, "paddle": paddle_python}, options=options or {}, progress=progress
    )
    return verify_bundle(bundle, replay=again if replay else None, progress=lambda text: progress("verify", text))


def doctor(*, ref_python: str | None = None, paddle_python: str | None = None) -> dict[str, Any]:
    """What is installed for each side and which device paths work there.

    >>> doctor()["ref"]["paths"]["cpu float64"]  # doctest: +SKIP
    'works'
    """
    from twinalign.recorder.diagnosis import diagnose

    return diagnose({"ref": ref_python, "paddle": paddle_python})
