"""Functions of the port as torch's process defines them for one edit after the other."""

from __future__ import annotations

import ast
import dataclasses
import importlib
from types import CodeType

import numpy as np
import pytest
import torch

from twinalign.replay.aligned_code import Code, parsed
from twinalign.replay.helpers import Helpers
from twinalign.replay.line_spelling import ATTRIBUTE, HELPER, IMPORTED, PADDLE
from twinalign.replay.own_definitions import definitions
from twinalign.replay.wrong_unit import paddle_spelling


def function(source: str, name: str, **names: str) -> Code:
    code = parsed(source, "port.py", 1, name, "paddle", globals={key: ["name", value] for key, value in names.items()})
    assert code is not None
    return code


def defined(helpers: Helpers, *lines: str) -> dict[str, CodeType]:
    found: dict[str, CodeType] = {}
    for made in definitions(helpers, [ast.parse(line) for line in lines]):
        (body,) = [one for one in made.co_consts if isinstance(one, CodeType)]
        found[body.co_name.removeprefix(HELPER)] = made
    return found


SCALED = function("def scaled(x):\n    return twice(x) + 1\n", "scaled", twice="port.twice")
TWICE = function("def twice(x):\n    return 2 * x\n", "twice")
METHOD = function("def split(self, x):\n    return x[:2]\n", "Attention.split")
LINE = f"y = {HELPER}scaled(x)"


def test_what_an_edit_leaves_as_it_is_is_spelled_once() -> None:
    one = defined(Helpers({}, [SCALED, TWICE, METHOD]), LINE)
    # As it stands where a method runs as a whole.
    alone = dataclasses.replace(METHOD, name="Attention_split")
    other = defined(Helpers({"another": "theirs"}, [SCALED, TWICE, alone]), LINE)
    assert one.keys() == {"scaled", "twice"}
    assert all(other[name] is made for name, made in one.items())


def test_what_a_function_calls_may_have_got_a_partner() -> None:
    one = defined(Helpers({}, [SCALED, TWICE]), LINE)
    other = defined(Helpers({"twice": "doubled"}, [SCALED]), LINE)
    assert other.keys() == {"scaled"}
    assert other["scaled"] is not one["scaled"]
    scope = {"doubled": lambda x: 20 * x}
    exec(other["scaled"], scope)
    assert scope[f"{HELPER}scaled"](1) == 21


def test_what_a_function_imports_itself_may_have_got_a_partner() -> None:
    source = "def importing(x):\n    from port import twice as own\n    return own(x)\n"
    code, line = function(source, "importing"), f"y = {HELPER}importing(x)"
    assert defined(Helpers({}, [code, TWICE]), line).keys() == {"importing", "twice"}
    other = defined(Helpers({"twice": "doubled"}, [code]), line)
    scope = {"doubled": lambda x: 20 * x}
    exec(other["importing"], scope)
    assert scope[f"{HELPER}importing"](1) == 20


def test_a_method_that_is_called_alone_and_in_its_class_is_spelled_once_for_each() -> None:
    made = function("def __init__(self):\n    self.x = 1\n", "Ids.__init__")
    method = function("def next(self):\n    return self.x\n", "Ids.next")
    codes = [dataclasses.replace(code, is_plain=True) for code in (made, method)]
    lines = f"y = {HELPER}Ids_next({HELPER}Ids())"
    helpers = Helpers({}, codes)
    one, other = defined(helpers, lines), defined(helpers, lines)
    assert one["Ids_next"] is other["Ids_next"]


def test_a_layer_that_the_reference_lacks_has_its_own_settings() -> None:
    code = function("def forward(self, x):\n    return self.near(x) + self.far(x)\n", "Net.forward")
    layers = {"near": ("Wave", {"octaves": 2}), "far": ("Wave", {"octaves": 4})}
    code = dataclasses.replace(code, name="Net_forward", layers=layers)
    wave = function("def forward(self, x):\n    return self.octaves * x\n", "Wave.forward")
    helpers = Helpers({"Wave": "Encoding"}, [code, dataclasses.replace(wave, attributes={"octaves": 2})])
    scope = {ATTRIBUTE: lambda value, name, *usual: getattr(value, name, *usual), IMPORTED: importlib.import_module}
    for made in definitions(helpers, [ast.parse(f"y = {HELPER}Net_forward(self, x)")]):
        exec(made, scope)
    assert scope[f"{HELPER}Net_forward"](None, 10) == 60
    both = dataclasses.replace(helpers, paired=frozenset({"near", "far"}))
    assert defined(both, f"y = {HELPER}Net_forward(self, x)").keys() == {"Net_forward"}


def test_a_schedule_of_the_ports_own_is_one_in_torch() -> None:
    codes = [
        function("def __init__(self, base):\n    self.warm = 4\n    super().__init__(base)\n", "Warm.__init__"),
        function("def get_lr(self):\n    return self.base_lr * min(1.0, self.last_epoch / self.warm)\n", "Warm.get_lr"),
    ]
    helpers = Helpers({}, [dataclasses.replace(code, extends="LRScheduler") for code in codes])
    scope = {PADDLE: paddle_spelling().PADDLE, ATTRIBUTE: getattr}
    for made in definitions(helpers, [ast.parse(f"y = {HELPER}Warm(0.1)")]):
        exec(made, scope)
    schedule = scope[f"{HELPER}Warm"](0.8)
    rates = []
    for _ in range(6):
        rates.append(schedule())
        schedule.step()
    assert rates == [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 0.8]


def test_what_computes_with_arrays_is_given_arrays_and_gives_tensors() -> None:
    on_arrays = paddle_spelling().PADDLE.on_arrays
    tensor = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)
    found = on_arrays(lambda x, scale: {"deviation": x.std(), "scaled": [x * scale]}, tensor, scale=2.0)
    assert found["deviation"].item() == pytest.approx(np.std([1.0, 2.0, 4.0]))  # numpy's, which is not torch's
    assert torch.equal(found["scaled"][0], 2.0 * tensor)
    assert isinstance(on_arrays(lambda x: x + 1, np.ones(2)), np.ndarray)
