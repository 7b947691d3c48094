"""`twinalign port`: observe, select, rewrite, draft, write, and prove."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from twinalign.drafting import package
from twinalign.drafting.draft import draft
from twinalign.drafting.observed_model import observe_model
from twinalign.drafting.rewriting import Change
from twinalign.drafting.selection import Selection
from twinalign.errors import InputError, SideCrashError
from twinalign.processes.side_process import ChildError, SideProcess


@dataclasses.dataclass
class Port:
    """A port that was written."""

    out: Path
    case: Path
    changes: list[Change]
    left: list[str]


def make_port(
    reference: str,
    inputs: Sequence[tuple[str, tuple[int, ...], str]],
    out: Path,
    *,
    ref_python: str | None = None,
    drafting_python: str | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Port:
    """Write a paddle port of the model that `module:factory(…)` names into the folder `out`; nothing is proven yet.

    Raises InputError if the model cannot be built or run, PaConvert is missing, or `out` holds something else.
    """
    name = package.package_name(out)
    if out.exists() and any(out.iterdir()) and not (out / "changes.txt").exists():
        raise InputError(f"--out {out}: it exists and is no port that twinalign made; name another folder")
    progress("building and running the reference to see which of its sources it needs")
    with SideProcess("ref", python=ref_python) as process:
        try:
            observed = process.call(observe_model, reference=reference, inputs=[list(given) for given in inputs])
        except ChildError as error:
            raise (SideCrashError if error.died else InputError)(f"--ref {reference}: {error.reason}") from None
    selection = Selection(observed)
    files, changes, shims = package.in_torch(selection)
    progress(f"drafting {len(files)} files with PaConvert")
    drafts = draft(files, drafting_python)
    if shims:
        drafts[f"{package.SHIMS}.py"] = package.shims_source(shims)
    for text in selection.dropped_decorators:
        changes.append(Change(text.partition(":")[0], text.partition(": ")[2] + " taken away", "it only registers"))
    left = package.leftovers(drafts)
    lines = [f"{change.file}: {change.text}: {change.why}" for change in changes]
    whole: dict[str, Any] = {f"{name}/{path}": text for path, text in drafts.items()}
    whole["case.py"] = package.case_source(name, reference, inputs)
    whole["changes.txt"] = "\n".join(["Changed beside PaConvert's draft:", *lines, "", "Left of torch:", *left, ""])
    for number, licence in enumerate(selection.licences()):
        ending = f".{number}" if number else ""
        whole[f"LICENSE{ending}"] = licence.read_text(encoding="utf-8", errors="replace")
    package.write(out, whole)
    return Port(out, out / "case.py", changes, left)
