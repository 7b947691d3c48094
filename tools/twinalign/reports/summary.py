"""`summary.json` of a run, and sentences about the run as a whole."""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from twinalign.errors import InputError
from twinalign.files.recordings import read_metadata
from twinalign.reports.language import Language
from twinalign.reports.shown_values import short_name
from twinalign.verdict.allowances import KNOWN_ALLOWANCES
from twinalign.verdict.results import ALIGNED, float64_agrees

FILES = "comparison"
"""Name of the only stage in the report of two files."""
_GUIDE = 6
_FAR = 10.0
"""An aligned stage so many times above the reference's own rounding needs a word why."""
_STEP = re.compile(r"step(\d+)\.")
_ORDER = {"diverged": 0, "inconclusive": 1, "rounding": 2, "aligned": 3}


def load_summary(folder: Path) -> dict[str, Any]:
    """`summary.json` of a finished run; raises InputError if it is missing or malformed."""
    from twinalign.files.strict_json import check_form  # which is no part of a recorder process

    if folder.is_file():
        raise InputError(f"{folder}: a file; give the folder of a finished run, the --out of `twinalign run`")
    found = read_metadata(folder / "summary")
    if not {"case", "verdict", "stages", "environment"} <= set(found):
        raise InputError(f"{folder / 'summary.json'}: no finished run there; give the --out folder of `twinalign run`")
    check_form(found, "summary", str(folder / "summary.json"))
    return found


def sentence(summary: Mapping[str, Any], say: Language) -> str:
    """The verdict in one sentence."""
    stages = summary["stages"]
    if not stages:
        return say("header.none")
    if list(stages) == [FILES]:
        return say(f"header.files_{summary['verdict']}")
    wrong = [name for name, stage in stages.items() if stage["verdict"] != "aligned"]
    graver = [name for name in wrong if stages[name]["verdict"] == summary["verdict"]] or wrong
    names = [say.known("stage", name) for name in stages]
    listed = say("header.all_stages", count=len(names)) if len(names) == _GUIDE else _listed(names, say)
    first = say.known("stage", graver[0]) if graver else names[0]
    said = say(f"header.{summary['verdict']}", stages=listed, stage=first)
    left_out = accepted([tensor for stage in stages.values() for tensor in stage["tensors"]], say)
    return f"{said} ({left_out})" if left_out else said


def deciding(tensors: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Tensors without those whose difference the case accepts."""
    return [tensor for tensor in tensors if not tensor.get("accepted")]


def accepted(tensors: Sequence[Mapping[str, Any]], say: Language) -> str:
    """How many tensors the case accepts, and as what; empty for none."""
    names = [short_name(tensor["accepted"]) for tensor in tensors if tensor.get("accepted")]
    listed = say("header.comma").join(dict.fromkeys(names))
    return say("header.accepted", count=len(names), names=listed) if names else ""


def part_of_stage(stage: str, name: str) -> str:
    """The name of a tensor, and of a part without one what it is a part of: `part [3] of what loss returns`."""
    whole = {"loss": "loss", "forward": "the model"}.get(stage)
    if whole is None or not name.partition(".")[0].isdigit():
        return name
    place = "".join(f"[{part}]" if part.isdigit() else f"[{part!r}]" for part in name.split("."))
    return f"part {place} of what {whole} returns"


def allowed(stages: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """One line for each allowance that tensors are aligned by: how many, in which stages, why, and how far it goes."""
    found: dict[str, dict[str, int]] = {}
    for stage, comparison in stages.items():
        for tensor in comparison["tensors"]:
            if tensor.get("allowed") and not _is_wrong(tensor):
                counts = found.setdefault(str(tensor["allowed"]), {})
                counts[stage] = counts.get(stage, 0) + 1
    return [_allowance(name, counts) for name, counts in found.items()]


def far_from_rounding(stages: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Of each aligned stage far above the reference's rounding, why it is aligned, if no allowance says so."""
    found = []
    for stage, comparison in stages.items():
        tensors = [one for one in deciding(comparison["tensors"]) if not one.get("allowed")]
        most = greatest(tensors, "noise_ratio")
        if comparison["verdict"] == ALIGNED and most is not None and _FAR < float(most) < math.inf:
            worst = next(one for one in tensors if one["noise_ratio"] == most)
            found.append(f"{stage}: noise × {float(most):.2g} in {short_name(worst['name'])}: {worst['reason']}")
    return found


def _allowance(name: str, counts: Mapping[str, int]) -> str:
    known = KNOWN_ALLOWANCES.get(name)
    where = ", ".join(f"{count} of {stage}" for stage, count in counts.items())
    why = f": {known.text}" if known is not None else ""
    return f"Allowed as {short_name(name)}{why} ({where})."


def unlocated(summary: Mapping[str, Any], say: Language) -> str:
    """Where the first diverged stage diverges and what that means, if a search found nothing."""
    faults = (summary.get("located") or {}).get("faults")
    wrong = [(name, stage) for name, stage in summary["stages"].items() if stage["verdict"] == "diverged"]
    if faults is None or not wrong or any("accepted" not in fault["evidence"] for fault in faults):
        return ""
    name, stage = wrong[0]
    first = next((t["name"] for t in deciding(stage["tensors"]) if t["verdict"] == "diverged"), "")
    step = _STEP.match(first)
    parts = summary["located"].get("layers", {}).values()
    in_parts = "in_judged_parts" if any(part.get("left_out") for part in parts) else "in_parts"
    if summary["located"].get("not_searched"):
        in_parts = "in_searched_parts"
    kind = "after_a_step" if step and int(step[1]) > 0 else "in_training" if name == "train" else in_parts
    starts = say("faults.starts", stage=say.known("stage", name), tensor=short_name(first))
    return f"{starts} {say(f'faults.{kind}')}"


def not_checked(summary: Mapping[str, Any], say: Language) -> str:
    """What the verdict does not cover, in one sentence; empty if nothing."""
    missing = summary.get("not_checked", [])
    stages = [say.known("stage", name) for name in missing if name != "training_mode"]
    parts = [say("header.not_checked_stages", stages=_listed(stages, say))] if stages else []
    if "training_mode" in missing:
        parts.append(say("header.not_checked_training_mode"))
    return say("header.not_checked", what=say("header.between").join(parts)) if parts else ""


def worst_first(tensors: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Diverged, inconclusive, rounding, aligned, and last what is accepted; in the recording's order within each, but
    what float64 proves before what only a lower precision shows."""

    def place(tensor: Mapping[str, Any]) -> tuple[bool, int, bool]:
        agrees = float64_agrees(tensor.get("fp64_ratio"))
        return bool(tensor.get("accepted")), _ORDER.get(tensor["verdict"], 0), agrees

    return sorted(tensors, key=place)


def greatest(tensors: Sequence[Mapping[str, Any]], key: str) -> float | str | None:
    """The greatest value over tensors; a value that is not finite outranks all others.

    None if a tensor is wrong for another reason than its numbers (NaN on one side, another shape): the numbers would
    then mislead about how wrong the stage is.
    """
    if not all(map(has_numbers, tensors)):
        return None
    values = [tensor[key] for tensor in tensors if tensor.get(key) is not None]
    odd = [value for value in values if isinstance(value, str)]
    return odd[0] if odd else max(values, default=None)


def identical(tensors: Sequence[Mapping[str, Any]]) -> bool:
    """Whether every tensor is bit-identical on both sides, in float64 too if that was recorded."""
    return bool(tensors) and all(
        tensor.get("max_abs") == 0 and not tensor.get("fp64_rel") and not _is_wrong(tensor) for tensor in tensors
    )


def has_numbers(tensor: Mapping[str, Any]) -> bool:
    """Whether its numbers tell how wrong it is; with NaN on one side they cover the other elements only."""
    return not (tensor.get("basis") == "structure" and _is_wrong(tensor))


def _is_wrong(tensor: Mapping[str, Any]) -> bool:
    return tensor["verdict"] in ("diverged", "inconclusive")


def _listed(names: list[str], say: Language) -> str:
    if len(names) == 1:
        return names[0]
    return say("header.and", first=say("header.comma").join(names[:-1]), last=names[-1])
