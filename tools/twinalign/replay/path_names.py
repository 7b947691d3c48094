"""Path of a layer in the port → its path in the reference."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from twinalign.backends.layer_classes import full_name
from twinalign.conversion.canonical_names import CanonicalNames
from twinalign.replay.case_run import CaseRun
from twinalign.replay.layer_calls import Call


class PathNames:
    """Path of a layer in the port → its path in the reference.

    The names that the conversion of the weights has found come first, then the case's `rename` (reference → port), then
    equal names. What has no counterpart by these gets a name that no layer of the reference has.
    """

    def __init__(
        self, rename: Mapping[str, str], canonical: CanonicalNames, calls: Sequence[Call], layers: Mapping[str, Any]
    ) -> None:
        """`calls` are the reference's, `layers` the port's by their paths."""
        self._known: dict[str, str] = {}
        self._held = _held(canonical)
        classes = {call.path: call.layer for call in calls}
        owners: dict[str, list[str]] = {}
        for key, part in canonical.pairs():
            port, reference = key.rpartition(".")[0], part.name.rpartition(".")[0]
            # A layer that holds part of a tensor has no single counterpart, and a module that holds a table is none of
            # an embedding, which may be there for its table alone and never be called.
            tables = _is_table(classes.get(reference)), _is_table(full_name(type(layers.get(port))))
            called = reference in classes or port.rpartition(".")[2] == reference.rpartition(".")[2]
            of_model = bool(port) != bool(reference)  # one side's model holds itself what a layer of the other does
            if part.rows is None and part.place is None and tables[0] == tables[1] and called and not of_model:
                owners.setdefault(port, []).append(reference)
        # What the reference holds in several layers, a layer with an adapter, is the module around them.
        direct = {port: found[0] if len(set(found)) == 1 else path_around(found) for port, found in owners.items()}
        direct = {port: self._with_inner(port, reference, classes) for port, reference in direct.items()}
        for port, reference in {**_of_same_weights(canonical, classes, layers, direct), **direct}.items():
            self._learn(port, reference)
        self._rules = sorted(((port, ref) for ref, port in rename.items()), key=lambda rule: -len(rule[0]))
        self._owners: dict[str, list[str]] = {}
        for port, reference in self._known.items():
            self._owners.setdefault(reference, []).append(port)
        self._give_to_outer(layers)

    @classmethod
    def of(cls, run: CaseRun, calls: Sequence[Call], rename: Mapping[str, str]) -> PathNames:
        """The names of the layers of the port that runs."""
        return cls(rename, run.canonical, calls, dict(run.backend.named_layers(run.model)))

    def _with_inner(self, port: str, reference: str, called: Mapping[str, str]) -> str:
        """The reference's module that also holds what the layers inside of the port's do: a table may have its own."""
        held = {name.rpartition(".")[0] for name, *_ in self._held[0].get(port, ())}
        around = path_around([reference, *(path for path in held if path != reference)])
        return around if around in called else reference

    def _give_to_outer(self, layers: Iterable[str]) -> None:
        """Of two layers, one inside the other, that claim one layer of the reference the outer one has it."""
        # A port that wraps its `dwconv` in another `dwconv` seems to have the module around it one level too deep.
        given: dict[str, list[str]] = {}
        for port in sorted({*layers, *self._known}, key=lambda path: path.count(".")):
            reference = self.reference_path(port)
            if any(port.startswith(f"{outer}.") for outer in given.get(reference, ())):
                self._known[port] = _no_path(port)
            else:
                given.setdefault(reference, []).append(port)

    def _learn(self, port: str, reference: str) -> None:
        """Learn the path of a layer with weights, and those of the modules around it that have the same last name."""
        while port not in self._known:
            self._known[port] = reference
            outer_port, _, last = port.rpartition(".")
            outer_reference, _, their_last = reference.rpartition(".")
            if not outer_port or not outer_reference or last != their_last:
                return
            if not self._hold_alike(outer_port, outer_reference, exactly=last.isdigit()):
                return
            port, reference = outer_port, outer_reference

    def _hold_alike(self, port: str, reference: str, exactly: bool) -> bool:
        """Whether two modules share their weights, or most of them: that both hold a `0` says nothing."""
        ours, theirs = (held.get(path, set()) for held, path in zip(self._held, (port, reference), strict=True))
        return ours == theirs if exactly else 2 * len(ours & theirs) >= len(ours | theirs)

    def reference_path(self, port: str) -> str:
        if port in self._known:
            return self._known[port]
        for prefix, replacement in self._rules:
            if port == prefix or port.startswith(f"{prefix}."):
                return replacement + port[len(prefix) :]
        # A layer without weights is in the same place inside its module, unless another is known to be there.
        outer, dot, last = port.rpartition(".")
        found = f"{self.reference_path(outer)}.{last}" if dot else port
        return found if all(owner.startswith(f"{port}.") for owner in self._owners.get(found, ())) else _no_path(port)


def _no_path(port: str) -> str:
    """What stands for the path of a layer that the reference lacks; no path of a layer has such brackets."""
    return f"<{port}>"


def _held(canonical: CanonicalNames) -> tuple[dict[str, set[Any]], dict[str, set[Any]]]:
    """Path of each module around weights → what it holds of the reference's weights, in the port and the reference."""
    sides: tuple[dict[str, set[Any]], dict[str, set[Any]]] = {}, {}
    for key, part in canonical.pairs():
        for side, name in enumerate((key, part.name)):
            while name := name.rpartition(".")[0]:
                sides[side].setdefault(name, set()).add((part.name, part.rows, part.place))
    return sides


def _of_same_weights(
    canonical: CanonicalNames,
    called: Mapping[str, str],
    layers: Mapping[str, Any],
    direct: Mapping[str, str],
) -> dict[str, str]:
    """Modules that hold what one module of the reference holds: their paths in the port → in the reference.

    `called`: the reference's layers → their classes. `direct`: what is known of layers with weights. Where several hold
    the same, one inside the other, the innermost of both sides are partners, and so on outwards, those with code of
    their own before containers: a block is to meet a block, and not what holds it alone.
    """
    sides = _held(canonical)
    names = [(key, part.name) for key, part in canonical.pairs()]
    owners = [{pair[side].rpartition(".")[0] for pair in names} for side in (0, 1)]
    of_port = {path for path in sides[0] if path in layers and not _is_list(layers[path])} - owners[0]
    of_reference = {path for path in sides[1] if path in called} - owners[1] - set(direct.values())
    chains: dict[frozenset[Any], tuple[list[str], list[str]]] = {}
    for side, paths in enumerate((of_port, of_reference)):
        for path in sorted(paths, key=len, reverse=True):
            chains.setdefault(frozenset(sides[side][path]), ([], []))[side].append(path)
    found: dict[str, str] = {}
    for ours, theirs in chains.values():
        kinds = [_is_plain(type(layers[path]).__name__) for path in ours], [_is_plain(called[path]) for path in theirs]
        blocks = difflib.SequenceMatcher(None, *kinds, autojunk=False).get_matching_blocks()
        steps = [(block.a + n, block.b + n) for block in blocks for n in range(block.size)]
        found |= {ours[a]: theirs[b] for a, b in steps} if steps else dict(zip(ours, theirs, strict=False))
    return found


def _is_plain(kind: str) -> bool:
    """Whether a class, by its name, runs its layers one after the other and has no code of its own."""
    return kind.rpartition(".")[2] == "Sequential"


def _is_list(layer: Any) -> bool:
    return type(layer).__name__ in ("LayerList", "LayerDict")


def path_around(paths: Sequence[str]) -> str:
    """The path of the module that holds all of these, of which it may be one."""
    levels = itertools.takewhile(
        lambda same: len(set(same)) == 1, zip(*(path.split(".") for path in paths), strict=False)
    )
    return ".".join(level[0] for level in levels)


def _is_table(name: str | None) -> bool:
    return name is not None and name.endswith("Embedding")


def child_names(port: tuple[str, list[str]], reference: tuple[str, list[str]]) -> dict[str, str]:
    """First part of a layer's path in the port → in the reference, where they differ, of units with their layers."""
    ours, theirs = (
        [child.removeprefix(f"{path}.").partition(".")[0] for child in children] for path, children in (port, reference)
    )
    return {mine: other for mine, other in zip(ours, theirs, strict=True) if mine != other}
