"""The edits proposed for a fault: the reference's argument in paddle's spelling, at the call that builds the layer."""

from __future__ import annotations

import ast
from types import SimpleNamespace

import pytest

from twinalign.edits.certainty import certain
from twinalign.edits.expressions import meaning_as
from twinalign.edits.proposals import Proposals, functions_of
from twinalign.edits.source import Edit, Source, applied
from twinalign.edits.suggestions import suggestion

PARAMETERS = {
    "nn.LayerNorm": ["normalized_shape", "epsilon"],
    "nn.BatchNorm2D": ["num_features", "momentum", "epsilon"],
    "nn.GroupNorm": ["num_groups", "num_channels", "epsilon"],
    "nn.GELU": ["approximate", "name"],
    "nn.Conv2D": ["in_channels", "out_channels", "kernel_size", "stride", "padding", "padding_mode"],
    "nn.functional.gelu": ["x", "approximate", "name"],
    "optimizer.AdamW": ["learning_rate", "beta1", "beta2", "epsilon"],
}


def fault_of(cause, name, changed, arguments, kind, **evidence):
    call = {"name": name, "arguments": arguments, "changed": changed, "path": "", "shape": [2, 8]}
    explanation = {"id": cause, "text": cause, "evidence": {"reference_calls": [call]}}
    return {
        "paddle_layer": "layer",
        "reference_layer": "layer",
        "phase": "forward",
        "explanation": explanation,
        "reference_edits": [],
        "evidence": {"paddle_class": kind, **evidence},
    }


def mended(tmp_path, text, kind, fault, built=True, certain=True, reference=(), others=(), faults=()):
    """The text of the only line with the likeliest edit, None if none is proposed, or is `certain`."""
    file = str(tmp_path / "port.py")
    (tmp_path / "port.py").write_text(text, encoding="utf-8")
    call = next(node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    place = [file, call.lineno, call.col_offset, call.end_lineno, call.end_col_offset]
    layer = {"class": kind, "calls": [place] if built else [], "code": [] if built else [[file, 1, text.count("\n")]]}
    layer |= {"others": [others], "around": []}
    places = {"layers": {"layer": layer, "optimizer": layer}, "parameters": PARAMETERS}
    made = Proposals(places, {"layer": [[one, 1, 1] for one in reference]}, {}, faults=faults)
    edits = made.for_fault(fault) if certain else made.from_reference(fault)
    return applied(text, edits[:1]) if edits else None


def test_child_layers_keep_the_names_that_the_port_gives_them(tmp_path):
    texts = {
        "reference": "def forward(self, x):\n    y = self.first(x) * 0.5\n    return y * self.second(x) + x\n",
        "port": "def forward(self, x):\n    y = self.up(x) * 0.25\n    return y * self.gate(x) - x\n",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    spans = {name: [[str(tmp_path / f"{name}.py"), 1, 3]] for name in texts}
    places = {"layers": {"": {"code": spans["port"], "around": []}}, "parameters": {}}
    fault = {"reference_layer": "", "paddle_layer": "", "explanation": None, "evidence": {}}
    layers = {"": "", "first": "up", "second": "gate"}
    found = Proposals(places, {"": spans["reference"]}, {}, layers).from_reference(fault)
    assert [(edit.before, edit.after) for edit in found] == [
        ("0.25", "0.5"),
        ("y * self.gate(x) - x", "y * self.gate(x) + x"),
    ]


@pytest.mark.parametrize(
    ("cause", "text", "expected"),
    [
        ("median_between", "y = x.median(1)", 'y = x.median(1, mode="min")[0]'),
        ("maximum_first_row", "y = x.max(1)[0] + 1", "y = x.max(1) + 1"),
    ],
)
def test_a_call_that_paddle_takes_otherwise_is_written_as_torch_means_it(cause, text, expected, tmp_path):
    source = Source(str(tmp_path / "port.py"), text)
    edits = [edit for edit in meaning_as(source, [cause], [1]) if edit is not None]
    assert [applied(text, [edit]).replace("'", '"') for edit in edits] == [expected]


@pytest.mark.parametrize(
    ("text", "kind", "cause", "name", "changed", "arguments", "expected"),
    [
        ("nn.LayerNorm(8)", "LayerNorm", "norm_epsilon", "layer_norm", ["eps"], {"eps": 1e-6}, "8, epsilon=1e-6"),
        ("nn.LayerNorm(8, 1e-4)", "LayerNorm", "norm_epsilon", "layer_norm", ["eps"], {"eps": 1e-6}, "8, 1e-6"),
        ("nn.BatchNorm2D(8)", "BatchNorm2D", "m", "batch_norm", ["momentum"], {"momentum": 0.01}, "8, momentum=0.99"),
        ("nn.GELU()", "GELU", "gelu_form", "gelu", [], {"approximate": "tanh"}, "approximate=True"),
        (
            "nn.Conv2D(3, 8, 3, padding=1)",
            "Conv2D",
            "padding_mode",
            "pad",
            ["mode", "value"],
            {"mode": "reflect", "value": None},
            "3, 8, 3, padding=1, padding_mode='reflect'",
        ),
    ],
)
def test_an_argument_of_a_layer(text, kind, cause, name, changed, arguments, expected, tmp_path):
    fault = fault_of(cause, name, changed, arguments, kind)
    line = f"é = '…'; layer = {text}  # kept\n"
    made = f"é = '…'; layer = nn.{kind}({expected})  # kept\n"
    assert mended(tmp_path, line, f"paddle.nn.{kind}", fault) == made


def test_a_call_that_builds_right_layers_as_well_is_not_edited(tmp_path):
    fault = fault_of("norm_epsilon", "layer_norm", ["eps"], {"eps": 1e-6}, "LayerNorm")
    text, kind = "layers = nn.LayerNorm(8)\n", "paddle.nn.LayerNorm"
    made = "layers = nn.LayerNorm(8, epsilon=1e-6)\n"
    assert mended(tmp_path, text, kind, fault, others=["norms.1"], faults=[fault]) is None
    other = {**fault, "paddle_layer": "norms.1"}
    assert mended(tmp_path, text, kind, fault, others=["norms.1"], faults=[fault, other]) == made
    unlike = {**other, "explanation": {**other["explanation"], "text": "another number"}}
    assert mended(tmp_path, text, kind, fault, others=["norms.1"], faults=[fault, unlike]) is None


def test_a_reduction_of_a_line_that_has_fewer_of_them_is_not_exchanged(tmp_path):
    reference = tmp_path / "ref.py"
    fault = fault_of("reduction_kind", "sum", [], {}, "Block", inside={"unknown": {"file": "port.py", "line": 2}})
    fault["explanation"]["evidence"]["reference_calls"][0]["line"] = "line 1 of ref.py"
    text = "def loss(x):\n    return x.abs().mean()\n"
    made = []
    for line in ("x.sum(1).mean()", "x.sum()"):
        reference.write_text(f"{line}\n")
        made.append(mended(tmp_path, text, "port.Block", fault, built=False, reference=[str(reference)]))
    assert made == [None, text.replace("mean", "sum")]


@pytest.mark.parametrize(
    ("line", "edited"),
    [
        ("x.mean(0), x.var(0)", "x.mean(0), x.var(0, unbiased=False)"),
        ("x.mean(0), paddle.var(x, 0, True)", "x.mean(0), paddle.var(x, 0, False)"),
        ("x.mean(0), x.mean(0)", None),
    ],
)
def test_a_variance_gets_the_divisor_of_the_reference_and_the_mean_beside_it_stays(line, edited, tmp_path):
    (tmp_path / "ref.py").write_text("x.mean(0), x.var(0, unbiased=False)\n")
    inside = {"unknown": {"file": "port.py", "line": 2}}
    fault = fault_of("reduction_kind", "var", [], {"dim": 0, "unbiased": False}, "Block", inside=inside)
    fault["explanation"]["evidence"]["reference_calls"][0]["line"] = "line 1 of ref.py"
    text = f"def moments(x):\n    return {line}\n"
    expected = None if edited is None else text.replace(line, edited)
    reference = [str(tmp_path / "ref.py")]
    assert mended(tmp_path, text, "port.Block", fault, built=False, reference=reference) == expected


def test_a_reduction_beside_the_line_that_is_proven_to_be_wrong_stays(tmp_path):
    (tmp_path / "ref.py").write_text("m = x.mean(0)\nv = x.var(0)\n")
    places = {"unknown": {"file": "port.py", "line": 3}, "known": {"file": "port.py", "line": 2}}
    fault = fault_of("reduction_kind", "var", [], {"dim": 0}, "Block", inside=places)
    fault["explanation"]["evidence"]["reference_calls"][0]["line"] = "line 2 of ref.py"
    text = "def moments(x):\n    m = x.mean(0)\n    v = x.var(0, unbiased=False)\n"
    fault["explanation"]["evidence"]["lines_of_port"] = [["/here/port.py", 3, 3]]
    made = mended(tmp_path, text, "port.Block", fault, built=False, reference=[str(tmp_path / "ref.py")])
    assert made == text.replace("unbiased=False", "unbiased=True")  # torch's default, which no argument shows


def test_an_edit_of_code_is_certain_where_it_is_the_only_one_or_in_a_line_that_is_wrong(tmp_path):
    text = "def forward(self, x):\n    x = F.gelu(self.one(x))\n    return F.gelu(self.two(x))\n"
    fault = fault_of("gelu_form", "gelu", [], {"approximate": "tanh"}, "Block")
    assert mended(tmp_path, text, "port.Block", fault, built=False) is None
    fault["explanation"]["evidence"]["lines_of_port"] = [["/here/port.py", 3, 3]]
    made = text.replace("two(x))", "two(x), approximate=True)")
    assert mended(tmp_path, text, "port.Block", fault, built=False) == made


def test_both_arguments_of_two_causes_in_one_call(tmp_path):
    causes = "group_norm_groups+norm_epsilon"
    fault = fault_of(causes, "group_norm", [], {"num_groups": 4, "eps": 1e-3}, "GroupNorm")
    made = mended(tmp_path, "norm = nn.GroupNorm(2, 8)\n", "paddle.nn.GroupNorm", fault)
    assert made == "norm = nn.GroupNorm(4, 8, epsilon=0.001)\n"


def test_an_activation_is_exchanged(tmp_path):
    fault = fault_of("activation_swapped", "silu", [], {}, "ReLU")
    assert mended(tmp_path, "act = nn.ReLU()\n", "paddle.nn.ReLU", fault) == "act = nn.Silu()\n"


def test_a_call_that_does_not_build_the_class_itself_is_not_exchanged(tmp_path):
    fault = fault_of("activation_swapped", "silu", [], {}, "ReLU")
    assert mended(tmp_path, "act = make('relu')\n", "paddle.nn.ReLU", fault) is None


def test_functional_code(tmp_path):
    fault = fault_of("gelu_form", "gelu", [], {"approximate": "tanh"}, "Block")
    text = "y = F.gelu(x)\n"
    assert mended(tmp_path, text, "port.Block", fault, built=False) == "y = F.gelu(x, approximate=True)\n"


@pytest.mark.parametrize("inside", [None, {"unknown": {"file": "port.py", "line": 2}}])
def test_a_residual_left_out(inside, tmp_path):
    fault = fault_of("residual_missing", "add", [], {}, "Block", inside=inside)
    text = "def forward(self, x):\n    return self.mlp(self.norm(x))\n"
    expected = "def forward(self, x):\n    return x + self.mlp(self.norm(x))\n"
    assert mended(tmp_path, text, "port.Block", fault, built=False) == expected


def test_an_optimizers_constant(tmp_path):
    fault = fault_of("adam_betas", "", [], {}, "", reference_optimizer={"beta1": 0.9, "beta2": 0.95, "eps": 1e-8})
    fault["phase"] = "optimizer"
    text = "opt = optimizer.AdamW(1e-3, parameters=parameters)\n"
    expected = "opt = optimizer.AdamW(1e-3, parameters=parameters, beta1=0.9, beta2=0.95)\n"
    assert mended(tmp_path, text, "", fault, built=False) == expected


def test_nothing_is_proposed_without_a_cause_or_for_an_unknown_argument(tmp_path):
    text = "layer = nn.LayerNorm(8)\n"
    assert mended(tmp_path, text, "paddle.nn.LayerNorm", {"explanation": None}) is None
    fault = fault_of("some", "layer_norm", ["unheard_of"], {"unheard_of": 3}, "LayerNorm")
    assert mended(tmp_path, text, "paddle.nn.LayerNorm", fault) is None


def test_what_edits_need_of_paddle():
    fault = fault_of("gelu_form", "logsigmoid", [], {}, "paddle.nn.layer.activation.LogSigmoid")
    assert {"nn.LogSigmoid", "nn.functional.log_sigmoid", "optimizer.AdamW"} <= set(functions_of([fault]))


@pytest.mark.parametrize(
    ("cause", "name", "arguments", "before", "after"),
    [
        ("sign_wrong", "add", {}, "x - self.fall(x)", "x + self.fall(x)"),
        ("sign_wrong", "sub", {}, "x - self.fall(x)", "self.fall(x) - x"),
        ("operation_swapped", "mul", {}, "x + gate", "x * gate"),
        ("some", "sum", {}, "(weights * x).mean(1)", "(weights * x).sum(1)"),
        ("layer_missing", "layer", {"path": "norm"}, "self.rise(x)", "self.norm(self.rise(x))"),
    ],
)
def test_an_expression_of_the_line_that_goes_wrong(cause, name, arguments, before, after, tmp_path):
    inside = {"unknown": {"file": "port.py", "line": 2}}
    text = "def forward(self, x):\n    x = {}\n    return x - 1, x.mean()\n"
    fault = fault_of(cause, name, [], arguments, "Block", inside=inside)
    several = cause == "layer_missing"  # a line has more than one value that a layer may be called on
    made = mended(tmp_path, text.format(before), "port.Block", fault, built=False, certain=not several)
    assert made == text.format(after)
    assert not several or mended(tmp_path, text.format(before), "port.Block", fault, built=False) is None


@pytest.mark.parametrize(
    ("cause", "before", "after"),
    [
        ("decay_as_l2", "Adam(1e-3, weight_decay=0.1)", "AdamW(1e-3, weight_decay=0.05)"),
        ("decay_decoupled", "AdamW(1e-3)", "Adam(1e-3, weight_decay=0.05)"),
    ],
)
def test_the_class_of_an_optimizer(cause, before, after, tmp_path):
    fault = fault_of(cause, "", [], {}, "", reference_optimizer={"weight_decay": 0.05})
    fault["phase"] = "optimizer"
    made = mended(tmp_path, f"opt = optimizer.{before}\n", "", fault, built=False)
    assert made == f"opt = optimizer.{after}\n"


def test_a_pool_of_another_kind_keeps_its_window(tmp_path):
    fault = fault_of("pool_kind", "avg_pool2d", [], {"count_include_pad": False}, "MaxPool2D")
    made = mended(tmp_path, "p = nn.MaxPool2D(3, padding=1)\n", "paddle.nn.MaxPool2D", fault)
    assert made == "p = nn.AvgPool2D(3, padding=1, exclusive=True)\n"


@pytest.mark.parametrize(
    ("port", "reference", "after", "said"),
    [
        ("r * (x + h)", "x + r * h", "x + r * h", "write `x + r * h` in place of `r * (x + h)`"),
        ("F.gelu(x)", "torch.tanh(2 * x)", "F.tanh(2 * x)", "write `F.tanh(2 * x)` in place of `F.gelu(x)`"),
        ("x.sum(axis=1)", "x.view(2, n).sum(dim=1)", "x.reshape([2, n]).sum(axis=1)",
         "write `x.reshape([2, n]).sum(axis=1)` in place of `x.sum(axis=1)`"),
        # The same words in another order say something else.
        ("x.mean().pow(2)", "x.pow(2).mean()", "x.mean().pow(2).mean()", ""),
        ("x.mean().pow(2)", "x.pow(2).mean()", "x.pow(2).mean()",
         "write `x.pow(2).mean()` in place of `x.mean().pow(2)`"),
        ("scaled(padded(x))", "padded(scaled(x))", "padded(x)", ""),
        ("scaled(padded(x))", "padded(scaled(x))", "padded(scaled(x))",
         "write `padded(scaled(x))` in place of `scaled(padded(x))`"),
        ("i = x.argsort(0)", "v, i = torch.sort(x, 0)", "v, i = paddle.sort(x, 0)", ""),
        ("x.reshape([b, n, m])", "x.view(b, m, n)", "x.reshape([b, n, m])", ""),
        ("x.reshape([b, n, m])", "x.view(b, m, n)", "x.reshape([b, m, n])",
         "write `x.reshape([b, m, n])` in place of `x.reshape([b, n, m])`"),
        ("F.silu(x) @ w", "F.linear(F.silu(x), w)", "F.linear(F.silu(x), w)", ""),
        ("-scaled(k)", "-(scaled(k) + 1)", "-(-scaled(k) + 1)", ""),
        # Not all that the reference has, another function, torch's pair, paddle's layout.
        ("z * n", "z * n + (1 - z) * h", "z * n + h", ""),
        ("x.mean(1)", "x.sum(1)", "x.mean(1)", ""),
        ("d.max(1)", "d.min(1)[0]", "d.min(1)[0]", ""),
        ('F.pad(x, [1, 0], data_format="NCL")', "F.pad(x, (0, 1))", "F.pad(x, [0, 1])", ""),
    ],
)  # fmt: skip
def test_a_line_is_to_be_written_as_the_reference_has_it(port, reference, after, said):
    text = f"a line of the port computes something else: `{port}` in place of `{reference}`"
    fault = fault_of("line_of_port", "", [], {}, "Block")
    fault["explanation"] |= {"text": f"{text}, line 7 of port.py and line 9 of net.py", "evidence": {}}
    fault["explanation"]["evidence"]["lines_of_port"] = [["/here/port.py", 7, 7]]
    edit = {"file": "/here/port.py", "line": 7, "before": port, "after": after, "likely": False}
    fault["reference_edits"] = [{**edit, "line": 6, "after": "x"}, {**edit, "before": "h"}, edit]
    as_there = f"do as line 9 of net.py does: `{reference}`"
    assert suggestion(fault) == f"in layer, near port.py:7: {said or as_there}"
    if said:
        fault["reference_edits"] = [{**edit, "runs": False}]  # the port has not all of its names there
        assert suggestion(fault) == f"in layer, near port.py:7: {as_there}"


@pytest.mark.parametrize(
    ("port", "reference", "said"),
    [
        ("max(d, n / k)", "min(d, n / k)", "write `min(d, n / k)` in place of `max(d, n / k)`"),
        ("a - b", "b - a", "write `b - a` in place of `a - b`"),
        ("0.5 * a.x", "0.25 * a.x", "write `0.25 * a.x` in place of `0.5 * a.x`"),
        ("z.real() + x", "z.real - x", ""),  # a method in paddle
        ("a - b", "b - c", ""),  # `c` may be nothing in the port
        ("x.mean()", "x.sum()", ""),
        (
            "np.array(STD)` in place of `torch.tensor(STD)`, line 7 of port.py and line 9 of net.py, where `STD` is `1",
            "2",
            "write `STD = 2` where it is assigned",
        ),
    ],
)
def test_plain_python_is_to_be_written_without_an_edit_that_was_tried(port, reference, said):
    text = f"a line of the port computes something else: `{port}` in place of `{reference}`"
    fault = fault_of("line_of_port", "", [], {}, "Block")
    fault["explanation"] |= {"text": f"{text}, line 7 of port.py and line 9 of net.py", "evidence": {}}
    fault["explanation"]["evidence"]["lines_of_port"] = [["/here/port.py", 7, 7]]
    as_there = f"do as line 9 of net.py does: `{reference}`"
    assert suggestion(fault) == f"in layer, near port.py:7: {said or as_there}"


def test_which_of_two_like_parts_of_a_line_is_meant_is_said(tmp_path):
    line = "    weight = min(snr, gamma) / snr"
    (tmp_path / "port.py").write_text(f"{line}\n")
    said = "a line of the port computes something else"
    text = f"{said}: `snr` in place of `snr + 1`, line 1 of port.py and line 9 of net.py"
    fault = fault_of("line_of_port", "", [], {}, "Block")
    fault["explanation"] |= {"text": text, "evidence": {"lines_of_port": [[str(tmp_path / "port.py"), 1, 1]]}}
    edit = {"file": str(tmp_path / "port.py"), "line": 1, "before": "snr", "after": "(snr + 1)", "likely": False}
    fault["reference_edits"] = [{**edit, "span": [1, line.rindex("snr"), 1, len(line)]}]
    assert suggestion(fault).endswith("write `(snr + 1)` in place of `snr` (the second of 2 in that line)")


def test_a_statement_is_to_be_written_where_the_reference_has_it():
    fault = fault_of("line_of_port", "", [], {}, "Block")
    said = "`p = x.mean()` stands behind `x = self.norm(x)`, in the reference before it, line 7 of port.py and line 9"
    text = f"a line of the port computes something else: {said} of net.py"
    fault["explanation"] |= {"text": text, "evidence": {"lines_of_port": [["/here/port.py", 7, 7]]}}
    assert suggestion(fault) == "in layer, near port.py:7: write `p = x.mean()` before `x = self.norm(x)`"


def test_an_activation_too_many_is_to_be_left_out_where_it_shows():
    at = {"file": "port.py", "line": 8}
    fault = fault_of("operand_activated", "relu", [], {}, "Block", inside={"unknown": at, "known": None})
    said = "in layer, near port.py:8: leave the activation out of this side of the sum"
    assert suggestion(fault | {"phase": "forward"}) == said


def test_lines_that_belong_together_are_to_be_written_together():
    fault = fault_of("line_of_port", "", [], {}, "Block", inside={"unknown": {"file": "port.py", "line": 8}})
    two = "`[h]` in place of `h`, line 7 of port.py and line 9 of net.py; `k(h)` in place of `f(h)`, line 8 of port.py "
    text = f"a line of the port computes something else: {two}and line 10 of net.py"
    known = fault["explanation"]
    known |= {"text": text, "evidence": {"lines_of_port": [["/here/port.py", 7, 7], ["/here/port.py", 8, 8]]}}
    first = {"file": "/here/port.py", "line": 7, "before": "[h]", "after": "h", "likely": False}
    fault["reference_edits"] = [first]
    assert suggestion(fault) == "in layer, near port.py:8: do as lines 9, 10 of net.py do"
    fault["reference_edits"] = [first, {**first, "line": 8, "before": "k(h)", "after": "f(h)"}]
    assert suggestion(fault).endswith("write `h` in place of `[h]` and write `f(h)` in place of `k(h)`")
    known["text"] += "; what one side alone has: the port lacks `y = g(h)`, line 11 of net.py"
    assert suggestion(fault).endswith("do as lines 9, 10, 11 of net.py do")


def test_the_line_is_that_of_the_call_which_the_cause_is_about(tmp_path):
    file = tmp_path / "port.py"
    file.write_text("def forward(self, x):\n    a = F.softmax(x, axis=1)\n    y = a + x\n    return y\n")
    inside = {"unknown": {"file": "port.py", "line": 3}}
    fault = fault_of("softmax_axis", "softmax", [], {"dim": 2}, "Block", inside=inside)
    places = {"layers": {"layer": {"code": [[str(file), 1, 4]]}}, "parameters": {}}
    calls = Proposals(places, {}, {}, faults=[fault]).calling(fault)
    assert calls == [("port.py", 2)]
    fault["evidence"]["calls_of_port"] = calls
    assert suggestion(fault).startswith("in layer, near port.py:2: ")
    fault["evidence"]["calls_of_port"] = [*calls, ("port.py", 9)]
    assert suggestion(fault).startswith("in layer: "), "of several none is known to be the one"


def test_a_child_layer_that_stands_in_a_list_gives_the_reference_no_name():
    made = Proposals({"layers": {}, "parameters": {}}, {}, {}, {"stem": "blocks.0", "head": "top"})
    assert made._children == {"head": "top"}


def test_a_remedy_without_words_says_what_the_reference_has_in_the_wrong_line():
    fault = fault_of("parameters_left_out", "", [], {}, "")
    fault["explanation"]["evidence"] = {"lines_of_port": [["/here/port.py", 7, 7]]}
    there = {"file": "/here/port.py", "line": 7, "before": "2", "after": "1", "likely": True, "runs": True}
    fault["reference_edits"] = [there, {**there, "line": 8}, {**there, "runs": False}, {**there, "likely": False}]
    assert suggestion(fault) == "in layer, near port.py:7: do as the reference does, which has `1` in place of `2`"
    fault["explanation"] |= {"id": "edited_program", "text": "a step differs: line 9 of net.py: y = f(x), `f`: twice"}
    fault["explanation"]["evidence"]["reference_calls"] = [
        {"name": "f", "path": "", "line": "line 9 of net.py", "changed": {}, "shape": []}
    ]
    assert suggestion(fault).endswith("do as line 9 of net.py does"), "what port.py:7 has is another line's"
    fault["explanation"]["text"] = "a step differs: line 9 of net.py: y = f(x, 1), `f`: twice"
    assert suggestion(fault).endswith("do as line 9 of net.py does, which has `1` in place of `2`")


def test_where_the_edit_of_a_line_is_known_no_other_place_is_certain():
    fault = fault_of("residual_missing", "", [], {}, "")
    evidence = fault["explanation"]["evidence"]
    evidence["lines_of_port"] = [["port.py", 7, 7]]
    elsewhere, there = (SimpleNamespace(file=f"/here/{name}", line=7) for name in ("case.py", "port.py"))
    assert certain(fault, [elsewhere]) == [elsewhere]
    evidence["helper_edit"] = {"before": "x", "after": "x + y"}
    assert certain(fault, [elsewhere]) == []
    assert certain(fault, [elsewhere, there]) == [there]


def test_a_remedy_inside_of_a_line_shows_what_else_the_reference_s_line_says():
    fault = fault_of("line_of_port", "", [], {}, "")
    port, words = "`paddle.where(x > 0, y, x)`", "torch.where(x > {}, y, x{})"
    for more, end in ((" - self.m", "; the reference's line has `torch.where(x > self.t, y, x - self.m)`"), ("", "")):
        of = f"{port} in place of `{words.format('self.t', more)}`"
        fault["explanation"]["evidence"]["helper_edit"] = {"before": "x > 0", "after": "x > self.t", "of": of}
        assert suggestion(fault) == f"in layer: write `x > self.t` in place of `x > 0`{end}"


def test_what_to_write_in_words():
    fault = fault_of("norm_epsilon", "layer_norm", ["eps"], {"eps": 1e-6}, "LayerNorm")
    assert suggestion(fault) == "write layer_norm(…, epsilon=1e-06) in layer"
    both = {
        **fault,
        "explanation": {**fault["explanation"], "id": "norm_epsilon+edited_program", "text": "one; and two"},
    }
    assert suggestion(both) == "in layer: call layer_norm as the reference does"
    fault = fault_of("adam_beta2", "", [], {}, "", reference_optimizer={"beta2": 0.95})
    assert suggestion({**fault, "phase": "optimizer"}) == "write beta2=0.95 in the construction of the optimizer"
    settings = {"weight_decay": 0.1, "momentum": 0.9}
    for cause, kind, written in (
        ("decay_decoupled", "adamw.AdamW", "Adam in place of AdamW"),
        ("momentum_value", "sgd.SGD", "Momentum in place of SGD, momentum=0.9"),
    ):
        optimizers = {"reference_optimizer": settings, "port_optimizer": {"class": f"paddle.optimizer.{kind}"}}
        fault = {**fault_of(cause, "", [], {}, "", **optimizers), "phase": "optimizer"}
        assert suggestion(fault) == f"write {written} in the construction of the optimizer"
    fault = fault_of("mask missing", "add", [], {}, "Block", inside={"unknown": {"file": "port.py", "line": 2}})
    assert suggestion(fault) == "in layer, near port.py:2: call add as the reference does"
    fault["explanation"]["evidence"]["reference_calls"][0]["line"] = "line 9 of net.py"
    assert suggestion(fault) == "in layer, near port.py:2: do as line 9 of net.py does"
    fault["explanation"]["evidence"]["lines_of_port"] = [["/here/port.py", 7, 8]]
    assert suggestion(fault).startswith("in layer, near port.py:7: "), "what is proven, not where values first differ"
    fits = {**fault, "explanation": None, "evidence": {**fault["evidence"], "fits_here": "the mask is missing"}}
    assert suggestion(fits) == "look first whether this is so in layer, near port.py:2: the mask is missing"
    assert "no known cause" in suggestion({**fault, "explanation": None})
    edit = {"file": "/here/port.py", "line": 3, "before": "x.sum(\n1)", "after": "x.mean(1)", "likely": True}
    said = "look first at port.py:3, where the port has `x.sum( 1)` and the reference `x.mean(1)`"
    at_edit = {"inside": {"known": None, "unknown": {"file": "port.py", "line": 3}}}
    fault |= {"explanation": None, "evidence": at_edit, "reference_edits": [edit]}
    assert suggestion(fault) == said
    taken = {**fault, "reference_edits": [{**edit, "after": ""}]}
    assert suggestion(taken).endswith("where the port has `x.sum( 1)` and the reference nothing like it")
    unlikely = {**fault, "reference_edits": [{**edit, "likely": False}]}
    assert "no known cause" in suggestion(unlikely)
    # Behind line 3 both have the same value, so that nothing is wrong before.
    inside = {"known": {"file": "port.py", "line": 3}, "unknown": {"file": "port.py", "line": 5}}
    behind = {**fault, "evidence": {"inside": inside}, "reference_edits": [edit, {**edit, "line": 5}]}
    assert suggestion(behind) == said.replace(":3", ":5")
    computed = {**unlikely, "reference_edits": [edit], "evidence": {"right_lines": [["port.py", 2, 4]]}}
    assert "no known cause" in suggestion(computed), "it reads otherwise and computes the same"
    # Where no line is known to be wrong, what reads otherwise may well be right.
    anywhere = {**fault, "evidence": {}, "reference_edits": [{**edit, "line": line} for line in (9, 3, 9, 4, 7, 8)]}
    assert suggestion(anywhere) == (
        "compare port.py:9, port.py:3, port.py:4, port.py:7 with the reference, which reads otherwise there; "
        "`twinalign fix` tries its words"
    )
    for component in ("train", "optimizer", "data", "metric"):
        assert "no known cause" in suggestion({**anywhere, "phase": component})
    assert 'accept = ("name",)' in suggestion({**fault, "evidence": {"convention": "name"}})


FORWARD = """def forward(self, x):
    y = self.rise({taken})
    weights = F.softmax(y, axis=1)
    return self.head((weights * y).{reduced}(1))
"""


@pytest.mark.parametrize(
    ("cause", "name", "path", "value", "before", "after"),
    [
        ("layer_missing", "layer", "norm", "input.rise#0.0", ("x", "sum"), ("self.norm(x)", "sum")),
        ("reduction_kind", "sum", "", "input.head#0.0", ("x", "mean"), ("x", "sum")),
    ],
)
def test_the_layer_that_takes_a_wrong_value_says_where_to_look(cause, name, path, value, before, after, tmp_path):
    fault = fault_of(cause, name, [], {"path": path} if path else {}, "port.Block", values={value: {"relative": 1.0}})
    text, expected = (FORWARD.format(taken=taken, reduced=reduced) for taken, reduced in (before, after))
    assert mended(tmp_path, text, "port.Block", fault, built=False, certain=not path) == expected


def test_a_value_that_no_call_of_the_code_takes_says_nothing(tmp_path):
    fault = fault_of("reduction_kind", "sum", [], {}, "port.Block", values={"input.other#0.0": {"relative": 1.0}})
    assert mended(tmp_path, FORWARD.format(taken="x", reduced="mean"), "port.Block", fault, built=False) is None


@pytest.mark.parametrize(
    ("body", "accepts"),
    [
        ("name = 'net'\n\n    def reference(self): ...", 'accept = ("some_id",)\n\n    def reference'),
        ("accept = ('one',)\n\n    def reference(self): ...", "accept = ('one', \"some_id\",)"),
    ],
)
def test_a_convention_is_put_into_the_case(tmp_path, body, accepts):
    text = f"class Net(Case):\n    {body}\n"
    (tmp_path / "case.py").write_text(text)
    file = str(tmp_path / "case.py")
    fault = fault_of("some_id", "", [], {}, "", convention="some_id")
    edits = Proposals({"layers": {}, "parameters": {}, "case": [[file, 2, 2]]}, {}, {}).for_fault(fault)
    made = applied(text, edits)
    ast.parse(made)
    assert accepts in made


def test_what_evaluates_text_is_given_no_argument_of_a_layer(tmp_path):
    fault = fault_of("norm_epsilon", "layer_norm", ["eps"], {"eps": 1e-6}, "LayerNorm")
    assert (
        mended(tmp_path, "model = nn.LayerNorm(8)\n", "paddle.nn.LayerNorm", fault)
        == "model = nn.LayerNorm(8, epsilon=1e-6)\n"
    )
    assert mended(tmp_path, "model = eval(text)\n", "paddle.nn.LayerNorm", fault) is None


def test_an_unproven_edit_is_shown_in_the_ports_words_and_in_its_own_code_alone(tmp_path):
    port, case = tmp_path / "port.py", tmp_path / "case.py"
    for file in (port, case):
        text = "import functional as F\ny = F.mean(x)\nw = self.create_parameter(F.mean(x))\nz = F.mean(x)\n"
        file.write_text(text, encoding="utf-8")
    place = {"calls": [], "code": [[str(port), 1, 3]], "constructor": [], "around": [[str(port), 4, 4]]}
    made = Proposals({"layers": {"": place}, "case": [], "rules": []}, {"": [[str(case), 1, 1]]}, {})
    fault = {"paddle_layer": ""}
    mean, other = "F.mean(x)", "F.mean(y)"
    assert made.is_likely(Edit(str(port), (2, 4, 2, 13), mean, other), fault)
    for edit in (
        Edit(str(port), (2, 4, 2, 13), mean, "torch.amax(x)"),
        Edit(str(port), (2, 4, 2, 13), "x.mean([1, 2])", "x.mean((1, 2))"),
        Edit(str(port), (2, 4, 2, 13), "self", "F"),
        Edit(str(port), (3, 26, 3, 35), mean, other),  # the port is given the reference's weights
        Edit(str(port), (4, 4, 4, 13), mean, other),  # the code around the layer is judged by itself
        Edit(str(case), (2, 4, 2, 13), mean, other),
    ):
        assert not made.is_likely(edit, fault), edit


@pytest.mark.parametrize("frozen", ["weight", "bias"])
def test_a_batch_norm_of_paddles_with_one_frozen_parameter_trains_neither(frozen):
    paddle = pytest.importorskip("paddle")
    norm = paddle.nn.BatchNorm1D(3)
    getattr(norm, frozen).stop_gradient = True
    (norm(paddle.rand([4, 3])) ** 2).sum().backward()
    assert norm.weight.grad is None
    assert norm.bias.grad is None
    fault = fault_of("parameters_frozen", "weight", [], {}, "paddle.nn.BatchNorm1D")
    said = suggestion(fault)
    x, scaled = paddle.rand([4, 3]), paddle.nn.functional.batch_norm
    (
        ((scaled(x, norm._mean, norm._variance, None, None, training=True) * norm.weight + norm.bias) ** 2).sum()
    ).backward()
    assert [one.grad is None for one in (norm.weight, norm.bias)] == [frozen == "weight", frozen == "bias"]
    assert said.startswith("in layer")
    assert "call F.batch_norm without weight and bias, and write `* self.weight + self.bias` behind it" in said
