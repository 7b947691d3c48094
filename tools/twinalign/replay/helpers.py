"""Functions of the port that its lines call, while these run in the reference."""

import ast
import dataclasses
import functools
from collections.abc import Mapping, Sequence

from twinalign.replay.aligned_code import Code, own_attribute


@dataclasses.dataclass(frozen=True)
class Helpers:
    """Functions of the port that its lines call.

    Attributes:
        partners: name of a function of the port → name of the reference's function in its place.
        functions: all of the port's functions, which run themselves where they have no partner.
        paired: attributes of the port's layer whose layers the reference's has as well.
    """

    partners: Mapping[str, str]
    functions: Sequence[Code]
    paired: frozenset[str] = frozenset()

    @functools.cached_property
    def alone(self) -> dict[str, Code]:
        """Those without a partner, by name; methods by that of their class as well: `Attention_split`."""
        named = {code.name.replace(".", "_"): code for code in self.functions if _is_plain(code)}
        return {name: code for name, code in named.items() if code.name.rpartition(".")[2] not in self.partners}

    @functools.cached_property
    def classes(self) -> dict[str, list[Code]]:
        """Methods of the port's classes that extend no other, or a schedule or clipping of paddle's, and of layers that
        hold no tensor, by the class's name.

        All are known that make one, be it that it needs nothing.
        """
        found: dict[str, list[Code]] = {}
        for code in self.functions:
            if code.name.count(".") == 1:
                found.setdefault(code.name.partition(".")[0], []).append(code)
        found = {name: codes for name, codes in found.items() if any(code.is_plain or code.extends for code in codes)}
        made = {
            name
            for name, codes in found.items()
            if any(code.name == f"{name}.__init__" for code in codes)
            or not any(code.attributes or code.layers for code in codes)
        }
        return {name: codes for name, codes in found.items() if name in made and name not in self.partners}

    def method(self, caller: Code, node: ast.AST) -> str | None:
        """The name in `alone` of the method that a function calls as `self.split`, if it has no partner."""
        if (called := own_attribute(node)) is None or self.layer(caller, node) is not None:
            return None
        own = f"{caller.name.rpartition('.')[0]}_{called}"
        alike = [name for name, code in self.alone.items() if code.name.endswith(f".{called}")]
        return own if own in alike else alike[0] if len(alike) == 1 else None

    def layer(self, caller: Code, node: ast.AST) -> str | None:
        """The name in `alone` of what a layer computes that a function calls as `self.pool`, if the layer holds no
        tensor and the reference has none in its place."""
        name = own_attribute(node)
        if name is None or name in self.paired or name not in caller.layers:
            return None
        computes = f"{caller.layers[name][0]}_forward"
        return computes if computes in self.alone else None


def _is_plain(code: Code) -> bool:
    """Whether a function can be called by its name, with the object first if it is a method."""
    first = [one.arg for one in (*code.tree.args.posonlyargs, *code.tree.args.args)][:1]
    return "." not in code.name or ("<locals>" not in code.name and first == ["self"])
