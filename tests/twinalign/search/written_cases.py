"""Cases that a test writes from the text of two models."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

from twinalign.recorder.recorder import RunSettings
from twinalign.search.faults import Fault
from twinalign.search.locator import locate

_CASE = """
from typing import Any

import numpy as np

from twinalign import Case

{helpers}
class Written(Case):
    name = "written"
{more}
    def reference(self) -> Any:
        import torch
        from torch import nn
        from torch.nn import functional as F

{reference}

        return Net()

    def reproduced(self) -> Any:
        import paddle
        from paddle import nn
        from paddle.nn import functional as F

{port}

        return Net()

    def inputs(self, rng: np.random.Generator) -> Any:
        return {inputs}
"""
_SPELLED = (("nn.Module", "nn.Layer"), ("torch", "paddle"), ("1d(", "1D("), ("2d(", "2D("))


def in_paddle(reference: str, *more: tuple[str, str]) -> str:
    """The text of a model in paddle's words; `more` are pairs of a text of the reference's and what paddle needs."""
    for old, new in (*_SPELLED, *more):
        reference = reference.replace(old, new)
    return reference


def edited(text: str, edits: Sequence[tuple[str, str]]) -> str:
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new, 1)
    return text


def written(folder: Path, reference: str, port: str, inputs: str, more: str = "", helpers: str = "") -> Path:
    """The file of a case whose models are both called `Net`.

    `more` stands in the class of the case, `helpers` are functions of the port.
    """
    indented = {
        name: textwrap.indent(textwrap.dedent(text).strip("\n"), " " * 8)
        for name, text in (("reference", reference), ("port", port))
    }
    path = folder / "case.py"
    more = textwrap.indent(textwrap.dedent(more), " " * 4)
    path.write_text(_CASE.format(inputs=inputs, more=more, helpers=helpers, **indented), encoding="utf-8")
    return path


def faults_of(case: Path, **settings: object) -> list[Fault]:
    return locate(RunSettings(str(case), case.parent / "out", **settings)).faults  # type: ignore[arg-type]
