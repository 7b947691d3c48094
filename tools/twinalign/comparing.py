"""Two files compared as `twinalign run` would judge them, where it recorded them; as bare files elsewhere."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinalign.errors import InputError

if TYPE_CHECKING:
    from twinalign.verdict import Allowance, Comparison


def compare_recordings(
    reference: str | os.PathLike[str],
    reproduced: str | os.PathLike[str],
    *,
    reference64: str | os.PathLike[str] | None = None,
    reproduced64: str | os.PathLike[str] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    only: Iterable[str] = (),
    skip: Iterable[str] = (),
    accept: Iterable[str] = (),
    allowances: Iterable[Allowance | str] = (),
    **options: Any,
) -> Comparison:
    """Compare two recordings or tensor files, or two folders of them; further options as of `compare_files`.

    Raises:
        InputError: a file that is missing, broken or of another kind than the other.
    """
    from twinalign.verdict import compare_files

    paths = Path(reference), Path(reproduced)
    only, skip = tuple(only), tuple(skip)
    stage, accepted, allowed = _as_run_judges(*paths)
    if stage == "train" and rtol is None and atol is None:
        partners = tuple(None if path is None else Path(path) for path in (reference64, reproduced64))
        named = (*allowed, *allowances)
        comparison = _compare_training(paths, partners, only, skip, named)  # type: ignore[arg-type]
    else:
        comparison = compare_files(
            *paths,
            reference64=reference64,
            reproduced64=reproduced64,
            rtol=rtol,
            atol=atol,
            only=only,
            skip=skip,
            accept=(*accepted, *accept),
            allowances=(*allowed, *allowances),
            **options,
        )
    if stage is not None and rtol is None:
        comparison.notes.append(f"conventions and allowances are those of `twinalign run` for stage {stage}")
    return comparison


def _as_run_judges(reference: Path, reproduced: Path) -> tuple[str | None, list[str], list[Allowance | str]]:
    """Stage, accepted conventions and allowances with which `twinalign run` judges the two, where it recorded them.

    Two commands that disagree about the same files would help nobody. Files from elsewhere have none of these.
    """
    from twinalign.recording import read_metadata

    try:
        first, second, case = (
            read_metadata(path) for path in (reference, reproduced, reference.with_name("case.json"))
        )
    except RecursionError:
        return None, [], []
    stage = second.get("stage")
    sides = first.get("side"), second.get("side")
    if sides != ("ref", "paddle") or not isinstance(stage, str) or first.get("stage") != stage:
        return None, [], []
    from twinalign.case_allowances import allowances_for

    try:
        description = case.get("description", {})
        accept = description.get("accept", ())
        named = [f"{key}={pattern}" for key, pattern in accept.items()] if isinstance(accept, dict) else list(accept)
        return stage, named, allowances_for(stage, second, description)
    except (AttributeError, KeyError, TypeError):  # metadata that twinalign did not write
        return None, [], []


def _compare_training(
    sides: tuple[Path, Path],
    partners: tuple[Path | None, Path | None],
    only: tuple[str, ...],
    skip: tuple[str, ...],
    allowances: Iterable[Allowance | str],
) -> Comparison:
    """Recordings of the train stage: curves are judged as trajectories, outcomes by their standard error."""
    from twinalign.files import read_arrays
    from twinalign.stages.train import REPEAT_PREFIX
    from twinalign.training_verdict import compare_training
    from twinalign.verdict.partners import partners_beside
    from twinalign.verdict.structure import require_something, select_names

    notes = []
    if partners == (None, None):
        found, note = partners_beside(*sides)
        partners = found.get("reference64"), found.get("reproduced64")
        notes = [note] if note else []
    read = [None if path is None else read_arrays(path) for path in (*sides, *partners)]
    kept = [
        arrays
        and {name: arrays[name] for name in arrays if select_names([name.removeprefix(REPEAT_PREFIX)], only, skip)}
        for arrays in read
    ]
    require_something(kept[0] or {}, kept[1] or {}, (*only, *skip))
    try:
        comparison = compare_training(kept[0] or {}, kept[1] or {}, kept[2], kept[3], allowances=allowances)
    except (IndexError, TypeError, ValueError) as error:
        raise InputError(f"{sides[0]} and {sides[1]}: no curves and outcomes of the train stage ({error})") from error
    comparison.notes[:0] = notes
    return comparison
