"""How alike pieces of code are by their words, and which of two runs of them are partners."""

import ast
import collections
import copy
import difflib
import re
from collections.abc import Sequence

_WORD = re.compile(r"[A-Za-z_]\w*|\d[\d.e+-]*|[^\s\w]")
SPELLED = {
    "paddle": "torch", "axis": "dim", "epsilon": "eps", "concat": "cat", "clip": "clamp", "astype": "to",
    "tile": "repeat", "permute": "transpose", "stop_axis": "end_dim", "start_axis": "start_dim",
}  # fmt: skip
_FRAMEWORKS = {"torch", "paddle", "nn", "F", "np", "numpy"}
_SAME_NAME, _OTHER_NAME = 0.3, 0.5
"""Share of equal words above which two statements are partners, where both begin alike and where they do not."""
Words = Sequence[str]


def words_of(node: ast.AST | None) -> list[str]:
    """The words of a piece of code, in one spelling of both frameworks' commonest names."""
    return [] if node is None else spelled_words(ast.unparse(node))


def words_of_values(node: ast.AST | None) -> list[str]:
    """The same without what a value is an attribute or an item of: `self.beta` and `group["beta"]` are `beta`."""
    return words_of(_WithoutOwners().visit(copy.deepcopy(node))) if node is not None else []


class _WithoutOwners(ast.NodeTransformer):
    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        return ast.Name(node.attr) if getattr(node.value, "id", "") == "self" else self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        key = getattr(node.slice, "value", None)
        return ast.Name(key) if isinstance(key, str) and key.isidentifier() else self.generic_visit(node)


def spelled_words(text: str) -> list[str]:
    """The words of code, in one spelling of both frameworks' commonest names."""
    return [SPELLED.get(word, word) for word in _WORD.findall(text)]


def own_words(node: ast.AST) -> collections.Counter[str]:
    """What code says whatever functions of a framework it calls: names, numbers, operators, attributes of `self`."""
    found: list[str] = []
    for one in ast.walk(node):
        if isinstance(one, ast.Name) and one.id not in _FRAMEWORKS:
            found.append(one.id)
        elif isinstance(one, ast.Attribute) and getattr(one.value, "id", "") == "self":
            found.append(one.attr)
        elif isinstance(one, ast.Constant) and isinstance(one.value, (int, float)):
            found.append(repr(float(one.value)))
        elif isinstance(one, (ast.operator, ast.cmpop, ast.unaryop, ast.boolop)):
            found.append(type(one).__name__)
    return collections.Counter(found)


def ratio(one: Words, two: Words, least: float = 0.0) -> float:
    """Share of equal words in order, 0 to 1; 0 as well where a look at their number tells that it is below `least`."""
    matcher = difflib.SequenceMatcher(None, one, two, autojunk=False)
    if matcher.real_quick_ratio() < least or matcher.quick_ratio() < least:  # bounds from above
        return 0.0
    return matcher.ratio()


def partners_in_order(ours: Sequence[Words], others: Sequence[Words]) -> list[tuple[int, int]]:
    """The most alike partners of two runs of statements, in order (Needleman and Wunsch, 1970, without gap costs)."""
    best: dict[tuple[int, int], tuple[float, tuple[tuple[int, int], ...]]] = {}
    for at in range(len(ours) + 1):
        for other in range(len(others) + 1):
            found = [best[at - 1, other]] if at else []
            found += [best[at, other - 1]] if other else []
            if at and other and (alike := likeness(ours[at - 1], others[other - 1])):
                score, pairs = best[at - 1, other - 1]
                found.append((score + alike, (*pairs, (at - 1, other - 1))))
            best[at, other] = max(found, key=lambda item: item[0], default=(0.0, ()))
    return list(best[len(ours), len(others)][1])


def likeness(one: Words, two: Words) -> float:
    """Share of equal words, more where both assign to the same names; 0 if they have too little in common."""
    same_name = one[:1] == two[:1] or _assigned(one) == _assigned(two) != []
    share = ratio(one, two)
    return share + same_name if share > (_SAME_NAME if same_name else _OTHER_NAME) else 0.0


def _assigned(words: Words) -> Words:
    """The names in front of `=`, in any order: what exchanges two of them stands in the place of what does not."""
    return sorted(words[: words.index("=")]) if "=" in words else []


def are_siblings(one: str, other: str) -> bool:
    """Whether two names differ in numbers alone, or in one of their words: `b1` and `b2`, `src_mask`, `tgt_mask`."""
    if one == other:
        return False
    parts = [name.split("_") for name in (one, other)]
    in_words = len(parts[0]) == len(parts[1]) > 1 and sum(map(str.__ne__, *parts)) == 1
    return in_words or re.sub(r"\d+", "0", one) == re.sub(r"\d+", "0", other)
