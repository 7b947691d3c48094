"""Paths of the port's layers in the reference's names."""

from __future__ import annotations

from collections.abc import Mapping

from twinalign.stages.naming import CanonicalNames


class PathNames:
    """Knows which layer of the reference a layer of the port is named after.

    What the conversion of the weights has found out goes first, then the case's `rename`, then equal names.
    """

    def __init__(self, rename: Mapping[str, str], canonical: CanonicalNames) -> None:
        """Take the case's rename rules (reference → port) and the conversion's names of every key of the port."""
        self._known: dict[str, str] = {}
        for key, part in canonical.pairs():
            if part.rows is None and part.place is None:  # a layer that holds a part of a tensor is no layer's partner
                self._learn(key.rpartition(".")[0], part.name.rpartition(".")[0])
        self._rules = sorted(((port, ref) for ref, port in rename.items()), key=lambda rule: -len(rule[0]))

    def _learn(self, port: str, reference: str) -> None:
        """A layer with weights tells where it is, and with it the modules around it that end alike."""
        while port not in self._known:
            self._known[port] = reference
            outer_port, _, last = port.rpartition(".")
            outer_reference, _, their_last = reference.rpartition(".")
            if not outer_port or not outer_reference or last != their_last:
                return
            port, reference = outer_port, outer_reference

    def reference_path(self, port: str) -> str:
        """The path in the reference."""
        if port in self._known:
            return self._known[port]
        for prefix, replacement in self._rules:
            if port == prefix or port.startswith(f"{prefix}."):
                return replacement + port[len(prefix) :]
        # A layer without weights is where the module around it is.
        outer, dot, last = port.rpartition(".")
        return f"{self.reference_path(outer)}.{last}" if dot else port
