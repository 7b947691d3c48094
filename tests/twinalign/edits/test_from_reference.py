"""What a line of the port is made into from the reference's function; which edit is right, a re-run decides."""

from __future__ import annotations

import libcst
import pytest

from twinalign.edits.from_reference import edits_from_reference
from twinalign.edits.source import Source, applied

REFERENCE = '''def forward(self, x):
    """What it computes."""
    y = self.act(self.norm(x))
    y = torch.softmax(y, dim=1) * self.scale
    x = x + self.fall(y)  # the residual
    x = x.flatten(1)
    return self.head(x.mean(1))
'''
PORT = """def forward(self, x):
    y = self.act(self.norm(x))
    y = paddle.softmax(y, axis=1) * self.scale
    x = x + self.fall(y)
    x = x.flatten(1)
    return self.head(x.mean(1))
"""


def made(port: str) -> list[str]:
    """The texts that the edits make of a port, in their order."""
    sources = Source("port.py", port), Source("source.py", REFERENCE)
    (mine, theirs) = ((1, source.text.count("\n")) for source in sources)
    edits = edits_from_reference(sources[0], mine, sources[1], theirs)
    return [applied(port, [edit]) for _, edit in edits]


def test_equal_functions_have_no_edits() -> None:
    assert made(PORT) == []


@pytest.mark.parametrize(
    ("right", "wrong", "attempts"),
    [
        ("x = x + self.fall(y)", "x = self.fall(y)", 2),
        ("x + self.fall(y)", "x - self.fall(y)", 1),
        ("self.act(self.norm(x))", "self.act(x)", 2),
        ("self.act(self.norm(x))", "self.norm(self.act(x))", 4),
        ("axis=1", "axis=-1", 2),
        ("* self.scale", "* self.shift", 2),
        ("paddle.softmax(y, axis=1) * self.scale", "F.softmax(y, axis=1) * self.scale * 2", 3),
        ("x.flatten(1)", "paddle.tanh(x.flatten(1))", 2),
        (" * self.scale", "", 3),
        ("x.mean(1)", "x.sum(1)", 1),
        ("    x = x.flatten(1)\n", "", 1),
        ("x = x.flatten(1)", "x = x.flatten(1)\n    x = x * 2", 1),
    ],
)
def test_the_right_edit_is_among_the_first(right: str, wrong: str, attempts: int) -> None:
    assert PORT.count(right) == 1
    found = made(PORT.replace(right, wrong))
    wanted = "".join(PORT.split())
    plain = ["".join(text.replace("; ", "\n").replace("pass\n", "").split()) for text in found]
    assert wanted in plain[:attempts]


LOSS = """def loss(outputs, labels, margin=0.5):
    logs = {logs}
    picked = {picked}
    for scale in {scales}:
        logs = logs * scale
    total = {total}
    return {returned}
"""
THEIRS = {
    "logs": "torch.log_softmax(outputs / 0.7, -1)",
    "picked": "logs.gather(1, labels[:, None])[:, 0]",
    "scales": "(1.0, 2.0)",
    "total": "-(0.9 * picked + 0.1 * logs.mean(-1))",
    "returned": "total.clamp(min=margin).mean()",
}
OURS = {
    "logs": "F.log_softmax(outputs / 0.7, -1)",
    "picked": "paddle.take_along_axis(logs, labels[:, None], 1).squeeze(1)",
    "scales": "(1.0, 2.0)",
    "total": "-(0.9 * picked + 0.1 * logs.mean(-1))",
    "returned": "total.clip(min=margin).mean()",
}


@pytest.mark.parametrize(
    ("right", "wrong", "most"),
    [
        ("(1.0, 2.0)", "(1.0, 3.0)", 8),
        ("margin=0.5", "margin=1.0", 8),
        ("0.9 * picked + 0.1 *", "0.1 * picked + 0.9 *", 12),
        ("outputs / 0.7", "outputs * 0.7", 8),
    ],
)
def test_lines_that_are_spelled_otherwise_keep_their_partners(right: str, wrong: str, most: int) -> None:
    port = LOSS.format(**OURS).replace(right, wrong)
    # A statement more, so that what follows is not paired by its number.
    port = port.replace("    picked =", "    many = labels.shape[0]\n    picked =")
    sources = Source("port.py", port), Source("source.py", LOSS.format(**THEIRS))
    (mine, theirs) = ((1, source.text.count("\n")) for source in sources)
    edits = edits_from_reference(sources[0], mine, sources[1], theirs)
    found = [applied(port, [edit]) for _, edit in edits]
    assert port.replace(wrong, right) in found[:most]


@pytest.mark.parametrize(
    ("reference", "port", "right"),
    [
        ("y = conv(a, stride=2, eps=1e-3)", "y = conv(a, stride=2)", "y = conv(a, stride=2, epsilon=1e-3)"),
        ("y = conv(a, bias=False)", "y = conv(a, weight_attr=w)", "y = conv(a, weight_attr=w, bias_attr=False)"),
        ("y = conv(a, stride=2)", "y = conv(a, groups=2, stride=2)", "y = conv(a, stride=2)"),
        ("y = conv(a, b)", "y = conv(b, a)", "y = conv(a, b)"),
        ("y = [crop(1), flip(), scale(2)]", "y = [crop(1), scale(2)]", "y = [crop(1), flip(), scale(2)]"),
        ("y = [crop(1), scale(2)]", "y = [scale(2), crop(1)]", "y = [crop(1), scale(2)]"),
        ("y = crop(a)\ny = scale(y)", "y = scale(y)\ny = crop(a)", "y = crop(a)\ny = scale(y)"),
        ("with torch.no_grad():\n    y = a.mean()", "y = a.mean()", "y = a.mean().detach()"),
        ("y = a\na.requires_grad = False", "y = a", "y = a; a.stop_gradient = True"),
        ("RATE = 0.1", "RATE = 0.01", "RATE = 0.1"),
    ],
)
def test_what_is_left_out_put_in_or_in_another_order_becomes_the_references(reference, port, right):
    sources = Source("port.py", port), Source("source.py", reference)
    edits = edits_from_reference(sources[0], (0, 0), sources[1], (0, 0))
    assert applied(port, [edits[0][1]]) == right


@pytest.mark.parametrize(
    ("reference", "port", "right"),
    [
        ("y = torch.softmax(a, dim=1)", "y = F.softmax(a, axis=1) * 2", "y = F.softmax(a, axis=1)"),
        (
            "y = torch.tanh(torch.softmax(a, dim=1))",
            "y = F.softmax(a, axis=1)",
            "y = paddle.tanh(F.softmax(a, axis=1))",
        ),
        ("y = 0.5 * gap**2", "y = gap**2", "y = 0.5 * gap**2"),
        ("y = norm(a, dim=-1)", "y = norm(a, axis=1)", "y = norm(a, axis=-1)"),
        ("y = step(a, lr=2, b=3)", "y = step(c=[p for p in a if p], lr=2)", "y = step(c=a, lr=2)"),
        ("y = torch.softmax(a, dim=1) * 2", "y = a * F.softmax(a, axis=1)", "y = F.softmax(a, axis=1) * 2"),
        ("y = torch.softmax(a, dim=1) * 2", "y = F.softmax(a, axis=1) + b", "y = (F.softmax(a, axis=1) + b) * 2"),
    ],
    ids=[
        "taken away",
        "put around",
        "a power",
        "a sign",
        "behind a keyword",
        "both, called as the port does",
        "put around a sum",
    ],
)
def test_what_both_have_stays_in_the_ports_spelling(reference: str, port: str, right: str) -> None:
    head = "from paddle.nn import functional as F\n"
    sources = Source("port.py", head + port), Source("source.py", "import torch\n" + reference)
    edits = edits_from_reference(sources[0], (0, 0), sources[1], (0, 0))
    assert head + right in [applied(head + port, [edit]) for _, edit in edits[:4]]


def test_a_function_of_both_frameworks_is_compared_branch_by_branch():
    text = """def loss(outputs, framework):
    if framework == "torch":
        return outputs.mean(0).sum()
    return outputs.sum(0).sum()
"""
    source = Source("case.py", text)
    edits = edits_from_reference(source, (1, 4), source, (1, 4))
    assert [(edit.line, edit.before, edit.after) for _, edit in edits[:1]] == [(4, "sum", "mean")]
    same = Source("case.py", text.replace("sum(0)", "mean(0)"))
    assert edits_from_reference(same, (1, 4), same, (1, 4)) == []


def test_what_is_missing_goes_beside_the_partner_of_its_neighbour_that_is_spelled_otherwise():
    reference = (
        "y = pool(x).transpose(1, 2)\ny = y + fall(act(rise(norm(y))))\nw = torch.softmax(y, dim=1)\nz = w.sum()"
    )
    port = "y = pool(x).transpose([0, 2, 1])\ny = y\nw = F.softmax(y, axis=1)\nz = w.sum()"
    sources = Source("port.py", port), Source("source.py", reference)
    edits = edits_from_reference(sources[0], (0, 0), sources[1], (0, 0))
    made = [applied(port, [edit]) for _, edit in edits]
    assert port.replace("[0, 2, 1])", "[0, 2, 1]); y = y + fall(act(rise(norm(y))))") in made


@pytest.mark.parametrize(
    ("reference", "port", "right"),
    [
        ("x.permute(0, 2, 1, 3).reshape(b, t, c)", "x.transpose([0, 2, 3, 1]).reshape([b, t, c])", "[0, 2, 1, 3]"),
        ("x.view(b, t, 3, c).permute(2, 0, 1)", "x.reshape([b, 3, t, c]).transpose([2, 0, 1])", "[b, t, 3, c]"),
        ("x.repeat(1, t, 1)", "x.tile([1, 1, t])", "[1, t, 1]"),
    ],
)
def test_sizes_and_axes_are_compared_where_torch_has_no_list_of_them(reference: str, port: str, right: str) -> None:
    sources = [
        Source(name, f"def forward(self, x):\n    return {text}\n") for name, text in (("p", port), ("r", reference))
    ]
    _, likeliest = edits_from_reference(sources[0], (1, 2), sources[1], (1, 2))[0]
    assert right in applied(sources[0].text, [likeliest])
    equal = Source("p", applied(sources[0].text, [likeliest]))
    assert edits_from_reference(equal, (1, 2), sources[1], (1, 2)) == []


def test_a_layer_that_has_the_name_of_such_a_method_takes_what_it_takes() -> None:
    port = Source("p", "def forward(self, x):\n    return self.expand(x).reshape([2, -1])\n")
    reference = Source("r", "def forward(self, x):\n    return self.expand(x).view(2, -1)\n")
    assert edits_from_reference(port, (1, 2), reference, (1, 2)) == []


def test_a_statement_that_is_taken_away_leaves_a_line_only_where_it_stands_alone() -> None:
    alone = Source("p", "def forward(self, x):\n    if x:\n        y = f(x)\n    z = f(x)\n    return x\n")
    inner, outer = (one for one in alone.of_type(libcst.Assign))
    assert applied(alone.text, [alone.without(inner)]) == alone.text.replace("y = f(x)", "pass")
    assert applied(alone.text, [alone.without(outer)]) == alone.text.replace("    z = f(x)\n", "")
