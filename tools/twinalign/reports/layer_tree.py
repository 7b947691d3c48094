"""The tree of layers with their errors: from the search for faults if there was one, else from gradients."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from twinalign.reports.fault_facts import layer_values, shown_phase, some
from twinalign.reports.language import Language
from twinalign.reports.shown_values import figure, legible, number, short_name

SHADES = (1e-12, 1e-9, 1e-7, 1e-5, 1e-3, 1e-1)
"""Where one colour of the heat map ends and the next begins."""

_LAYER_PHASES = ("forward", "backward", "state")
_GRADIENT = "step0.gradient."
_DEEPEST = 32
_MOST = 1200
_NOTHING_INHERITED = 1e-9
_RUN = 12
"""Right layers in a row that are folded, so that wrong ones stand out."""


@dataclasses.dataclass
class LayerNode:
    """A layer with the layers inside it."""

    name: str
    layer: str = ""
    """Its class."""
    error: float | None = None
    """Its own; None if it has none, infinite if it is not a number."""
    inherited: float | None = None
    phases: list[str] = dataclasses.field(default_factory=list)
    children: dict[str, LayerNode] = dataclasses.field(default_factory=dict)

    def shade(self, judged_alone: bool) -> int:
        """Number of its colour, 0 for no error; without layer-by-layer errors, that of the worst layer inside."""
        error = (self.error or 0.0) if judged_alone else max(self.error or 0.0, self.worst_within)
        return 0 if not error else 1 + sum(error >= limit for limit in SHADES)

    @property
    def wrong_within(self) -> int:
        return sum(bool(child.phases) + child.wrong_within for child in self.children.values())

    @property
    def worst_within(self) -> float:
        return max((max(child.error or 0.0, child.worst_within) for child in self.children.values()), default=0.0)

    def runs(self, judged_alone: bool) -> Iterator[list[LayerNode]]:
        """The layers directly inside it in order; long rows of right layers are grouped."""
        for right, group in itertools.groupby(self.children.values(), lambda node: judged_alone and node.is_right):
            row = list(group)
            yield from [row] if right and len(row) >= _RUN else ([node] for node in row)

    @property
    def is_right(self) -> bool:
        return not self.phases and not self.wrong_within

    def at(self, path: str) -> LayerNode:
        """The layer under a dotted path; created if missing."""
        node = self
        for part in path.split(".", _DEEPEST) if path else ():
            node = node.children.setdefault(part, LayerNode(part))
        return node

    def count(self) -> int:
        return sum(1 + child.count() for child in self.children.values())

    def prune(self, depth: int = 0) -> None:
        """Remove right layers below the first levels, except those that lead to a wrong one."""
        for name, child in list(self.children.items()):
            if depth >= 2 and child.is_right:
                del self.children[name]
            else:
                child.prune(depth + 1)
        right = [name for name, child in self.children.items() if child.is_right]
        for name in right[_MOST // 4 :]:
            del self.children[name]


@dataclasses.dataclass(frozen=True)
class LayerDepth:
    """The layers of a part in the order of their calls."""

    part: str
    number: int
    names: list[str]
    errors: list[float | None]
    wrong: list[int]
    """Places of the layers that are wrong on their own."""


@dataclasses.dataclass
class LayerPart:
    """One part of a case as shown."""

    tree: LayerNode
    judged_alone: bool
    pruned: int
    notes: list[str]
    depth: LayerDepth | None


def layer_parts(summary: Mapping[str, Any], say: Language) -> list[LayerPart]:
    """Every part of the case whose layers are known."""
    located = summary.get("located") or {}
    parts = list(located.get("layers", {}).items())
    if not parts:
        return _by_gradients(summary, say)
    faults = faults_by_part(parts, located["faults"])
    return [_judged(number, part, layers, faults[part], say) for number, (part, layers) in enumerate(parts)]


def describe(node: LayerNode, judged_alone: bool, say: Language) -> str:
    """What is known about a layer, in words."""
    found = []
    if node.phases:
        found.append(say("layers.wrong", phases=", ".join(say.known("phase", phase) for phase in node.phases)))
        unknown = node.error is None or not math.isfinite(node.error)
        found.append(say("layers.own_unknown") if unknown else say("layers.own_error", error=figure(node.error)))
    elif judged_alone and node.layer:
        found.append(say("layers.right"))
    elif not judged_alone and node.error is not None:
        found.append(figure(node.error))
    if not node.phases and node.inherited and node.inherited > _NOTHING_INHERITED:
        found.append(say("layers.inherits", error=figure(node.inherited)))
    if judged_alone and node.wrong_within:
        found.append(say("layers.within", count=node.wrong_within))
    elif not judged_alone and node.children:
        found.append(say("layers.worst_within", error=figure(node.worst_within)))
    return " · ".join(found)


def faults_by_part(
    parts: Sequence[tuple[str, Mapping[str, Any]]], faults: Sequence[Mapping[str, Any]]
) -> dict[str, list[Mapping[str, Any]]]:
    """The faults of layers, by the part of the case whose model has the layer."""
    found: dict[str, list[Mapping[str, Any]]] = {part: [] for part, _ in parts}
    wrong = {part: {x["paddle_layer"] for x in described["layers"] if x["wrong"]} for part, described in parts}
    for fault in faults:
        if fault["phase"] in _LAYER_PHASES:
            named = [part for part in found if fault["paddle_layer"] in wrong[part]]
            found[named[0] if named else parts[0][0]].append(fault)
    return found


def _judged(
    number_of_part: int, part: str, described: Mapping[str, Any], faults: Sequence[Mapping[str, Any]], say: Language
) -> LayerPart:
    root = LayerNode(say("layers.root", part=short_name(part)))
    layers = described["layers"]
    for layer in layers:
        node = root.at(layer["paddle_layer"])
        node.layer = str(layer["class"]).rpartition(".")[2]
        node.inherited = number(layer.get("inherited_error"))
    for fault in faults:
        node = root.at(fault["paddle_layer"])
        node.phases.append(shown_phase(fault))
        errors = [number(value["relative"]) for value in layer_values(fault).values()]
        node.error = max([node.error or 0.0, *(math.inf if error is None else error for error in errors)])
    wrong = {fault["paddle_layer"] for fault in faults}
    depth = LayerDepth(
        part,
        number_of_part,
        [layer["paddle_layer"] for layer in layers],
        [number(layer.get("inherited_error")) for layer in layers],
        [place for place, layer in enumerate(layers) if layer["paddle_layer"] in wrong],
    )
    notes = [
        say("layers.alone", count=len(paths), side=say(f"side.{side}"), names=some([short_name(p) for p in paths]))
        for side, paths in zip(("reference", "port"), described.get("without_partner", {}).values(), strict=False)
        if paths
    ]
    return LayerPart(root, True, _prune(root), notes, depth)


def _by_gradients(summary: Mapping[str, Any], say: Language) -> list[LayerPart]:
    root = LayerNode(say("layers.root", part=short_name(summary["case"])))
    for name, error in _gradient_errors(summary):
        node = root.at(name.rpartition(".")[0])
        node.error = max(node.error or 0.0, error)
    return [LayerPart(root, False, _prune(root), [], None)] if root.children else []


def _gradient_errors(summary: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for tensor in summary["stages"].get("backward", {}).get("tensors", ()):
        error = number(tensor.get("fp64_rel"))
        name = tensor["name"].removeprefix("rank0.")  # of several ranks, the first stands for all
        if name.startswith(_GRADIENT) and error is not None:
            yield legible(name.removeprefix(_GRADIENT).removesuffix(" (projections)")), error


def _prune(root: LayerNode) -> int:
    before = root.count()
    if before > _MOST:
        root.prune()
    return before - root.count()
