"""Finds weights that are one tensor on one side alone: they start equal, and the gradient parts or joins them."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.causes.registry import Explanation, known_causes
from twinalign.processes.side_process import SideProcess
from twinalign.replay.case_run import PLAIN
from twinalign.replay.ties import gradients_of_parameters, reference_use_ties
from twinalign.search.faults import Fault
from twinalign.sides import SIDES
from twinalign.verdict.array_difference import Difference, difference

_STAGE = "backward"
_SAME = 1e-9
"""Relative: gradients of float64 that differ by less are the same."""


@dataclasses.dataclass(frozen=True)
class _Group:
    """Keys that are one tensor on one side and several on the other: of the reference, and of the port."""

    side: str
    reference: tuple[str, ...]
    port: tuple[str, ...]


class TieSearch:
    """While it lasts, the reference's weights have the port's ties, so that layers are judged apart from them."""

    def __init__(
        self, processes: Mapping[str, SideProcess], weights: Mapping[str, Any] | None, folder: Path, explain: bool
    ) -> None:
        """`weights`: of the part whose gradients are searched; None where none are."""
        self._processes, self._weights, self._explain = processes, weights, explain
        self._path = folder / "ties.npz"
        self._groups = _groups(weights["paddle"]) if weights else []
        self._use_ties(self._groups)

    def faults(self, others: Sequence[Fault], left_out: Collection[str] | None) -> list[Fault]:
        """One fault for each group whose tie changes gradients; then the reference is what it was.

        A tie is proven where the reference with all of the port's ties gives the port's gradients on two draws of
        inputs. Where `others` are wrong, too, the layers that use the weights must be right by themselves, and none of
        those that were `left_out` of the search (paths in the port; None: it did not run).
        """
        if not self._groups:
            return []
        tied = [self._gradients("ref", draw) for draw in (0, PLAIN)]
        self._use_ties([])
        plain = [self._gradients("ref", draw) for draw in (0, PLAIN)]
        port = [self._gradients("paddle", draw) for draw in (0, PLAIN)]
        if not (tied[0] and plain[0] and port[0]):
            return []
        draws = [draw for draw in (0, 1) if tied[draw] and plain[draw] and port[draw]]
        left = max(_greatest(port[draw], tied[draw]) for draw in draws)
        whole = left <= _SAME
        found = []
        for members in _of_one_layer(self._groups):
            names = [key for group in members for key in group.reference]
            values = _apart(port[0] if whole else tied[0], plain[0], names)
            wrong = {name: value for name, value in values.items() if not value.relative <= _SAME}
            paths = {_layer(key) for group in members for key in group.port}
            alone = left_out is not None and paths.isdisjoint(left_out) and _are_right(names, others)
            if not wrong or not (whole or alone):
                continue
            found.append(self._fault(members, wrong, left if whole else None))
        return found

    def _fault(self, members: Sequence[_Group], wrong: Mapping[str, Difference], left: float | None) -> Fault:
        side, first = members[0].side, members[0]
        pairs = [" and ".join(f"`{key}`" for key in _named(group)) for group in members]
        evidence: dict[str, Any] = {
            "values": {f"gradient.parameter.{name}": value.to_json() for name, value in wrong.items()},
            "where": f"the gradient of {', '.join(wrong)}",
            "tied_in": side,
            "keys": [{"reference": group.reference, "port": group.port} for group in members],
        }
        # A layer of the port that is used again has one name there, the first.
        layer = _layer(first.port[0 if self._is_one_layer(members) else -1])
        fault = Fault(_layer(first.reference[-1]), layer, "backward", None, evidence)
        if self._explain:
            cause = next(item for item in known_causes("backward") if item.id == _CAUSES[side])
            sizes = [value.relative for value in wrong.values() if np.isfinite(value.relative)]
            proof = {"unexplained_error": max(sizes)} if sizes else {}
            proof |= {} if left is None else {"remaining_error": left}
            fault.explanation = Explanation(cause.id, f"{cause.text}: {'; '.join(pairs)}", evidence=proof)
        if left is None:
            fault.note("other faults change the gradients as well: the layers that use these weights are right alone")
        return fault

    def _is_one_layer(self, members: Sequence[_Group]) -> bool:
        """Whether all that a layer holds is one with another layer's on the port's side."""
        assert self._weights is not None
        known, path = self._weights["paddle"]["canonical"], _layer(members[0].port[-1])
        tied = {key for group in members if group.side == "paddle" for key in group.port}
        return bool(tied) and all(key in tied for key in known if _layer(key) == path)

    def _use_ties(self, groups: Sequence[_Group]) -> None:
        if self._groups:
            found = {side: [group.reference for group in groups if group.side == side] for side in SIDES}
            self._processes["ref"].call(reference_use_ties, tied=found["paddle"], apart=found["ref"])

    def _gradients(self, side: str, draw: int) -> dict[str, np.ndarray]:
        """By the reference's names; none where this side does not run on the draw."""
        assert self._weights is not None
        given = {"stage": _STAGE, "weights": self._weights[side], "path": str(self._path), "draw": draw}
        if self._processes[side].call(gradients_of_parameters, **given)["crash"]:
            return {}
        with np.load(self._path, allow_pickle=False) as stored:
            found = dict(stored)
        self._path.unlink()
        return found


_CAUSES = {"ref": "weights_not_shared", "paddle": "weights_shared"}
"""Side that has one tensor alone → the cause."""


def _groups(weights: Mapping[str, Any]) -> list[_Group]:
    """From what the port's recorder is given: those whose keys are known on both sides."""
    names = {key: parts[0][0] for key, parts in weights.get("canonical", {}).items() if len(parts) == 1}
    keys = {name: key for key, name in names.items()}
    found = []
    for side, groups in weights.get("tied_apart", {}).items():
        for group in groups:
            known = keys if side == "ref" else names
            others = tuple(known[key] for key in group if key in known)
            if len(others) == len(group):
                found.append(
                    _Group(side, tuple(group), others) if side == "ref" else _Group(side, others, tuple(group))
                )
    return found


def _named(group: _Group) -> tuple[str, ...]:
    return group.port if group.side == "paddle" else group.reference


def _layer(key: str) -> str:
    return key.rpartition(".")[0]


def _of_one_layer(groups: Sequence[_Group]) -> list[list[_Group]]:
    """Groups of the same layers, such as weight and bias, together."""
    found: dict[Any, list[_Group]] = {}
    for group in groups:
        found.setdefault((group.side, *map(_layer, group.reference)), []).append(group)
    return list(found.values())


def _apart(
    port: Mapping[str, np.ndarray], reference: Mapping[str, np.ndarray], names: Sequence[str]
) -> dict[str, Difference]:
    """What differs in the gradients of these names; one that only one side has is all of the difference."""
    found = {}
    for name in names:
        if name in port or name in reference:
            both = [side.get(name) for side in (port, reference)]
            one, other = (np.zeros(()) if array is None else array for array in both)
            missing = "" if both[0] is not None and both[1] is not None else "only one side has a gradient of its own"
            found[name] = Difference(np.inf, text=missing) if missing else difference(one, other)
    return found


def _greatest(port: Mapping[str, np.ndarray], reference: Mapping[str, np.ndarray]) -> float:
    return max((one.relative for one in _apart(port, reference, [*{**port, **reference}]).values()), default=0.0)


def _are_right(names: Sequence[str], others: Sequence[Fault]) -> bool:
    """Whether no layer gives one of these parameters another gradient, or computes something else with it."""
    layers = {_layer(name) for name in names}
    return not any(
        fault.reference_layer in layers
        or any(
            f"{fault.reference_layer}.{value.removeprefix('gradient.parameter.')}".lstrip(".") in names
            for value in fault.evidence.get("values", {})
        )
        for fault in others
    )
