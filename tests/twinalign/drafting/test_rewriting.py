"""Rules of repair: each one changes what it names, whatever the name was imported as, and nothing else."""

from __future__ import annotations

import pytest

from twinalign.drafting import rules
from twinalign.drafting.absent_names import without_torch
from twinalign.drafting.rewriting import rewritten


def code_of(source: str) -> str:
    return rewritten("m.py", source, ".")[0]


@pytest.mark.parametrize("rule", rules.SHIMS, ids=lambda rule: rule.pattern)
def test_a_name_is_taken_from_the_shims(rule):
    module, _, name = rule.pattern.rpartition(".")
    for source in (
        f"import {module} as t\nf = t.{name}\n",
        f"from {module} import {name}\nf = {name}\n",
        f"from {module} import {name} as other\nf = other\n",
    ):
        assert f"f = shims.{rule.replacement}\n" in code_of(source)
        assert "from . import shims\n" in code_of(source)


def test_a_name_of_the_same_spelling_stays():
    source = "from mine import BatchNorm2d\nf = BatchNorm2d\n"
    assert rewritten("m.py", source, ".") == (source, [], set())


@pytest.mark.parametrize("rule", rules.NAMES, ids=lambda rule: rule.pattern)
def test_a_name_becomes_another(rule):
    module, _, name = rule.pattern.rpartition(".")
    for source in (f"import torch\nx: {rule.pattern}\n", f"from {module} import {name} as L\nx: L\n"):
        assert code_of(source).endswith(f"x: {rule.replacement}\n")


def test_a_method_that_is_taken_of_torch_s_class():
    source = (
        "from torch import Tensor, nn\nnn.Module.__init__(self)\ny = map(Tensor.float, x)\nz: Tensor = nn.Module()\n"
    )
    assert code_of(source).endswith(
        "paddle.nn.Layer.__init__(self)\ny = map(paddle.Tensor.float, x)\nz: Tensor = torch.nn.Module()\n"
    )


def test_a_module_that_stands_as_an_annotation():
    source = "import torch.nn.functional as F\ndef f(x: F = 1):\n    pass\n"
    assert "def f(x: paddle.nn.functional = 1):\n" in code_of(source)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x[1:2].zero_()\n", "x[1:2] = 0\n"),
        ("x.bias[a, ...].fill_(3.0)\n", "x.bias[a, ...] = 3.0\n"),
        ("x[mask].copy_(y + 1)\n", "x[mask] = y + 1\n"),
        ("x[0].clamp_(0, 1)\n", "x[0] = x[0].clamp(0, 1)\n"),
        ("x[0].append(1)\n", "x[0].append(1)\n"),
        ("x.zero_()\n", "x.zero_()\n"),
    ],
)
def test_a_part_that_is_changed_in_place(source, expected):
    assert code_of(source) == expected


@pytest.mark.parametrize("rule", rules.VALUES, ids=lambda rule: rule.pattern)
def test_a_call_with_one_answer(rule):
    call = rule.pattern if rule.pattern.endswith(")") else f"{rule.pattern}()"
    source = f"import torch\nif {call} and ready:  # kept\n    pass\n"
    assert f"if {rule.replacement} and ready:  # kept\n" in code_of(source)


@pytest.mark.parametrize("rule", rules.DECORATORS, ids=lambda rule: rule.pattern)
@pytest.mark.parametrize("call", ["", "()"])
def test_a_decorator_is_taken_away(rule, call):
    source = f"import torch\n\n# kept\n@{rule.pattern}some{call}\n@mine\ndef f():\n    pass\n"
    assert code_of(source) == "import torch\n\n# kept\n@mine\ndef f():\n    pass\n"


@pytest.mark.parametrize("rule", rules.ANNOTATIONS, ids=lambda rule: rule.pattern)
def test_an_annotation_keeps_what_is_in_its_brackets(rule):
    assert code_of(f"import torch\nx: {rule.pattern}[int] = 3\n") == "import torch\nx: int = 3\n"


@pytest.mark.parametrize("rule", rules.STATEMENTS, ids=lambda rule: rule.pattern)
def test_a_statement_is_taken_away(rule):
    assert code_of(f"import torch\n{rule.pattern}('f')\n") == "import torch\npass\n"


@pytest.mark.parametrize("rule", rules.METHODS, ids=lambda rule: rule.pattern)
def test_a_method_becomes_a_call(rule):
    given = next((f"{name}=a" for name in ("dims", "dim", "max", "mat1") if rule.when and name in rule.when), "2")
    found = code_of(f"y = (x + 1).{rule.pattern}({given})\n").replace("(x + 1), ", "x + 1, ")
    assert f"y = shims.{rule.replacement}(x + 1, {given})\n" in found


def test_what_a_rule_waits_for_is_not_there():
    """`x.norm()` is right in paddle, and a layer's own method is none of a tensor."""
    for source in (
        "y = x.clamp(min=0.5)\n",
        "y = x.norm()\n",
        "y = block.norm(x)\n",
        "y = self.unfold(x, 2, 1)\n",
        "super().unfold(x, 2)\n",
    ):
        assert code_of(source) == source
    assert "shims.einsum" not in code_of('import torch\ny = torch.einsum("bi,bj->ij", x, x)\n')
    for source in ('torch.einsum("bi,bI->iI", x, x)', 'torch.einsum("bi,bj->ij", [x, x])', "map(torch.einsum, x)"):
        assert "shims.einsum" in code_of(f"import torch\ny = {source}\n")


@pytest.mark.parametrize("rule", rules.LISTS, ids=lambda rule: rule.pattern)
def test_next_of_a_list(rule):
    assert code_of(f"y = next(m.{rule.pattern}(), None)\n") == f"y = next(iter(m.{rule.pattern}()), None)\n"


def test_a_method_of_what_a_call_gave_becomes_a_call():
    source = "import torch\ny = torch.cat(x).split(2)\n"
    assert code_of(source).endswith("y = shims.split(torch.cat(x), 2)\n")


@pytest.mark.parametrize("rule", rules.KEYWORDS, ids=lambda rule: rule.pattern)
def test_a_keyword_is_left_out(rule):
    source = f"import torch\ny = {rule.pattern}relu(x, {rule.replacement}=True)\n"
    assert code_of(source) == f"import torch\ny = {rule.pattern}relu(x)\n"


def test_a_text_is_split_as_before():
    assert code_of("y = 'a b'.split(' ')\n") == "y = 'a b'.split(' ')\n"


def test_the_way_without_torch_is_taken():
    source = "try:\n    from torch import fast\nexcept ImportError:\n    def fast(x):\n        return x\n"
    assert code_of(source) == "def fast(x):\n    return x\n"


def test_what_is_asked_of_torch_is_asked_of_paddle():
    source = "import torch.nn.functional as F\nhas = hasattr(F, 'silu')\n"
    assert code_of(source).endswith("has = hasattr(paddle.nn.functional, 'silu')\n")


def test_brackets_that_the_draft_would_lose():
    assert code_of("y = {**a, **(b or {})}\n") == "y = {**a, **dict(b or {})}\n"


@pytest.mark.parametrize("rule", rules.ATTRIBUTES, ids=lambda rule: rule.pattern)
def test_an_attribute_becomes_a_call_where_it_is_read(rule):
    assert code_of(f"if x.{rule.pattern}:\n    pass\n").endswith(f"if shims.{rule.replacement}(x):\n    pass\n")
    assert code_of(f"if x.{rule.pattern}():\n    pass\n").endswith(f"if x.{rule.pattern}():\n    pass\n")


@pytest.mark.parametrize("rule", rules.STRINGS, ids=lambda rule: rule.pattern)
def test_a_text_becomes_another(rule):
    assert code_of(f'a = "{rule.pattern}"\nb = "{rule.pattern} and more"\n') == (
        f'a = {rule.replacement}\nb = "{rule.pattern} and more"\n'
    )


def test_a_buffer_is_registered():
    source = "from torch import nn\nself.places = nn.Buffer(torch.arange(3), persistent=False)\n"
    assert code_of(source).endswith('self.register_buffer("places", torch.arange(3), persistent=False)\n')


def test_what_the_draft_left_of_torch_is_absent():
    source = '"""What it is."""\nimport paddle\nX = {"a": torch.a.b}\n\n\ndef f(torch_like):\n    return torch_like.c\n'
    found, used = without_torch(source, "..")
    assert used
    assert found == source.replace("torch.a.b", 'shims.Absent("torch.a.b")').replace(
        "import paddle", "from .. import shims\nimport paddle"
    )
    assert 'shims.Absent("torch.a.b")(x)' in without_torch("y = (torch.\n    a.b)(x)\n", ".")[0]
    assert without_torch("import paddle\n", ".") == ("import paddle\n", False)
    assert without_torch("x = = torch.a\n", ".") == ("x = = torch.a\n", False)


def test_an_import_of_torch_in_a_branch_is_an_assignment():
    source = "import torch\nif ready():\n    from torch.nn.attention import a, b as c\n    from mine import d\n"
    assert code_of(source).endswith(
        "if ready():\n    a = torch.nn.attention.a; c = torch.nn.attention.b\n    from mine import d\n"
    )


def test_modules_of_torch_are_written_in_full():
    """PaConvert drops the import of `nn`, and leaves what it does not know of it."""
    found = code_of("from torch import nn\nclass A(nn.Module):\n    y = nn.unknown.thing(2)\n")
    assert found.startswith("import torch\nfrom torch import nn\n")
    assert "class A(torch.nn.Module)" in found
    assert "y = torch.nn.unknown.thing(2)" in found
