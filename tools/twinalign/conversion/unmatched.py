"""What has no proven partner, in words: the reason first, three names, and a text with all of them for a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from twinalign.conversion.rename_rules import listed
from twinalign.errors import InputError
from twinalign.files.recordings import write_text


class ListedError(InputError):
    """An error of many keys, of which the message names three of a kind; `lines` are all."""

    def __init__(self, message: str, lines: Sequence[str]) -> None:
        super().__init__(message)
        self.lines = list(lines)

    def listed_in(self, path: Path) -> InputError:
        """The error with all its lines in a file, if the message does not name them all."""
        if len(self.lines) <= 3:
            return self
        write_text(path, "\n".join([*self.lines, ""]))
        return InputError(f"{self}. All {len(self.lines)} are in {path}")


class UnmatchedError(ListedError):
    """Two states that do not fit each other."""

    def __init__(self, unexpected: Sequence[str], missing: Sequence[str], misfits: Sequence[str]) -> None:
        found = (
            ("target has {} that the source lacks", missing),
            ("source has {} that have no place in the target", unexpected),
        )
        parts = [
            f"the {text.format(f'{len(keys)} tensors' if len(keys) > 1 else 'a tensor')} ({listed(keys)})"
            for text, keys in found
            if keys
        ]
        parts += misfits[:3]
        parts += [f"{len(misfits) - 3} more have other shapes"] if len(misfits) > 3 else []
        super().__init__(
            f"the two states do not fit: {'; '.join(parts)}. Give rename rules where names differ, or allow a key by "
            "name",
            [f"missing: {key}" for key in missing] + [f"unexpected: {key}" for key in unexpected] + [*misfits],
        )


def rename_rules(pairs: Mapping[str, str]) -> dict[str, str]:
    """The fewest rules for pairs of names: a rule for a prefix where everything below it is called the same."""
    rules: dict[str, str] = {}
    for mine, other in pairs.items():
        best, (left, right) = (mine, other), (mine, other)
        while "." in left and "." in right and left.rpartition(".")[2] == right.rpartition(".")[2]:
            left, right = left.rpartition(".")[0], right.rpartition(".")[0]
            below = {name: pairs[name] for name in pairs if name.startswith(f"{left}.")}
            if all(partner == right + name[len(left) :] for name, partner in below.items()):
                best = left, right
        if best[0] != best[1]:
            rules[best[0]] = best[1]
    return rules


def note_of(facts: Mapping[str, Any], file: str) -> str:
    """One line for the reader of a verdict; `file` holds `text_of` the same facts."""
    more = f"All of them, and a rename to complete, are in {file}"
    if extra := facts.get("extra"):  # a ledger of an earlier version has none
        layers, them = listed(extra), "it" if len(extra) == 1 else "them"
        return (
            f"the port is another network: the reference has no counterpart of {layers}, and what the port returns "
            f"depends on {them}. {more}"
        )
    clashes = _clashes(facts)
    parts = [*list(clashes.values())[:3], *([facts["reason"]] if facts["reason"] else [])]
    if facts["guessed"]:
        pairs = listed(f"{mine} with {other}" for mine, other in facts["guessed"].items())
        parts.append(f"by position alone, without proof, these layers were paired: {pairs}")
    for side, other in (("reference", "paddle"), ("paddle", "reference")):
        if keys := [key for key in facts[side] if key not in clashes]:
            names = {"reference": "the reference", "paddle": "the port"}
            parts.append(f"{names[side]} has tensors that {names[other]} lacks: {listed(keys)}")
    if not facts["reason"]:
        kept = "; both models were run with what each keeps there itself, and agree up to 1e-6"
    else:
        kept = "; the port keeps its own initial values there, so its outputs decide nothing" if facts["paddle"] else ""
    return f"{'; '.join(parts)}{kept}. {more}"


def _clashes(facts: Mapping[str, Any]) -> dict[str, str]:
    """What stands without a partner on both sides under one name, in words with both shapes."""
    ours, theirs = facts.get("shapes") or ({}, {})
    return {
        key: f"{key} has the shape {shown_shape(ours[key])} in the reference, {shown_shape(theirs[key])} in the port"
        for key in ours
        if key in theirs and [n for n in ours[key] if n > 1] != [n for n in theirs[key] if n > 1]
    }


def shown_shape(shape: Sequence[int]) -> str:
    """A shape in words."""
    return "×".join(map(str, shape)) or "scalar"


def text_of(facts: Mapping[str, Any]) -> str:
    """All names, and a `rename` to paste into the case: proven pairs filled in, the others left to the reader."""
    lines = [facts["reason"], ""] if facts["reason"] else []
    for number, (side, title) in enumerate((("reference", "The reference"), ("paddle", "The port"))):
        if facts[side]:
            shapes = {key: f" ({shown_shape(one)})" for key, one in facts["shapes"][number].items()}
            lines += [f"{title} alone has:", *(f"    {key}{shapes.get(key, '')}" for key in facts[side]), ""]
    lines += ["Paste this into the case, and complete the lines that begin with #:", "", "    rename = {"]
    lines += [f'        "{mine}": "{other}",' for mine, other in facts["rename"].items()]
    lines += [f'        # "{mine}": "",  # perhaps {other}' for mine, other in facts["guessed"].items()]
    lines += [f'        # "{key}": "",' for key in facts["reference"]]
    return "\n".join([*lines, "    }", ""])
