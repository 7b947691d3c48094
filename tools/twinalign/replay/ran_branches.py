"""Functions with the branches that ran in place of conditional blocks, so that both sides' statements stand alike."""

import ast
import copy
import dataclasses
from collections.abc import Container, Sequence
from typing import Any

from twinalign.replay.aligned_code import LEAST_ALIKE, Code
from twinalign.replay.likeness import ratio, words_of


def as_it_ran(code: Code, lines: Container[int]) -> Code:
    """The function without branches that did not run, where these lines are some that did; itself if it has none."""
    tree = _Ran(lines).visit(copy.deepcopy(code.tree))
    return code if ast.dump(tree) == ast.dump(code.tree) else dataclasses.replace(code, tree=tree)


def with_branches_of(theirs: Code, ours: Code) -> Code | None:
    """The reference's function with the branch that is more like the port's in place of each `if` that the port lacks.

    None if that makes it no more like the port's function, or leaves it another one that only has its name.
    """
    asked = {" ".join(words_of(node.test)) for node in ast.walk(ours.tree) if isinstance(node, ast.If)}
    tree = _Branches(asked, ours.words).visit(copy.deepcopy(theirs.tree))
    made = dataclasses.replace(theirs, tree=tree)
    return made if ratio(made.words, ours.words) > max(ratio(theirs.words, ours.words), LEAST_ALIKE) else None


class _Ran(ast.NodeTransformer):
    def __init__(self, lines: Container[int]) -> None:
        self._lines = lines

    def visit_If(self, node: ast.If) -> Any:
        ran = [self._has_run(branch) for branch in (node.body, node.orelse)]
        self.generic_visit(node)
        if ran[0] == ran[1]:
            return node
        return node.body if ran[0] else node.orelse

    def _has_run(self, branch: Sequence[ast.stmt]) -> bool:
        return any(
            line in self._lines for one in branch for line in range(one.lineno, (one.end_lineno or one.lineno) + 1)
        )


class _Branches(ast.NodeTransformer):
    def __init__(self, kept: Container[str], words: Sequence[str]) -> None:
        self._kept, self._words = kept, words

    def visit_If(self, node: ast.If) -> Any:
        self.generic_visit(node)
        if not node.orelse or " ".join(words_of(node.test)) in self._kept:
            return node
        return max(node.orelse, node.body, key=self._likeness)

    def _likeness(self, branch: Sequence[ast.stmt]) -> float:
        return ratio([word for statement in branch for word in words_of(statement)], self._words)
