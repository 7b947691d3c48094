"""Comments survive a draft that keeps nothing but the syntax tree."""

from __future__ import annotations

import ast
import collections
import importlib.util
import io
import tokenize
from pathlib import Path

import pytest

from twinalign.drafting.comments import Comments
from twinalign.drafting.draft import draft

MODULES = ["argparse", "heapq", "typing", "inspect", "zipfile", "statistics", "torchvision.models.swin_transformer"]
MODULES += [
    "torchvision.models.densenet",
    "timm.layers.norm_act",
    "timm.models.vision_transformer",
    "timm.models.levit",
]

SOURCE = '''# The licence
"""Doc."""
from __future__ import annotations
import torch

X = 3  # behind a constant


# above a class
class Net(torch.nn.Module):
    """Net."""

    # above a method
    def forward(self, x):
        """Doc of forward."""
        # the first

        x = torch.add(x, 1)  # behind
        if X:  # behind a colon
            x = torch.add(
                x,
                2,  # inside
            )
        # above else
        else:
            # in else
            pass
        return x
        # at the end
'''

DRAFT = '''# The licence
"""Doc."""
from __future__ import annotations

import paddle

X = 3  # behind a constant


# above a class
class Net(paddle.nn.Module):
    """Net."""

    # above a method
    def forward(self, x):
        """Doc of forward."""
        # the first

        x = paddle.add(x, 1)  # behind
        if X:  # behind a colon
            # inside
            x = paddle.add(x, 2)
        else:
            # above else
            # in else
            pass
        return x
        # at the end
'''


def _comments(source: str) -> collections.Counter[str]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return collections.Counter(token.string for token in tokens if token.type == tokenize.COMMENT)


@pytest.mark.parametrize("name", MODULES)
def test_every_comment_comes_back_and_the_code_stays(name: str) -> None:
    found = importlib.util.find_spec(name)
    assert found is not None
    assert found.origin is not None
    source = Path(found.origin).read_text(encoding="utf-8")
    comments = Comments(source)
    restored = comments.restored(ast.unparse(ast.parse(comments.marked)))
    assert _comments(restored) == _comments(source)
    assert ast.dump(ast.parse(restored)) == ast.dump(ast.parse(source))


def test_what_a_draft_looks_like(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert draft({"m.py": SOURCE})["m.py"] == DRAFT
