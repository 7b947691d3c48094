"""Attention written by hand: q, k and v in one Linear on one side and in three on the other, or under other names.

The frameworks' own attention layers have rules (`layer_rules`). These layers are the user's, so only their names can be
matched, and what is assumed is reported so that a trial can prove it.
"""

import dataclasses
import re

from twinalign.conversion.storage import Slot, Stored

_ROLES = {
    "q": ("q", "q_proj", "query", "to_q", "wq", "q_linear"),
    "k": ("k", "k_proj", "key", "to_k", "wk", "k_linear"),
    "v": ("v", "v_proj", "value", "to_v", "wv", "v_linear"),
    "out": ("out", "out_proj", "o_proj", "proj", "wo", "out_linear"),
}
_ROLE_OF = {name: role for role, names in _ROLES.items() for name in names}
_PACKED = ("qkv", "in_proj", "qkv_proj", "to_qkv", "c_attn", "query_key_value", "Wqkv")
_NAME = re.compile(r"^(?P<owner>.*?)(?P<layer>[^.]+)\.(?P<what>weight|bias)$")


def reconcile(mine: dict[str, Stored], names: dict[str, tuple[str, ...]], others: set[str]) -> list[str]:
    """Rename and split slots of one side, in place, wherever that makes them fit slots of the other side.

    `mine`: key → stored tensor, `names`: key → common names of its slots, `others`: the other side's slot names.
    Returns the keys that were assumed to pack q, k and v in this order and in equal parts.
    """
    by_role = {}
    for name in others:
        found = _NAME.match(name)
        if found and found["layer"] in _ROLE_OF:
            by_role[found["owner"], _ROLE_OF[found["layer"]], found["what"]] = name
    assumed = []
    for key, part in list(mine.items()):
        if len(part.slots) != 1 or names[key][0] in others:
            continue
        found = _NAME.match(names[key][0])
        if found is None:
            continue
        if found["layer"] in _ROLE_OF:
            twin = by_role.get((found["owner"], _ROLE_OF[found["layer"]], found["what"]))
            if twin is not None:
                names[key] = (twin,)
        elif found["layer"] in _PACKED and part.slots[0].shape[0] % 3 == 0:
            twins = [by_role.get((found["owner"], role, found["what"])) for role in "qkv"]
            if all(twins):
                # Along the canonical first axis, which holds the outputs of a Linear.
                shape = (part.slots[0].shape[0] // 3, *part.slots[0].shape[1:])
                slots = tuple(Slot(f"{part.slots[0].name}.{role}", shape) for role in "qkv")
                mine[key] = dataclasses.replace(part, slots=slots)
                names[key] = tuple(str(twin) for twin in twins)
                assumed.append(key)
    return assumed
