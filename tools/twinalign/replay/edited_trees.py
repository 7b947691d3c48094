"""Code with other nodes in the place of some of its own; the given code stays as it is."""

import ast
import copy
from collections.abc import Mapping
from typing import Any

from twinalign.replay.code_text import AS_WRITTEN


def with_nodes(tree: ast.AST, others: Mapping[ast.AST, ast.AST]) -> Any:
    """A piece of code in which each key's place is taken by its value; what does not change is shared with `tree`."""
    if tree in others:
        return others[tree]
    made = tree
    for field, value in ast.iter_fields(tree):
        inside = value if isinstance(value, list) else [value]
        changed = [with_nodes(one, others) if isinstance(one, ast.AST) else one for one in inside]
        if any(one is not other for one, other in zip(inside, changed, strict=True)):
            made = copy.copy(tree) if made is tree else made
            vars(made).pop(AS_WRITTEN, None)
            setattr(made, field, changed if isinstance(value, list) else changed[0])
    return made
