"""A model in one file becomes a port that is proven; mistakes are one line."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

import twinalign
from twinalign.drafting.draft import draft
from twinalign.errors import InputError
from twinalign.recorder.run_settings import RunSettings

pytestmark = pytest.mark.usefixtures("kept_processes")

MODEL = '''"""A small classifier.

Copyright 2026, somebody.
"""
from functools import partial

import torch
import torch.nn as nn
import torch.nn.functional as F

REGISTRY = {}


def register(kind):
    REGISTRY[kind.__name__] = kind
    return kind


def never_called(x):
    return torch.linalg.svd(x)


def squeeze(x, by=None):
    """Mean over the map."""
    if by is not None:
        return never_called(x)
    return x.mean((2, 3))


@register
class Block(nn.Module):
    """A convolution, half of whose channels are gated."""

    size: torch.jit.Final[int]

    def __init__(self, inputs, outputs, norm=partial(nn.BatchNorm2d, eps=1e-3, momentum=0.03), **options):
        super().__init__()
        self.size = outputs
        self.conv = nn.Conv2d(inputs, outputs, 3, padding="same", **{**dict(bias=False), **(options or {})})
        self.norm = norm(outputs)
        self.act = nn.Hardswish(inplace=True)
        self.pool = nn.AvgPool2d(3, 2, 1)

    @torch.jit.unused
    def unused(self, x):
        return torch.nonexistent(x)

    def forward(self, x):
        x = self.act(self.norm(self.conv(x)))
        left, right = x.split(self.conv.out_channels // 2, dim=1)
        return self.pool(torch.cat([left, left * F.hardsigmoid(right, inplace=False)], 1))


class Classifier(nn.Module):
    def __init__(self, widths=(8, 12), classes=5, drop=0.3):
        super().__init__()
        self.blocks = nn.Sequential(*(Block(a, b) for a, b in zip((3, *widths), widths)))
        self.drop = nn.Dropout(drop)
        self.head = nn.Linear(self.blocks[-1].size, classes)

    def forward(self, x):
        return self.head(self.drop(squeeze(self.blocks(x))))


def build(width):
    return Classifier((width, width + 4))
'''


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "classifier.py"
    path.write_text(MODEL)
    return path


@pytest.mark.slow
def test_a_file_becomes_a_proven_port(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "ported"
    made = twinalign.port(f"{model}:build(8)", ["x:2,3,16,16:float32"], out=out)
    assert (made.verdict, made.left) == ("aligned", [])
    assert set(made.stages) == {"forward", "loss", "backward"}
    sources = {path.name: path.read_text() for path in (out / "ported").rglob("*.py")}
    assert not any(re.search(r"^\s*(import|from) (torch|twinalign)\b", text, re.MULTILINE) for text in sources.values())
    ported = sources["classifier.py"]
    assert "Copyright 2026, somebody." in ported
    assert "linalg" not in ported
    assert "nonexistent" not in ported
    assert "left out of the port" in ported  # what `squeeze` names and never calls
    assert "return Classifier(widths=(8, 12), classes=5, drop=0.3)" in " ".join(sources["build.py"].split()).replace(
        "( ", "("
    ).replace(", )", ")")
    assert "class BatchNorm3d" not in sources["shims.py"]
    listed = (out / "changes.txt").read_text()
    assert "torch.nn.BatchNorm2d → shims.BatchNorm2d" in listed
    assert "@register taken away: it only registers" in listed

    ported_path = next((out / "ported").rglob("classifier.py"))
    ported_path.write_text(ported.replace("self.pool(", "0.99 * self.pool("))
    again = twinalign.check_port(out)
    assert again.verdict == "diverged" or again.edits
    assert json.loads(json.dumps(again.to_json()))["out"] == str(out)


FIRST_WEIGHTS = """
import torch
from torch import nn


class Attending(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 32, padding_idx=3)
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.both = nn.Transformer(32, 4, 1, 1, 64, dropout=0.0, batch_first=True)
        self.score = nn.Bilinear(32, 32, 24)

    def forward(self, ids):
        x = self.words(ids)
        x = self.both(self.layer(self.attention(x, x, x)[0]), x)
        return self.score(x[:, 0], x[:, 1])
"""


@pytest.mark.slow
def test_first_weights_are_those_of_torch_or_are_left_for_a_person(tmp_path: Path) -> None:
    path, out = tmp_path / "attending.py", tmp_path / "ported"
    path.write_text(FIRST_WEIGHTS)
    made = twinalign.port(f"{path}:Attending()", ["ids:4,8:int64:50"], out=out)
    assert (made.verdict, made.left) == ("aligned", [])

    shims = next((out / "ported").rglob("shims.py"))
    shims.write_text(shims.read_text().replace("initializer.Normal()", "initializer.Normal(0.0, 0.1)"))
    again = twinalign.check_port(out)
    assert again.verdict == "aligned"  # what it computes is right
    (left,) = again.left
    assert re.match(r"words\.weight starts otherwise than in torch: the deviation is 0\.(09|1)\d* times", left)


def test_a_folder_of_somebody_elses_is_left_alone(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "mine"
    out.mkdir()
    (out / "work.txt").write_text("a week")
    with pytest.raises(InputError, match=r"mine: it exists and is no port that twinalign made; name another folder$"):
        twinalign.port(f"{model}:build(8)", ["x:2,3,16,16:float32"], out=out)
    assert (out / "work.txt").read_text() == "a week"
    with pytest.raises(
        InputError, match=r"it has no case.py beside a changes.txt, so it is no port that twinalign made$"
    ):
        twinalign.check_port(out)


def test_a_folder_that_no_module_can_be_called() -> None:
    with pytest.raises(
        InputError, match=r"^--out my-port: the folder's name is the port's package, and 'my-port' is no"
    ):
        twinalign.port("m:f", ["x:2,3"], out="my-port")


def test_without_paconvert() -> None:
    message = r"^port: /bin/false has no PaConvert, which drafts the port; pip install 'twinalign\[port\]'$"
    with pytest.raises(InputError, match=message):
        draft({"m.py": "import torch\n"}, "/bin/false")


def test_a_future_stays_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    head = '"""Adds."""\nfrom __future__ import annotations\nimport math\nimport torch\n'
    source = head + "\n\ndef f(x: Later):\n    return torch.add(x, 1)\n"
    compile(draft({"m.py": source})["m.py"], "m.py", "exec")


def test_layers_of_einops_are_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source = "from einops.layers.torch import Rearrange\nimport torch\n\nlayer = Rearrange('a b -> b a')\n"
    made = draft({"m.py": source})["m.py"]
    assert "import einops\nimport einops.layers.paddle\n" in made
    assert "einops.layers.paddle.Rearrange('a b -> b a')" in made


def test_drafts_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    files = {"m.py": "import torch\n\n\ndef f(x):\n    return torch.add(x, 1)\n"}
    first = draft(files)
    assert "paddle.add" in first["m.py"]
    (kept,) = (tmp_path / "twinalign" / "drafts").iterdir()
    kept.write_text(json.dumps({"m.py": "kept\n"}))
    assert draft(files) == {"m.py": "kept\n"}


@pytest.mark.parametrize("second", ["aligned", "diverged"])
def test_after_mending_the_last_run_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, second: str) -> None:
    """What `fix` found in a folder of its own is proven once more in the port's; what differs there is named."""
    port = importlib.import_module("twinalign.drafting.port")
    runs = iter(["diverged", second])

    def run(settings: RunSettings, *_: object) -> SimpleNamespace:
        verdict = next(runs)
        tensor = SimpleNamespace(name="step1.gradient.w", verdict=verdict, reason="too far")
        stages = {"backward": SimpleNamespace(verdict=verdict, tensors=[tensor])}
        weight = SimpleNamespace(port_name="w", text="constant in the port")
        return SimpleNamespace(verdict=verdict, stages=stages, initial=SimpleNamespace(differences=[weight]))

    monkeypatch.setattr(port, "run", run)
    monkeypatch.setattr(port, "fix", lambda *_, **__: SimpleNamespace(verdict="aligned", left=[], edits=[{}]))
    monkeypatch.setattr(port, "_proof", lambda out, settings: settings)
    for name in ("case.py", "changes.txt"):
        (tmp_path / name).touch()
    found = port.proven(tmp_path, RunSettings("case.py"), lambda side, text: None)
    assert (found.verdict, found.stages) == (second, {"backward": second})
    too_far = [] if second == "aligned" else ["backward: step1.gradient.w: too far"]
    assert found.left == [*too_far, "w starts otherwise than in torch: constant in the port"]
