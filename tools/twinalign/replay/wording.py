"""Whether an edit brings code of the port nearer to the wording of the reference's code that does the same."""

import ast
from collections import Counter
from collections.abc import Iterable, Iterator

from twinalign.replay.edited_trees import number_of
from twinalign.replay.likeness import SPELLED


class Wording:
    """What the port's code has more often than the reference's, and the other way round.

    Args:
        ours, theirs: code of both sides that does the same, however it is written.
    """

    def __init__(self, ours: Iterable[ast.AST], theirs: Iterable[ast.AST]) -> None:
        mine, others = (Counter(word for part in side for word in _words(part)) for side in (ours, theirs))
        self._surplus = {word: mine[word] - others[word] for word in mine | others}

    def gain(self, old: ast.AST, new: ast.AST) -> int:
        """By how many words an edit brings the port nearer to the reference; negative where it leads away."""
        removed, added = Counter(_words(old)), Counter(_words(new))
        changes = {word: added[word] - removed[word] for word in removed | added}
        surplus = {word: self._surplus.get(word, 0) for word in changes}
        return sum(abs(surplus[word]) - abs(surplus[word] + change) for word, change in changes.items())


def _words(tree: ast.AST) -> Iterator[str]:
    """What a piece of code says without its names for values, which each side chooses for itself."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield SPELLED.get(node.attr, node.attr)
        elif isinstance(node, ast.keyword):
            yield f"{SPELLED.get(str(node.arg), node.arg)}="
        elif isinstance(node, ast.Constant):
            number = number_of(node)
            yield repr(node.value if number is None else float(number))
        elif isinstance(node, (ast.operator, ast.cmpop, ast.unaryop, ast.Subscript, ast.Slice, ast.IfExp)):
            yield type(node).__name__
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id
