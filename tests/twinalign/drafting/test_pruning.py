"""What makes no difference to a model is left out of its port; what does, stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from twinalign.drafting import pruning
from twinalign.drafting.observed_model import observe_model
from twinalign.drafting.one_pass import behaviour_of
from twinalign.drafting.selected_files import files_of
from twinalign.drafting.selection import Selection

PACKAGE = {
    "__init__.py": "",
    "base.py": """
import torch

LOG = []
TABLE = {}
if TABLE:
    import wrapping


def documented(function):
    if TABLE.get("wrapped"):
        function = wrapping.wrap(function)
    TABLE[function.__qualname__] = function.__doc__

    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


def doubled(function):
    def wrapper(*args, **kwargs):
        return 2 * function(*args, **kwargs)

    return wrapper


class Config:
    found = None

    def __init__(self, width):
        self.width = width
        self.check()
        if width > 100:
            raise ValueError(width)
        if Config.found is None:
            Config.found = width
        else:
            self.again = Config.found

    def check(self):
        LOG.append(self.width)
        if self.width < 0:
            raise ValueError(self.width)

    @property
    def half(self):
        return self.width // 2


class Base(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.config = Config(width)
        self.log_it()

    def log_it(self) -> "Config":
        LOG.append(type(self).__name__)
        return self.config

    def first_weights(self):
        for parameter in self.parameters():
            scaled(parameter)


def scaled(parameter):
    with torch.no_grad():
        parameter.mul_(3)
""",
    "model.py": """
import torch

from .base import Base, documented, doubled


class Model(Base):
    def __init__(self, width=4):
        super().__init__(width)
        self.layer = torch.nn.Linear(width, self.config.half)
        self.first_weights()

    @documented
    @doubled
    def forward(self, x):
        return self.layer(x)
""",
}


@pytest.fixture(scope="module")
def selections(tmp_path_factory: pytest.TempPathFactory) -> tuple[Selection, Selection, Selection]:
    """A small one, one of a large package, and a small one whose package imports another that needs torch."""
    folder = tmp_path_factory.mktemp("sources")
    for name, text in PACKAGE.items():
        path = folder / "pruned_package" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    build = folder / "build_it.py"
    build.write_text(
        f"import sys\nsys.path.insert(0, {str(folder)!r})\n"
        "def build():\n    from pruned_package.model import Model\n    return Model()\n"
    )
    inputs = [["x", (2, 4), "float32", None]]
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(folder))
        observed = observe_model("pruned_package.model:Model", inputs)
        small = pruning.pruned(f"{build}:build", observed, inputs, {}, None)
        modules = {**observed["modules"], "wrapping": str(folder / "wrapping.py")}
        wrapping = pruning.pruned(f"{build}:build", {**observed, "modules": modules}, inputs, {}, None)
        patched.setattr(pruning, "WORTH_LINES", 0)
        return small, pruning.pruned(f"{build}:build", observed, inputs, {}, None), wrapping


def test_a_small_selection_is_left_as_it_is(selections: tuple[Selection, ...]) -> None:
    assert selections[0].cuts.decorators == frozenset()
    assert "def documented" in files_of(selections[0])[0]["base.py"]


def test_a_decorator_goes_that_needs_a_package_which_needs_torch(selections: tuple[Selection, ...]) -> None:
    wrapping = selections[2]
    assert wrapping.cuts.decorators == {"pruned_package.base.documented"}
    assert wrapping.cuts.functions == frozenset()
    assert "wrapping" not in "".join(files_of(wrapping)[0].values())


def test_what_only_documents_is_gone_and_what_computes_stays(selections: tuple[Selection, ...]) -> None:
    pruned = selections[1]
    assert pruned.cuts.decorators == {"pruned_package.base.documented"}
    files, dropped = files_of(pruned)
    assert "@doubled" in files["model.py"]
    assert "documented" not in files["model.py"] + files["base.py"]
    assert [(change.text, change.why) for change in dropped] == [
        ("@documented taken away", "the model's outputs, gradients and first weights are the same without")
    ]


def test_functions_without_an_effect_on_the_model_are_empty(selections: tuple[Selection, ...]) -> None:
    pruned = selections[1]
    emptied = {name for _, name in pruned.cuts.functions}
    assert emptied == {"Config.check", "Base.log_it"}
    assert "first_weights" in files_of(pruned)[0]["base.py"]
    assert "LOG" not in files_of(pruned)[0]["base.py"]


def test_a_branch_that_a_second_object_takes_stays(selections: tuple[Selection, ...]) -> None:
    base = files_of(selections[1])[0]["base.py"]
    assert "self.again = Config.found" in base
    assert "raise NotImplementedError" in base  # a width over 100
    assert "raise ValueError(width)" not in base


@pytest.mark.slow
def test_a_trial_sees_first_weights_outputs_and_gradients(tmp_path: Path) -> None:
    source = "import torch\n\n\ndef build_model():\n    model = torch.nn.Linear(4, 2)\n    {}\n    return model\n"
    found = set()
    for number, line in enumerate(["pass", "model.bias.data.add_(1)", "model.bias.requires_grad_(False)"]):
        folder = tmp_path / str(number)
        (folder / "candidate").mkdir(parents=True)
        (folder / "candidate" / "build.py").write_text(source.format(line))
        with pruning.SideProcess("ref") as process:
            inputs = [["x", (2, 4), "float32", None]]
            found.add(process.call(behaviour_of, folder=str(folder), inputs=inputs)["digest"])
    assert len(found) == 3
