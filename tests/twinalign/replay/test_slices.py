"""What wrong values are made of comes before what they are not, the nearest first."""

from __future__ import annotations

import ast

from twinalign.replay.aligned_code import Code, parsed
from twinalign.replay.slices import called_by, callers_of, distances, named_parts, outermost, wrong_parts

SOURCE = """
def forward(self, x, mask):
    scale = self.width * 0.5
    scores = self.scored(x) * scale
    kept = []
    kept.append(scores)
    other = mask + 1
    return self.last(sum(kept)), other
"""
SCORED = """
def scored(self, values):
    return values.exp()
"""


def codes() -> list[Code]:
    texts = (SOURCE, "Net.forward"), (SCORED, "Net.scored")
    made = [parsed(text.strip(), "port.py", 1, name, "paddle") for text, name in texts]
    return [one for one in made if one is not None]


def distance_of(text: str, known: list[Code], found: dict[int, int]) -> int | None:
    nodes = (node for code in known for node in ast.walk(code.tree) if isinstance(node, ast.expr))
    return next(found.get(id(node)) for node in nodes if ast.unparse(node) == text)


def test_the_value_given_to_a_layer_is_followed_through_lists_and_functions() -> None:
    known = codes()
    found = distances(known, wrong_parts(known, ["last"], [], []), {})
    assert distance_of("sum(kept)", known, found) == 0
    assert distance_of("kept.append(scores)", known, found) == 1
    assert distance_of("self.scored(x) * scale", known, found) == 2
    assert distance_of("self.width * 0.5", known, found) == 3
    assert distance_of("values.exp()", known, found) == 3
    assert distance_of("mask + 1", known, found) is None


def test_a_function_that_returns_something_wrong_and_a_line() -> None:
    known = codes()
    assert distance_of("mask + 1", known, distances(known, wrong_parts(known, [], ["Net.forward"], []), {})) == 1
    line = next(node.lineno for node in ast.walk(known[0].tree) if isinstance(node, ast.Assign))
    found = distances(known, wrong_parts(known, [], [], [("port.py", line)]), {})
    assert distance_of("self.width * 0.5", known, found) == 0
    assert distance_of("mask + 1", known, found) is None


def test_layers_in_an_attribute_are_known_by_their_class() -> None:
    known = [
        one
        for text, name in ((SOURCE, "Net.forward"), (SCORED.replace("scored", "forward"), "Scored.forward"))
        if (one := parsed(text.strip(), "port.py", 1, name, "paddle")) is not None
    ]
    assert outermost(known, {"scored": {"Scored"}}) == ["Net.forward"]
    found = distances(known, wrong_parts(known, ["last"], [], []), {"scored": {"Scored"}})
    assert distance_of("values.exp()", known, found) == 3


def test_what_a_method_is_given_it_may_change() -> None:
    text = """
def train(net, average, loader):
    for batch in loader:
        average.step(net)
        other.step()
        value = net(batch)
    return value
"""
    known = [one for one in [parsed(text.strip(), "port.py", 1, "train", "paddle")] if one is not None]
    found = distances(known, wrong_parts(known, [], ["train"], []), {})
    assert distance_of("average.step(net)", known, found) == 2
    assert distance_of("other.step()", known, found) is None


def test_a_class_of_a_module_with_that_name_is_near() -> None:
    source = """
def train(net, rate):
    schedule = paddle.optimizer.lr.StepDecay(rate, 5)
    other = paddle.optimizer.lr.total(rate, 7)
"""
    code = parsed(source.strip(), "case.py", 1, "train", "paddle")
    assert code is not None
    found = distances([code], named_parts([code], ["lr"]), {})
    assert distance_of("5", [code], found) == 0
    assert distance_of("7", [code], found) != 0


def test_who_calls_whom() -> None:
    forward, scored = codes()
    assert callers_of(scored, [forward, scored]) == [forward]
    assert called_by(forward, [forward, scored]) == [scored]
    assert callers_of(forward, [forward, scored]) == []


def test_a_default_is_what_a_parameter_is_made_of() -> None:
    text = """
def shared(x, scale=0.5, *, shift=2, other=3):
    return x * scale + shift
"""
    known = [one for one in [parsed(text.strip(), "port.py", 1, "shared", "paddle")] if one is not None]
    found = distances(known, wrong_parts(known, [], ["shared"], []), {})
    values = [*known[0].tree.args.defaults, *known[0].tree.args.kw_defaults]
    assert [found.get(id(value)) for value in values] == [1, 1, None]


def test_gradients_are_made_by_what_is_sent_back_which_stays_as_it_is() -> None:
    texts = (
        ("def fit(loss, ps):\n    (loss / 2).backward()\n    note(norm(ps))\n    return loss", "fit"),
        (
            "def norm(ps):\n    return sum(p.grad for p in ps)",
            "norm",
        ),
    )
    known = [one for text, name in texts if (one := parsed(text, "port.py", 1, name, "paddle")) is not None]
    of_norm = distances(known, [(known[1], known[1].tree.body[0])], {})
    assert distance_of("loss / 2", known, of_norm) is not None
    of_loss = distances(known, [(known[0], known[0].tree.body[-1])], {})
    assert distance_of("loss / 2", known, of_loss) is None
