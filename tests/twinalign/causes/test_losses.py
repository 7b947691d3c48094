"""Causes about losses, state and gradients, each against other code."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.twinalign.causes.units import Case, case, changed, doing, identified, unit

PAIRS = ((6, 8), (6, 8))
LOGITS = (6, 5)
LABELS = np.array([0, 3, 1, 4, 2, 2])
IGNORED = np.array([0, -100, 1, 4, -100, 2])
TOKENS = (4, 6, 8)
ZEROS = np.random.default_rng(2).standard_normal((4, 6)) * (np.arange(24).reshape(4, 6) % 3 > 0)
TIES = np.round(np.random.default_rng(2).standard_normal((4, 6)))


def both(function):
    return unit(lambda s, *x: function(*x))


def instead(function):
    return doing(lambda s, *x: function(*x))


def info_nce(temperature=0.2, factor=True, shift=0, normalised=True):
    """The contrastive loss of MoCo v3, written out by hand, wrong where told."""

    def loss(q, k):
        if normalised:
            q, k = (x / torch.sqrt((x**2).sum(1, keepdim=True)) for x in (q, k))
        logits = q @ k.T / temperature
        rows = torch.arange(len(q))
        value = (torch.logsumexp(logits, 1) - logits[rows, (rows + shift) % len(q)]).mean()
        return value * 2 * 0.2 if factor else value

    return loss


def moco_loss(q, k):
    q, k = F.normalize(q, dim=1), F.normalize(k, dim=1)
    logits = q @ k.T / 0.2
    return F.cross_entropy(logits, torch.arange(len(q))) * (2 * 0.2)


def without_normalising(q, k):
    return info_nce(normalised=False)(q, k)


def cross_entropy(**options):
    return both(lambda x, y: F.cross_entropy(x, y, **options))


def by_hand(weights=None, smoothing=0.0, clip=None, divide_by=None, total=False):
    """Cross-entropy from its definition."""

    def loss(x, y):
        logs = x - x.exp().sum(1, keepdim=True).log()
        if clip is not None:
            logs = (x - torch.logsumexp(x, 1, keepdim=True)).clamp(min=clip)
        kept = y >= 0
        picked = -logs[torch.arange(len(y)), y.clamp(min=0)] * kept
        losses = (1 - smoothing) * picked + smoothing * -logs.mean(1)
        return losses.sum() if total else losses.sum() / (divide_by or kept.sum())

    return loss


CASES: list[Case] = [
    case("loss_temperature", both(moco_loss), instead(info_nce(temperature=1.0)), *PAIRS, name="forgotten"),
    case("loss_temperature", both(moco_loss), instead(info_nce(temperature=0.1)), *PAIRS, name="other"),
    case("loss_factor", both(moco_loss), instead(info_nce(factor=False)), *PAIRS),
    case("labels_shifted", both(moco_loss), instead(info_nce(shift=1)), *PAIRS),
    case("normalize_missing", both(moco_loss), instead(without_normalising), *PAIRS),
    case("term_missing", both(lambda x, y: moco_loss(x, y) + moco_loss(y, x)), instead(info_nce()), *PAIRS),
    case("loss_reduction", cross_entropy(), instead(by_hand(total=True)), LOGITS, LABELS),
    case("loss_reduction", both(F.mse_loss), instead(lambda x, y: ((x - y) ** 2).sum() / 6), *PAIRS, name="batch"),
    case(
        "labels_shifted", cross_entropy(), instead(lambda x, y: by_hand()(x, (y + 1) % 5)), LOGITS, LABELS, name="one"
    ),
    case("label_smoothing", cross_entropy(label_smoothing=0.1), instead(by_hand()), LOGITS, LABELS),
    case("label_smoothing", cross_entropy(), instead(by_hand(smoothing=0.1)), LOGITS, LABELS, name="added"),
    case(
        "label_smoothing_form",
        cross_entropy(label_smoothing=0.1),
        instead(lambda x, y: by_hand(smoothing=0.1 * 5 / 4)(x, y)),
        LOGITS,
        LABELS,
    ),
    case(
        "cross_entropy_clipped",
        cross_entropy(),
        instead(by_hand(clip=-64.0)),
        np.random.default_rng(0).standard_normal(LOGITS) * 100,
        LABELS,
    ),
    case("ignored_rows_counted", cross_entropy(), instead(by_hand(divide_by=6)), LOGITS, IGNORED),
    case("ignore_index", cross_entropy(), instead(lambda x, y: by_hand()(x[y > 0], y[y > 0])), LOGITS, LABELS),
    case(
        "cross_entropy_axis",
        cross_entropy(),
        instead(lambda x, y: -(x - torch.logsumexp(x, -1, True)).gather(-1, y[..., None]).mean()),
        (2, 5, 5),
        LABELS[:5][None].repeat(2, 0),
    ),
    case(
        "class_weights",
        both(lambda x, y: F.cross_entropy(x, y, torch.arange(1.0, 6.0, dtype=x.dtype))),
        instead(by_hand()),
        LOGITS,
        LABELS,
    ),
    case(
        "softmax_before_loss",
        cross_entropy(),
        instead(lambda x, y: by_hand()(x.exp() / x.exp().sum(1, keepdim=True), y)),
        LOGITS,
        LABELS,
    ),
    case(
        "smooth_l1_form",
        both(lambda x, y: F.smooth_l1_loss(x, y, beta=0.5)),
        instead(lambda x, y: torch.where((x - y).abs() < 0.5, (x - y) ** 2 / 2, 0.5 * (x - y).abs() - 0.125).mean()),
        *PAIRS,
    ),
    case("loss_swapped", both(F.mse_loss), instead(lambda x, y: (x - y).abs().mean()), *PAIRS),
    case("loss_broadcast", both(F.mse_loss), instead(lambda x, y: ((x[:, None] - y) ** 2).mean()), (6,), (6,)),
    case(
        "loss_arguments_swapped",
        both(lambda x, y: F.kl_div(x.log_softmax(1), y.log_softmax(1), log_target=True)),
        instead(lambda x, y: (x.softmax(1) * (x.log_softmax(1) - y.log_softmax(1))).mean()),
        *PAIRS,
    ),
    case(
        "positive_weight_missing",
        both(lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid(), pos_weight=torch.tensor(3.0).double())),
        instead(lambda x, y: (F.softplus(x) - x * y.sigmoid()).mean()),
        *PAIRS,
    ),
]


def batch_norm():
    return nn.BatchNorm1d(8)


class PaddleNorm(nn.BatchNorm1d):
    """Normalises as torch does, and remembers in another way."""

    def __init__(self, right, remember):
        super().__init__(8)
        self.load_state_dict(right.state_dict())
        self.remember = remember

    def forward(self, x):
        means, variances = x.detach().mean(0), x.detach().var(0, correction=0)
        with torch.no_grad():
            self.running_mean, self.running_var = self.remember(self.running_mean, self.running_var, means, variances)
        return F.batch_norm(x, None, None, self.weight, self.bias, True, eps=self.eps)


def remembering(mean=0.1, variance=0.1, unbiased=True, times=1, root=False):
    def remember(running_mean, running_var, means, variances):
        variances = variances * 10 / 9 if unbiased else variances
        variances = variances.sqrt() if root else variances
        for _ in range(times):
            running_mean = (1 - mean) * running_mean + mean * means
            running_var = (1 - variance) * running_var + variance * variances
        return running_mean, running_var

    return lambda right: PaddleNorm(right, remember).double()


def started(mean=None, variance=None, swapped=False):
    """Remembers as torch does, from other statistics."""

    def begin(right):
        port = copy.deepcopy(right).double()
        before = {"running_mean": port.running_mean.clone(), "running_var": port.running_var.clone()}
        if swapped:
            port.running_mean, port.running_var = before["running_var"], before["running_mean"]
        if mean is not None:
            port.running_mean = torch.full_like(port.running_mean, mean)
        if variance is not None:
            port.running_var = torch.full_like(port.running_var, variance)
        return port

    return begin


def averaged(m=0.99, new=0.01, moved=True):
    """A momentum encoder's update."""

    def forward(self, x):
        with torch.no_grad():
            for q, k in zip(self.query.parameters(), self.key.parameters(), strict=True):
                if moved:
                    k.copy_(k * m + q * new)
        return self.key(x)

    return forward


def moco_update(self, x):
    with torch.no_grad():
        for q, k in zip(self.query.parameters(), self.key.parameters(), strict=True):
            k.mul_(0.99).add_(q, alpha=1 - 0.99)
    return self.key(x)


def average(identifier, wrong, right=moco_update, name=""):
    parts = {"query": nn.Linear(8, 4), "key": nn.Linear(8, 4)}
    return case(identifier, unit(right, **parts), doing(wrong), (5, 8), name=name, phase="state")


STATE = {"phase": "state", "training": True}
CASES += [
    case("running_statistics_initial", batch_norm, started(0.0, 1.0), (10, 8), **STATE),
    case("running_statistics_initial", batch_norm, started(mean=0.0), (10, 8), name="mean", **STATE),
    case("running_statistics_initial", batch_norm, started(variance=1.0), (10, 8), name="variance", **STATE),
    case("running_statistics_swapped", batch_norm, started(swapped=True), (10, 8), **STATE),
    case("batch_norm_momentum", batch_norm, remembering(0.9, 0.9), (10, 8), name="inverted", **STATE),
    case("batch_norm_momentum", batch_norm, changed(momentum=0.37), (10, 8), facts={"_momentum": 0.63}, **STATE),
    case("running_variance_biased", batch_norm, remembering(unbiased=False), (10, 8), **STATE),
    case("running_statistics_frozen", batch_norm, remembering(0.0, 0.0), (10, 8), **STATE),
    case("running_statistics_frozen", batch_norm, remembering(0.1, 0.0), (10, 8), name="variance", **STATE),
    case("running_statistics_twice", batch_norm, remembering(times=2), (10, 8), **STATE),
    case("running_variance_deviation", batch_norm, remembering(root=True), (10, 8), **STATE),
    case(
        "batch_norm_momentum+running_variance_biased",
        batch_norm,
        remembering(0.9, 0.9, unbiased=False),
        (10, 8),
        **STATE,
    ),
    average("ema_inverted", averaged(0.01, 0.99)),
    average("ema_inverted", averaged(0.01, 0.99), averaged(), name="assigned"),
    average("ema_momentum", averaged(0.999, 0.001)),
    average("ema_not_moved", averaged(moved=False)),
    average("ema_term_missing", averaged(new=0.0)),
]


GRADIENT = {"phase": "backward"}


def frozen(right):
    right.weight.requires_grad_(False)
    return right


class Spread(torch.autograd.Function):
    """Maximum along the last axis; its gradient goes to all of the greatest alike, as paddle has it."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.amax(-1)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        greatest = (x == x.amax(-1, keepdim=True)).double()
        return gradient[..., None] * greatest / greatest.sum(-1, keepdim=True)


class Kinked(torch.autograd.Function):
    """ReLU whose derivative at zero is one."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * (ctx.saved_tensors[0] >= 0)


class ClampBounds(torch.autograd.Function):
    """Clamp to [-1, 1] whose derivative at the bounds is one."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(-1, 1)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * (ctx.saved_tensors[0].abs() <= 1)


def constant_statistics(s, x):
    with torch.no_grad():
        mean, root = x.mean(-1, keepdim=True), (x.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
    return (x - mean) / root * s.weight + s.bias


NORM = {"weight": nn.Parameter(torch.ones(8)), "bias": nn.Parameter(torch.zeros(8))}
CASES += [
    case("parameters_frozen", lambda: nn.Linear(8, 4), frozen, TOKENS, **GRADIENT),
    case(
        "gradient_stopped",
        both(lambda x: x * 2 + x.sin()),
        instead(lambda x: x * 2 + x.detach().sin()),
        TOKENS,
        **GRADIENT,
    ),
    case(
        "gradient_stopped",
        both(lambda x, y: (x - y).square()),
        instead(lambda x, y: (x - y.detach()).square()),
        TOKENS,
        TOKENS,
        name="operand",
        **GRADIENT,
    ),
    case("gradient_not_stopped", both(lambda x: x * x.detach()), instead(lambda x: x * x), TOKENS, **GRADIENT),
    case(
        "statistics_gradient_stopped",
        unit(lambda s, x: F.layer_norm(x, (8,), s.weight, s.bias), **NORM),
        doing(constant_statistics),
        TOKENS,
        **GRADIENT,
    ),
    case("maximum_ties", both(lambda x: x.max(-1)[0]), instead(Spread.apply), TIES, **GRADIENT),
    case("gradient_at_kink", both(F.relu), instead(Kinked.apply), ZEROS, **GRADIENT),
    case(
        "gradient_at_kink", both(lambda x: x.clamp(-1, 1)), instead(ClampBounds.apply), TIES, name="clamp", **GRADIENT
    ),
    case(
        "deviation_of_constant",
        both(lambda x: x.std(-1)),
        instead(lambda x: (((x - x.mean(-1, True)) ** 2).sum(-1) / 5).sqrt()),
        np.array([[1.0, 2, 3, 4, 5, 6], [2.0] * 6]),
        **GRADIENT,
    ),
    case(
        "product_with_zero",
        both(lambda x: x.prod(-1)),
        instead(lambda x: torch.exp(torch.log(x.abs()).sum(-1)) * torch.sign(x).prod(-1)),
        np.array([[1.0, 2.0, 3.0], [2.0, 0.0, 4.0]]),
        **GRADIENT,
    ),
    case(
        "gradient_factor",
        both(torch.sin),
        instead(lambda x: x.detach().sin() + 0.37 * (x.sin() - x.detach().sin())),
        TOKENS,
        **GRADIENT,
    ),
]


@pytest.mark.parametrize("fault", CASES, ids=str)
def test_the_cause_is_found(fault: Case) -> None:
    assert identified(fault) == fault.id
