"""The call that builds a model again, and functions that TorchScript would hide."""

from pathlib import Path

from twinalign.drafting.observed_model import observe_model
from twinalign.drafting.selected_files import files_of
from twinalign.drafting.selection import Selection

SOURCE = """import functools

import torch
import torch.nn as nn


class Stem(nn.Module):
    def __init__(self, width, *more, act=nn.ReLU):
        super().__init__()
        self.layer = nn.Linear(4, width)
        self.act = act()

    def forward(self, x):
        return self.act(self.layer(x))


class Head(nn.Module):
    def __init__(self, stem, last):
        super().__init__()
        self.stem, self.last = stem, last

    def forward(self, x):
        return self.last(self.stem(x))


@torch.jit.script
def halved(x):
    return x / 2


class Net(nn.Module):
    def __init__(self, make, names):
        super().__init__()
        self.head = make(last=nn.Identity())
        self.names = names

    def forward(self, x):
        return halved(self.head(x))


def build():
    return Net(functools.partial(Head, Stem(4, 1, "a", act=nn.GELU)), names=("x",))
"""


def test_a_layer_that_a_constructor_is_given_is_built_again_and_scripts_are_python(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(SOURCE, encoding="utf-8")
    observed = observe_model(f"{tmp_path / 'net.py'}:build", [["x", (2, 4), "float32", None]])
    assert observed["roots"]["model"] == {
        "calls": "Net",
        "arguments": ["make=partial(Head, Stem(4, 1, 'a', act=torch.nn.GELU))", "names=('x',)"],
        "imports": [("functools", "partial"), ("net", "Head"), ("net", "Net"), ("net", "Stem")],
    }
    assert "return x / 2" in files_of(Selection(observed))[0]["net.py"]
