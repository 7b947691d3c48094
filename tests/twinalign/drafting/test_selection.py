"""What of a model's packages a port takes along: what its import and its run need, and no more."""

from __future__ import annotations

import ast

import pytest

from twinalign.drafting.observed_model import observe_model
from twinalign.drafting.package import build_source
from twinalign.drafting.selected_files import files_of
from twinalign.drafting.selection import Selection

PACKAGE = {
    "__init__.py": "from . import heads, net, special\n",
    "registry.py": """
BLOCKS = {}


def register(name, kind):
    BLOCKS[name] = kind


def named(name):
    def marked(kind):
        kind.label = name
        return kind

    return marked


def noted(kind):
    register("noted", kind)
    return kind
""",
    "special.py": """
import torch.nn as nn

from .registry import register


def halved(layer, x):
    return layer(x) / 2


def unused(layer, x):
    return x


nn.Identity.halved = halved
nn.Identity.unused = unused


class Special(nn.Module):
    def forward(self, x):
        return nn.Identity().halved(x) * 4


class Unused(nn.Module):
    def forward(self, x):
        return x


register("special", Special)
register("unused", Unused)
""",
    "heads.py": """
import torch.nn as nn


class Registry:
    def __init__(self):
        self.known = {}

    def add(self, kind):
        self.known[kind.__name__] = kind
        return kind


HEADS = Registry()
ACTIVATIONS = {}


@HEADS.add
class Scaled(nn.Module):
    def forward(self, x):
        return ACTIVATIONS["relu"]()(x) * SCALES["two"]


@HEADS.add
class NeverBuilt(nn.Module):
    def forward(self, x):
        return x


class Square(nn.Module):
    def forward(self, x):
        return x * x


class Cube(nn.Module):
    def forward(self, x):
        return x * x * x


ACTIVATIONS["relu"] = nn.ReLU
ACTIVATIONS["square"] = Square
ACTIVATIONS["cube"] = Cube
SCALES = {}
SCALES.update(two=2)
NAMES = []
NAMES.append("scaled")
""",
    "net.py": """
from dataclasses import dataclass

import torch.nn as nn

from .heads import ACTIVATIONS, HEADS
from .registry import BLOCKS, named, noted


def twice(value):
    return (value, value)


def doubled(value):
    return 2 * value


def never_called(value):
    return value


@dataclass
class Config:
    block: str = "special"
    sizes: tuple = ()

    def __post_init__(self):
        if not isinstance(self.sizes, tuple):
            self.sizes = twice(self.sizes)

    def described(self):
        return never_called(self.block)


WIDTH = doubled(3)
CONFIGS = {"small": Config(sizes=4)}


@named(
    "net",
)
class Head(nn.Linear):
    kind = "head"

    def forward(self, x):
        return super().forward(x) * len(self.label)


@noted
class Net(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.block = BLOCKS[config.block]()
        self.last = Head(WIDTH, config.sizes[0])
        self.head = HEADS.known["Scaled"]()
        self.square = ACTIVATIONS["square"]()

    def forward(self, x):
        x = self.square(self.head(x))
        if x.ndim > 2:
            x = doubled(never_called(x))
        return self.last(self.block(x))


def build(name):
    return Net(CONFIGS[name])
""",
}


@pytest.fixture(scope="module")
def selection(tmp_path_factory: pytest.TempPathFactory) -> Selection:
    folder = tmp_path_factory.mktemp("sources")
    for name, text in PACKAGE.items():
        path = folder / "chosen_package" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(folder))
        return Selection(observe_model('chosen_package.net:build("small")', [["x", (2, 6), "float32", None]]))


def defined(source: str) -> dict[str, ast.stmt]:
    return {node.name: node for node in ast.parse(source).body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}


def test_the_class_is_built_from_a_config_that_has_a_source(selection: Selection) -> None:
    source = build_source(selection)
    assert "Net(\n        config=Config(block='special', sizes=(4, 4)),\n    )" in source
    assert "from .net import Config" in source


def test_what_registers_a_class_that_ran_stays(selection: Selection) -> None:
    special = files_of(selection)[0]["special.py"]
    assert 'register("special", Special)' in special
    assert "Unused" not in special
    assert "from . import special" in build_source(selection)


def test_what_fills_a_table_that_is_read_stays(selection: Selection) -> None:
    heads = files_of(selection)[0]["heads.py"]
    kept = {name: [ast.unparse(one) for one in node.decorator_list] for name, node in defined(heads).items()}
    assert kept == {"Registry": [], "Scaled": ["HEADS.add"], "Square": []}
    for statement in ('ACTIVATIONS["relu"] = nn.ReLU', 'ACTIVATIONS["square"] = Square', "SCALES.update(two=2)"):
        assert statement in heads
    assert "Cube" not in heads
    assert "NAMES" not in heads
    assert "from . import heads" in build_source(selection)


def test_a_method_that_ran_stays_where_it_is_given_to_a_class_of_others(selection: Selection) -> None:
    special = files_of(selection)[0]["special.py"]
    assert "nn.Identity.halved = halved" in special
    assert "unused" not in special


def test_functions_that_an_import_calls_stay(selection: Selection) -> None:
    net = files_of(selection)[0]["net.py"]
    assert set(defined(net)) == {"twice", "doubled", "never_called", "Config", "Head", "Net"}
    assert "WIDTH = doubled(3)" in net
    assert "CONFIGS" not in net
    assert "described" not in net


def test_a_decorator_that_gives_a_class_an_attribute_stays_and_one_that_registers_goes(selection: Selection) -> None:
    classes = defined(files_of(selection)[0]["net.py"])
    assert [ast.unparse(one) for one in classes["Head"].decorator_list] == ["named('net')"]
    assert classes["Net"].decorator_list == []


def test_what_code_that_ran_only_names_is_a_stub(selection: Selection) -> None:
    net = files_of(selection)[0]["net.py"]
    assert ast.unparse(defined(net)["never_called"]) == (
        "def never_called(*args, **kwargs):\n"
        "    raise NotImplementedError('left out of the port: the model never calls it')"
    )
