"""A package that asks whether a module is its own gets the same answer in a port, whose modules have other names."""

import sys
import types

import pytest

from twinalign.drafting.own_name import with_own_name

ASKING = {
    'Model.__module__.startswith("package.")': True,
    'not Model.__module__.startswith("package.")': False,
    'Model.__module__.split(".")[0] == "package"': True,
    '__name__ != "package"': True,
    '"é" + Model.__module__.startswith("package.models") * "yes"': "éyes",
    'Model.__module__.startswith("other.")': False,
    'Model.__name__ == "Model"': True,
    'Model.label == "package"': True,
}


@pytest.mark.parametrize(("asking", "answer"), ASKING.items())
@pytest.mark.parametrize("name", ["package.models.net", "port.models.net"])
def test_answer_is_the_package_s_own_under_either_name(asking, answer, name, monkeypatch):
    text = f'class Model:\n    label = "package"\n\n\nanswer = {asking}\n'

    module = types.ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)
    exec(with_own_name("package.models.net", text), vars(module))

    assert module.answer == answer


def test_other_texts_stay_as_they_are():
    text = 'name = "package.models"\nsame = name == "package.models" or name.startswith("package")\n'

    assert with_own_name("package.models.net", text) == text
