"""State that one side's optimizer keeps where nobody can see it, or does not keep at all."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

_STATE = re.compile(r"step(\d+)\.(moment1|moment2|infinity_norm|velocity)\.")


def without_lone_state(sides: Mapping[str, Iterable[str]]) -> tuple[set[str], list[str]]:
    """Names of the optimizer's state that the other side records of no parameter at all, and a sentence for each side.

    Where a second step follows, the parameters show what the state does: without one it is all that tells.
    """
    kept: dict[str, dict[str, set[str]]] = {side: {} for side in sides}
    steps = set[str]()
    for side, names in sides.items():
        for name in names:
            if (found := _STATE.match(name)) is not None:
                steps.add(found[1])
                kept[side].setdefault(found[2], set()).add(name)
    left_out, notes = set[str](), []
    for side, other, whose, where in (
        ("ref", "paddle", "port", "paddle's `_add_accumulator`"),
        ("paddle", "ref", "reference", "torch's `self.state[parameter]`"),
    ):
        kinds = sorted(kept[side].keys() - kept[other].keys()) if len(steps) > 1 else []
        left_out |= {name for kind in kinds for name in kept[side][kind]}
        if kinds:
            notes.append(
                f"the {whose}'s optimizer keeps no {' and no '.join(kinds)} in {where}: it is judged by the parameters "
                "after each step"
            )
    return left_out, notes


def without(arrays: Mapping[str, Any] | None, names: set[str]) -> dict[str, Any] | None:
    """The arrays but for those of these names."""
    return None if arrays is None else {name: array for name, array in arrays.items() if name not in names}
