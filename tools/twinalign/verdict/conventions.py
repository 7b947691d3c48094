"""Differences that are the frameworks' own conventions: reported like any other, decided by the user.

A convention accepted by id keeps its tensor's verdict and evidence; it only no longer decides the whole.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping

from twinalign.errors import InputError
from twinalign.verdict.results import DIVERGED, INCONCLUSIVE, TensorVerdict

# Id -> patterns of the names that the convention touches (docs/differences; verified by shared checks of that id).
CONVENTIONS: dict[str, tuple[str, ...]] = {
    "bn_running_var_biased": ("*running_var", "*_variance"),
}


def accept_conventions(tensors: Iterable[TensorVerdict], accept: Iterable[str] | Mapping[str, str]) -> None:
    """Mark the diverged tensors that an accepted id covers.

    Raises:
        InputError: an id that is no convention's and no finding's, without a pattern to say what it means.
    """
    pairs = accept.items() if isinstance(accept, Mapping) else [_split(text) for text in accept]
    patterns = {identifier: _patterns_of(identifier, pattern) for identifier, pattern in pairs}
    for tensor in tensors:
        if tensor.verdict not in (DIVERGED, INCONCLUSIVE):
            continue
        for identifier, covered in patterns.items():
            if any(fnmatch.fnmatchcase(tensor.name, pattern) for pattern in covered):
                tensor.accepted = identifier
                tensor.reason += f"; accepted as {identifier}"
                break


def _split(text: str) -> tuple[str, str]:
    identifier, _, pattern = text.partition("=")
    return identifier, pattern


def _patterns_of(identifier: str, pattern: str) -> tuple[str, ...]:
    if pattern:
        return (pattern,)
    if identifier not in CONVENTIONS:
        raise InputError(
            f"accept {identifier!r}: known conventions are {', '.join(sorted(CONVENTIONS))}; "
            f"for another, say which names it covers: {identifier}=PATTERN"
        )
    return CONVENTIONS[identifier]
