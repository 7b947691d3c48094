"""A mistyped attribute of a case is refused, and a case's own names are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from twinalign.case.loading import load_case
from twinalign.errors import InputError

CASE = "from twinalign import Case\n\nclass Own(Case):\n    {}\n"


def load(folder: Path, text: str) -> None:
    path = folder / "case.py"
    path.write_text(CASE.format(text))
    load_case(str(path))


@pytest.mark.parametrize(
    ("text", "name", "meant"),
    [
        ("seeed = 3", "seeed", "seed"),
        ("training_mode = True", "training_mode", "train_mode"),
        ("renames = {}", "renames", "rename"),
        ("def optimiser(self, parameters, framework): ...", "optimiser", "optimizer"),
        ("def losses(self, outputs, inputs, framework): ...", "losses", "loss"),
    ],
)
def test_a_name_that_is_nearly_a_cases(tmp_path: Path, text: str, name: str, meant: str) -> None:
    with pytest.raises(InputError) as caught:
        load(tmp_path, text)
    assert str(caught.value) == (
        f"case '{tmp_path}/case.py': a Case has no {name!r}, and Own never reads it; did you mean {meant!r}? If it is "
        "your own, begin its name with _"
    )


@pytest.mark.parametrize(
    "text",
    [
        "_seeed = 3",
        "seed = 3",
        "width = 64",
        "data = 'images'",
        "batch = 8",
        "metrics = ('top1',)\n    def metric(self, outputs, labels, framework):\n        return self.metrics",
    ],
)
def test_names_of_the_cases_own(tmp_path: Path, text: str) -> None:
    load(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "def inputs(self):\n        return {}",
            "Own.inputs(self) is called with (self, rng): too many positional arguments; write def inputs(self, rng)",
        ),
        (
            "def loss(self, outputs, framework):\n        return outputs",
            "Own.loss(self, outputs, framework) is called with (self, outputs, inputs, framework): too many positional "
            "arguments; write def loss(self, outputs, inputs, framework)",
        ),
        (
            "def train(self, framework, model, record):\n        return {}",
            "Own.train(self, framework, model, record) is called with (self, framework, model, record, steps): too "
            "many positional arguments; write def train(self, framework, model, record, steps)",
        ),
        (
            "def reference(self, width):\n        return width",
            "Own.reference(self, width) is called with (self): missing a required argument: 'width'; write def "
            "reference(self)",
        ),
    ],
)
def test_a_method_that_takes_other_arguments(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        load(tmp_path, text)
    assert str(caught.value) == f"case '{tmp_path}/case.py': {said}"


def test_a_training_may_take_its_number_of_steps_with_a_default_or_without(tmp_path: Path) -> None:
    for written in ("steps", "steps=None", "*others"):
        load(tmp_path, f"def train(self, framework, model, record, {written}):\n        return {{}}")


def test_a_method_with_arguments_of_its_own(tmp_path: Path) -> None:
    load(tmp_path, "def loss(self, outputs, *others, scale=1.0):\n        return outputs")
