"""Functions of the port are paired with those of the reference that do the same."""

from __future__ import annotations

from twinalign.replay.aligned_code import Code, parsed
from twinalign.replay.partner_functions import partners

LOSS = """
def loss(outputs, labels, framework):
    if framework == "torch":
        import ref

        return ref.masked_loss(outputs, labels)
    import port

    return port.criterion(outputs, labels)
"""


def code(name: str, source: str, framework: str = "torch") -> Code:
    found = parsed(source, "file.py", 1, name, framework)
    assert found is not None
    return found


def names(theirs: list[Code], ours: list[Code]) -> list[tuple[str, str]]:
    return [(one.name, two.name) for one, two in partners(theirs, ours)]


THEIRS = [code("loss", LOSS), code("masked_loss", "def masked_loss(a, b):\n    return (a - b).pow(2).mean()")]
OTHER = "def criterion(one, other):\n    for _ in range(3):\n        pass"


def test_what_partners_call_in_modules_of_the_two_sides_is_paired() -> None:
    ours = [code("loss", LOSS, "paddle"), code("criterion", OTHER, "paddle")]
    assert names(THEIRS, ours) == [("loss", "loss"), ("masked_loss", "criterion")]


def test_other_numbers_of_calls_pair_nothing() -> None:
    both = LOSS.replace("port.criterion(outputs, labels)", "port.scaled(port.criterion(outputs, labels))")
    scaled = code("scaled", "def scaled(one):\n    while one:\n        pass", "paddle")
    ours = [code("loss", both, "paddle"), code("criterion", OTHER, "paddle"), scaled]
    assert names(THEIRS, ours) == [("loss", "loss")]


def test_a_layer_that_is_made_where_it_is_called_is_named_by_its_class() -> None:
    made = LOSS.replace("port.criterion(outputs, labels)", "port.MaskedLoss(0.1)(outputs, labels)")
    method = OTHER.replace("criterion(one", "forward(self, one")
    constructor = "def __init__(self, weight):\n    super().__init__()\n    self.weight = weight"
    ours = [
        code("loss", made, "paddle"),
        code("MaskedLoss.__init__", constructor, "paddle"),
        code("MaskedLoss.forward", method, "paddle"),
    ]
    assert names(THEIRS, ours) == [("loss", "loss"), ("masked_loss", "MaskedLoss.forward")]
