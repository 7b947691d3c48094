"""Notes on what one wrong layer lacks and another has: a function or layer that has moved from one to the other."""

import ast
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from twinalign.search.faults import Fault

_LEFT_OUT = ("activation_missing", "layer_missing")
_ALONE = re.compile(r"the port (alone has|lacks) `([^`…]+)`")
_IN_PLACE = re.compile(r"`([^`…]+)` in place of `([^`…]+)`")


def note_moves(faults: Sequence[Fault]) -> None:
    """Let two faults say of each other that the one applies what the other leaves out.

    Both are proven where they stand. What is applied to the model's own code and in a layer has one name in both.
    """
    known = [(fault, _applied(fault)) for fault in faults if fault.explanation is not None and fault.phase == "forward"]
    for fault, of_one in known:
        for other, of_other in known:
            for name in [name for name, count in of_one.items() if count < 0 < of_other[name]]:
                if other is fault or fault.evidence.get("paddle_class") == other.evidence.get("paddle_class"):
                    continue
                fault.note(f"`{name}`, which is left out here, is applied in {_place(other.paddle_layer)}")
                other.note(
                    f"`{name}`, which the port has here, is applied by the reference in {_place(fault.reference_layer)}"
                )


def _applied(fault: Fault) -> Counter[str]:
    """Calls of functions and layers that the port has in a layer beside the reference's; negative: that it lacks."""
    assert fault.explanation is not None
    text, found = fault.explanation.text, Counter[str]()
    if fault.explanation.id in _LEFT_OUT:
        found.subtract({_name_of(call): 1 for call in fault.explanation.evidence.get("reference_calls", ())})
    for side, code in _ALONE.findall(text):
        (found.update if side == "alone has" else found.subtract)(_calls(code))
    for new, old in _IN_PLACE.findall(text):
        found.update(_calls(new))
        found.subtract(_calls(old))
    return found


def _name_of(call: Mapping[str, Any]) -> str:
    return str(call["path"] if call["name"] == "layer" else call["name"])


def _calls(code: str) -> Counter[str]:
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return Counter()
    functions = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return Counter(one.attr if isinstance(one, ast.Attribute) else ast.unparse(one) for one in functions)


def _place(path: str) -> str:
    return path or "the model's own code"
