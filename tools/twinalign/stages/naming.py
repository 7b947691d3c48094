"""How a tensor of one side is called on the other."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class CanonicalName:
    """How a tensor of this side is called and laid out on the reference side."""

    name: str
    transposed: bool = False


def canonical_name(key: str, canonical: Mapping[str, CanonicalName]) -> CanonicalName | None:
    """The reference's name for a key of this side; None for a key that the other framework does not have.

    Args:
        key: of this side's state dict.
        canonical: key → the reference's name; empty on the reference side.
    """
    # torch's batch norm counts its batches, paddle's does not; nothing reads the count unless momentum is None.
    if key.rpartition(".")[2] == "num_batches_tracked":
        return None
    if not canonical:
        return CanonicalName(key)
    return canonical.get(key)
