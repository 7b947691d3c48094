"""An online network and its target network: what values do not tell apart, names of branches and frozen weights do."""

from __future__ import annotations

import numpy as np
import paddle
import torch
from paddle import nn as p
from torch import nn as n

from tests.twinalign.conversion.test_match_layers import facts_of, matched, pairs_of

X = np.random.default_rng(0).standard_normal((6, 4))


class Q(n.Module):
    def __init__(self):
        super().__init__()
        self.l1, self.l2 = n.Linear(4, 8), n.Linear(8, 3)

    def forward(self, x):
        return self.l2(torch.relu(self.l1(x)))


class QPort(p.Layer):
    """Its layers have other names."""

    def __init__(self):
        super().__init__()
        self.body = p.Sequential(p.Linear(4, 8), p.ReLU(), p.Linear(8, 3))

    def forward(self, x):
        return self.body(x)


def frozen(layer):
    for parameter in layer.parameters():
        parameter.stop_gradient = True
    return layer


class Whitening(n.Module):
    """A variance is a buffer: random numbers of both signs have no root."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("var", torch.ones(4))

    def forward(self, x):
        return (x - self.mean) / torch.sqrt(self.var)


class WhiteningPort(p.Layer):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", paddle.zeros([4]))
        self.register_buffer("var", paddle.ones([4]))

    def forward(self, x):
        return (x - self.mean) * paddle.rsqrt(self.var)


class Dqn(n.Module):
    def __init__(self):
        super().__init__()
        self.whitening, self.online, self.target = Whitening(), Q(), Q().requires_grad_(False)

    def forward(self, x):
        following = self.target(self.whitening(x * x))
        return self.online(self.whitening(x)) + 2 * following


class DqnPort(p.Layer):
    """Calls the online network first, and registers it last."""

    def __init__(self):
        super().__init__()
        self.whitening, self.target, self.online = WhiteningPort(), frozen(QPort()), QPort()

    def forward(self, x):
        now = self.online(self.whitening(x))
        return now + 2 * self.target(self.whitening(x * x))


RIGHT = {
    "online.l1.weight": "online.body.0.weight",
    "online.l2.weight": "online.body.2.weight",
    "target.l1.weight": "target.body.0.weight",
    "target.l2.weight": "target.body.2.weight",
}


def weights_of(found):
    return {mine: other for mine, other in pairs_of(found).items() if mine.endswith("weight")}


def test_a_variance_among_the_buffers_does_not_turn_the_trial_into_what_is_no_number(tmp_path):
    found, outputs = matched(tmp_path, Dqn, DqnPort, X)
    assert weights_of(found) == RIGHT
    assert facts_of(found) == {}
    np.testing.assert_allclose(outputs[1], outputs[0], rtol=1e-6)


def test_a_target_network_that_the_forward_pass_leaves_out_goes_by_its_name(tmp_path):
    class Twice(Dqn):
        """Two targets, neither of which is called: every order agrees."""

        def __init__(self):
            super().__init__()
            self.second = Q().requires_grad_(False)

        def forward(self, x):
            return self.online(x)

    class TwicePort(p.Layer):
        def __init__(self):
            super().__init__()
            self.whitening, self.second = WhiteningPort(), frozen(QPort())
            self.online, self.target = QPort(), frozen(QPort())

        def forward(self, x):
            return self.online(x)

    found, _ = matched(tmp_path, Twice, TwicePort, X)
    assert weights_of(found) == {
        **RIGHT,
        "second.l1.weight": "second.body.0.weight",
        "second.l2.weight": "second.body.2.weight",
    }
    assert facts_of(found) == {}


def test_a_frozen_layer_is_no_partner_of_a_trained_one_where_another_frozen_one_is_there(tmp_path):
    class Heads(n.Module):
        def __init__(self):
            super().__init__()
            self.body, self.value, self.slow = n.Linear(4, 4), n.Linear(4, 3), n.Linear(4, 3).requires_grad_(False)

        def forward(self, x):
            return self.body(x)

    class HeadsPort(p.Layer):
        def __init__(self):
            super().__init__()
            self.trunk, self.delayed, self.head = p.Linear(4, 4), frozen(p.Linear(4, 3)), p.Linear(4, 3)

        def forward(self, x):
            return self.trunk(x)

    found, _ = matched(tmp_path, Heads, HeadsPort, X)
    assert weights_of(found) == {
        "body.weight": "trunk.weight",
        "value.weight": "head.weight",
        "slow.weight": "delayed.weight",
    }


def test_a_port_that_runs_its_target_network_in_place_of_the_trained_one_is_not_made_right_by_the_pairing(tmp_path):
    class Online(Dqn):
        def forward(self, x):
            return self.online(x)

    class Target(DqnPort):
        def forward(self, x):
            return self.target(x)

    found, outputs = matched(tmp_path, Online, Target, X)
    assert weights_of(found) == RIGHT
    assert facts_of(found) == {}  # names of branches, and shapes in them, are reason enough
    assert not np.allclose(outputs[1], outputs[0])
