"""What a layer that starts otherwise is made into: at its construction, and where an initialiser is made."""

import pytest

from twinalign.edits.initial_weights import edits_of_initializers, initial_edits
from twinalign.edits.source import Source, applied

REMEDIES = {"weight": "paddle.nn.initializer.Normal(0, 0.02)", "bias": "paddle.nn.initializer.Constant(0)"}
PARAMETERS = ["in_features", "out_features", "weight_attr", "bias_attr", "name"]


def made(text: str, remedies=REMEDIES, call: str = "nn.Linear(", parameters=PARAMETERS) -> list[str]:
    source = Source("port.py", text)
    lines = text.split("\n")
    calls = []
    for line, one in enumerate(lines, start=1):
        if call and call in one:
            calls.append(["port.py", line, one.index(call), line, one.rindex(")") + 1])
    place = {"calls": calls, "constructor": [["port.py", 1, len(lines)]], "around": []}
    sources = {"port.py": source}
    edits = [
        *initial_edits(remedies, place, parameters, sources),
        *edits_of_initializers(remedies, place, sources),
    ]
    return [applied(text, [edit]) for edit in edits if edit is not None]


@pytest.mark.parametrize(
    ("start", "name"),
    [
        ("from paddle import nn", "nn.initializer"),
        ("import paddle", "paddle.nn.initializer"),
        ("import paddle.nn as layers", "layers.initializer"),
    ],
)
def test_a_layer_is_built_with_the_initialisers_by_the_names_that_the_file_has(start, name):
    text = f"{start}\nself.fc = nn.Linear(3, 4)"
    first = made(text)[0]
    assert (
        first == f"{start}\nself.fc = nn.Linear(3, 4, weight_attr={name}.Normal(0, 0.02), bias_attr={name}.Constant(0))"
    )


def test_what_else_an_attribute_says_is_kept():
    text = "import paddle\nself.fc = nn.Linear(3, 4, weight_attr=paddle.ParamAttr(name='w', initializer=f))"
    wanted = "paddle.ParamAttr(name='w', initializer=paddle.nn.initializer.Normal(0, 0.02))"
    assert wanted in made(text, {"weight": REMEDIES["weight"]})[0]


def test_a_parameter_of_the_layers_own_and_an_initialiser_that_is_called_are_changed():
    text = "import paddle\nself.weight = self.create_parameter([3])\nUniform(-1, 1)(self.weight)"
    edits = made(text, {"weight": REMEDIES["weight"]}, call="")
    assert "self.create_parameter([3], default_initializer=paddle.nn.initializer.Normal(0, 0.02))" in edits[0]
    assert edits[1].endswith("\npaddle.nn.initializer.Normal(0, 0.02)(self.weight)")
