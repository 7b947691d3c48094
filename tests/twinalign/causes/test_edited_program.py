"""The search over edits of a unit's program: what no named cause describes is found, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.twinalign.causes.units import Case, doing, explain, explained, identified, unit, values_of
from tests.twinalign.causes.units import case as fault
from twinalign.backends.torch.reference_only.operations import FunctionCall, Value
from twinalign.causes.layers.changed_calls import called
from twinalign.causes.layers.edited_program import edits_of
from twinalign.causes.layers.explaining import examined_unit
from twinalign.causes.layers.subject import CallVariant, LayerSubject
from twinalign.replay.code_lines import print_of

TOKENS = (3, 4, 6)


def _gated(s: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    first, second = torch.tanh(x), torch.sigmoid(y)
    return first * x + second * y.cos()


def _gates_exchanged(s: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    first, second = torch.tanh(x), torch.sigmoid(y)
    return second * x + first * y.cos()


def _rates(s: Any, x: torch.Tensor) -> torch.Tensor:
    angles = 100.0 ** (torch.arange(0, 6, dtype=x.dtype) / 6)
    return x * angles.reciprocal().sin() + x.flip(1)


def _rates_of_a_thousand(s: Any, x: torch.Tensor) -> torch.Tensor:
    angles = 1000.0 ** (torch.arange(0, 6, dtype=x.dtype) / 6)
    return x * angles.reciprocal().sin() + x.flip(1)


def _halves(s: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.cumsum(x.cos(), 1) * x.mean(1, keepdim=True)


def _moved(s: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.cumsum(x, 1).cos() * x.mean(1, keepdim=True)


def _running(s: Any, x: torch.Tensor) -> torch.Tensor:
    return x.sin() * x.abs().cumsum(1) - x


def _running_product(s: Any, x: torch.Tensor) -> torch.Tensor:
    return x.sin() * x.abs().cumprod(1) - x


def _overwritten(s: Any, x: torch.Tensor) -> torch.Tensor:
    y = x.cos()
    return y.mul(y.sum(-1, keepdim=True)) + y.sin()


def _seen_by_others(s: Any, x: torch.Tensor) -> torch.Tensor:
    y = x.cos()
    return y.mul_(y.sum(-1, keepdim=True)) + y.sin()


def _added_behind(s: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    other = y.cos()
    return torch.tanh(s.child(x) + other)


def _added_before(s: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    other = y.cos()
    return torch.tanh(s.child(x + other))


def _turned(s: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.logsumexp(x.unsqueeze(-1) + s.table, -2).sin()


def _not_turned(s: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.logsumexp(x.unsqueeze(-1) + s.table.T, -2).sin()


def _scaled_gradient(s: Any, x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    if y.requires_grad:
        y.register_hook(lambda gradient: gradient * 0.5)
    return y * x


CASES = [
    fault(
        "edited_program", unit(_turned, table=nn.Parameter(torch.ones(6, 6))), doing(_not_turned), TOKENS, name="turned"
    ),
    fault("edited_program", unit(_gated), doing(_gates_exchanged), TOKENS, TOKENS, name="exchanged"),
    fault("edited_program", unit(_rates), doing(_rates_of_a_thousand), TOKENS, name="number"),
    fault(
        "edited_program",
        unit(_scaled_gradient),
        doing(lambda s, x: x.sin() * x),
        TOKENS,
        phase="backward",
        name="hook of a gradient",
    ),
    fault(
        "edited_program",
        unit(lambda s, x: functional.elu(x, 0.5) + x.cos()),
        doing(lambda s, x: functional.celu(x, 0.5) + x.cos()),
        TOKENS,
        name="celu",
    ),
    fault("edited_program", unit(_halves), doing(_moved), TOKENS, name="moved"),
    fault("edited_program", unit(_running), doing(_running_product), TOKENS, name="kin"),
    fault("edited_program", unit(_overwritten), doing(_seen_by_others), TOKENS, name="in-place"),
    fault(
        "edited_program",
        unit(_added_behind, child=nn.Linear(6, 6)),
        doing(_added_before),
        TOKENS,
        TOKENS,
        name="before a layer",
        forced=["child"],
    ),
    fault(
        "edited_program",
        unit(lambda s, x: s.second(s.first(x.sin())) + x, first=nn.Linear(6, 6), second=nn.Tanh()),
        doing(lambda s, x: s.first(s.second(x.sin())) + x),
        TOKENS,
        name="layers in another order",
        forced=["first", "second"],
    ),
    fault(
        "edited_program",
        unit(lambda s, x: x.cos() @ s.child(x), child=nn.Linear(6, 6)),
        doing(lambda s, x: x.cos() @ s.child(x).mT),
        (3, 6, 6),
        name="what a layer returns is turned",
        forced=["child"],
    ),
]


GATED = next(case for case in CASES if case.name == "exchanged")


class Averages(nn.Module):
    """Keeps the mean of what it was given in a buffer."""

    def __init__(self, mean: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.mean = mean
        self.register_buffer("kept", torch.zeros(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.kept.copy_(self.mean(x))
        return x * 2.0


CASES.append(
    fault(
        "edited_program_of_buffers",
        lambda: Averages(lambda x: x.abs().mean((0, 1))),
        lambda right: Averages(lambda x: x.abs().amax((0, 1))),
        TOKENS,
        phase="state",
    )
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_edit_is_found(case: Case) -> None:
    assert identified(case) == case.id


def test_sentence_names_line_and_edit() -> None:
    found = explained(next(case for case in CASES if case.name == "number"))
    assert found is not None
    assert "angles = 100.0 **" in found.text
    assert "1000 in place of 100" in found.text
    assert found.evidence["remaining_error"] < 1e-11


def test_a_hook_that_is_left_out_is_said_before_a_factor_of_the_gradient() -> None:
    found = explained(next(case for case in CASES if case.name == "hook of a gradient"))
    assert found is not None
    assert "`register_hook`: left out" in found.text


@pytest.mark.slow
def test_values_that_no_edit_gives_are_not_explained() -> None:
    examined, port = values_of(GATED)
    rng = np.random.default_rng(0)
    examined.port = {name: value + 1e-6 * rng.standard_normal(value.shape) for name, value in port.items()}
    assert explain(examined) is None


def test_program_knows_who_reads_what() -> None:
    examined, _ = values_of(GATED)
    program = LayerSubject(examined).program
    assert [operation.name for operation in program.operations] == [
        *("entry", "tanh", "sigmoid", "mul", "cos", "mul", "add", "unit"),
    ]
    readers = program.readers[Value(("tanh", 0))]
    assert [(reader.key, path) for reader, path in readers] == [(("mul", 0), ("input",))]
    assert len(program.frontier()) == len(program.operations)  # nothing is known of the port's code


def test_what_the_port_computes_too_is_behind_the_frontier() -> None:
    examined, _ = values_of(GATED)
    program = LayerSubject(examined).program
    next(operation for operation in program.operations if operation.name == "tanh").known = True
    names = [operation.key for operation in program.frontier()]
    assert ("tanh", 0) not in names
    assert ("sigmoid", 0) in names


def test_edits_with_the_same_effect_are_one_and_others_are_rivals() -> None:
    def right(s: Any, x: torch.Tensor) -> torch.Tensor:
        return (x.square() + 1.0).sin() * 3.0

    def wrong(s: Any, x: torch.Tensor) -> torch.Tensor:
        return (x.square() + 1.0).tan() * 3.0

    found = explained(fault("", unit(right), doing(wrong), TOKENS))
    assert found is not None
    assert "`tan` in place of `sin`" in found.text
    assert "rivals" not in found.evidence


def _smoothed(reduced: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., torch.Tensor]:
    def loss(x: torch.Tensor) -> torch.Tensor:
        logits = x / 0.7
        logs = torch.log_softmax(logits, -1)
        likelihood = (0.9 * logs[..., 0] + 0.1 * reduced(logs)).mean()
        return 1e-2 * torch.logsumexp(logits, -1).pow(2).mean() - likelihood

    return loss


def test_a_factor_behind_the_logits_is_no_temperature() -> None:
    mean, total = (_smoothed(lambda logs, name=name: getattr(logs, name)(-1)) for name in ("mean", "sum"))
    found = explained(fault("", unit(lambda s, *given: mean(*given)), doing(lambda s, *given: total(*given)), (4, 5)))
    assert found is not None
    assert found.id != "loss_temperature"


def _shuffled(s: Any, x: torch.Tensor) -> torch.Tensor:
    return x.reshape(2, 2, 3, 5).transpose(1, 2).reshape(2, 6, 5) * x


def _not_shuffled(s: Any, x: torch.Tensor) -> torch.Tensor:
    return x.reshape(2, 2, 3, 5).reshape(2, 6, 5) * x


def test_channels_that_are_not_shuffled_are_no_heads() -> None:
    found = explained(fault("", unit(_shuffled), doing(_not_shuffled), (2, 6, 5)))
    assert found is not None
    assert found.id != "grouped_heads"


def _part(begin: int, end: int | None) -> Callable[..., torch.Tensor]:
    return lambda s, x: s.child(x)[..., begin:end].sin()


@pytest.mark.parametrize(("steps", "found"), [(False, "qkv_order"), (True, "slice_shifted")])
def test_an_order_that_the_port_is_seen_not_to_have_gives_way_to_another_cause(steps: bool, found: str) -> None:
    """The last two thirds are the first two of thirds in another order, too."""
    parts = unit(_part(0, 6), child=nn.Linear(6, 9))
    examined, _ = values_of(fault("", parts, doing(_part(3, None)), TOKENS, forced=["child"]))
    if steps:
        examined.steps = [{"print": print_of(examined.inputs[0]), "source": ""}]  # type: ignore[attr-defined]
    explanation = explain(examined)
    assert explanation is not None
    assert explanation.id == found


def _call(name: str, *given: torch.Tensor, **arguments: Any) -> FunctionCall:
    operands = dict(zip(("input", "other"), given, strict=False))
    return FunctionCall((name, 0), {**operands, **arguments}, lambda changed: None, torch, lambda tensor: None)


def test_another_function_gets_the_arguments_that_it_takes_and_no_others():
    x = torch.linspace(-2.0, 2.0, 5)
    assert torch.equal(called("relu")(_call("softplus", x, beta=2.0, threshold=20.0)), x.clamp(min=0.0))
    assert torch.equal(called("sub")(_call("add", x, x.square(), alpha=3)), x - 3 * x.square())
    assert torch.equal(called("amax")(_call("std", x.reshape(1, 5), dim=1, unbiased=False)), torch.tensor([2.0]))


def _refined(wrong: bool) -> Callable[..., torch.Tensor]:
    """Thirty rounds of a gated update, whose first step the port may write otherwise; each line is one step."""

    def rounds(s: Any, x: torch.Tensor) -> torch.Tensor:
        hidden = x
        for _ in range(30):
            angle = hidden + x
            turned = angle.tan() if wrong else angle.sin()
            bent = turned.tanh()
            squared = bent.square()
            gate = squared.sigmoid()
            shared = gate * bent
            doubled = shared + squared
            smooth = doubled.cos()
            hidden = smooth - hidden
        return hidden

    return rounds


def _with_known_angle(examined: Any) -> Any:
    """The port is seen to compute the first sum as the reference does."""
    x = examined.inputs[0]
    examined.steps = [{"print": print_of(2.0 * x), "source": ""}]
    return examined


def test_in_a_long_program_what_stands_where_the_ports_values_end_is_tried_first() -> None:
    examined = _with_known_angle(values_of(fault("", unit(_refined(False)), doing(_refined(True)), TOKENS))[0])
    program = LayerSubject(examined).program
    names = [operation.name for operation in program.near()]
    assert program.is_long
    assert set(names) == {"entry", "sin", "tanh", "square", "sigmoid"}
    assert names.count("sin") == 30
    edits = list(edits_of(program, backward=False))
    near = {operation.key for operation in program.near()}
    are_near = [not near.isdisjoint(edit.changes) for edit in edits]
    assert are_near.index(False) > 100
    assert len(edits) > 2 * are_near.index(False)


def test_a_named_cause_is_tried_first_where_the_ports_values_end() -> None:
    wrong = _with_known_angle(values_of(fault("", unit(_refined(False)), doing(_refined(True)), TOKENS))[0])
    examined = examined_unit(wrong)
    assert examined is not None
    near = {operation.key for operation in LayerSubject(wrong).program.near()}
    named = [variant for _, variant in examined.candidates(lambda cause: not cause.alone)]
    are_near = [not near.isdisjoint(one.changes) for one in named if isinstance(one, CallVariant)]
    assert sum(are_near) < len(are_near)
    assert are_near == sorted(are_near, reverse=True)


def test_the_number_that_a_mask_hides_with_may_be_the_least_there_is() -> None:
    def hidden(s: Any, x: torch.Tensor) -> torch.Tensor:
        masked = x.sin().masked_fill(x > 0, torch.finfo(x.dtype).min)
        return torch.softmax(masked, -1) * 3.0

    examined, _ = values_of(fault("", unit(hidden), doing(hidden), TOKENS))
    details = [edit.detail for edit in edits_of(LayerSubject(examined).program, False)]
    assert any("masked_fill" in detail for detail in details)
