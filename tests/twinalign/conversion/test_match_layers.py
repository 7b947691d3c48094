"""Which layer of the port is which of the reference's, where names do not say it all; each answer is run in float64."""

from __future__ import annotations

import contextlib
import types

import numpy as np
import paddle
import pytest
import torch
from paddle import nn as p
from torch import nn as n

from twinalign.backends.paddle import backend as paddle_backend
from twinalign.backends.torch import backend as torch_backend
from twinalign.conversion.convert_file import convert_between
from twinalign.conversion.layers_to_match import Matchable
from twinalign.conversion.match_by_running import pair_by_position
from twinalign.conversion.options import Options
from twinalign.conversion.remote_model import RemoteModel, Run
from twinalign.conversion.trial_model import TrialModel
from twinalign.conversion.unmatched import note_of, rename_rules, text_of
from twinalign.errors import InputError, SideCrashError

F = paddle.nn.functional


class Process:
    """A side's process, answered in the test's own."""

    def __init__(self, framework, build):
        backend = {"torch": torch_backend, "paddle": paddle_backend}[framework]
        model = TrialModel(backend, framework, "cpu", build)
        self._service = types.SimpleNamespace(trial_model=lambda: model)

    def send(self, function, **values):
        self._asked = function, values

    def answer(self):
        function, values = self._asked
        try:
            return function(self._service, **values)
        except ValueError as error:
            raise SideCrashError(str(error)) from error


def matched(tmp_path, reference, port, *inputs, **options):
    """The conversion of a randomised `reference()` for `port()`, and both outputs in float64 with these weights."""
    model, other = reference(), port()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    arrays = dict(torch_backend.state_items(model))
    layouts = {"torch": torch_backend.describe_state(model), "paddle": paddle_backend.describe_state(other)}
    np.savez(tmp_path / "inputs.npz", **{str(number): array for number, array in enumerate(inputs)})
    models = {
        "ref": RemoteModel("ref", Process("torch", reference), tmp_path, "of a test"),
        "paddle": RemoteModel("paddle", Process("paddle", port), tmp_path, "of a test"),
    }
    options = Options(inputs=[str(tmp_path / "inputs.npz")], **options)
    found = convert_between(arrays, layouts, options, lambda: contextlib.nullcontext(models))
    kept = {key: array for key, array in paddle_backend.state_items(other) if key in found.alone[1]}
    paddle_backend.load_state_arrays(other, {**kept, **found.arrays})
    with torch.no_grad(), paddle.no_grad():
        outputs = (
            model.double().eval()(*map(torch.from_numpy, inputs)).numpy(),
            paddle_backend.prepare_model(other, "float64", "cpu")(*map(paddle.to_tensor, inputs)).numpy(),
        )
    return found, outputs


def pairs_of(found):
    """Reference key → the port's."""
    return {entry.source[0]: entry.target for entry in found.ledger.entries if entry.source and entry.target}


def facts_of(found):
    return found.ledger.facts.get("unmatched", {})


X = np.random.default_rng(0).standard_normal((2, 3, 6, 5))


class Net(n.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = n.Conv2d(3, 8, 3)
        self.conv2 = n.Conv2d(8, 8, 3)
        self.fc1 = n.Linear(8, 8)
        self.fc2 = n.Linear(8, 8)

    def forward(self, x):
        x = torch.relu(self.conv2(torch.relu(self.conv1(x)))).mean((2, 3))
        return self.fc2(torch.relu(self.fc1(x)))


class Port(p.Layer):
    """Net with its last two layers renamed and registered the other way round."""

    early = late = staticmethod(F.relu)

    def __init__(self):
        super().__init__()
        self.conv1 = p.Conv2D(3, 8, 3)
        self.conv2 = p.Conv2D(8, 8, 3)
        self.last = p.Linear(8, 8)
        self.first = p.Linear(8, 8)

    def forward(self, x):
        x = F.relu(self.conv2(self.early(self.conv1(x)))).mean((2, 3))
        return self.last(self.late(self.first(x)))


class PortWithEarlyBug(Port):
    early = staticmethod(F.silu)


class PortWithLateBug(Port):
    late = staticmethod(F.silu)


class PortWithMoreRows(Port):
    """Its last layers are given each row twice, and what they make of the second is left out."""

    def forward(self, x):
        x = F.relu(self.conv2(self.early(self.conv1(x)))).mean((2, 3))
        return self.last(self.late(self.first(paddle.concat([x, x]))))[: x.shape[0]]


def test_names_and_values_together_prove_a_renamed_pair(tmp_path):
    found, outputs = matched(tmp_path, Net, Port, X)
    assert (pairs_of(found)["fc1.weight"], pairs_of(found)["fc2.weight"]) == ("first.weight", "last.weight")
    assert facts_of(found) == {}
    np.testing.assert_allclose(outputs[1], outputs[0], rtol=1e-12)


def test_a_bug_elsewhere_leaves_the_renamed_pair_to_its_place_in_the_run(tmp_path):
    found, _ = matched(tmp_path, Net, PortWithEarlyBug, X)
    assert (pairs_of(found)["fc1.weight"], pairs_of(found)["fc2.weight"]) == ("first.weight", "last.weight")
    facts = facts_of(found)
    assert facts["guessed"] == {"fc1": "first", "fc2": "last"}
    assert (facts["reference"], facts["paddle"], facts["rename"]) == ([], [], {})
    assert facts["reason"].startswith("the two models compute different things: from 'conv1' (paddle: 'conv1') on")
    assert note_of({**facts, "reason": "REASON"}, "FILE") == (
        "REASON; by position alone, without proof, these layers were paired: fc1 with first, fc2 with last. All of "
        "them, and a rename to complete, are in FILE"
    )
    assert text_of({**facts, "reason": "REASON"}) == (
        "REASON\n\nPaste this into the case, and complete the lines that begin with #:\n\n    rename = {\n"
        '        # "fc1": "",  # perhaps first\n        # "fc2": "",  # perhaps last\n    }\n'
    )


def test_models_that_agree_in_another_way_are_not_called_different(tmp_path):
    found, outputs = matched(tmp_path, Net, PortWithMoreRows, X)
    np.testing.assert_allclose(outputs[1], outputs[0], rtol=1e-12)
    assert facts_of(found)["reason"].startswith("the two models give the same outputs in another way: from 'conv2'")


def test_what_runs_before_a_bug_is_proven(tmp_path):
    found, _ = matched(tmp_path, Net, PortWithLateBug, X)
    assert pairs_of(found)["fc1.weight"] == "first.weight"
    assert facts_of(found)["guessed"] == {"fc2": "last"}
    assert facts_of(found)["rename"] == {"fc1": "first"}


def test_another_epsilon_leaves_values_that_are_nearly_the_same(tmp_path):
    class Branches(n.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.stem = n.LayerNorm(5, 1e-5), n.Linear(5, 8)
            self.a, self.b, self.c = (n.Linear(8, 8) for _ in range(3))

        def forward(self, x):
            x = torch.relu(self.stem(self.norm(x)))
            return self.c(torch.relu(self.a(x)) - self.b(torch.sigmoid(x)))

    class Others(p.Layer):
        def __init__(self):
            super().__init__()
            self.norm, self.stem = p.LayerNorm(5, 1.1e-5), p.Linear(5, 8)
            self.z, self.y, self.x = (p.Linear(8, 8) for _ in range(3))

        def forward(self, x):
            x = F.relu(self.stem(self.norm(x)))
            second = self.y(F.sigmoid(x))
            return self.x(F.relu(self.z(x)) - second)

    found, _ = matched(tmp_path, Branches, Others, X)
    assert [pairs_of(found)[f"{name}.weight"][0] for name in "abc"] == ["z", "y", "x"]
    assert facts_of(found) == {}


def test_a_rename_that_settles_one_pair_is_where_matching_starts(tmp_path):
    found, _ = matched(tmp_path, Net, PortWithEarlyBug, X, rename={"fc2": "first"})
    assert (pairs_of(found)["fc1.weight"], pairs_of(found)["fc2.weight"]) == ("last.weight", "first.weight")
    assert facts_of(found)["guessed"] == {"fc1": "last"}


def test_names_that_agree_by_accident_yield_to_values(tmp_path):
    class Swapped(p.Layer):
        def __init__(self):
            super().__init__()
            self.conv1 = p.Conv2D(3, 8, 3)
            self.conv2 = p.Conv2D(8, 8, 3)
            self.fc2 = p.Linear(8, 8)
            self.other = p.Linear(8, 8)

        def forward(self, x):
            x = F.relu(self.conv2(F.relu(self.conv1(x)))).mean((2, 3))
            return self.other(F.relu(self.fc2(x)))

    found, outputs = matched(tmp_path, Net, Swapped, X)
    assert pairs_of(found)["fc1.weight"] == "fc2.weight"
    assert facts_of(found) == {}
    np.testing.assert_allclose(outputs[1], outputs[0], rtol=1e-12)


class Norm(n.Module):
    """A layer norm over the channels, by hand."""

    def __init__(self, width):
        super().__init__()
        self.gamma = n.Parameter(torch.ones(width, 1, 1))
        self.beta = n.Parameter(torch.zeros(width, 1, 1))

    def forward(self, x):
        centred = x - x.mean(1, keepdim=True)
        return centred / (centred.square().mean(1, keepdim=True) + 1e-5).sqrt() * self.gamma + self.beta


class Pointwise(n.Module):
    """Blocks on pictures, with convolutions of a single point."""

    def __init__(self):
        super().__init__()
        self.stem = n.Conv2d(3, 8, 1)
        self.blocks = n.ModuleList(
            n.Sequential(Norm(8), n.Conv2d(8, 8, 1), n.ReLU(), n.Conv2d(8, 8, 1)) for _ in range(2)
        )
        self.register_buffer("table", torch.arange(7))

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return x.mean((2, 3))


class Tokens(p.Layer):
    """Pointwise on tokens, channels last, the layers of a block registered the other way round."""

    def __init__(self):
        super().__init__()
        self.embed = p.Linear(3, 8)
        self.layers = p.LayerList(
            [p.LayerDict({"down": p.Linear(8, 8), "up": p.Linear(8, 8), "ln": p.LayerNorm(8)}) for _ in range(2)]
        )
        self.register_buffer("steps", paddle.zeros([1], "int64"))

    def forward(self, x):
        x = self.embed(x.flatten(2).transpose([0, 2, 1]))
        for layer in self.layers:
            x = x + layer["down"](F.relu(layer["up"](layer["ln"](x))))
        return x.mean(1)


def test_layers_meet_whatever_the_layout_and_whoever_wrote_them_by_hand(tmp_path):
    found, outputs = matched(tmp_path, Pointwise, Tokens, X)
    pairs = pairs_of(found)
    assert pairs["blocks.1.0.gamma"] == "layers.1.ln.weight"
    assert pairs["blocks.1.1.weight"] == "layers.1.up.weight"
    assert facts_of(found) == {}
    assert found.alone == (["table"], ["steps"])
    np.testing.assert_allclose(outputs[1], outputs[0], rtol=1e-7)  # paddle keeps an epsilon in float32


def test_the_port_may_be_the_one_written_by_hand(tmp_path):
    class Plain(n.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = n.LayerNorm(4), n.LayerNorm(4)
            self.scale = n.Parameter(torch.ones(4))

        def forward(self, x):
            return self.second(self.scale * self.first(x).tanh())

    class Own(p.Layer):
        def __init__(self):
            super().__init__()
            self.shift = self.create_parameter([4])
            self.scale = self.create_parameter([4])

        def forward(self, x):
            centred = x - x.mean(-1, keepdim=True)
            return centred * paddle.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-5) * self.scale + self.shift

    class ByHand(p.Layer):
        def __init__(self):
            super().__init__()
            self.after, self.before = Own(), Own()
            self.scale = self.create_parameter([4])

        def forward(self, x):
            return self.after(self.scale * self.before(x).tanh())

    found, outputs = matched(tmp_path, Plain, ByHand, X[0, :, :5, :4].copy())
    assert pairs_of(found)["first.bias"] == "before.shift"
    np.testing.assert_allclose(outputs[1], outputs[0], rtol=1e-7)


def test_symmetric_branches_go_by_their_names(tmp_path):
    class Gated(n.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.head = n.Linear(3, 4), n.Linear(4, 4)
            self.up, self.gate = n.Linear(4, 4), n.Linear(4, 4)

        def forward(self, x):
            x = self.stem(x)
            return self.head(self.up(x) + self.gate(x))

    class Other(p.Layer):
        def __init__(self):
            super().__init__()
            self.entry, self.head = p.Linear(3, 4), p.Linear(4, 4)
            self.gate, self.up = p.Linear(4, 4), p.Linear(4, 4)

        def forward(self, x):
            x = self.entry(x)
            return self.head(self.gate(x) + self.up(x))

    found, _ = matched(tmp_path, Gated, Other, X[0, 0, :, :3].copy())
    assert pairs_of(found)["gate.weight"] == "gate.weight"
    assert facts_of(found) == {}


def test_what_one_side_lacks_is_left_and_named_and_the_rest_is_converted(tmp_path):
    class WithoutBias(Port):
        def __init__(self):
            super().__init__()
            self.conv2 = p.Conv2D(8, 8, 3, bias_attr=False)
            self.scale = self.create_parameter([5])

    found, _ = matched(tmp_path, Net, WithoutBias, X)
    assert pairs_of(found)["conv2.weight"] == "conv2.weight"
    assert found.alone == (["conv2.bias"], ["scale"])
    facts = facts_of(found)
    assert (facts["reference"], facts["paddle"]) == (["conv2.bias"], ["scale"])
    assert (
        "the reference has tensors that the port lacks: conv2.bias; the port has tensors that the reference lacks: "
        "scale; the port keeps its own initial values there, so its outputs decide nothing" in note_of(facts, "FILE")
    )
    allowed, _ = matched(tmp_path, Net, WithoutBias, X, allow_missing=["scale"], allow_unexpected=["*.bias"])
    assert (allowed.alone, facts_of(allowed).get("reference", [])) == ((["conv2.bias"], ["scale"]), [])


def test_what_has_no_partner_has_its_own_weights_in_the_trial_and_not_those_of_an_earlier_one(tmp_path):
    class TwoHeads(n.Module):
        def __init__(self):
            super().__init__()
            self.body, self.one, self.two = n.Linear(3, 4), n.Linear(4, 5), n.Linear(4, 5)

        def forward(self, x):
            return (self.one(self.body(x)) + self.two(self.body(x))) / 2

    class OneHead(p.Layer):
        def __init__(self):
            super().__init__()
            self.first, self.last = p.Linear(3, 4), p.Linear(4, 5)

        def forward(self, x):
            return self.last(self.first(x))

    found, _ = matched(tmp_path, TwoHeads, OneHead, X[0, 0, :, :3].copy())
    facts = facts_of(found)
    assert facts["reason"].startswith("the two models compute different things")
    assert facts["paddle"] == ["last.weight", "last.bias"]


def test_a_trial_that_fails_leaves_names_and_positions(tmp_path):
    class Refusing(Port):
        def forward(self, x):
            raise ValueError("not today")

    with pytest.raises(ValueError, match="not today"):
        matched(tmp_path, Net, Refusing, X)  # by the test's own run: the conversion before it has gone on
    model, other = Net(), Refusing()
    layouts = {"torch": torch_backend.describe_state(model), "paddle": paddle_backend.describe_state(other)}
    models = {
        "ref": RemoteModel("ref", Process("torch", Net), tmp_path, "of a test"),
        "paddle": RemoteModel("paddle", Process("paddle", Refusing), tmp_path, "of a test"),
    }
    options = Options(inputs=[str(tmp_path / "inputs.npz")])
    arrays = dict(torch_backend.state_items(model))
    found = convert_between(arrays, layouts, options, lambda: contextlib.nullcontext(models))
    facts = facts_of(found)
    assert facts["reason"] == "running the models to find which layer is which failed: not today"
    assert facts["guessed"] == {"fc1": "last", "fc2": "first"}  # in the order of registration


def test_models_that_have_nothing_in_common_are_refused(tmp_path):
    with pytest.raises(InputError, match="the two models are different networks: only the reference model has"):
        matched(tmp_path, lambda: n.Conv2d(3, 4, 3), lambda: p.Linear(3, 4), X)


def test_rename_rules_are_as_few_as_can_be():
    pairs = {
        "layer1.0.conv": "stage0.0.conv",
        "layer1.0.norm": "stage0.0.norm",
        "layer1.1.conv": "stage0.1.conv",
        "layer2.0.conv": "stage1.0.conv",
        "layer2.0.norm": "stage1.0.bn",
        "stem": "stem",
    }
    assert rename_rules(pairs) == {
        "layer1": "stage0",
        "layer2.0.conv": "stage1.0.conv",
        "layer2.0.norm": "stage1.0.bn",
    }


def test_parameters_of_fixed_names_are_built_twice():
    def build():
        return p.Linear(2, 2, weight_attr=paddle.ParamAttr(name="fixed_weight"))

    names = []
    for _ in range(2):
        with paddle_backend.building():
            names.append([parameter.name for parameter in build().parameters()])
    assert names[0][0] == names[1][0] == "fixed_weight"
    assert names[0][1] != names[1][1]


class HeadsApart(n.Module):
    """A matrix of the model's own with heads as an axis, and a table that the port computes."""

    def __init__(self):
        super().__init__()
        self.heads = n.Parameter(torch.randn(6, 2, 3))
        self.register_buffer("table", torch.arange(6.0) / 8)
        self.first, self.second = n.Linear(6, 6), n.Linear(6, 6)

    def forward(self, x):
        x = self.second(torch.tanh(self.first(x + self.table)))
        return torch.einsum("ni,ihd->nhd", x, self.heads).flatten(1)


class HeadsTogether(p.Layer):
    def __init__(self):
        super().__init__()
        self.heads = self.create_parameter([6, 6])
        self.lower, self.upper = p.Linear(6, 6), p.Linear(6, 6)

    def forward(self, x):
        table = paddle.arange(6, dtype=x.dtype) / 8
        return self.upper(paddle.tanh(self.lower(x + table))) @ self.heads


def test_axes_folded_on_one_side_and_a_table_that_the_other_computes(tmp_path):
    inputs = np.random.default_rng(0).random((4, 6))
    found, (mine, other) = matched(tmp_path, HeadsApart, HeadsTogether, inputs, allow_unexpected=["table"])
    assert pairs_of(found)["first.weight"] == "lower.weight"
    assert pairs_of(found)["heads"] == "heads"
    np.testing.assert_allclose(other, mine, rtol=1e-9, atol=1e-12)
    assert found.alone[0] == ["table"]


class Codebook(n.Module):
    """A table in an embedding, with another one of its size that both sides keep so."""

    def __init__(self):
        super().__init__()
        self.words, self.book = n.Embedding(8, 4), n.Embedding(8, 4)
        self.out = n.Linear(4, 3)

    def forward(self, x):
        nearest = torch.cdist(self.words(x), self.book.weight).argmin(-1)
        return self.out(self.book(nearest))


class OwnTable(p.Layer):
    def __init__(self):
        super().__init__()
        self.codes = self.create_parameter([8, 4])
        self.embedding = p.Embedding(8, 4)
        self.head = p.Linear(4, 3)

    def forward(self, x):
        nearest = paddle.cdist(self.embedding(x), self.codes).argmin(-1)
        return self.head(paddle.gather(self.codes, nearest))


def test_a_table_in_an_embedding_may_be_a_parameter_on_the_other_side(tmp_path):
    found, (mine, other) = matched(tmp_path, Codebook, OwnTable, np.arange(6))
    assert pairs_of(found) == {
        "words.weight": "embedding.weight",
        "book.weight": "codes",
        "out.weight": "head.weight",
        "out.bias": "head.bias",
    }
    assert facts_of(found) == {}
    np.testing.assert_allclose(other, mine, rtol=1e-9)


class LowRank(n.Module):
    """A layer and an adapter of two matrices, one in a Linear and one a parameter."""

    def __init__(self, given, made):
        super().__init__()
        self.base, self.down = n.Linear(given, made), n.Linear(given, 2, bias=False)
        self.up = n.Parameter(torch.ones(made, 2))

    def forward(self, x):
        return self.base(x) + self.down(x) @ self.up.T


class Adapter(p.Linear):
    def __init__(self, given, made):
        super().__init__(given, made)
        self.lora_a, self.lora_b = self.create_parameter([given, 2]), self.create_parameter([2, made])

    def forward(self, x):
        return super().forward(x) + x @ self.lora_a @ self.lora_b


def test_an_adapter_s_matrices_find_each_other_transposed_and_whoever_holds_them(tmp_path):
    def both(library, layer):
        return library.Sequential(layer(6, 9), library.Tanh(), layer(9, 6))

    inputs = np.random.default_rng(0).standard_normal((4, 6))
    found, (mine, other) = matched(tmp_path, lambda: both(n, LowRank), lambda: both(p, Adapter), inputs)
    np.testing.assert_allclose(other, mine, rtol=1e-9, atol=1e-12)
    pairs = pairs_of(found)  # of the sizes of the first layer's matrices are the second's, the other way round
    assert (pairs["0.down.weight"], pairs["0.up"]) == ("0.lora_a", "0.lora_b")
    assert (pairs["2.down.weight"], pairs["2.up"]) == ("2.lora_a", "2.lora_b")
    assert facts_of(found) == {}


def test_what_nothing_else_tells_apart_meets_its_like_in_the_block_of_the_same_number():
    def named(*names):
        return [Matchable(name, name, "linear", ("linear", ()), ()) for name in names]

    reference = named("l.0.norm", "l.0.key", "l.1.norm", "l.1.key")
    paddle = named("d.0.norm", "d.1.key", "d.1.norm", "d.0.key")  # keys of all blocks are computed at another time
    colours = [{u.name: u.name[1:] if "norm" in u.name else "key" for u in side} for side in (reference, paddle)]
    assert pair_by_position(reference, paddle, tuple(colours))["l.0.key"] == "d.0.key"
    others = named("d.1.norm", "d.1.key", "d.2.norm", "d.2.key")  # counted from one: numbers say nothing
    found = {u.name: f".{int(u.name[2]) - 1}.norm" if "norm" in u.name else "key" for u in others}
    assert pair_by_position(reference, others, (colours[0], found))["l.0.key"] == "d.1.key"


def test_layers_of_other_names_meet_in_the_block_of_the_same_number_whenever_they_are_called():
    def named(*names):
        return [Matchable(name, name, "linear", ("linear", ()), ()) for name in names]

    # The port computes a block's positions before what tells the blocks apart, and its layers have other depths.
    reference = named("b.0.qkv", "b.0.r_net", "b.0.ff.core.2", "b.1.qkv", "b.1.r_net", "b.1.ff.core.2")
    paddle = named("l.1.r_proj", "l.0.r_proj", "l.0.in", "l.0.fc2", "l.1.in", "l.1.fc2")
    colour = {"qkv": "", "in": "", "r_net": "positions", "r_proj": "positions", "2": "out", "fc2": "out"}

    def coloured(side):
        return {u.name: colour[u.name.rpartition(".")[2]] or f"qkv {u.name[2]}" for u in side}

    pairs = pair_by_position(reference, paddle, (coloured(reference), coloured(paddle)))
    assert {mine[2] + other[2] for mine, other in pairs.items()} == {"00", "11"}
    assert len(pairs) == 6


def test_layers_meet_in_modules_of_the_same_layers():
    def named(*names):
        kinds = {"fc": "gate", "linear": "gate", "ctx": "context", "condition": "context"}
        return [Matchable(name, name, "linear", (kinds.get(name.rpartition(".")[2], "norm"), ()), ()) for name in names]

    # By order and by the words of their names `attn_gate` would be `enrich.gate`.
    reference = named("enrichment.ctx", "enrichment.glu.fc", "enrichment.norm", "attn_gate.glu.fc", "attn_gate.norm")
    paddle = named("enrich.condition", "after.linear", "after.ln", "enrich.gate.linear", "enrich.gate.ln")
    colours = tuple({u.name: str(u.signature) for u in side} for side in (reference, paddle))
    pairs = pair_by_position(reference, paddle, colours)
    assert pairs["enrichment.glu.fc"] == "enrich.gate.linear"
    assert pairs["attn_gate.norm"] == "after.ln"


def test_layers_meet_where_their_tensors_have_the_same_sizes():
    def named(*names):
        return [Matchable(name, name, "convolution", ("convolution", ()), ()) for name in names]

    def run(*sizes):
        calls = [
            {"path": path, "inputs": [{"shape": [2, 8]}], "outputs": [{"shape": [2, size]}]} for path, size in sizes
        ]
        return Run(calls, [])

    # By the words of their names `down.two` would be `down`, which halves the image.
    reference, paddle = named("down.two", "downsample"), named("enc.b", "down")
    colours = tuple(dict.fromkeys((u.name for u in side), "") for side in (reference, paddle))
    runs = run(("down.two", 8), ("downsample", 2)), run(("enc.b", 8), ("down", 2))
    assert pair_by_position(reference, paddle, colours, runs) == {"down.two": "enc.b", "downsample": "down"}
    unlike = run(("enc.b", 8), ("down", 8))  # one side is wrong: sizes say nothing
    assert pair_by_position(reference, paddle, colours, (runs[0], unlike))["down.two"] == "down"


class BiasBeside(n.Module):
    """A layer and a parameter that is its bias, in every block and at the end."""

    def __init__(self, rows):
        super().__init__()
        self.first, self.out = n.Linear(5, 4, bias=False), n.Linear(4, rows, bias=False)
        self.shift, self.out_bias = n.Parameter(torch.zeros(4)), n.Parameter(torch.zeros(rows))

    def forward(self, x):
        return self.out(torch.tanh(self.first(x) + self.shift)) + self.out_bias


class BiasInside(p.Layer):
    def __init__(self, rows):
        super().__init__()
        self.body, self.head = p.Linear(5, 4), p.Linear(4, rows)

    def forward(self, x):
        return self.head(paddle.tanh(self.body(x)))


class PlainBiasInside(n.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = n.Linear(5, 4), n.Linear(4, 3)

    def forward(self, x):
        return self.head(torch.tanh(self.body(x)))


class BiasBesideInPort(p.Layer):
    def __init__(self):
        super().__init__()
        self.first, self.out = p.Linear(5, 4, bias_attr=False), p.Linear(4, 3, bias_attr=False)
        self.shift, self.out_bias = self.create_parameter([4]), self.create_parameter([3])

    def forward(self, x):
        return self.out(paddle.tanh(self.first(x) + self.shift)) + self.out_bias


@pytest.mark.parametrize("rows", [3, 1])
def test_a_parameter_beside_a_layer_is_the_bias_of_the_other_sides_layer(tmp_path, rows):
    found, (mine, other) = matched(tmp_path, lambda: BiasBeside(rows), lambda: BiasInside(rows), X[0, 0, :, :5].copy())
    assert pairs_of(found) == {
        "first.weight": "body.weight",
        "shift": "body.bias",
        "out.weight": "head.weight",
        "out_bias": "head.bias",
    }
    assert facts_of(found) == {}
    np.testing.assert_allclose(other, mine, rtol=1e-9)


def test_a_parameter_of_the_port_is_the_bias_of_the_references_layer(tmp_path):
    found, (mine, other) = matched(tmp_path, PlainBiasInside, BiasBesideInPort, X[0, 0, :, :5].copy())
    assert (pairs_of(found)["body.bias"], pairs_of(found)["head.bias"]) == ("shift", "out_bias")
    assert facts_of(found) == {}
    np.testing.assert_allclose(other, mine, rtol=1e-9)


def test_of_two_parameters_that_may_be_a_bias_a_rename_rule_says_which(tmp_path):
    class Two(BiasBeside):
        def __init__(self):
            super().__init__(4)

    inputs = X[0, 0, :, :5].copy()
    found, _ = matched(tmp_path, Two, lambda: BiasInside(4), inputs)
    assert {*found.alone[0]} == {"shift", "out_bias"}
    rename = {"shift": "body.bias", "out_bias": "head.bias"}
    found, (mine, other) = matched(tmp_path, Two, lambda: BiasInside(4), inputs, rename=rename)
    assert facts_of(found) == {}
    np.testing.assert_allclose(other, mine, rtol=1e-9)


class FixedNorm(n.Module):
    """A batch norm with fixed statistics, all of it in buffers."""

    def __init__(self, width):
        super().__init__()
        generator = torch.Generator().manual_seed(width)
        for name in ("weight", "bias", "running_mean", "running_var"):
            self.register_buffer(name, 0.5 + torch.rand(width, generator=generator))

    def forward(self, x):
        scale = self.weight * (self.running_var + 1e-5).rsqrt()
        return x * scale[:, None, None] + (self.bias - self.running_mean * scale)[:, None, None]


class ChannelsFirstNorm(n.Module):
    """A layer norm by hand over the second of three axes."""

    def __init__(self, width):
        super().__init__()
        self.gamma, self.beta = n.Parameter(torch.ones(width)), n.Parameter(torch.zeros(width))

    def forward(self, x):
        return n.functional.layer_norm(x.transpose(1, 2), (len(self.gamma),), self.gamma, self.beta).transpose(1, 2)


def test_a_batch_norm_with_fixed_statistics_meets_buffers(tmp_path):
    class Fixed(n.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.bn1, self.bn2 = n.Conv2d(3, 8, 1), FixedNorm(8), FixedNorm(8)

        def forward(self, x):
            return self.bn2(torch.relu(self.bn1(self.stem(x)))).mean((2, 3))

    class Ready(p.Layer):
        def __init__(self):
            super().__init__()
            self.after = p.BatchNorm2D(8, use_global_stats=True)
            self.before = p.BatchNorm2D(8, use_global_stats=True)
            self.embed = p.Conv2D(3, 8, 1)

        def forward(self, x):
            return self.after(F.relu(self.before(self.embed(x)))).mean((2, 3))

    found, outputs = matched(tmp_path, Fixed, Ready, X)
    pairs = pairs_of(found)
    assert (pairs["bn1.running_var"], pairs["bn2.bias"]) == ("before._variance", "after.bias")
    assert facts_of(found) == {}
    np.testing.assert_allclose(outputs[1], outputs[0], rtol=1e-7)


def test_a_layer_norm_over_the_second_of_three_axes_meets_its_like(tmp_path):
    class First(n.Module):
        def __init__(self):
            super().__init__()
            self.norms = n.ModuleList(ChannelsFirstNorm(3) for _ in range(2))

        def forward(self, x):
            return self.norms[1](torch.tanh(self.norms[0](x.flatten(2))))

    class Last(p.Layer):
        def __init__(self):
            super().__init__()
            self.after, self.before = p.LayerNorm(3), p.LayerNorm(3)

        def forward(self, x):
            x = x.flatten(2).transpose([0, 2, 1])
            return self.after(F.tanh(self.before(x))).transpose([0, 2, 1])

    found, outputs = matched(tmp_path, First, Last, X)
    assert pairs_of(found)["norms.0.beta"] == "before.bias"
    assert facts_of(found) == {}
    np.testing.assert_allclose(outputs[1], outputs[0], rtol=1e-7)


def test_what_a_rename_names_for_one_tensor_is_copied_though_the_rest_is_matched(tmp_path):
    """Two tensors that nothing pairs: each is a layer's own on its side, of a kind that the other side has not."""

    class Gained(n.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.fc2 = n.Linear(4, 4), n.Linear(4, 4)
            self.gain, self.other = n.Parameter(torch.ones(4)), n.Parameter(torch.ones(4))

        def forward(self, x):
            return self.fc2(torch.tanh(self.fc1(x * self.gain))) * (1 + 0 * self.other.sum())

    class Scaled(p.Layer):
        def __init__(self):
            super().__init__()
            self.last, self.first = p.Linear(4, 4), p.Linear(4, 4)
            self.scale = p.InstanceNorm1D(4)

        def forward(self, x):
            return self.last(F.tanh(self.first(x * self.scale.scale)))

    rules = {"gain": "scale.scale", "other": "scale.bias"}
    found, outputs = matched(tmp_path, Gained, Scaled, X[0, 0, :, :4].copy(), rename=rules)
    pairs = pairs_of(found)
    assert (pairs["gain"], pairs["other"], pairs["fc1.weight"]) == ("scale.scale", "scale.bias", "first.weight")
    np.testing.assert_allclose(outputs[1], outputs[0], rtol=1e-12)
