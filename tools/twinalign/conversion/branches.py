"""Branches that both models call by one name, such as an online network and its target network.

Their layers may have other names inside, and their calls another order; where values tell nothing, the branch does.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from twinalign.conversion.layers_to_match import Matchable

_Matchables = Sequence[Matchable]


def branches_of(reference: _Matchables, paddle: _Matchables) -> tuple[dict[str, str], dict[str, str]]:
    """Of each matchable of either side, the innermost module around it that the other model has as well, with as many
    layers of each kind and set of shapes in it; empty: there is none.
    """
    inside = _inside(reference), _inside(paddle)
    whole = {path for path, kinds in inside[0].items() if kinds == inside[1].get(path)}
    found = [
        {u.name: next((p for p in _around(u.name) if p in whole), "") for u in side} for side in (reference, paddle)
    ]
    return found[0], found[1]


def alone_in_branches(reference: _Matchables, paddle: _Matchables) -> dict[str, str]:
    """Pairs that are no guess: each is the only one of its kind and shapes in a branch of one name on both sides."""
    branches = branches_of(reference, paddle)
    inside: tuple[dict[tuple, list[str]], dict[tuple, list[str]]] = ({}, {})
    for number, side in enumerate((reference, paddle)):
        for u in side:
            inside[number].setdefault((branches[number][u.name], u.signature), []).append(u.name)
    return {
        names[0]: inside[1][key][0]
        for key, names in inside[0].items()
        if key[0] and len(names) == len(inside[1].get(key, ())) == 1
    }


def crosses(pairs: Mapping[str, str], reference: _Matchables, paddle: _Matchables) -> bool:
    """Whether a frozen layer is paired with a trained one of another branch, though in both models the branches of one
    name agree in what of them is trained.
    """
    branches = branches_of(reference, paddle)
    trained: tuple[dict[str, set[bool]], dict[str, set[bool]]] = ({}, {})
    for number, side in enumerate((reference, paddle)):
        for u in side:
            if any(part.entry.role == "parameter" for part in u.stored):
                trained[number].setdefault(branches[number][u.name], set()).add(u.is_trained)
    alike = {path for path, flags in trained[0].items() if path and len(flags) == 1 and flags == trained[1].get(path)}
    flags = [{u.name: u.is_trained for u in side} for side in (reference, paddle)]
    return any(
        {branches[0][mine], branches[1][other]} <= alike and flags[0][mine] != flags[1][other]
        for mine, other in pairs.items()
    )


def _inside(side: _Matchables) -> dict[str, Counter]:
    found: dict[str, Counter] = {}
    for u in side:
        for path in _around(u.name):
            found.setdefault(path, Counter())[u.loose_signature] += 1
    return found


def _around(name: str) -> list[str]:
    """The modules around it, the innermost first."""
    steps = name.split(".")
    return [".".join(steps[:count]) for count in range(len(steps) - 1, 0, -1)]
