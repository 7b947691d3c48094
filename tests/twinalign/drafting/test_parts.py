"""Losses, optimizers and transforms are drafted beside the model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import twinalign
from twinalign.conversion.model_factory import load_factory
from twinalign.drafting.parts import load_part, loop_roles, run_loop, shared_inputs
from twinalign.errors import InputError

pytestmark = pytest.mark.usefixtures("kept_processes")

SOURCE = """import torch
import torch.nn as nn
import torch.nn.functional as F
from torchvision import transforms


class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.conv = nn.Conv2d(3, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)
        self.head = nn.Linear(width, 5)

    def forward(self, x):
        return self.head(F.relu(self.norm(self.conv(x))).mean((2, 3)))


def dice(outputs, labels, smooth=1.0):
    # a term for each class
    p = outputs.softmax(1)
    t = F.one_hot(labels, p.shape[1]).to(p.dtype)
    overlap = (2 * (p * t).sum(0) + smooth) / (p.sum(0) + t.sum(0) + smooth)
    return 1 - overlap.mean() + 0.1 * F.cross_entropy(outputs, labels, label_smoothing=0.1)


def make_optimizer(parameters, lr=1e-3):
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": 1e-2},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0, "lr": 0.1 * lr},
    ]
    optimizer = torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95))
    warm = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=2)
    fall = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4)
    return optimizer, torch.optim.lr_scheduler.SequentialLR(optimizer, [warm, fall], milestones=[2])


def make_transform(size):
    steps = [transforms.Resize(size), transforms.CenterCrop(size), transforms.ToTensor()]
    return transforms.Compose([*steps, transforms.Normalize((0.5, 0.4, 0.3), (0.2, 0.2, 0.2))])
"""


LOOP = """import torch
from torch.nn.utils import clip_grad_norm_


def train_one_epoch(net, loader, criterion, optimizer, scheduler=None, device="cuda", clip=None, epochs=1):
    net.train()
    total, right, seen = 0.0, 0, 0
    for epoch in range(epochs):
        for step, (images, labels) in enumerate(loader):
            images, labels = images.to(device), labels.to(device)
            if epoch == 0:  # warm up
                for group in optimizer.param_groups:
                    group["lr"] = 0.01 * (step + 1) / len(loader)
            optimizer.zero_grad(set_to_none=True)
            outputs = net(images)
            loss = criterion(outputs, labels)
            loss.backward()
            if clip is not None:
                clip_grad_norm_(net.parameters(), clip)
            optimizer.step()
            if scheduler is not None:
                scheduler.step()
            total += loss.item() * images.size(0)
            with torch.no_grad():
                right += (outputs.argmax(dim=1) == labels).sum().item()
            seen += images.size(0)
    return {"loss": total / seen, "accuracy": right / seen, "lr": optimizer.param_groups[0]["lr"]}
"""


@pytest.mark.slow
def test_a_training_loop_is_drafted_and_proven(tmp_path: Path) -> None:
    path, loop, out = tmp_path / "network.py", tmp_path / "loop.py", tmp_path / "drafted"
    path.write_text(SOURCE)
    loop.write_text(LOOP)
    made = twinalign.port(
        f"{path}:Net",
        ["x:4,3,8,8:float32", "labels:4:int64:5"],
        loss="torch.nn:CrossEntropyLoss(label_smoothing=0.1)",
        optimizer="torch.optim:SGD(lr=0.1, momentum=0.9)",
        train=f'{loop}:train_one_epoch(device="cpu", clip=1.0, epochs=2)',
        out=out,
    )
    assert (made.verdict, made.left) == ("aligned", [])
    assert made.stages == dict.fromkeys(["forward", "loss", "backward", "train"], "aligned")

    source = out / "drafted" / "loop.py"
    assert "# warm up" in source.read_text()
    source.write_text(source.read_text().replace("if epoch == 0:", "if epoch == 1:"))
    again = twinalign.check_port(out)
    assert again.verdict == "diverged" or again.edits


LOOPS = """def train(model, batches, criterion, steps): ...
def nothing(model, x=1): ...
def simple(net, data, opt): ...
"""


def test_what_a_training_loop_takes(tmp_path: Path) -> None:
    path = tmp_path / "loops.py"
    path.write_text(LOOPS)
    factory, _ = load_factory(f"{path}:train")
    roles = {"model": "model", "batches": "batches", "criterion": "loss"}
    assert loop_roles("loops.py:train(steps=2)", factory, {"steps": 2}) == roles
    message = r"^--train l:train: 'steps' is no name of .*; give it a value in brackets, l:train\(steps=…\)$"
    with pytest.raises(InputError, match=message):
        loop_roles("l:train", factory, {})
    with pytest.raises(InputError, match=r"^--train l:nothing: it has no parameter called batches or loader or "):
        loop_roles("l:nothing", load_factory(f"{path}:nothing")[0], {})
    with pytest.raises(InputError, match=r"simple: it takes 'opt'; name an optimizer with --optimizer$"):
        run_loop({"train": load_part("train", f"{path}:simple")}, torch.nn.ReLU(), [], [])


@pytest.mark.slow
def test_loss_optimizer_schedule_and_transform_are_drafted_and_proven(tmp_path: Path) -> None:
    path, out = tmp_path / "network.py", tmp_path / "drafted"
    path.write_text(SOURCE)
    made = twinalign.port(
        f"{path}:Net",
        ["x:4,3,8,8:float32", "labels:4:int64:5"],
        loss=f"{path}:dice",
        optimizer=f"{path}:make_optimizer(lr=0.01)",
        transform=f"{path}:make_transform(20)",
        out=out,
    )
    assert (made.verdict, made.left) == ("aligned", [])
    assert made.stages == dict.fromkeys(["forward", "data", "loss", "backward"], "aligned")
    assert "# a term for each class" in (out / "drafted" / "network.py").read_text()

    build = out / "drafted" / "build.py"
    assert "make_transform(20)" in build.read_text()
    build.write_text(build.read_text().replace("make_transform(20)", "make_transform(21)"))
    again = twinalign.check_port(out)
    assert again.verdict == "diverged" or again.edits


def test_a_part_that_is_not_there_is_one_line() -> None:
    with pytest.raises(InputError, match=r"^--loss 'torch.nn:Nothing': torch.nn has no Nothing$"):
        load_part("loss", "torch.nn:Nothing")


def test_a_function_is_itself_and_a_class_is_built() -> None:
    assert load_part("loss", "torch.nn.functional:cross_entropy")() is torch.nn.functional.cross_entropy
    smoothed = load_part("loss", "torch.nn:CrossEntropyLoss(label_smoothing=0.1)")()
    assert smoothed.label_smoothing == 0.1
    weight = torch.nn.Parameter(torch.zeros(1))
    assert load_part("optimizer", "torch.optim:SGD(lr=0.5)")([weight]).defaults["lr"] == 0.5


class _Model(torch.nn.Module):
    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> None: ...


def _by_name(outputs: torch.Tensor, labels: torch.Tensor) -> None: ...


def _by_order(outputs: torch.Tensor, target: torch.Tensor) -> None: ...


@pytest.mark.parametrize(
    ("loss", "names", "expected"),
    [
        (None, ["x", "labels"], (["x", "labels"], [], False)),
        (_by_name, ["x", "labels"], (["x"], ["labels"], True)),
        (_by_name, ["x", "mask", "labels"], (["x", "mask"], ["labels"], True)),
        (_by_order, ["x", "y"], (["x"], ["y"], False)),
    ],
)
def test_what_the_loss_takes(loss: object, names: list[str], expected: object) -> None:
    assert shared_inputs(_Model(), loss, names) == expected
