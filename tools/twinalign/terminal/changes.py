"""What changed between two runs of a case, for `twinalign run --watch`."""

from collections.abc import Mapping
from typing import Any


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Lines on verdicts and faults that differ between two runs, each as its `summary.json`; one line if none do."""
    lines = _of_verdicts("verdict", {"": before}, {"": after})
    lines += _of_verdicts("", before["stages"], after["stages"])
    old, new = _faults(before), _faults(after)
    lines += [f"mended: {fault}" for fault in old if fault not in new]
    lines += [f"new: {fault}" for fault in new if fault not in old]
    return lines or ["nothing changed against the last run"]


def _of_verdicts(kind: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    return [
        f"{name or kind}: {before[name]['verdict']} → {found['verdict']}"
        for name, found in after.items()
        if name in before and before[name]["verdict"] != found["verdict"]
    ]


def _faults(found: Mapping[str, Any]) -> list[str]:
    return [
        f"{fault['paddle_layer'] or 'the model itself'} ({fault['phase']}): "
        f"{fault['explanation']['id'] if fault['explanation'] else 'unexplained'}"
        for fault in found.get("located", {}).get("faults", [])
    ]
